"""Snippets: plain text around the best match, within the requested length, with the matched words marked."""

import re
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.snippets import build_snippet
from tests.support.tiers import limit_examples
from tests.text.markdown_samples import MALFORMED_TEXTS, markdown_texts
from wikiholt.domain.search import Snippet
from wikiholt.text.keyword_query import parse_query
from wikiholt.text.model_text import to_plain_text
from wikiholt.text.snippets import QueryMatcher, SnippetBuilder

FILLER = "Lorem ipsum dolor sit amet consectetur. " * 12


def get_marked(found: Snippet) -> list[str]:
    return [found.text[span.start : span.end] for span in found.matches]


def check_snippet(found: Snippet, length: int) -> None:
    assert len(found.text) <= length + 2
    assert "\n" not in found.text
    assert "  " not in found.text
    found.text.encode("utf-8")
    before = 0
    for span in found.matches:
        assert before <= span.start < span.end <= len(found.text)
        before = span.end


@given(markdown_texts, st.text(max_size=20), st.integers(1, 200))
def test_any_text_and_query_give_a_valid_snippet(text: str, query: str, length: int) -> None:
    check_snippet(build_snippet(text, parse_query(query), length=length), length)


@given(markdown_texts)
@example("><a")
def test_a_word_of_the_text_is_shown_and_marked(text: str) -> None:
    found = build_snippet(f"{text}\n\nzebra {text}", parse_query("zebras "))
    check_snippet(found, 150)
    assert get_marked(found) == ["zebra"]


@pytest.mark.parametrize("name", MALFORMED_TEXTS)
def test_malformed_texts_give_snippets(name: str) -> None:
    check_snippet(build_snippet(MALFORMED_TEXTS[name], parse_query("word a b 漢字")), 150)
    check_snippet(build_snippet(MALFORMED_TEXTS[name], parse_query("")), 150)


def test_the_best_match_is_shown_with_its_words_marked() -> None:
    found = build_snippet(
        f"{FILLER} A run alone. {FILLER} The runs were fast today. {FILLER}", parse_query("running fast")
    )
    assert get_marked(found) == ["runs", "fast"]
    assert found.text.startswith("…")
    assert found.text.endswith("…")
    assert 100 < len(found.text) <= 152


def test_without_a_match_it_is_the_beginning() -> None:
    found = build_snippet(f"# Title\n\nFirst words. {FILLER}", parse_query("absent"))
    assert found.text.startswith("Title: First words. Lorem")
    assert found.text.endswith("…")
    assert found.matches == ()
    assert build_snippet("short", parse_query("absent")).text == "short"


def test_function_words_are_not_marked_unless_the_query_has_no_other_words() -> None:
    text = "The keys of the house are at the theatre"
    assert get_marked(build_snippet(text, parse_query('"keys of the house"'))) == ["keys", "house"]
    assert get_marked(build_snippet(text, parse_query("house the"))) == ["house"]
    assert get_marked(build_snippet(text, parse_query("keys thea"))) == ["keys", "theatre"]
    assert get_marked(build_snippet("They are there.", parse_query("keys the"))) == []
    assert get_marked(build_snippet("To be or not", parse_query('"to be"'))) == ["To", "be"]


def test_of_a_compound_word_only_the_words_that_match_are_marked() -> None:
    matcher = QueryMatcher(parse_query("user tube "), "english")
    for text, expected in [
        ("getUser", "User"),
        ("fs.get_users", "users"),
        ("user-made", "user"),
        ("the user's", "user's"),
        ("statues", ""),
        ("a Tube", "Tube"),
    ]:
        assert "".join(text[start:end] for start, end, _ in matcher.find(text)) == expected
    matcher = QueryMatcher(parse_query("getUser "), "english")
    assert [(start, end) for start, end, _ in matcher.find("a getUser")] == [(2, 9)]


def test_matches_of_a_name_are_ranges_of_it() -> None:
    matcher = QueryMatcher(parse_query("key to the east-wing "), "english")
    spans = SnippetBuilder(matcher).find_spans("Keys of the east wing")
    assert [(span.start, span.end) for span in spans] == [(0, 4), (12, 16), (17, 21)]
    assert SnippetBuilder(QueryMatcher(parse_query(""), "english")).find_spans("Keys") == ()


def test_typed_beginnings_phrases_and_cjk_are_marked() -> None:
    assert get_marked(build_snippet("We use Kubernetes here", parse_query("kuber"))) == ["Kubernetes"]
    assert get_marked(build_snippet("At the universities", parse_query("universi"))) == ["universities"]
    assert get_marked(build_snippet("An exact phrase", parse_query('"exact phrases"'))) == ["exact", "phrase"]
    assert get_marked(build_snippet("黒猫は東京都に住む", parse_query("東京都"))) == ["東京都"]
    assert get_marked(build_snippet("黒猫は住む", parse_query("猫"))) == ["猫"]
    assert get_marked(build_snippet("call kubectl_apply now", parse_query("kubectl "))) == ["kubectl"]
    assert get_marked(build_snippet("Le café noir", parse_query("CAFE "))) == ["café"]


def get_sentence(found: Snippet) -> str:
    return "" if found.sentence is None else found.text[found.sentence.start : found.sentence.end]


def make_scorer(words: str) -> Callable[[Sequence[str]], Sequence[float]]:
    """A fake model: the sentence that contains these words is the closest."""
    return lambda sentences: [float(words in sentence) for sentence in sentences]


def test_without_a_match_the_window_begins_with_the_closest_sentence() -> None:
    text = f"{FILLER}The pump is in the cellar. {FILLER}"
    found = build_snippet(text, parse_query("absent"), sentence_scorer=make_scorer("pump"))
    assert found.text.startswith("…The pump is in the cellar. Lorem")
    assert (get_sentence(found), found.matches) == ("The pump is in the cellar.", ())
    assert get_sentence(build_snippet(text, parse_query("absent"))) == ""
    at_the_end = build_snippet(
        f"{FILLER}The pump is in the cellar.", parse_query(""), sentence_scorer=make_scorer("pump")
    )
    assert (get_sentence(at_the_end), len(at_the_end.text) > 100) == ("The pump is in the cellar.", True)


def test_words_and_the_closest_sentence_are_both_shown_where_they_are_near() -> None:
    text = f"{FILLER}The pump is in the cellar, behind it. Ask Ingrid for the key of the door. {FILLER}"
    found = build_snippet(text, parse_query("Ingrid"), sentence_scorer=make_scorer("pump"))
    assert (get_marked(found), get_sentence(found)) == (["Ingrid"], "The pump is in the cellar, behind it.")
    behind = build_snippet(text, parse_query("pump"), sentence_scorer=make_scorer("Ingrid"))
    assert (get_marked(behind), get_sentence(behind)) == (["pump"], "Ask Ingrid for the key of the door.")


def test_a_distant_sentence_is_shown_if_it_has_half_of_the_words() -> None:
    text = f"The old pump leaks a little. {FILLER}Pumps need filters and oil. {FILLER}"
    assert get_marked(
        build_snippet(text, parse_query("pump filters oil"), sentence_scorer=make_scorer("old pump"))
    ) == [
        "Pumps",
        "filters",
        "oil",
    ]
    chosen = build_snippet(text, parse_query("pump oil"), sentence_scorer=make_scorer("old pump"))
    assert (get_marked(chosen), get_sentence(chosen)) == (["pump"], "The old pump leaks a little.")


def test_words_of_the_titles_count_only_without_other_words() -> None:
    table = f"| Supplier | Delivery |\n|--|--|\n| Covetrus | {FILLER} |\n| Air Liquide | oxygen |\n| Reuter | linen |"
    builder = SnippetBuilder(QueryMatcher(parse_query("oxygen supplier"), "english"), make_scorer("Supplier ·"))
    (shown,) = builder.build([table], [150], [("Supplier list", "Orders")])
    assert (get_marked(shown), get_sentence(shown)) == (["oxygen"], "Air Liquide · oxygen")
    (without_titles,) = builder.build([table], [150])
    assert get_sentence(without_titles) == "Supplier · Delivery"
    (only_titles,) = builder.build([table], [150], [("Supplier list", "Oxygen")])
    assert only_titles == without_titles


def test_the_visible_part_of_a_long_sentence_is_reported() -> None:
    found = build_snippet(
        f"It {'goes on and ' * 40}ends. {FILLER}", parse_query("ends"), sentence_scorer=make_scorer("goes on")
    )
    assert get_marked(found) == ["ends"]
    assert get_sentence(found).endswith("goes on and ends.")
    assert found.text.startswith("…")
    assert found.text[1:].startswith(get_sentence(found))


def test_without_a_model_matched_words_select_the_sentence() -> None:
    text = "Tea is kept upstairs. Black coffee and milk are here. Milk is also in the cellar."
    assert get_sentence(build_snippet(text, parse_query("milk coffee"))) == "Black coffee and milk are here."
    assert get_sentence(build_snippet(text, parse_query("juice"))) == ""
    assert (
        get_sentence(build_snippet("黒猫は東京都に住む。白い犬は大阪に住んでいる。", parse_query("大阪")))
        == "白い犬は大阪に住んでいる。"
    )


@given(markdown_texts, st.text(max_size=20), st.integers(1, 200), st.integers(0, 5))
@settings(max_examples=limit_examples(40))
def test_the_closest_sentence_is_inside_any_snippet(text: str, query: str, length: int, at: int) -> None:
    found = build_snippet(
        text,
        parse_query(query),
        length=length,
        sentence_scorer=lambda all_: [float(n % 6 == at) for n, _ in enumerate(all_)],
    )
    check_snippet(found, length)
    if found.sentence is not None:
        assert 0 <= found.sentence.start < found.sentence.end <= len(found.text)
        assert get_sentence(found).strip() == get_sentence(found)


WITH_MARKS = {
    "Head quote more item one": "Head: quote more · item · one",
    "a b c d": "a · b; c · d",
    "run **this** <x> after": "run **this** <x> · after",
    "end of code text": "end of code · text",
    "Title text more": "Title: text · more",
    "a <b zebra > c": "a <b · zebra > c",
}
"""Plain text → the same as it is displayed: blocks and cells have marks between them."""


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**bold** _it_ ~~gone~~ `code` a_b_c 2 * 3", "bold it gone code a_b_c 2 * 3"),
        ("[text](http://x.y/z_(1)) ![alt](i.png) <b>tag</b>", "text alt tag"),
        ("[[Page]] and [[Shown|/there]]", "Page and Shown"),
        ("# Head #\n\n> quote\n> more\n\n- [x] item\n1. one", "Head quote more item one"),
        ("| a | b |\n|:--|--:|\n| c | `d` |", "a b c d"),
        ("```bash\nrun **this** <x>\n```\nafter", "run **this** <x> after"),
        ("end of code\n```\n\ntext", "end of code text"),
        ("<!-- secret -->shown", "shown"),
        ("Title\n=====\n\ntext\n\n---\n\nmore", "Title text more"),
        ("[ref]: http://x\nsee [this][ref][^1]", "see this"),
        ("a &amp; b &lt;c&gt; \\*star\\*", "a & b <c> *star*"),
        ("half a link](http://x) and **half bold", "half a link and half bold"),
        ("> [!NOTE]\n> mind", "mind"),
        ("a <b\n\nzebra > c", "a <b zebra > c"),
        ("<b\nclass=x>bold</b>", "bold"),
        ("[![badge](b.svg)](http://t) x", "badge x"),
        ("see [`kubectl apply`](/docs/apply), [**the** `x`][ref] and ![`i`](i.png)", "see kubectl apply, the x and i"),
        ("**`x`** and _`y`_, `**z**` and <b>`<b>`</b>", "x and y, **z** and <b>"),
        ("a List<`T`> <!-- `gone` -->stays", "a List<T> stays"),
    ],
)
def test_markup_becomes_plain_text(text: str, plain: str) -> None:
    assert " ".join(to_plain_text(text).split()) == plain
    assert build_snippet(text, parse_query("")).text == WITH_MARKS.get(plain, plain)


def test_a_page_cannot_contain_the_placeholder_for_code() -> None:
    assert to_plain_text("`c`\x000\x00 `e`").split() == ["c", "0", "e"]


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("```\n\nThen **bold** follows.", "Then bold follows."),
        ("    width: 2em;\n}\n```\n\nThen `code` and **bold**.", "    width: 2em;\n}\nThen code and bold."),
        ("last_line()\n```\n", "last_line()"),
        ("Before **bold**.\n\n```css\nwidth: **not bold**;", "Before bold.\nwidth: **not bold**;"),
        ("Before **bold**.\n\n```\nx = **y\n```\n\nAfter **bold**.", "Before bold.\nx = **y\nAfter bold."),
    ],
)
def test_a_fragment_cut_out_of_a_code_block_is_read_as_one(fragment: str, expected: str) -> None:
    assert to_plain_text(fragment) == expected
    shown = build_snippet(fragment, parse_query("")).text
    assert shown.replace(" ·", "").split() == expected.split()


def test_no_separator_is_beside_an_ellipsis() -> None:
    text = "\n".join(f"- item {number}" for number in range(20, 60))
    for length in range(12, 60):
        shown = build_snippet(text, parse_query("40"), length=length).text
        assert "40" in shown
        assert not re.search("…·|… ·|·…|· …", shown)


def test_no_word_is_cut() -> None:
    text = (
        "Options include the following settings for switched ports and for traffic of the other kinds of ports that "
        "exist here. Access: All traffic is assigned to a single VLAN, without tagging of any sort in the frames."
    )
    for query, closest in product(("switched traffic", "vlan tagging", "options frames"), ("Access", "Options")):

        def score(sentences: Sequence[str], wanted: str = closest) -> list[float]:
            return [float(wanted in sentence) for sentence in sentences]

        for length in range(30, 190):
            found = build_snippet(text, parse_query(query), length=length, sentence_scorer=score)
            assert set(re.findall(r"\w+", found.text)) <= set(re.findall(r"\w+", text)), (query, length)
