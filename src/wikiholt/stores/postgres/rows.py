"""Between values and columns: text that PostgreSQL cannot hold, vectors and terms in its binary form, packed links."""

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from wikiholt.errors import IndexCorrupt
from wikiholt.model import Floats, Ints, Link, Recipe, StoredChunk, StoredLink, StoredPage, VectorRows, Words
from wikiholt.stores.sqlite import rows as packing
from wikiholt.stores.sqlite.seals import row_seal
from wikiholt.text.fields import weigh
from wikiholt.text.links import folded

Row = Sequence[Any]

PAGE_COLUMNS = packing.PAGE_COLUMNS
CHUNK_COLUMNS = packing.CHUNK_COLUMNS

_ESCAPE = "\ufdd0"
"""A code point that is promised never to be a character; what PostgreSQL's text cannot hold is written with it."""
_ODD = re.compile(f"[\0{_ESCAPE}\ud800-\udfff]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")

VAST = " "
"""Stands in place of the terms of a page that has too many of them, or odd ones: its words have to be read."""
_MOST_BYTES = 900_000
_LONGEST = 2_000
_MOST_OFTEN = 16_383
"""What a tsvector, a lexeme of it, and a lexeme's position can be at most."""
_END = b"\0\0\1"
_ENDS = tuple(_END + count.to_bytes(2, "big") for count in range(_MOST_OFTEN + 1))
"""What follows a lexeme in a tsvector's binary form: its end, that it has one position, and that."""
_ALL_VAST = struct.pack(">i", 1) + VAST.encode() + _ENDS[1]
_LONGEST_KEY = 500
_HEADER = struct.Struct(">hh")


def held(text: str) -> str:
    """The text as a column can hold it; `meant` gives it back. What begins alike stays so."""
    if text.isascii() and "\0" not in text:
        return text
    return _ODD.sub(lambda odd: f"{_ESCAPE}{ord(odd[0]):04x}", text)


def meant(text: str) -> str:
    return _ESCAPED.sub(lambda odd: chr(int(odd[1], 16)), text) if _ESCAPE in text else text


def meant_row(row: Row) -> tuple[Any, ...]:
    """A row with all its texts as they were given."""
    return tuple(meant(value) if isinstance(value, str) else value for value in row)


def indexed(key: str) -> str:
    """A key as an index can hold it: one too long for that is known by its hash."""
    data = key.encode("utf-8", "surrogatepass")
    return held(key) if len(data) <= _LONGEST_KEY else f"\x01{blake2b(data, digest_size=24).hexdigest()}"


def stored_page(row: Row) -> StoredPage:
    return packing.stored_page(meant_row(row))


def stored_chunk(row: Row) -> StoredChunk:
    return packing.stored_chunk(meant_row(row))


# ── links ────────────────────────────────────────────────────────────────────────────────────────


def link_rows(links: Iterable[Link]) -> list[tuple[Any, ...]]:
    """Links with the keys of their paths (one, or at most two), as the embedded store's columns have them."""
    found = []
    for link in links:
        keys = [*map(folded, link.paths[:2]), None, None][:2]
        found.append((link.target, link.text, link.line, int(link.wiki), packing.packed(link.paths), *keys))
    return found


def pack_links(links: Sequence[Row]) -> str:
    return json.dumps([list(link) for link in links], ensure_ascii=False)


def unpack_links(packed: str) -> list[list[Any]]:
    try:
        return [list(link) for link in json.loads(packed)]
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("a page's links cannot be read", hint="run `wikiholt sync` to build it again") from error


def link_keys(links: Iterable[Row]) -> list[str]:
    return sorted({indexed(key) for link in links for key in link[5:7] if key is not None})


def stored_link(page_id: int, link: Row) -> StoredLink:
    return packing.stored_link((page_id, *link[:5]))


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────


def vector_fields(vectors: Floats) -> Iterator[bytes]:
    """Each vector as pgvector sends and takes it: how many, nothing, and the numbers, big end first."""
    header = _HEADER.pack(vectors.shape[1], 0)
    for vector in np.ascontiguousarray(vectors, ">f4"):
        yield header + vector.tobytes()


def vectors(fields: Sequence[bytes], dimensions: int) -> Floats:
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


def vector_rows(rows: Sequence[Row], dimensions: int) -> VectorRows:
    """Rows of (chunk id, page id, vector) as arrays."""
    chunk_ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    page_ids = np.fromiter((row[1] for row in rows), np.int64, len(rows))
    return VectorRows(chunk_ids, page_ids, vectors([row[2] for row in rows], dimensions))


def ids(rows: Sequence[Row]) -> Ints:
    return packing.ids(rows)


# ── terms ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Terms:
    """What a page's words are found by: each term with how often it is there, by weight; and how many there are."""

    field: bytes
    size: int


def terms_of(words: Words) -> Terms:
    """A tsvector in binary form, as it comes back; a lexeme's position is how often the page has the term."""
    counts, size = weigh(words)
    tidy = all(field == " ".join(field.split()) for field in (words.name, words.headings, words.body))
    if not tidy or max(counts.values(), default=0) > _MOST_OFTEN:
        return Terms(_ALL_VAST, size)
    found = sorted(term.encode() + _ENDS[int(count)] for term, count in counts.items())
    field = struct.pack(">i", len(found)) + b"".join(found)
    fits = len(field) + 4 * len(found) <= _MOST_BYTES and max(map(len, found), default=0) <= _LONGEST
    return Terms(field if fits else _ALL_VAST, size)


def begun(field: bytes, prefix: str) -> int:
    """The sum of the positions of the lexemes that begin so, of a tsvector as `terms_of` makes it."""
    wanted, data, total = prefix.encode(), _ENDS[1] + field[4:], 0
    at = data.find(wanted, 5)
    while at > 0 and data[at - 5 : at - 2] != _END:  # inside of a lexeme, not at its beginning
        at = data.find(wanted, at + 1)
    while at > 0 and data.startswith(wanted, at):  # in order, so those that begin alike follow one another
        end = data.index(b"\0", at)
        total += int.from_bytes(data[end + 3 : end + 5], "big")
        at = end + 5
    return total


def lexemes(field: bytes) -> Iterator[tuple[str, int]]:
    """The lexemes of a tsvector in binary form, each with its first position, whatever its weight."""
    (count,) = struct.unpack_from(">i", field)
    at = 4
    for _ in range(count):
        end = field.index(b"\0", at)
        positions = int.from_bytes(field[end + 1 : end + 3], "big")
        first = int.from_bytes(field[end + 3 : end + 5], "big") & _MOST_OFTEN if positions else 0
        yield field[at:end].decode(), first
        at = end + 3 + 2 * positions


def quoted(term: str) -> str | None:
    """A term as a lexeme of a tsquery; None for one that only a vast page can hold, or none at all."""
    if len(term) * 4 > _LONGEST and len(term.encode("utf-8", "surrogatepass")) > _LONGEST:
        return None
    if _ODD.search(term) and held(term) != term:
        return None
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


# ── where an index stands ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Standing:
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
        return tuple(getattr(self, name) for name in STANDING)

    def seal_for(self, wiki_id: str) -> int:
        """The checksum of the row as this wiki's: a row of another wiki's schema does not have it."""
        return row_seal((*self.row, wiki_id))


STANDING = Standing.__slots__
STANDING_COLUMNS = ", ".join(STANDING)


def beginning(number: int, recipe: Recipe) -> Standing:
    """Where an empty generation stands."""
    return Standing(number, recipe.fingerprint, recipe.dimensions, recipe.pipeline, recipe.model, recipe.precision)
