"""Fuzz targets of text processing: frontmatter, Markdown, chunks, anchors, queries, snippets."""

import json
import unicodedata

from tests.support.snippets import build_snippet
from wikiholt.domain.page import Page
from wikiholt.text.bm25 import build_page_terms, to_terms
from wikiholt.text.charset import decode_bytes
from wikiholt.text.chunks import build_chunks
from wikiholt.text.display_text import to_display_text
from wikiholt.text.frontmatter import EARLIEST_DATE, LATEST_DATE, parse_datetime, split_frontmatter
from wikiholt.text.keyword_query import parse_query, to_plain_query
from wikiholt.text.markdown import AnchorGenerator, make_github_slug, make_otterwiki_slug
from wikiholt.text.model_text import build_embedding_text, to_plain_text
from wikiholt.text.page_parser import parse_page
from wikiholt.text.segmentation import estimate_token_spans

_TARGET, _OVERLAP, _WINDOW = 20, 5, 32


def assert_storable(text: str) -> None:
    """Text that every store and interface accepts."""
    text.encode("utf-8")
    odd = [char for char in text if unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t"]
    assert not odd, odd


def parse_data(data: bytes) -> Page | None:
    page = parse_page("dir/page.md", "0" * 40, data, None)
    return page if isinstance(page, Page) else None


def check_decoding(data: bytes) -> None:
    decoded = decode_bytes(data)
    if decoded is not None:
        assert_storable(decoded.text)
        again = decode_bytes(decoded.text.encode())
        assert again is None or again.text == decoded.text.removeprefix("\ufeff")


def check_frontmatter(text: str) -> None:
    decoded = decode_bytes(text.encode("utf-8", "replace"))
    if decoded is None:
        return
    text = decoded.text
    front = split_frontmatter(text)
    assert text.endswith(front.body)
    assert front.body_line == text.count("\n", 0, len(text) - len(front.body)) + 1
    assert len(json.dumps(front.fields)) <= 20 * len(text) + 2_000_000
    metadata = front.metadata
    for warning in front.warnings:
        assert_storable(warning)
    for value in (metadata.title, metadata.category, metadata.description, metadata.language, *metadata.tags):
        assert_storable(value or "")
        assert value is None or (value and value == " ".join(value.split()))
    assert metadata.last_updated is None or EARLIEST_DATE <= metadata.last_updated <= LATEST_DATE


def check_markdown(data: bytes) -> None:
    page = parse_data(data)
    if page is None:
        return
    lines = page.body.split("\n")
    covered = bytearray(len(page.body))
    before = 0
    for block in page.blocks:
        assert before <= block.start < block.end <= len(page.body)
        before = block.end
        covered[block.start : block.end] = b"\1" * (block.end - block.start)
        first, last = block.first_line - page.body_line, block.last_line - page.body_line
        assert page.body[block.start : block.end] == "\n".join(lines[first : last + 1])
    assert all(is_covered or char.isspace() for is_covered, char in zip(covered, page.body, strict=True))
    last_line = page.body_line + len(lines) - 1
    for heading in page.headings:
        assert page.body_line <= heading.line <= last_line
        assert_storable(heading.text + heading.anchor)
    for link in page.links:
        assert page.body_line <= link.line <= last_line
        assert_storable(link.target + link.text + "".join(link.paths))
    assert_storable(page.name)
    assert page.name.strip()


def check_chunking(data: bytes) -> None:
    page = parse_data(data)
    if page is None:
        return
    chunks = build_chunks(page, estimate_token_spans, target_tokens=_TARGET, overlap_tokens=_OVERLAP)
    covered = bytearray(len(page.body))
    for number, piece in enumerate(chunks):
        assert piece.index == number
        assert piece.text == page.body[piece.start : piece.end]
        assert piece.text.strip()
        assert piece.first_line == page.body_line + page.body.count("\n", 0, piece.start)
        assert piece.last_line == page.body_line + page.body.count("\n", 0, piece.end - 1)
        assert piece.overlap == (max(chunks[number - 1].end - piece.start, 0) if number else 0)
        assert len(estimate_token_spans(piece.text)) <= _TARGET
        covered[piece.start : piece.end] = b"\1" * (piece.end - piece.start)
        text = build_embedding_text(page, piece, estimate_token_spans, _WINDOW)
        assert len(estimate_token_spans(text)) <= _WINDOW
        assert text
    assert all(is_covered or char.isspace() for is_covered, char in zip(covered, page.body, strict=True))


def check_words(data: bytes) -> None:
    page = parse_data(data)
    if page is None:
        return
    terms = build_page_terms(page)
    for field in (terms.name, terms.headings, terms.body):
        assert_storable(field)
        assert all(len(term) <= 64 and term for term in field.split(" ") if field)
        assert " ".join(field.split()) == field
    assert len(terms.body) <= 40 * len(page.body) + 20_000


def check_anchors(text: str) -> None:
    github, otterwiki = AnchorGenerator("github"), AnchorGenerator("otterwiki")
    given = []
    for line in text.split("\n"):
        given.append(github.add(line))
        assert not set(otterwiki.add(line)) & set(" \t#%<>\"'")
        assert not any(char.isspace() and char != "\u00a0" for char in make_github_slug(line)), ascii(line)
        make_otterwiki_slug(line).encode("ascii")
    assert len(given) == len(set(given))


def check_dates(text: str) -> None:
    moment = parse_datetime(text)
    assert moment is None or (moment.utcoffset() is not None and EARLIEST_DATE <= moment <= LATEST_DATE)


def check_queries(text: str) -> None:
    query = parse_query(text)
    assert len(query.terms) <= 64
    assert all(len(phrase) <= 64 for phrase in (*query.phrases, *query.excluded))
    for term in (
        *query.terms,
        query.prefix,
        *(term for phrase in (*query.phrases, *query.excluded) for term in phrase),
    ):
        assert term == "".join(term.split())
        assert "\0" not in term
    assert to_plain_query(text).strip() or not text.strip()


def check_snippets(text: str) -> None:
    half = len(text) // 2
    shown, query_text = text[:half], text[half:]
    for query in (parse_query(query_text), parse_query(shown[: half // 2])):
        for length in (1, 30, 150):
            found = build_snippet(
                shown,
                query,
                length=length,
                sentence_scorer=lambda sentences: [float(len(sentence)) for sentence in sentences],
            )
            if found.sentence is not None:
                assert 0 <= found.sentence.start < found.sentence.end <= len(found.text)
            assert len(found.text) <= length + 2
            assert "\n" not in found.text
            end = 0
            for span in found.matches:
                assert end <= span.start < span.end <= len(found.text)
                end = span.end
                marked = found.text[span.start : span.end]
                assert marked.strip()
                assert to_terms(marked) or query.prefix
    assert "\n\n" not in to_plain_text(shown)
    read = to_display_text(shown)
    assert read.text == " ".join(read.text.split())
    assert all(read.text[span.start : span.end].strip() for span in read.sentences)


TARGETS = {
    "decoding": (check_decoding, "data"),
    "frontmatter": (check_frontmatter, "matter"),
    "markdown": (check_markdown, "data"),
    "chunking": (check_chunking, "data"),
    "words": (check_words, "data"),
    "anchors": (check_anchors, "texts"),
    "dates": (check_dates, "texts"),
    "queries": (check_queries, "texts"),
    "snippets": (check_snippets, "texts"),
}
