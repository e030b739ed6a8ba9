"""Conversion between domain values and columns, for both stores."""

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
CHUNK_COLUMNS = "id, page_id, number, text, heading_path, anchor, first_line, last_line"

Row = Sequence[Any]
P = ParamSpec("P")
T = TypeVar("T")


def _translate_damage(function: Callable[P, T]) -> Callable[P, T]:
    """Raise IndexCorrupt for stored values that cannot be decoded."""

    @wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except (ValueError, TypeError, OverflowError, OSError, zlib.error) as error:
            raise make_corrupt_error(error) from error

    return wrapper


@_translate_damage
def to_stored_page(row: Row) -> StoredPage:
    page_id, file, path, name, category, tags, last_updated, chunks, warnings, words, length = row
    return StoredPage(
        page_id=page_id,
        file=file,
        path=path,
        name=name,
        category=category,
        tags=decode_strings(tags),
        last_updated=to_datetime(last_updated),
        chunks=chunks,
        warnings=decode_strings(warnings),
        words=words,
        length=length,
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
    """Convert rows of (chunk id, page id, vector) to arrays."""
    chunk_ids = np.fromiter((chunk_id for chunk_id, _, _ in rows), np.int64, len(rows))
    page_ids = np.fromiter((page_id for _, page_id, _ in rows), np.int64, len(rows))
    vectors = np.frombuffer(b"".join(vector for _, _, vector in rows), "<f4").reshape(len(rows), dimensions)
    return VectorRows(chunk_ids, page_ids, vectors)


@_translate_damage
def decode_vector(encoded: bytes, dimensions: int) -> FloatArray:
    return np.frombuffer(encoded, "<f4").reshape(dimensions)


def encode_vector(vector: FloatArray) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()


def to_id_array(rows: Sequence[Row]) -> IntArray:
    return np.fromiter((row_id for (row_id,) in rows), np.int64, len(rows))


def encode_terms(terms: PageTerms) -> bytes:
    """Encode a page's terms. They are stored because FTS5 needs exactly these terms to delete the page."""
    return zlib.compress("\0".join((terms.name, terms.headings, terms.body)).encode(), 1)


@_translate_damage
def decode_terms(encoded: bytes) -> PageTerms:
    return PageTerms(*zlib.decompress(encoded).decode().split("\0"))


def encode_strings(strings: Sequence[str]) -> str:
    return json.dumps(list(strings), ensure_ascii=False)


@_translate_damage
def to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def fold_tags(metadata: PageMetadata) -> set[str]:
    """Tags in the case-insensitive form that filters compare."""
    return {tag.casefold() for tag in metadata.tags}


@_translate_damage
def decode_strings(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def to_page_columns(entry: PageEntry) -> dict[str, object]:
    """The page's columns that are the same in every store."""
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
