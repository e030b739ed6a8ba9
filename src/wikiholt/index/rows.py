"""Conversion between domain values and columns, for both stores."""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, PageEntry, VectorRows, join_vectors, split_vectors
from wikiholt.domain.page import Link, PageProblem, PageTerms
from wikiholt.domain.search import StoredChunk, StoredLink
from wikiholt.errors import IndexCorrupt
from wikiholt.text.links import fold_path

CHUNK_COLUMNS = "id, page_id, number, content, first_line, last_line, hash, checksum"
"""The columns of `to_stored_chunk`. The checksum is that of the others."""
FULL_CHUNKS = f"SELECT {CHUNK_COLUMNS} FROM chunks"
"""The rows of `decode_full_chunks`."""
HASH_PREFIX_BYTES = 4
"""The bytes of a hash in the index by hash. They leave a few candidates even in a large wiki."""

_MIN_COMPRESSED_BYTES = 50
_TEXT_LEVEL, _WINDOW_BITS, _MEMORY_LEVEL = 6, 12, 5
"""A chunk is short: with a larger window and more memory, zlib takes five times as long and saves nothing."""
_DICTIONARY = (
    b" which their there about would other these could after where should between before because through without during"
    b" another however following example information available different provides specific current default required"
    b" returns values changes section number system object property method function string element have been more than"
    b" into only some when then them they will each also such like most made make over first page user text file name"
    b" type value list data time work used using uses it is that the for the to the in the of the on the with the"
    b" from the by the and the is a as a in a of a to be can be this is if you you can do not are not it's don't"
    b" see also for example, such as true false null const return import class width height color { }\n});\n  }\n}\n"
    b'=""></div>\n<div class="\n<p>https://www.http://.com/.org/.html.md)](/en/docs/img src="style="/>\n'
    b"```\n\n```js\n```css\n```html\n```json\n```bash\n```python\n| --- | --- |\n| \n- **\n- [\n- `\n  - \n* \n1. "
    b'\n\n> \n\n## \n\n### \n\n#### \n\nThe \n\nThis \n\nIn \n\nIf you \n\nTo \n\nYou can ["'
)
"""What many texts contain; zlib refers to it. With another dictionary, older files cannot be read."""
_TERMS_LEVEL = 4
"""A tenth smaller than at the fastest level. Higher levels save 3 % more, and take half as long again."""
_JSON_ENCODER = json.JSONEncoder(ensure_ascii=False)
"""`json.dumps` with options makes an encoder per call, which takes longer than encoding."""

Row = Sequence[Any]
P = ParamSpec("P")
T = TypeVar("T")


class ChunkRow(NamedTuple):
    """The columns of a chunk that both stores have, in the order the checksum covers them."""

    id: int
    page_id: int
    number: int
    text: str
    heading_path: str
    anchor: str
    first_line: int
    last_line: int
    hash: bytes


class LinkRow(NamedTuple):
    """A link of a page, with the columns of the SQLite store's `links` table."""

    target: str
    text: str
    line: int
    wiki: int
    paths: str
    key: str | None
    other_key: str | None


def make_chunk_rows(page_id: int, first_id: int, entry: PageEntry) -> list[ChunkRow]:
    """Make the rows of a page's chunks, with consecutive ids from `first_id`."""
    chunk_rows = []
    for chunk_id, (chunk, digest, _) in enumerate(
        zip(entry.chunks, entry.hashes, entry.vectors, strict=True), first_id
    ):
        path, lines = encode_strings(chunk.heading_path), (chunk.first_line, chunk.last_line)
        chunk_rows.append(ChunkRow(chunk_id, page_id, chunk.index, chunk.text, path, chunk.anchor, *lines, digest))
    return chunk_rows


def to_link_rows(links: Iterable[Link]) -> list[LinkRow]:
    """Convert links to rows, with the keys of their first two paths."""
    link_rows = []
    for link in links:
        key, other_key, *_ = (*map(fold_path, link.paths[:2]), None, None)
        paths = encode_strings(link.paths)
        link_rows.append(LinkRow(link.target, link.text, link.line, int(link.wiki), paths, key, other_key))
    return link_rows


def make_corrupt_error(error: Exception) -> IndexCorrupt:
    """The error for a damaged file. It never quotes the file's content."""
    return IndexCorrupt(
        f"the index file is damaged ({describe_error(error)})", hint="run `wikiholt sync` to build it again from git"
    )


def describe_error(error: Exception) -> str:
    """The error's message without the page text that Python's sqlite3 quotes in some: messages end up in logs."""
    text = str(error)
    return "text that is not UTF-8" if "decode" in text.lower() else text


def translate_damage(function: Callable[P, T]) -> Callable[P, T]:
    """Raise IndexCorrupt for stored values that cannot be decoded."""

    @wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except (ValueError, TypeError, OverflowError, OSError, zlib.error) as error:
            raise make_corrupt_error(error) from error

    return wrapper


def compute_row_checksum(row: Row) -> int:
    """The checksum of a row's values."""
    return zlib.crc32(encode_row(row))


def encode_row(row: Row) -> bytes:
    """The bytes of a row that its checksum covers."""
    binary = [index for index, kind in enumerate(map(type, row)) if kind is bytes]
    parts: list[bytes] = []
    start = 0
    # The values between two binary ones are encoded together: the bytes are the same, in a third of the time.
    for index in (*binary, len(row)):
        parts += "".join(map(repr, row[start:index])).encode("utf-8", "surrogatepass"), *row[index : index + 1]
        start = index + 1
    return b"".join(parts)


def is_row_intact(row: Row) -> bool:
    """Whether the last value of a row is the checksum of the others."""
    return bool(compute_row_checksum(row[:-1]) == row[-1])


def compute_problem_checksum(problem: PageProblem) -> int:
    return compute_row_checksum((problem.file, problem.blob, problem.reason, problem.detail))


def encode_page_parts(
    page_id: int, chunks: Iterable[Row], vectors: Iterable[Row], tags: Iterable[str], links: Iterable[Row]
) -> bytes:
    """The bytes of all that belongs to a page, for its checksum. `links` come without the page id.

    Rows are in the column order of the SQLite tables. Only the last column of chunks and vectors is binary.
    """
    parts: list[Any] = []
    for chunk_id, owner_id, number, text, path, anchor, first_line, last_line, digest in chunks:
        values = f"{chunk_id!r}{owner_id!r}{number!r}{text!r}{path!r}{anchor!r}{first_line!r}{last_line!r}"
        parts += values.encode("utf-8", "surrogatepass"), digest
    for chunk_id, owner_id, vector in vectors:
        parts += f"{chunk_id!r}{owner_id!r}".encode("utf-8", "surrogatepass"), vector
    own_id = repr(page_id)
    others = [*map(repr, tags), *(own_id + "".join(map(repr, link)) for link in links)]
    parts.append("".join(others).encode("utf-8", "surrogatepass"))
    # In a damaged row a binary value may have another type.
    return b"".join([part if type(part) is bytes else repr(part).encode("utf-8", "surrogatepass") for part in parts])


def _with_checksum(row: Row) -> Row:
    return (*row, compute_row_checksum(row))


@translate_damage
def to_stored_link(row: Row) -> StoredLink:
    page_id, target, text, line, wiki, paths = row
    return StoredLink(page_id, target, text, line, bool(wiki), decode_strings(paths))


@translate_damage
@lru_cache(maxsize=2048)
def to_stored_chunk(row: Row) -> StoredChunk:
    """Decode a chunk. Searches show the same ones again. Raises IndexCorrupt if it does not match its checksum."""
    chunk_id, page_id, number, content, first_line, last_line, _, _ = row
    if not is_row_intact(row):
        raise ValueError(f"chunk {chunk_id} is not as it was written")
    text, heading_path, anchor = decode_content(content)
    return StoredChunk(chunk_id, page_id, number, text, _decode_strings(heading_path), anchor, first_line, last_line)


@translate_damage
def decode_text(content: str | bytes) -> str:
    """The text of a chunk."""
    text, _, _ = decode_content(content)
    return text


@translate_damage
def decode_full_chunks(rows: Iterable[Row]) -> list[ChunkRow]:
    """Decode rows of `FULL_CHUNKS`. Checksums cover this form, which both stores have."""
    return [
        ChunkRow(chunk_id, page_id, number, *decode_content(content), first_line, last_line, digest)
        for chunk_id, page_id, number, content, first_line, last_line, digest, _ in rows
    ]


def insert_chunks(db: sqlite3.Connection, chunks: Iterable[ChunkRow]) -> None:
    """Insert chunks, without their vectors."""
    encoded = (
        _with_checksum((*chunk[:3], encode_content(chunk.text, chunk.heading_path, chunk.anchor), *chunk[6:]))
        for chunk in chunks
    )
    db.executemany(f"INSERT INTO chunks ({CHUNK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", encoded)


def encode_content(text: str, heading_path: str, anchor: str) -> str | bytes:
    """Compress a chunk, whose headings are given as JSON. A chunk that would not become smaller stays a text."""
    content = f"{heading_path}\n{json.dumps(anchor, ensure_ascii=False)}\n{text}"
    data = content.encode()
    if len(data) < _MIN_COMPRESSED_BYTES:
        return content
    compressor = zlib.compressobj(_TEXT_LEVEL, zlib.DEFLATED, -_WINDOW_BITS, _MEMORY_LEVEL, zdict=_DICTIONARY)
    compressed = compressor.compress(data) + compressor.flush()
    return compressed if len(compressed) < len(data) else content


def decode_content(encoded: str | bytes) -> tuple[str, str, str]:
    """Inverse of `encode_content`: text, headings and anchor. Raises ValueError or zlib.error."""
    content = encoded if isinstance(encoded, str) else _decompress(encoded)
    heading_path, anchor, text = content.split("\n", 2)
    # Without a backslash nothing is escaped. Most anchors have none, and JSON takes longer than all the rest.
    return text, heading_path, json.loads(anchor) if "\\" in anchor else anchor[1:-1]


def _decompress(data: bytes) -> str:
    decompressor = zlib.decompressobj(-_WINDOW_BITS, _DICTIONARY)
    content = decompressor.decompress(data)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the text of a chunk is incomplete, or has bytes after its end")
    return content.decode()


@translate_damage
def to_vector_rows(rows: Sequence[Row], dimensions: int) -> VectorRows:
    """Convert rows of (chunk id, page id, vector) to arrays."""
    chunk_ids = np.fromiter((chunk_id for chunk_id, _, _ in rows), np.int64, len(rows))
    page_ids = np.fromiter((page_id for _, page_id, _ in rows), np.int64, len(rows))
    return VectorRows(chunk_ids, page_ids, decode_vectors([vector for _, _, vector in rows], dimensions))


def encode_vectors(vectors: FloatArray) -> list[bytes]:
    """Encode each vector as its exponent and its numbers, in two bytes each."""
    numbers, exponents = split_vectors(vectors)
    encoded = np.empty(len(vectors), _get_vector_layout(vectors.shape[1]))
    encoded["exponent"], encoded["numbers"] = exponents, numbers
    return [row.tobytes() for row in encoded]


@translate_damage
def decode_vectors(encoded: Sequence[bytes], dimensions: int) -> FloatArray:
    """Inverse of `encode_vectors`, for rounded vectors. Raises IndexCorrupt if a vector has another size."""
    size = get_vector_bytes(dimensions)
    if any(len(vector) != size for vector in encoded):
        raise ValueError(f"a vector does not have {size} bytes")
    rows = np.frombuffer(b"".join(encoded), _get_vector_layout(dimensions))
    return join_vectors(rows["numbers"], rows["exponent"])


def get_vector_bytes(dimensions: int) -> int:
    """The size of an encoded vector."""
    return _get_vector_layout(dimensions).itemsize


def _get_vector_layout(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([("exponent", "<i2"), ("numbers", "<i2", (dimensions,))])


def to_id_array(rows: Iterable[Row]) -> IntArray:
    return np.fromiter((row_id for (row_id,) in rows), np.int64)


def encode_terms(terms: PageTerms) -> bytes:
    """Encode a page's terms. They are stored because FTS5 needs exactly these terms to delete the page."""
    return zlib.compress("\0".join((terms.name, terms.headings, terms.body)).encode(), _TERMS_LEVEL)


@translate_damage
def decode_terms(encoded: bytes) -> PageTerms:
    return PageTerms(*zlib.decompress(encoded).decode().split("\0"))


def encode_strings(strings: Sequence[str]) -> str:
    return _JSON_ENCODER.encode(list(strings)) if strings else "[]"


@translate_damage
def to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@translate_damage
def decode_strings(text: str) -> tuple[str, ...]:
    return _decode_strings(text)


def _decode_strings(text: str) -> tuple[str, ...]:
    if text == "[]":
        return ()
    # Without a backslash no quotation mark is part of a string, and this takes a third of the time.
    if "\\" not in text and text.startswith('["') and text.endswith('"]'):
        return tuple(text[2:-2].split('", "'))
    return tuple(json.loads(text))
