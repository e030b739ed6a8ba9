"""Conversion between domain values and PostgreSQL columns.

Covers text that PostgreSQL cannot store, vectors in binary form, packed links, and the `state` row.
"""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from wikiholt.domain.index import FloatArray, Recipe, VectorRows
from wikiholt.domain.search import StoredChunk, StoredLink
from wikiholt.errors import IndexCorrupt
from wikiholt.index import rows as packing
from wikiholt.index.rows import LinkRow, compute_row_checksum

Row = Sequence[Any]

CHUNK_COLUMNS = "id, page_id, number, text, heading_path, anchor, first_line, last_line"

_ESCAPE_CHARACTER = "\ufdd0"
"""A Unicode noncharacter. It escapes the code points that PostgreSQL text cannot store."""
_UNSTORABLE = re.compile(f"[\0{_ESCAPE_CHARACTER}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE_CHARACTER}([0-9a-f]{{4}})")

_MAX_KEY_BYTES = 500
_VECTOR_HEADER = struct.Struct(">hh")


class DerivedPageColumns(NamedTuple):
    """The columns of a page that only PostgreSQL has, all computed from the rest of the page."""

    links: str
    tag_keys: list[str]
    link_keys: list[str]
    seal: int


def encode_text(text: str) -> str:
    """Escape characters that PostgreSQL text cannot store (NUL, surrogates). Preserves common prefixes."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(lambda match: f"{_ESCAPE_CHARACTER}{ord(match[0]):04x}", text)


def decode_text(text: str) -> str:
    """Inverse of `encode_text`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if _ESCAPE_CHARACTER in text else text


def decode_row(row: Row) -> tuple[Any, ...]:
    """Decode every text of a row."""
    return tuple(decode_text(value) if isinstance(value, str) else value for value in row)


def encode_key(key: str) -> str:
    """Encode a key for an indexed column. A key too long for an index entry is replaced by its hash."""
    data = key.encode("utf-8", "surrogatepass")
    return encode_text(key) if len(data) <= _MAX_KEY_BYTES else f"\x01{blake2b(data, digest_size=24).hexdigest()}"


# ── texts of `state` ─────────────────────────────────────────────────────────────────────────────

MAX_TEXT_CHARS = 1_000
"""The table `state` has no TOAST table, so each of its rows fits into 8 KB. An escaped character takes 7 bytes."""


def split_text(name: str, text: str) -> list[tuple[str, str]]:
    """Split a text into rows of `state`: its own name, then the names of `get_part_names`."""
    starts = range(0, len(text), MAX_TEXT_CHARS) or range(1)
    return [
        (f"{name}.{start // MAX_TEXT_CHARS:09d}" if start else name, text[start : start + MAX_TEXT_CHARS])
        for start in starts
    ]


def join_texts(parts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Inverse of `split_text`, for rows sorted by name."""
    texts: dict[str, str] = {}
    for name, text in parts:
        whole, _, _ = name.partition(".")
        texts[whole] = texts.get(whole, "") + text
    return texts


def get_part_names(name: str) -> tuple[str, str]:
    """The first possible name of a further part of a text, and the first name after all of them."""
    return f"{name}.", f"{name}/"


def to_stored_chunk(row: Row) -> StoredChunk:
    chunk_id, page_id, number, text, heading_path, anchor, *lines = row
    return StoredChunk(chunk_id, page_id, number, text, packing.decode_strings(heading_path), anchor, *lines)


# ── links ────────────────────────────────────────────────────────────────────────────────────────


def encode_links(links: Sequence[LinkRow]) -> str:
    return json.dumps(links, ensure_ascii=False)


def decode_links(packed: str) -> list[LinkRow]:
    try:
        return [LinkRow._make(link) for link in json.loads(packed)]
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("a page's links cannot be read", hint="run `wikiholt sync` to rebuild it") from error


def get_link_keys(links: Iterable[LinkRow]) -> list[str]:
    return sorted({encode_key(key) for link in links for key in (link.key, link.other_key) if key is not None})


def to_stored_link(page_id: int, link: LinkRow) -> StoredLink:
    return packing.to_stored_link((page_id, link.target, link.text, link.line, link.wiki, link.paths))


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────


def encode_vectors(vectors: FloatArray) -> Iterator[bytes]:
    """Encode vectors in pgvector's binary format: dimensions, an unused field, and big-endian numbers."""
    header = _VECTOR_HEADER.pack(vectors.shape[1], 0)
    for vector in np.ascontiguousarray(vectors, ">f4"):
        yield header + vector.tobytes()


def decode_vectors(fields: Sequence[bytes], dimensions: int) -> FloatArray:
    """Inverse of `encode_vectors`. Raises IndexCorrupt if a vector has another size."""
    layout = np.dtype([("dimensions", ">i2"), ("unused", ">i2"), ("numbers", ">f4", (dimensions,))])
    try:
        vectors = np.frombuffer(b"".join(fields), layout)
        if len(vectors) != len(fields) or (vectors["dimensions"] != dimensions).any():
            raise ValueError
    except ValueError as error:
        raise IndexCorrupt(
            "vectors of the index have the wrong size", hint="run `wikiholt sync` to rebuild it"
        ) from error
    return np.ascontiguousarray(vectors["numbers"], np.float32)


def to_vector_rows(rows: Sequence[Row], dimensions: int) -> VectorRows:
    """Convert rows of (chunk id, page id, vector) to arrays."""
    chunk_ids = np.fromiter((chunk_id for chunk_id, _, _ in rows), np.int64, len(rows))
    page_ids = np.fromiter((page_id for _, page_id, _ in rows), np.int64, len(rows))
    return VectorRows(chunk_ids, page_ids, decode_vectors([vector for _, _, vector in rows], dimensions))


# ── state of a generation ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GenerationState:
    """A row of `state`. `next_page` and `next_chunk` are the next unused ids."""

    number: int
    fingerprint: str
    dimensions: int
    pipeline: str
    model: str
    precision: str
    version: int = 0
    revision: str | None = None
    synced_at: float | None = None
    pages: int = 0
    chunks: int = 0
    problems: int = 0
    next_page: int = 1
    next_chunk: int = 1

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.fingerprint, self.dimensions, self.pipeline, self.model, self.precision)

    @property
    def row(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in STATE_FIELDS)

    def get_checksum(self, wiki_id: str) -> int:
        """Compute the checksum of the row and the wiki id, so that a row copied from another wiki is detected."""
        return compute_row_checksum((*self.row, wiki_id))


STATE_FIELDS = GenerationState.__slots__
STATE_COLUMNS = ", ".join(STATE_FIELDS)


def make_initial_state(number: int, recipe: Recipe) -> GenerationState:
    """The state of an empty generation."""
    return GenerationState(
        number, recipe.fingerprint, recipe.dimensions, recipe.pipeline, recipe.model, recipe.precision
    )
