"""Keeps the collection of one wiki equal to its index, and verifies it before searches may use it.

Records that differ are written, those that the index does not have are deleted, and then the version is written, so
that an interrupted sync is repeated. A lock file allows one process at a time to sync a collection.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.storage_protocols import VectorSnapshot
from wikiholt.index.chroma.client import (
    ChromaClient,
    ChromaError,
    ChromaMetrics,
    ChromaUnavailable,
    CollectionInfo,
    CollectionRecords,
    ForeignCollection,
    Metadata,
)
from wikiholt.index.chroma.layout import IdLayout
from wikiholt.index.sqlite.index import SqliteIndex

_LOG = logging.getLogger(__name__)

_FORMAT = 2
_LOCK_FILE = "chroma.lock"
_UPSERT_BATCH_ROWS, _DELETE_BATCH_ROWS = 100, 1000
"""Rows per request: searches wait while Chroma writes them."""
_SAMPLE_ROWS, _NEIGHBOURS, _CANDIDATES, _MIN_RECALL, _MIN_SELF_RECALL = 100, 10, 30, 0.95, 0.99
"""A check queries a sample of rows for their neighbours. It requires this recall of neighbours and of the rows."""
_SAME_ROW_DISTANCE, _TIE_DISTANCE = 1e-3, 1e-5
_QUERY_BATCH_ROWS = 20


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


@dataclass(frozen=True, slots=True)
class CollectionOwner:
    """The wiki and the installation that own a collection. An installation knows its wikis."""

    wiki_id: str
    installation_id: str
    get_wiki_ids: Callable[[], Collection[str]]
    is_published: Callable[[], bool] = lambda: True
    """Whether searches still use the index that the collection is for."""

    def check(self, collection: CollectionInfo) -> None:
        """Raise ForeignCollection if the collection belongs neither to this wiki nor to a removed one."""
        if collection.metadata.get("wikiholt_wiki") != self.wiki_id and not self.is_orphan(collection):
            raise ForeignCollection(
                "Chroma has a collection of this name that Wikiholt did not create.",
                hint="rename or remove it, or choose another chroma.database or chroma.layout",
            )

    def is_orphan(self, collection: CollectionInfo) -> bool:
        """Whether a removed wiki of this installation left the collection."""
        is_own = self.installation_id and collection.metadata.get("wikiholt_owner") == self.installation_id
        return bool(is_own) and collection.metadata.get("wikiholt_wiki") not in self.get_wiki_ids()


class CollectionSync:
    """Syncs the collection of one index. For one thread at a time."""

    def __init__(
        self,
        index: SqliteIndex,
        directory: Path,
        name: str,
        owner: CollectionOwner,
        layout: IdLayout,
        metrics: ChromaMetrics,
    ) -> None:
        self._index = index
        self._directory = directory
        self._name = name
        self._owner = owner
        self._layout = layout
        self._metrics = metrics
        self._known: Mapping[str, int] = {}
        """The chunk of each record of the collection, valid while `_known_key` is that of the collection."""
        self._known_key = ""
        self._crash_count = 0

    def request_check(self) -> None:
        """Compare the collection with the index at the next sync."""
        self._known_key = ""

    def sync(self, client: ChromaClient, instance_id: str, check_stop: Callable[[], None]) -> ReadyCollection:
        """Make the collection equal to the index. A collection that cannot be updated is rebuilt.

        `check_stop` raises Cancelled. Raises also ChromaUnavailable, ChromaError, ForeignCollection and CollectionBusy.
        """
        try:
            with self._lock_collection():
                collection = client.find_collection(self._name)
                if collection is not None:
                    self._owner.check(collection)
                if collection is not None and self._is_usable(collection) and self._crash_count < 2:
                    try:
                        return self._update(client, collection, instance_id, check_stop)
                    except ChromaError as error:
                        _LOG.warning("rebuilding a damaged Chroma collection: %s", error.message)
                return self._update(client, self._create(client), instance_id, check_stop)
        except KeyError as error:
            raise CollectionBusy from error
        except (ChromaUnavailable, ChromaError) as error:
            # Only one collection is synced at a time: if Chroma crashes twice at this one, it is rebuilt.
            self._crash_count += isinstance(error, ChromaUnavailable)
            self._known_key = ""
            raise

    def _create(self, client: ChromaClient) -> CollectionInfo:
        """Create the collection, or replace it by an empty one."""
        if not self._owner.is_published() or not self._directory.exists():
            raise Cancelled  # the collection belongs to the published generation, or the wiki was removed
        self._metrics.add("rebuilds")
        client.delete_collection(self._name)
        return client.create_collection(self._name, self._build_metadata(-1))

    def _build_metadata(self, version: int) -> Metadata:
        state = self._index.get_state()
        return {
            "wikiholt_wiki": self._owner.wiki_id,
            "wikiholt_owner": self._owner.installation_id,
            "wikiholt_format": _FORMAT,
            "wikiholt_layout": self._layout.name,
            "wikiholt_model": state.recipe.fingerprint,
            "wikiholt_generation": state.generation,
            "wikiholt_version": version,
        }

    def _is_usable(self, collection: CollectionInfo) -> bool:
        """Whether the collection belongs to this history of this index, in the current format."""
        version = collection.metadata.get("wikiholt_version")
        is_known = isinstance(version, int) and version <= self._index.get_version()
        return is_known and dict(collection.metadata) == dict(self._build_metadata(int(version or 0)))

    def _update(
        self, client: ChromaClient, collection: CollectionInfo, instance_id: str, check_stop: Callable[[], None]
    ) -> ReadyCollection:
        records, old_version = client.open_records(collection), collection.metadata["wikiholt_version"]
        is_unknown = self._known_key != f"{collection.id} {instance_id} {old_version}"
        known = self._list_records(records) if is_unknown else dict(self._known)
        with self._index.open_vector_snapshot() as snapshot:
            version = snapshot.version
            chunk_ids, page_ids = _read_ids(snapshot)
            names = self._layout.format_record_ids(self._index, chunk_ids, page_ids)
            expected = dict(zip(names, chunk_ids.tolist(), strict=True))
            changed = {chunk_id: name for name, chunk_id in expected.items() if known.get(name) != chunk_id}
            extra = [name for name in known if name not in expected]
            if (changed or extra) and version == old_version:
                self._metrics.add("repairs")
                _LOG.warning("repairing a Chroma collection: %d rows missing, %d extra", len(changed), len(extra))
            for ids, vectors in _iter_vectors(snapshot, np.array(sorted(changed), np.int64), _UPSERT_BATCH_ROWS):
                check_stop()
                names = [changed[chunk_id] for chunk_id in ids]
                records.upsert(names, vectors, *self._layout.read_contents(self._index, names, ids))
                self._metrics.add("rows_written", len(ids))
        for start in range(0, len(extra), _DELETE_BATCH_ROWS):
            check_stop()
            records.delete(extra[start : start + _DELETE_BATCH_ROWS])
        self._metrics.add("rows_removed", len(extra))
        if version != old_version:
            records.replace_metadata(self._build_metadata(version))
        ready = ReadyCollection(records, version, instance_id, expected)
        if is_unknown:
            self._verify(ready, check_stop)
        self._known, self._known_key = expected, f"{collection.id} {instance_id} {version}"
        self._crash_count = 0
        return ready

    def _list_records(self, records: CollectionRecords) -> dict[str, int]:
        self._metrics.add("checks")
        known: dict[str, int] = {}
        for names, *columns in records.iter_batches(self._layout.columns):
            known.update(zip(names, map(self._layout.get_chunk_id, names, *columns), strict=True))
        if records.count() != len(known):
            raise ChromaError("The count and the ids of the collection differ.")
        return known

    def _verify(self, ready: ReadyCollection, check_stop: Callable[[], None]) -> None:
        """Query the neighbours of a sample. Raises ChromaError if too few are found."""
        sample = self._index.sample_vectors(_SAMPLE_ROWS).vectors
        recalls = [(1.0, True)] * (not len(sample))
        for start in range(0, len(sample), _QUERY_BATCH_ROWS):
            check_stop()
            vectors = sample[start : start + _QUERY_BATCH_ROWS]
            found, _ = ready.records.search(vectors, min(_CANDIDATES, max(1, len(ready.chunks_by_record))))
            for vector, names in zip(vectors, found, strict=True):
                recalls.append(self._measure_recall(vector, ready.get_chunk_ids(names)))
        recall, self_recall = np.mean(recalls, axis=0)
        if recall >= _MIN_RECALL and self_recall >= _MIN_SELF_RECALL:
            return
        if self._index.get_version() != ready.version:
            raise CollectionBusy
        raise ChromaError(f"The collection finds {recall:.0%} of the neighbours and {self_recall:.0%} of its own rows.")

    def _measure_recall(self, vector: FloatArray, chunk_ids: IntArray) -> tuple[float, bool]:
        """Return the share of the nearest rows among these chunks, and whether the row itself is. Ties count."""
        nearest = self._index.search_vectors(vector, _NEIGHBOURS, None).distances
        found = self._index.score_chunks(vector, chunk_ids, _NEIGHBOURS).distances
        if not len(nearest) or not len(found):
            return float(not len(nearest)), not len(nearest)
        recall = float(np.sum(found <= nearest[-1] + _TIE_DISTANCE)) / len(nearest)
        return recall, bool(found[0] <= nearest[0] + _SAME_ROW_DISTANCE)

    @contextlib.contextmanager
    def _lock_collection(self) -> Iterator[None]:
        # The directory is not created: if it is gone, the wiki was removed and must not reappear.
        descriptor = os.open(self._directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise CollectionBusy from None
        finally:
            os.close(descriptor)


def _read_ids(snapshot: VectorSnapshot) -> tuple[IntArray, IntArray]:
    """Return all chunk ids, sorted, and their page ids."""
    empty = np.empty(0, np.int64)
    blocks = [(block.chunk_ids, block.page_ids) for block in snapshot.iter_blocks()]
    chunk_ids, page_ids = (np.concatenate([empty, *column]) for column in zip((empty, empty), *blocks, strict=True))
    order = np.argsort(chunk_ids, kind="stable")
    return chunk_ids[order], page_ids[order]


def _iter_vectors(snapshot: VectorSnapshot, chunk_ids: IntArray, size: int) -> Iterator[tuple[list[int], FloatArray]]:
    """Yield these chunks with their vectors, at most `size` at once."""
    for block in snapshot.iter_blocks() if len(chunk_ids) else ():
        wanted = np.flatnonzero(np.isin(block.chunk_ids, chunk_ids))
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            yield block.chunk_ids[part].tolist(), np.asarray(block.vectors[part], np.float32)
