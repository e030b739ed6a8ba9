"""Builds the contents of a page from its rows, which both stores have in the same form."""

from collections.abc import Sequence
from typing import Any

from wikiholt.domain.index import FloatArray, PageContents
from wikiholt.domain.page import Chunk, Link
from wikiholt.storage.page_table import PageRow
from wikiholt.storage.sqlite.rows import decode_strings, decode_terms

Row = Sequence[Any]


def make_page_contents(page: PageRow, chunks: Sequence[Row], vectors: FloatArray, links: Sequence[Row]) -> PageContents:
    """The contents from rows in the column order of the SQLite tables; `links` come without the page id."""
    return PageContents(
        page.name,
        decode_strings(page.warnings),
        page.word_count,
        page.length,
        tuple(
            Chunk(number, text, decode_strings(headings), anchor, first_line, last_line, 0, 0)
            for _, _, number, text, headings, anchor, first_line, last_line, _ in chunks
        ),
        tuple(chunk[-1] for chunk in chunks),
        vectors,
        decode_terms(page.words),
        tuple(
            Link(target, text, line, bool(wiki), decode_strings(paths)) for target, text, line, wiki, paths, *_ in links
        ),
    )
