"""Between values and columns."""

import json
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from wikiholt.model import Floats, Ints, Metadata, PageEntry, StoredChunk, StoredLink, StoredPage, VectorRows, Words
from wikiholt.stores.sqlite.faults import corrupt
from wikiholt.text.links import folded, last_part

PAGE_COLUMNS = "id, file, path, name, category, tags, last_updated, chunks, warnings, word_count, length"
PAGE_COLUMNS_1 = "id, file, path, name, category, tags, last_updated, chunks, warnings, 0, 0"
"""The same in an index of schema 1."""
CHUNK_COLUMNS = "id, page_id, number, text, heading_path, anchor, first_line, last_line"

Row = Sequence[Any]
P = ParamSpec("P")
T = TypeVar("T")


def _unpacking(function: Callable[P, T]) -> Callable[P, T]:
    """What was written well and cannot be unpacked is damage."""

    @wraps(function)
    def guarded(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except (ValueError, TypeError, OverflowError, OSError, zlib.error) as error:
            raise corrupt(error) from error

    return guarded


@_unpacking
def stored_page(row: Row) -> StoredPage:
    page_id, file, path, name, category, tags, last_updated, chunks, warnings, words, length = row
    when = moment(last_updated)
    return StoredPage(
        page_id, file, path, name, category, strings(tags), when, chunks, strings(warnings), words, length
    )


@_unpacking
def stored_link(row: Row) -> StoredLink:
    page_id, target, text, line, wiki, paths = row
    return StoredLink(page_id, target, text, line, bool(wiki), strings(paths))


@_unpacking
def stored_chunk(row: Row) -> StoredChunk:
    chunk_id, page_id, number, text, heading_path, anchor, first_line, last_line = row
    return StoredChunk(chunk_id, page_id, number, text, strings(heading_path), anchor, first_line, last_line)


@_unpacking
def vector_rows(rows: Sequence[Row], dimensions: int) -> VectorRows:
    """Rows of (chunk id, page id, vector) as arrays."""
    chunk_ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    page_ids = np.fromiter((row[1] for row in rows), np.int64, len(rows))
    vectors = np.frombuffer(b"".join(row[2] for row in rows), "<f4").reshape(len(rows), dimensions)
    return VectorRows(chunk_ids, page_ids, vectors)


@_unpacking
def vector(packed: bytes, dimensions: int) -> Floats:
    return np.frombuffer(packed, "<f4").reshape(dimensions)


def vector_blob(vector: Floats) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()


def ids(rows: Sequence[Row]) -> Ints:
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def pack_words(words: Words) -> bytes:
    """The words of a page as stored beside it: FTS5 needs the very same words again to take the page out."""
    return zlib.compress("\0".join((words.name, words.headings, words.body)).encode(), 1)


@_unpacking
def unpack_words(packed: bytes) -> Words:
    return Words(*zlib.decompress(packed).decode().split("\0"))


def packed(strings: Sequence[str]) -> str:
    return json.dumps(list(strings), ensure_ascii=False)


@_unpacking
def moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def folded_tags(metadata: Metadata) -> set[str]:
    """Tags as filters compare them: case does not matter."""
    return {tag.casefold() for tag in metadata.tags}


@_unpacking
def strings(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def page_columns(entry: PageEntry) -> dict[str, object]:
    """What a page's columns hold in every store, as far as the page itself says it."""
    page, meta = entry.page, entry.page.metadata
    return {
        "file": page.file,
        "path": page.path,
        "name": page.name,
        "blob": entry.blob,
        "category": meta.category,
        "category_key": meta.category.casefold() if meta.category is not None else None,
        "description": meta.description,
        "language": meta.language,
        "last_updated": meta.last_updated.timestamp() if meta.last_updated else None,
        "hidden": int(meta.hidden),
        "tags": packed(meta.tags),
        "warnings": packed(page.warnings),
        "chunks": len(entry.chunks),
        "words": pack_words(entry.words),
        "key": folded(page.path),
        "last_key": folded(last_part(page.path)),
        "word_count": page.words,
        "length": page.length,
    }
