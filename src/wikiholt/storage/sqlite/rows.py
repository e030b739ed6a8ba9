"""Between values and columns."""

import json
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, PageEntry, VectorRows
from wikiholt.domain.page import PageMetadata, PageTerms
from wikiholt.domain.search import StoredChunk, StoredLink, StoredPage
from wikiholt.storage.sqlite.errors import make_corrupt_error
from wikiholt.text.links import fold_path, get_last_part

PAGE_COLUMNS = "id, file, path, name, category, tags, last_updated, chunks, warnings, word_count, length"
PAGE_COLUMNS_SCHEMA_1 = "id, file, path, name, category, tags, last_updated, chunks, warnings, 0, 0"
"""The same in an index of schema 1."""
CHUNK_COLUMNS = "id, page_id, number, text, heading_path, anchor, first_line, last_line"

Row = Sequence[Any]
P = ParamSpec("P")
T = TypeVar("T")


def _translate_damage(function: Callable[P, T]) -> Callable[P, T]:
    """What was written well and cannot be unpacked is damage."""

    @wraps(function)
    def guarded(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except (ValueError, TypeError, OverflowError, OSError, zlib.error) as error:
            raise make_corrupt_error(error) from error

    return guarded


@_translate_damage
def to_stored_page(row: Row) -> StoredPage:
    page_id, file, path, name, category, tags, last_updated, chunks, warnings, words, length = row
    when = to_datetime(last_updated)
    return StoredPage(
        page_id, file, path, name, category, decode_strings(tags), when, chunks, decode_strings(warnings), words, length
    )


@_translate_damage
def to_stored_link(row: Row) -> StoredLink:
    page_id, target, text, line, wiki, paths = row
    return StoredLink(page_id, target, text, line, bool(wiki), decode_strings(paths))


@_translate_damage
def to_stored_chunk(row: Row) -> StoredChunk:
    chunk_id, page_id, number, text, heading_path, anchor, first_line, last_line = row
    return StoredChunk(chunk_id, page_id, number, text, decode_strings(heading_path), anchor, first_line, last_line)


@_translate_damage
def to_vector_rows(rows: Sequence[Row], dimensions: int) -> VectorRows:
    """Rows of (chunk id, page id, vector) as arrays."""
    chunk_ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    page_ids = np.fromiter((row[1] for row in rows), np.int64, len(rows))
    vectors = np.frombuffer(b"".join(row[2] for row in rows), "<f4").reshape(len(rows), dimensions)
    return VectorRows(chunk_ids, page_ids, vectors)


@_translate_damage
def decode_vector(packed: bytes, dimensions: int) -> FloatArray:
    return np.frombuffer(packed, "<f4").reshape(dimensions)


def encode_vector(vector: FloatArray) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()


def to_id_array(rows: Sequence[Row]) -> IntArray:
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def encode_terms(terms: PageTerms) -> bytes:
    """The words of a page as stored beside it: FTS5 needs the very same words again to take the page out."""
    return zlib.compress("\0".join((terms.name, terms.headings, terms.body)).encode(), 1)


@_translate_damage
def decode_terms(packed: bytes) -> PageTerms:
    return PageTerms(*zlib.decompress(packed).decode().split("\0"))


def encode_strings(strings: Sequence[str]) -> str:
    return json.dumps(list(strings), ensure_ascii=False)


@_translate_damage
def to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def fold_tags(metadata: PageMetadata) -> set[str]:
    """Tags as filters compare them: case does not matter."""
    return {tag.casefold() for tag in metadata.tags}


@_translate_damage
def decode_strings(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def to_page_columns(entry: PageEntry) -> dict[str, object]:
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
        "tags": encode_strings(meta.tags),
        "warnings": encode_strings(page.warnings),
        "chunks": len(entry.chunks),
        "words": encode_terms(entry.terms),
        "key": fold_path(page.path),
        "last_key": fold_path(get_last_part(page.path)),
        "word_count": page.words,
        "length": page.length,
    }
