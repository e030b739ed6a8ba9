"""Real rows to fill tables with: the vectors of a real wiki's passages, in the order of its pages."""

import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.corpus import open_large_index
from bench.postgres.parts import SAVED_RESULTS
from wikiholt.domain.index import FloatArray, IntArray

_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"


@dataclass(frozen=True)
class PassageRows:
    """Vectors with the pages they belong to, and those pages' names."""

    vectors: FloatArray
    pages: IntArray
    names: dict[int, str]


def load_rows(count: int) -> PassageRows:
    """The first passages of an index of bench.sync; saved, so that they are read once."""
    file = SAVED_RESULTS / "rows.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **_read_rows(count))
    with np.load(file) as stored:
        if len(stored["vectors"]) < count:
            sys.exit(f"{file} has {len(stored['vectors']):,} rows, and {count:,} are needed: delete it")
        names = dict(zip(stored["page_ids"].tolist(), stored["names"].tolist(), strict=True))
        return PassageRows(stored["vectors"][:count], stored["pages"][:count], names)


def _read_rows(count: int) -> dict[str, np.ndarray[Any, Any]]:
    with open_large_index(count) as index, index.open_vector_snapshot() as snapshot:
        blocks = list(snapshot.iter_blocks())
        vectors = np.concatenate([block.vectors for block in blocks])[:count]
        pages = np.concatenate([block.page_ids for block in blocks])[:count]
        stored = index.get_pages(np.unique(pages).tolist())
    names = np.array([stored[page_id].name for page_id in sorted(stored)])
    return {"vectors": vectors, "pages": pages, "page_ids": np.array(sorted(stored), np.int64), "names": names}


# ── PostgreSQL's binary form of rows ─────────────────────────────────────────────────────────────


def encode_copy(rows: Iterable[tuple[bytes, ...]]) -> Iterator[bytes]:
    """What `COPY … FROM STDIN (FORMAT binary)` reads: rows of values that are in binary form already."""
    yield _HEAD
    for row in rows:
        yield struct.pack(">h", len(row)) + b"".join(struct.pack(">i", len(value)) + value for value in row)
    yield _END


def encode_int4(value: int) -> bytes:
    return struct.pack(">i", value)


def encode_vector(value: FloatArray) -> bytes:
    return struct.pack(">hh", len(value), 0) + value.astype(">f4").tobytes()


def format_vector(value: FloatArray) -> str:
    """A vector as text, for a query."""
    return "[" + ",".join(f"{each:.7g}" for each in value) + "]"
