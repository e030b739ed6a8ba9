"""Chunks: no text lost, none over the window, overlap where specified, deterministic."""

import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.tiers import choose, limit_examples
from tests.text.markdown_samples import MALFORMED_TEXTS, get_token_spans, markdown_texts, parse_text
from wikiholt.domain.page import Chunk, Page
from wikiholt.models.model_files import ModelFiles, find_model
from wikiholt.models.tokenizer import ModelTokenizer
from wikiholt.text.chunks import build_chunks, chunk_page
from wikiholt.text.model_text import build_embedding_text
from wikiholt.text.segmentation import TokenCounter, TokenSpans

MAX_TOKENS = 254


LONGEST_WORDS = {"wikiholt-1": 1_500, "bge-small-en-v1.5": 1_000}
"""For each model, the maximum number of letters of one word in a chunk; granite has tokens of eight equal letters."""
EXTRA_TOKENS = {"wikiholt-1": 3, "bge-small-en-v1.5": 0}
"""By how much a chunk may exceed its target. In granite's vocabulary the space is a part of the word after it: the
first word of a chunk has lost it, and then needs more tokens than in the page."""


@pytest.fixture(scope="module", params=LONGEST_WORDS)
def real_model(request: pytest.FixtureRequest) -> str:
    """Built-in models: one with tokens of bytes, where several may share a character, and one with tokens of words."""
    return str(request.param)


@pytest.fixture(scope="module")
def real_spans(real_model: str) -> TokenSpans:
    directory, card = find_model(real_model)
    data = ModelFiles(directory, card).read_verified(card.tokenizer)
    return ModelTokenizer(data, card).get_token_spans


def check_chunks(page: Page, chunks: tuple[Chunk, ...], spans: TokenSpans, target: int) -> None:
    """Check the properties of the chunks of any page."""
    lines = page.body.split("\n")
    covered = bytearray(len(page.body))
    for index, piece in enumerate(chunks):
        assert piece.index == index
        assert piece.text == page.body[piece.start : piece.end]
        assert piece.text.strip()
        assert len(spans(piece.text)) <= target
        covered[piece.start : piece.end] = b"\1" * (piece.end - piece.start)
        first, last = lines[piece.first_line - page.body_line], lines[piece.last_line - page.body_line]
        assert piece.text.split("\n")[0] in first
        assert piece.text.split("\n")[-1] in last
    assert all(held or char.isspace() for held, char in zip(covered, page.body, strict=True))
    for before, after in pairwise(chunks):
        assert after.end > before.end
        assert after.start > before.start
        assert after.overlap == max(before.end - after.start, 0)
        if after.overlap:
            assert after.heading_path == before.heading_path
            assert page.body[after.start : before.end] == after.text[: after.overlap]


@given(markdown_texts, st.sampled_from([8, 30, 200]), st.sampled_from([0, 5, 50]))
def test_no_text_is_lost_and_no_chunk_is_over_its_target(text: str, target: int, overlap: int) -> None:
    page = parse_text(text)
    chunks = build_chunks(page, get_token_spans, target_tokens=target, overlap_tokens=overlap)
    check_chunks(page, chunks, get_token_spans, target)
    assert bool(chunks) is bool(page.body.strip())
    assert chunks == build_chunks(page, get_token_spans, target_tokens=target, overlap_tokens=overlap)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\r\t#`|-"), max_size=300))
def test_any_text_is_accepted(text: str) -> None:
    page = parse_text(text)
    check_chunks(page, build_chunks(page, get_token_spans, target_tokens=10, overlap_tokens=3), get_token_spans, 10)
    assert isinstance(chunk_page(text), list)


@pytest.mark.parametrize("name", MALFORMED_TEXTS)
def test_malformed_texts_fit_the_real_window(name: str, real_model: str, real_spans: TokenSpans) -> None:
    page = parse_text(f"---\ntitle: {'A long title, ' * 9}\n---\n{MALFORMED_TEXTS[name]}")
    chunks = build_chunks(page, real_spans)
    check_chunks(page, chunks, real_spans, 200 + EXTRA_TOKENS[real_model])
    for piece in chunks:
        text = build_embedding_text(page, piece, real_spans, MAX_TOKENS)
        assert text.strip()
        assert len(real_spans(text)) <= MAX_TOKENS
        assert len(piece.text) < (LONGEST_WORDS[real_model] if "word" in name else 30_000)


long_words = st.lists(
    st.tuples(
        st.sampled_from(["x", "aB3/", "漢", "かな", "ไท", "é", "👩‍👧", "-", "_a", "\u200b", "ß"]),
        st.integers(1, 300),
        st.sampled_from([" ", "", "\n\n"]),
    ),
    max_size=5,
).map(lambda parts: "".join(unit * count + gap for unit, count, gap in parts))


@settings(max_examples=limit_examples(60))
@given(text=long_words)
@example(text="x" * 157 + "ไท" * 4 + " ")
def test_very_long_words_never_exceed_the_target(text: str, real_model: str, real_spans: TokenSpans) -> None:
    page = parse_text(text)
    chunks = build_chunks(page, real_spans, target_tokens=16, overlap_tokens=4)
    check_chunks(page, chunks, real_spans, 16 + EXTRA_TOKENS[real_model])


@settings(max_examples=limit_examples(40))
@given(text=markdown_texts)
def test_what_is_embedded_fits_the_real_window(text: str, real_model: str, real_spans: TokenSpans) -> None:
    page = parse_text("# Name of the page\n\n" + text)
    chunks = build_chunks(page, real_spans, target_tokens=40, overlap_tokens=10)
    check_chunks(page, chunks, real_spans, 40 + EXTRA_TOKENS[real_model])
    for piece in chunks:
        for window in (40, 60):
            embedded = build_embedding_text(page, piece, real_spans, window)
            assert embedded.strip()
            assert len(real_spans(embedded)) <= window


def make_sentences(count: int, topic: str) -> str:
    return " ".join(f"Sentence {n} is about {topic} and nothing else." for n in range(count))


def test_a_short_page_is_one_chunk_and_a_blank_one_none() -> None:
    page = parse_text("# Title\n\nText.\n\n## Sub\n\nMore.\n")
    assert [(c.text, c.heading_path, c.anchor) for c in build_chunks(page, get_token_spans)] == [
        (page.body.strip(), ("Title",), "title")
    ]
    assert build_chunks(parse_text("\n \n\t\n"), get_token_spans) == ()


@pytest.mark.parametrize(
    ("text", "path", "anchor"),
    [
        ("# Backups\n\n## Nightly\n\nAt two.\n\n## Restore\n\nAsk Ann.\n", ("Backups",), "backups"),
        ("# Backups\n\n## Disks\n\n### A\n\nOne.\n\n### B\n\nTwo.\n", ("Backups", "Disks"), "disks"),
        ("# Backups\n\n## Nightly\n\nAt two.\n", ("Backups", "Nightly"), "nightly"),
        ("## Nightly\n\nAt two.\n\n## Restore\n\nAsk Ann.\n", (), ""),
    ],
)
def test_a_short_page_is_cited_at_the_heading_above_all_its_text(text: str, path: tuple[str, ...], anchor: str) -> None:
    (chunk,) = build_chunks(parse_text(text), get_token_spans)
    assert (chunk.heading_path, chunk.anchor) == (path, anchor)


def test_sections_start_chunks_and_keep_their_headings() -> None:
    text = f"---\ntags: a\n---\nIntro.\n\n# One\n\n{make_sentences(30, 'one')}\n\n"
    text += f"## Deep\n\n{make_sentences(3, 'deep')}\n\n# Two\n\nEnd."
    chunks = build_chunks(parse_text(text), get_token_spans)
    assert chunks[0].text == "Intro."
    assert chunks[0].heading_path == ()
    assert chunks[0].first_line == 4
    assert chunks[1].text.startswith("# One\n\nSentence 0")
    assert [c.heading_path for c in chunks[-2:]] == [("One", "Deep"), ("Two",)]
    assert [c.anchor for c in chunks[-2:]] == ["deep", "two"]
    assert not any(c.overlap for c in chunks if c.text.startswith("#"))


def test_neighbours_in_a_section_share_their_last_sentences() -> None:
    chunks = build_chunks(parse_text(f"# One\n\n{make_sentences(60, 'one')}"), get_token_spans)
    assert len(chunks) > 2
    for after in chunks[1:]:
        repeated = after.text[: after.overlap]
        assert repeated.startswith("Sentence ")
        assert repeated.endswith(".")
        assert 25 <= len(get_token_spans(repeated)) <= 50


def test_overlap_follows_words_where_a_sentence_is_long_and_never_crosses_a_heading() -> None:
    chunks = build_chunks(parse_text(f"# One\n\n{'word ' * 500}\n\n# Two\n\n{'other ' * 500}"), get_token_spans)
    assert all(c.overlap for c in chunks if not c.text.startswith("#"))
    assert all("word" not in c.text for c in chunks if c.heading_path == ("Two",))


def test_overlap_leaves_the_heading_out() -> None:
    code = "```\n" + "x = 1\n" * 63 + "```"
    first, second = build_chunks(parse_text(f"# One two three four five\n\nShort start.\n\n{code}"), get_token_spans)
    assert first.text == "# One two three four five\n\nShort start."
    assert second.text == f"Short start.\n\n{code}"
    assert second.overlap == len("Short start.")


def test_a_long_page_is_counted_the_same_in_stretches() -> None:
    text = "".join(f"Line {n} of a page that is long.\n" for n in range(6_000))
    stretches: list[int] = []

    def spans(part: str) -> Sequence[tuple[int, int]]:
        stretches.append(len(part))
        return get_token_spans(part)

    ruler = TokenCounter(text, spans)
    assert max(stretches) <= 65_536
    assert ruler.count(0, len(text)) == len(get_token_spans(text))
    assert ruler.count(1_000, 150_000) == sum(
        1 for start, end in get_token_spans(text) if start < 150_000 and end > 1_000
    )


def test_paragraphs_that_fit_are_not_split() -> None:
    paragraphs = [make_sentences(8, f"topic {n}") for n in range(10)]
    chunks = build_chunks(parse_text("\n\n".join(paragraphs)), get_token_spans)
    assert all(any(paragraph in c.text for c in chunks) for paragraph in paragraphs)


def test_code_and_tables_are_not_split_where_they_fit() -> None:
    code = "```\n" + "x = 1\n" * 45 + "```"
    table = "| a | b |\n|---|---|\n" + "| x | y |\n" * 25
    page = parse_text(
        f"# One\n\n{make_sentences(15, 'one')}\n\n{code}\n\n{make_sentences(15, 'two')}\n\n{table}\n\nEnd."
    )
    chunks = build_chunks(page, get_token_spans)
    assert len(chunks) > 3
    for whole in (code, table.strip()):
        assert any(whole in c.text for c in chunks)


def test_wrapped_items_of_a_list_are_cut_between_items_or_sentences() -> None:
    items = [
        f"- Item {n} begins a sentence that goes on\n  over the end of its line, and\n  ends here. Then it has\n  one."
        for n in range(40)
    ]
    nested = "- Outer item\n" + "\n".join(f"  {item}".replace("\n", "\n  ") for item in items)
    quote = "> It begins a sentence that goes on\n> over the end of its line. Another\n> one follows.\n" * 40
    for text in ("\n".join(items), nested, quote):
        chunks = build_chunks(parse_text(text), get_token_spans)
        assert len(chunks) > 3
        assert all(c.text.lstrip(">- ").startswith(("Item", "Then", "Outer", "It ", "Another")) for c in chunks)
        assert all(c.text.endswith(("here.", "one.", "line.", "follows.")) for c in chunks)


def test_a_table_is_cut_between_rows_and_a_row_only_if_it_is_too_long() -> None:
    table = "| a | b |\n|---|---|\n" + "| The first. It has more. | The second. And more. |\n" * 60
    chunks = build_chunks(parse_text(table), get_token_spans)
    assert len(chunks) > 3
    assert all(c.text.startswith("| ") and c.text.endswith(" |") for c in chunks)
    row = "| " + make_sentences(80, "x") + " |"
    chunks = build_chunks(parse_text(f"| a |\n|---|\n{row}\n"), get_token_spans)
    assert len(chunks) > 3
    assert all(c.text.startswith(("| a |", "|---|", "| Sentence", "Sentence")) for c in chunks)


def test_chinese_and_japanese_are_cut_at_their_sentence_ends() -> None:
    page = parse_text("これは長い文章の一部です。" * 100)
    chunks = build_chunks(page, lambda text: [(at, at + 1) for at in range(len(text))])
    assert len(chunks) > 5
    assert all(c.text.endswith("。") for c in chunks)
    assert all(c.overlap for c in chunks[1:])


def test_headings_without_text_are_gathered() -> None:
    assert 1 < len(build_chunks(parse_text("# heading\n\n" * 1000), get_token_spans)) < 50
    joined = build_chunks(parse_text(f"# A\n\n## B\n\n{make_sentences(40, 'b')}"), get_token_spans)
    assert joined[0].text.startswith("# A\n\n## B\n\nSentence 0")
    assert joined[0].heading_path == ("A", "B")


def test_headings_and_rules_alone_are_not_a_chunk() -> None:
    chunks = build_chunks(
        parse_text(f"# A\n\n{make_sentences(40, 'a')}\n\n# B\n\n---\n\n# C\n\nText.\n\n# Empty\n\n##\n"),
        get_token_spans,
    )
    assert chunks[-1].text == "# B\n\n---\n\n# C\n\nText.\n\n# Empty\n\n##"
    assert chunks[-1].heading_path == ("C",)
    assert chunks[-1].last_line == 15


def test_an_edit_in_one_section_leaves_the_others_alone() -> None:
    parts = [f"## Part {n}\n\n{make_sentences(30, f'part {n}')}\n\n" for n in range(5)]
    before = {c.text for c in build_chunks(parse_text("".join(parts)), get_token_spans)}
    parts[2] = f"## Part 2\n\nNew text here. {make_sentences(31, 'part 2')}\n\n"
    after = {c.text for c in build_chunks(parse_text("".join(parts)), get_token_spans)}
    assert {text for text in before if "part 2" not in text} <= after


def test_a_rename_changes_nothing_that_is_embedded() -> None:
    for text in (
        f"{make_sentences(50, 'x')}",
        f"# Title\n\n{make_sentences(50, 'x')}",
        f"---\ntitle: T\n---\n{make_sentences(50, 'x')}",
    ):
        old, new = parse_text(text, "old name.md"), parse_text(text, "dir/new name.md")
        assert [
            build_embedding_text(old, c, get_token_spans, MAX_TOKENS) for c in build_chunks(old, get_token_spans)
        ] == [build_embedding_text(new, c, get_token_spans, MAX_TOKENS) for c in build_chunks(new, get_token_spans)]


def test_what_is_embedded_has_name_and_headings_once() -> None:
    page = parse_text(f"---\ntitle: Handbook\n---\n# Handbook\n\nIntro.\n\n## Travel\n\n{make_sentences(40, 'trains')}")
    texts = [build_embedding_text(page, c, get_token_spans, MAX_TOKENS) for c in build_chunks(page, get_token_spans)]
    assert texts[0] == "Handbook\nIntro."
    assert texts[1].startswith("Handbook\nTravel\nSentence 0")
    assert texts[2].startswith("Handbook > Travel\nSentence")


def embed_chunks(text: str) -> list[tuple[Chunk, str]]:
    page = parse_text(text)
    chunks = build_chunks(page, get_token_spans)
    check_chunks(page, chunks, get_token_spans, 200)
    return [(chunk, build_embedding_text(page, chunk, get_token_spans, MAX_TOKENS)) for chunk in chunks]


def test_later_parts_of_a_table_are_embedded_with_its_header() -> None:
    rows = "".join(f"| gate {number} | beta | 1.{number} |\n" for number in range(120))
    before, after = make_sentences(15, "one"), make_sentences(30, "two")
    table = f"| Feature | **Stage** | Since |\n|---|---|---|\n{rows}"
    pieces = embed_chunks(f"# Gates\n\n## List\n\n{before}\n\n{table}\n{after}\n")
    inside = [(chunk, text) for chunk, text in pieces if "| gate" in chunk.text and "Feature" not in chunk.text]
    assert len(inside) > 2
    for chunk, text in inside:
        name, header, first, *_ = text.split("\n")
        assert (name, header.split()) == ("Gates > List", ["Feature", "Stage", "Since"]), text
        assert first.split()[0] == "gate"
        assert "---" not in text
        assert chunk.text.startswith("| gate")
    assert all(text.count("Feature") == 1 for chunk, text in pieces if "gate" in chunk.text)
    assert not any("Feature" in text for chunk, text in pieces if "gate" not in chunk.text)


def test_a_header_that_does_not_fit_is_left_out_before_the_name_and_the_headings() -> None:
    header = " | ".join(f"column number {number}" for number in range(12))
    rows = "".join(f"| {' | '.join(['x'] * 12)} |\n" for _ in range(60))
    page = parse_text(f"# Name\n\n| {header} |\n|{'---|' * 12}\n{rows}")
    later = build_chunks(page, get_token_spans)[1:]
    assert later
    for chunk in later:
        whole = build_embedding_text(page, chunk, get_token_spans, MAX_TOKENS)
        assert whole.startswith("Name\ncolumn number 0 ")
        assert "column number 11" in whole
        tight = build_embedding_text(page, chunk, get_token_spans, len(get_token_spans(whole)) - 1)
        assert tight.startswith("Name\nx ")


def test_a_header_that_is_itself_cut_is_not_repeated() -> None:
    header = " | ".join(f"a rather long title of column {number}" for number in range(60))
    pieces = embed_chunks(f"| {header} |\n|{'---|' * 60}\n| {' | '.join(['x'] * 60)} |\n")
    assert len(pieces) > 2
    assert all(text.count("column 1 ") <= 1 for _, text in pieces)
    assert sum("column 0" in text for _, text in pieces) == 1


def test_markup_is_left_out_of_what_is_embedded() -> None:
    text = "See [the guide](http://long.example/x) and ![a cat](cat.png).\n\n<!-- secret -->\n\n"
    page = parse_text(text + "| a | b |\n|---|---|\n| c | d |")
    (only,) = build_chunks(page, get_token_spans)
    assert build_embedding_text(page, only, get_token_spans, MAX_TOKENS) == "See the guide and a cat.\na b\nc d"
    nothing = parse_text("<!-- only a comment -->")
    assert (
        build_embedding_text(nothing, build_chunks(nothing, get_token_spans)[0], get_token_spans, MAX_TOKENS)
        == "<!-- only a comment -->"
    )


def test_the_prefix_is_shortened_before_the_text() -> None:
    page = parse_text(f"# {'Very long name ' * 30}\n\n## Inner\n\n{make_sentences(60, 'x')}")
    for piece in build_chunks(page, get_token_spans):
        text = build_embedding_text(page, piece, get_token_spans, 200)
        assert len(get_token_spans(text)) <= 200
        assert piece.text.split("\n")[-1][-40:] in text


def test_chunk_page_follows_its_specification() -> None:
    assert chunk_page("Short page.") == ["Short page."]
    pieces = chunk_page(make_sentences(80, "plans"), target_tokens=200, overlap_tokens=50)
    assert len(pieces) > 3
    assert all(after[:20] in before for before, after in pairwise(pieces))
    assert chunk_page("") == []


LARGE_TEXTS = {
    "words": "word " * choose(1_000_000, 120_000),
    "one word": "x" * choose(1_000_000, 120_000),
    "sections": "# h\n\ntext\n\n" * choose(20_000, 5_000),
    "lines": "A line. Of text.\n" * choose(60_000, 15_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_TEXTS)
def test_large_pages_are_cut_in_seconds(name: str) -> None:
    page = parse_text(LARGE_TEXTS[name])
    began = time.process_time()
    chunks = build_chunks(page, get_token_spans)
    assert time.process_time() - began < choose(25, 4)
    assert chunks[-1].end == len(page.body.rstrip())
