"""Real rows to fill tables with: the vectors of a real wiki's passages, in the order of its pages."""

import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.postgres.parts import SAVED_RESULTS
from bench.report import DATA
from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.storage.sqlite.store import SqliteStore

_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"


@dataclass(frozen=True)
class PassageRows:
    """Vectors with the pages they belong to, and those pages' names."""

    vectors: FloatArray
    pages: IntArray
    names: dict[int, str]


def load_rows(count: int) -> PassageRows:
    """The first passages of the index that bench.sync made; saved, so that they are read once."""
    kept = SAVED_RESULTS / "rows.npz"
    if not kept.exists():
        _read_rows(count).dump(kept)
    with np.load(kept) as file:
        rows = _StoredRows(file["vectors"], file["pages"], file["named"], file["names"])
    if len(rows.vectors) < count:
        sys.exit(f"{kept} has {len(rows.vectors):,} rows, and {count:,} are needed: delete it, and run bench.sync")
    names = dict(zip(rows.named.tolist(), rows.names.tolist(), strict=True))
    return PassageRows(rows.vectors[:count], rows.pages[:count], names)


@dataclass(frozen=True)
class _StoredRows:
    vectors: FloatArray
    pages: IntArray
    named: IntArray
    names: np.ndarray[Any, Any]

    def dump(self, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        np.savez(to, vectors=self.vectors, pages=self.pages, named=self.named, names=self.names)


def _read_rows(count: int) -> _StoredRows:
    store = SqliteStore(DATA / "sync" / "wikis")
    for wiki_id in store.list_wiki_ids():
        index = store.open(wiki_id)
        try:
            with index.open_vector_snapshot() as snapshot:
                if snapshot.count < count:
                    continue
                blocks = list(snapshot.iter_blocks())
            vectors = np.concatenate([block.vectors for block in blocks])[:count]
            pages = np.concatenate([block.page_ids for block in blocks])[:count]
            stored = index.get_pages(np.unique(pages).tolist())
            named = np.array(sorted(stored), np.int64)
            return _StoredRows(vectors, pages, named, np.array([stored[each].name for each in sorted(stored)]))
        finally:
            index.close()
    sys.exit(f"there is no index of {count:,} passages: run `python -m bench.sync` first")


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
