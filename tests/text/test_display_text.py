"""Passages as displayed: no markup of any dialect, complete or cut, and correct sentence positions."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.snippets import build_snippet
from tests.support.tiers import limit_examples
from tests.text.markdown_samples import MALFORMED_TEXTS, get_token_spans, markdown_texts, parse_text
from tests.text.wiki_dialects import DIALECT_PAGE, MARKUP_PATTERN
from wikiholt.text.chunks import build_chunks
from wikiholt.text.display_text import DisplayText, to_display_text
from wikiholt.text.keyword_query import parse_query


def get_sentences(found: DisplayText) -> list[str]:
    return [found.text[span.start : span.end] for span in found.sentences]


def check_display_text(found: DisplayText) -> None:
    assert found.text == " ".join(found.text.split())
    before = 0
    for span in found.sentences:
        assert before <= span.start < span.end <= len(found.text)
        assert found.text[span.start : span.end].strip() == found.text[span.start : span.end]
        before = span.end


def test_no_passage_of_a_page_in_every_dialect_shows_markup() -> None:
    page = parse_text(DIALECT_PAGE)
    words = ("greenhouse", "pump tank", "storm roof", "traps", "")
    for target in (100, 130, 160, 200, 250):
        for piece in build_chunks(page, get_token_spans, target_tokens=target, overlap_tokens=target // 4):
            for word in words:
                shown = build_snippet(piece.text, parse_query(word)).text
                assert not MARKUP_PATTERN.search(shown), (target, piece.text, shown)


def test_no_visible_text_is_lost() -> None:
    shown = to_display_text(parse_text(DIALECT_PAGE).body).text
    for seen in (
        "The greenhouse stands behind the tool shed, and its key hangs on the hook by the door.",
        "See also Watering, Seeds and the plan.",
        'Before you open it The door sticks when it is wet; push hard gently, H&S says "never kick it".',
        "Air the seedlings every morning, unless it is below five degrees.",
        "The lamps are on from six to nine. Nobody else may turn them off.",
        "Plant · Sown · Planted out; Tomato · March · May, after the frost; Leek early · February · April or later.",
        "What to do in a storm Close the roof vents first. Then weigh the covers down with bricks.",
        "Cold nights Cover the rows with fleece, and open it again before noon.",
        "pump --start --minutes 15 pump --status",
        "The level() of the tank falls by about frac 110 a day; below h_min the pump stops.",
        "Order peat-free soil · Repair the third pane, broken pane and clean the gutter · Take the ladder",
        "Ask somebody to hold it — always · Setext heading: Slugs come at night.",
        "Beer traps work, copper tape works better.",
        "trap: beer depth: 4 cm · The plan is from the year the roof was new.",
    ):
        assert seen in shown


@pytest.mark.parametrize(
    ("fragment", "shown"),
    [
        ("of the pump.\n```\n\nThen **open** it.\n\n```bash\npump", "of the pump. Then open it. pump"),
        ("of the pump.\n```\n\nThen **open** it.\n\n```\npump\n```\n\nEnd.", "of the pump. Then open it. pump · End."),
        ("the end of a note -->\n\nShown.", "Shown."),
        ("Shown. <!-- the beginning of a note", "Shown."),
        ('style="color: red">Red</span> text', "Red text"),
        ("A word and <span class=", "A word and"),
        ("the shed](sheds.md) and [the barn](barns", "the shed and the barn"),
        ('text="seedlings" >}} grow', "grow"),
        ("**{{fm.title}}** renames a note. __{{x}}__", "renames a note."),
        ("They grow. {{< note", "They grow."),
        ("| Leek | Feb", "Leek · Feb"),
        ("A --> B is an arrow", "A --> B is an arrow"),
        ("use `{{ value }}` and `**` there", "use {{ value }} and ** there"),
        ("costs $5 or $6, 2 * 3 * 4, a_b_c, x | y", "costs $5 or $6, 2 * 3 * 4, a_b_c, x · y"),
        ("&lt;b&gt; is a tag", "<b> is a tag"),
        ("\U000f0000 `code` \U000f0001", "code"),
    ],
)
def test_a_fragment_shows_no_incomplete_markup(fragment: str, shown: str) -> None:
    assert to_display_text(fragment).text == shown


def test_items_rows_paragraphs_and_code_are_separate_sentences() -> None:
    found = to_display_text(
        "## Watering\n\nWater in the morning. E.g. before\nbreakfast. Never at noon, when it is hot.\n\n"
        "- the tomatoes get two cans\n- the leeks get one can,\n  and no more\n\n"
        "| Day | Who |\n|--|--|\n| every Monday | Ingrid and Paul |\n\n```\nif dry:\n    water()\n```\n"
    )
    assert get_sentences(found) == [
        "Water in the morning.",
        "E.g. before breakfast.",
        "Never at noon, when it is hot.",
        "the tomatoes get two cans",
        "the leeks get one can, and no more",
        "Day · Who",
        "every Monday · Ingrid and Paul",
        "if dry: water()",
    ]
    assert found.text.startswith("Watering: Water in")
    assert "Day · Who; every Monday" in found.text
    assert get_sentences(to_display_text("# Only a heading")) == ["Only a heading"]
    assert get_sentences(to_display_text("庭の土を耕す。水は朝にやる。短い。")) == [
        "庭の土を耕す。",
        "水は朝にやる。短い。",
    ]
    assert to_display_text("") == DisplayText("", ())


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("Bring:\n- a signed form\n- the weight (in kg)\n  1. of today\n  2. 50 %\n- Done.\n* Go!\n\nThat is all",
         "Bring: a signed form · the weight (in kg) · of today · 50 % · Done. Go! That is all"),
        ("A lease\n\nNo “pets.”\n\nAsk", "A lease · No “pets.” Ask"),
        ("every 12 h\n\n> No penicillin\nat all\n> ever\n\nElse\n> ask",
         "every 12 h · No penicillin at all ever · Else · ask"),
        ("Doses\n\n| Drug | Dose |\n|--|--|\n| A | – |\n| B | 2 (iv) |\n\nAsk",
         "Doses. Drug · Dose; A · –; B · 2 (iv). Ask"),
        ("Run\n```\nx = first(second, third, fourth, fifth, sixth, seventh, eighth)\ny = x\n```\nthen wait",
         "Run · x = first(second, third, fourth, fifth, sixth, seventh, eighth) y = x · then wait"),
        ("## Prices (2024)\n\nLow\n\n## Why?\n\nCosts", "Prices (2024): Low · Why? Costs"),
        ("水は朝にやる。\n\n短い\n\n庭", "水は朝にやる。 短い · 庭"),
    ],
)  # fmt: skip
def test_blocks_have_one_mark_between_them_that_is_part_of_no_sentence(markdown: str, shown: str) -> None:
    found = to_display_text(markdown)
    assert found.text == shown
    assert not any(sentence.endswith(("·", ";", "(iv).")) for sentence in get_sentences(found))


@given(markdown_texts)
@settings(max_examples=limit_examples(30))
def test_sentences_of_any_text_are_inside_it(text: str) -> None:
    check_display_text(to_display_text(text))


@pytest.mark.parametrize("name", MALFORMED_TEXTS)
def test_malformed_texts_can_be_read(name: str) -> None:
    check_display_text(to_display_text(MALFORMED_TEXTS[name]))


_MARKS = "{{ }} {% %} <!-- --> $$ \\begin{ [[ ]] ]( ` ``` | <script> %% {{< >}} word </style> == #} ="
_mark = st.sampled_from([*_MARKS.split(), "\n", "```\n"])


@given(st.lists(_mark, max_size=30).map(" ".join), st.sampled_from(["", "\n\n"]))
def test_marks_in_any_order_are_read_to_their_end(text: str, gap: str) -> None:
    found = to_display_text(f"{text}{gap}")
    check_display_text(found)
    assert not re.search(r"\{\{|\}\}", to_display_text(text.replace("`", "")).text)


@pytest.mark.parametrize(
    "piece", [*_MARKS.split(), "{{a}}", "-->\n", "<style>x</style>", "[a](", "<a b=", "$a ", 'a="']
)
def test_reading_takes_a_time_in_proportion_to_the_text(piece: str) -> None:
    # Quadratic time would take minutes here.
    check_display_text(to_display_text(piece * 20_000))
