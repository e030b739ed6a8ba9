"""A verified collection, the lock of a sync, and what an index has for a collection."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.storage_protocols import VectorSnapshot
from wikiholt.index.chroma.client import (
    CollectionRecords,
)

_LOG = logging.getLogger(__name__)

_LOCK_FILE = "chroma.lock"


class Cancelled(Exception):
    """The wiki or the engine was closed, or the wiki was removed."""


class CollectionBusy(Exception):
    """Another process syncs the collection, or the index has changed: retry in a moment."""


@dataclass(frozen=True, slots=True)
class ReadyCollection:
    """A verified collection that equals the index at one version; searches may use it."""

    records: CollectionRecords
    version: int
    instance_id: str
    chunks_by_record: Mapping[str, int]

    def get_chunk_ids(self, record_ids: Sequence[str]) -> IntArray:
        """Return the sorted chunks of these records. Records that do not belong to the collection are ignored."""
        known = self.chunks_by_record
        return np.unique(np.array([known[name] for name in record_ids if name in known], np.int64))


@contextlib.contextmanager
def lock_collection(directory: Path) -> Iterator[None]:
    """Allow one process to sync the collection of a wiki. Raises CollectionBusy."""
    # The directory is not created: if it is gone, the wiki was removed and must not reappear.
    descriptor = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CollectionBusy from None
    finally:
        os.close(descriptor)


def read_ids(snapshot: VectorSnapshot) -> tuple[IntArray, IntArray]:
    """Return all chunk ids, sorted, and their page ids."""
    empty = np.empty(0, np.int64)
    blocks = [(block.chunk_ids, block.page_ids) for block in snapshot.iter_blocks()]
    chunk_ids, page_ids = (np.concatenate([empty, *column]) for column in zip((empty, empty), *blocks, strict=True))
    order = np.argsort(chunk_ids, kind="stable")
    return chunk_ids[order], page_ids[order]


def iter_vectors(snapshot: VectorSnapshot, chunk_ids: IntArray, size: int) -> Iterator[tuple[list[int], FloatArray]]:
    """Yield these chunks with their vectors, at most `size` at once."""
    for block in snapshot.iter_blocks() if len(chunk_ids) else ():
        wanted = np.flatnonzero(np.isin(block.chunk_ids, chunk_ids))
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            yield block.chunk_ids[part].tolist(), np.asarray(block.vectors[part], np.float32)
