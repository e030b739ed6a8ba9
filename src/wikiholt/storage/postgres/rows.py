"""Between values and columns: text that PostgreSQL cannot hold, vectors and terms in its binary form, packed links."""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, Recipe, VectorRows
from wikiholt.domain.page import Link, PageTerms
from wikiholt.domain.search import StoredChunk, StoredLink, StoredPage
from wikiholt.errors import IndexCorrupt
from wikiholt.storage.checksums import compute_row_checksum
from wikiholt.storage.sqlite import rows as packing
from wikiholt.text.bm25 import count_weighted_terms
from wikiholt.text.links import fold_path

Row = Sequence[Any]

PAGE_COLUMNS = packing.PAGE_COLUMNS
CHUNK_COLUMNS = packing.CHUNK_COLUMNS

_ESCAPE_CHARACTER = "\ufdd0"
"""A code point that is promised never to be a character; what PostgreSQL's text cannot hold is written with it."""
_UNSTORABLE = re.compile(f"[\0{_ESCAPE_CHARACTER}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE_CHARACTER}([0-9a-f]{{4}})")

OVERSIZED = " "
"""Stands in place of the terms of a page that has too many of them, or odd ones: its words have to be read."""
_MAX_TSVECTOR_BYTES = 900_000
_MAX_LEXEME_BYTES = 2_000
_MAX_POSITION = 16_383
"""What a tsvector, a lexeme of it, and a lexeme's position can be at most."""
_LEXEME_END = b"\0\0\1"
_LEXEME_ENDS = tuple(_LEXEME_END + count.to_bytes(2, "big") for count in range(_MAX_POSITION + 1))
"""What follows a lexeme in a tsvector's binary form: its end, that it has one position, and that."""
_OVERSIZED_TSVECTOR = struct.pack(">i", 1) + OVERSIZED.encode() + _LEXEME_ENDS[1]
_MAX_KEY_BYTES = 500
_VECTOR_HEADER = struct.Struct(">hh")


def encode_text(text: str) -> str:
    """The text as a column can hold it; `meant` gives it back. What begins alike stays so."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(lambda odd: f"{_ESCAPE_CHARACTER}{ord(odd[0]):04x}", text)


def decode_text(text: str) -> str:
    return _ESCAPED.sub(lambda odd: chr(int(odd[1], 16)), text) if _ESCAPE_CHARACTER in text else text


def decode_row(row: Row) -> tuple[Any, ...]:
    """A row with all its texts as they were given."""
    return tuple(decode_text(value) if isinstance(value, str) else value for value in row)


def encode_key(key: str) -> str:
    """A key as an index can hold it: one too long for that is known by its hash."""
    data = key.encode("utf-8", "surrogatepass")
    return encode_text(key) if len(data) <= _MAX_KEY_BYTES else f"\x01{blake2b(data, digest_size=24).hexdigest()}"


def to_stored_page(row: Row) -> StoredPage:
    return packing.to_stored_page(decode_row(row))


def to_stored_chunk(row: Row) -> StoredChunk:
    return packing.to_stored_chunk(decode_row(row))


# ── links ────────────────────────────────────────────────────────────────────────────────────────


def to_link_rows(links: Iterable[Link]) -> list[tuple[Any, ...]]:
    """Links with the keys of their paths (one, or at most two), as the embedded store's columns have them."""
    found = []
    for link in links:
        keys = [*map(fold_path, link.paths[:2]), None, None][:2]
        found.append((link.target, link.text, link.line, int(link.wiki), packing.encode_strings(link.paths), *keys))
    return found


def encode_links(links: Sequence[Row]) -> str:
    return json.dumps([list(link) for link in links], ensure_ascii=False)


def decode_links(packed: str) -> list[list[Any]]:
    try:
        return [list(link) for link in json.loads(packed)]
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("a page's links cannot be read", hint="run `wikiholt sync` to build it again") from error


def get_link_keys(links: Iterable[Row]) -> list[str]:
    return sorted({encode_key(key) for link in links for key in link[5:7] if key is not None})


def to_stored_link(page_id: int, link: Row) -> StoredLink:
    return packing.to_stored_link((page_id, *link[:5]))


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────


def encode_vectors(vectors: FloatArray) -> Iterator[bytes]:
    """Each vector as pgvector sends and takes it: how many, nothing, and the numbers, big end first."""
    header = _VECTOR_HEADER.pack(vectors.shape[1], 0)
    for vector in np.ascontiguousarray(vectors, ">f4"):
        yield header + vector.tobytes()


def decode_vectors(fields: Sequence[bytes], dimensions: int) -> FloatArray:
    """Vectors as they came; raises IndexCorrupt for any that is of another size."""
    kind = np.dtype([("dimensions", ">i2"), ("unused", ">i2"), ("numbers", ">f4", (dimensions,))])
    try:
        found = np.frombuffer(b"".join(fields), kind)
        if len(found) != len(fields) or (found["dimensions"] != dimensions).any():
            raise ValueError
    except ValueError as error:
        raise IndexCorrupt(
            "vectors of the index are of the wrong size", hint="run `wikiholt sync` to build it again"
        ) from error
    return np.ascontiguousarray(found["numbers"], np.float32)


def to_vector_rows(rows: Sequence[Row], dimensions: int) -> VectorRows:
    """Rows of (chunk id, page id, vector) as arrays."""
    chunk_ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    page_ids = np.fromiter((row[1] for row in rows), np.int64, len(rows))
    return VectorRows(chunk_ids, page_ids, decode_vectors([row[2] for row in rows], dimensions))


def to_id_array(rows: Sequence[Row]) -> IntArray:
    return packing.to_id_array(rows)


# ── terms ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TermVector:
    """What a page's words are found by: each term with how often it is there, by weight; and how many there are."""

    tsvector: bytes
    size: int


def build_term_vector(terms: PageTerms) -> TermVector:
    """A tsvector in binary form, as it comes back; a lexeme's position is how often the page has the term."""
    counts, size = count_weighted_terms(terms)
    tidy = all(field == " ".join(field.split()) for field in (terms.name, terms.headings, terms.body))
    if not tidy or max(counts.values(), default=0) > _MAX_POSITION:
        return TermVector(_OVERSIZED_TSVECTOR, size)
    found = sorted(term.encode() + _LEXEME_ENDS[int(count)] for term, count in counts.items())
    field = struct.pack(">i", len(found)) + b"".join(found)
    fits = len(field) + 4 * len(found) <= _MAX_TSVECTOR_BYTES and max(map(len, found), default=0) <= _MAX_LEXEME_BYTES
    return TermVector(field if fits else _OVERSIZED_TSVECTOR, size)


def sum_prefix_positions(tsvector: bytes, prefix: str) -> int:
    """The sum of the positions of the lexemes that begin so, of a tsvector as `terms_of` makes it."""
    wanted, data, total = prefix.encode(), _LEXEME_ENDS[1] + tsvector[4:], 0
    at = data.find(wanted, 5)
    while at > 0 and data[at - 5 : at - 2] != _LEXEME_END:  # inside of a lexeme, not at its beginning
        at = data.find(wanted, at + 1)
    while at > 0 and data.startswith(wanted, at):  # in order, so those that begin alike follow one another
        end = data.index(b"\0", at)
        total += int.from_bytes(data[end + 3 : end + 5], "big")
        at = end + 5
    return total


def iter_lexemes(tsvector: bytes) -> Iterator[tuple[str, int]]:
    """The lexemes of a tsvector in binary form, each with its first position, whatever its weight."""
    (count,) = struct.unpack_from(">i", tsvector)
    at = 4
    for _ in range(count):
        end = tsvector.index(b"\0", at)
        positions = int.from_bytes(tsvector[end + 1 : end + 3], "big")
        first = int.from_bytes(tsvector[end + 3 : end + 5], "big") & _MAX_POSITION if positions else 0
        yield tsvector[at:end].decode(), first
        at = end + 3 + 2 * positions


def quote_term(term: str) -> str | None:
    """A term as a lexeme of a tsquery; None for one that only a vast page can hold, or none at all."""
    if len(term) * 4 > _MAX_LEXEME_BYTES and len(term.encode("utf-8", "surrogatepass")) > _MAX_LEXEME_BYTES:
        return None
    if _UNSTORABLE.search(term) and encode_text(term) != term:
        return None
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


# ── where an index stands ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GenerationState:
    """The row of `state` that says all about a generation; `next_page` and `next_chunk` are ids never given out."""

    number: int
    fingerprint: str
    dimensions: int
    pipeline: str
    model: str
    precision: str
    version: int = 0
    horizon: int = 0
    revision: str | None = None
    synced_at: float | None = None
    pages: int = 0
    chunks: int = 0
    problems: int = 0
    next_page: int = 1
    next_chunk: int = 1
    terms: int = 0

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.fingerprint, self.dimensions, self.pipeline, self.model, self.precision)

    @property
    def row(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in STATE_FIELDS)

    def get_checksum(self, wiki_id: str) -> int:
        """The checksum of the row as this wiki's: a row of another wiki's schema does not have it."""
        return compute_row_checksum((*self.row, wiki_id))


STATE_FIELDS = GenerationState.__slots__
STATE_COLUMNS = ", ".join(STATE_FIELDS)


def make_initial_state(number: int, recipe: Recipe) -> GenerationState:
    """Where an empty generation stands."""
    return GenerationState(
        number, recipe.fingerprint, recipe.dimensions, recipe.pipeline, recipe.model, recipe.precision
    )
