"""Vector search of one wiki with Chroma: it proposes records, and the index scores their chunks exactly.

A reply of Chroma is never trusted. While Chroma is unavailable, slow or wrong, exact search answers, marked `degraded`;
while the collection follows an edit, exact search answers too.

A sync writes the records that differ, deletes those that the index does not have, and then writes the version, so that
an interrupted one is repeated. A collection is verified before searches may use it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.index.chroma.client import (
    ChromaError,
    ChromaUnavailable,
    CollectionInfo,
    CollectionRecords,
    ForeignCollection,
    Metadata,
)
from wikiholt.index.chroma.collection import (
    Cancelled,
    CollectionBusy,
    ReadyCollection,
    iter_vectors,
    lock_collection,
    read_ids,
)
from wikiholt.index.sqlite.index import SqliteIndex

if TYPE_CHECKING:
    from wikiholt.index.chroma.engine import ChromaEngine

_LOG = logging.getLogger(__name__)

STOP_TIMEOUT_S = 2.0
"""How long stopping waits for a request in progress. One that takes longer is abandoned: Chroma may hang."""
MAX_CHROMA_LIMIT = 1000
"""Searches for more neighbours than this are answered by exact search."""
_EXTRA_ROWS = 20
"""Rows requested beyond the limit, because Chroma may miss some."""
_COMPLETE_ROWS = 256
"""A query of a collection up to this size asks for all rows: the graph may lose rows, and then the number tells."""
_MIN_RETURNED_SHARE = 0.9
_CHECK_INTERVAL_S, _RECONNECT_CHECK_INTERVAL_S = 900.0, 60.0
"""Minimum seconds between two checks of a collection in use: scheduled, and after a new connection."""
_FORMAT = 2
_UPSERT_BATCH_ROWS, _DELETE_BATCH_ROWS = 100, 1000
"""Rows per request: searches wait while Chroma writes them."""
_SAMPLE_ROWS, _NEIGHBOURS, _CANDIDATES, _MIN_RECALL, _MIN_SELF_RECALL = 100, 10, 30, 0.95, 0.99
"""A check queries a sample of rows for their neighbours. It requires this recall of neighbours and of the rows."""
_SAME_ROW_DISTANCE, _TIE_DISTANCE = 1e-3, 1e-5
_QUERY_BATCH_ROWS = 20


class ChromaSearcher:
    """A `VectorCache` over one index and its collection, which the engine's thread syncs."""

    def __init__(
        self,
        engine: "ChromaEngine",
        index: SqliteIndex,
        directory: Path,
        wiki_id: str,
        slug: str,
        is_published: Callable[[], bool],
    ) -> None:
        """`is_published` tells whether searches still use this index."""
        self._engine = engine
        self._index = index
        self._directory = directory
        self._wiki_id = wiki_id
        self._is_published = is_published
        self._layout = engine.layout
        self._name = engine.layout.format_collection_name(wiki_id, slug)
        self._known: Mapping[str, int] = {}
        """The chunk of each record of the collection, valid while `_known_key` is that of the collection."""
        self._known_key = ""
        self._crash_count = 0
        self._ready: ReadyCollection | None = None
        self._version = -1
        self._checked_at = time.monotonic()
        self._is_first_refresh = True
        self.is_closed = False
        self.retry_at = 0.0
        """When the collection may be synced again after an error; `errors` in a row."""
        self.errors = 0
        self.idle = threading.Event()
        """Set unless the engine syncs the collection or is about to."""
        self.idle.set()

    @property
    def version(self) -> int | None:
        return self._index.get_version()

    def refresh(self) -> None:
        """Bring the collection to the index's version in the background."""
        self._version = self._index.get_version()
        if time.monotonic() - self._checked_at > _CHECK_INTERVAL_S:
            self._request_check()
        elif self._ready is None or self._ready.version != self._version:
            self._engine.enqueue(self)
        if self._is_first_refresh:
            # Wait once, so that a command that searches once can use Chroma.
            self._is_first_refresh = False
            self.idle.wait(self._engine.config.timeout_s)

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """Return the nearest chunks, only of these pages if given: without Chroma, whose filters lose neighbours."""
        ready = self._ready
        if page_ids is not None or limit > MAX_CHROMA_LIMIT:
            return self._index.search_vectors(vector, limit, page_ids)
        if ready is not None:
            try:
                chunk_ids = self._propose_chunks(ready, np.ascontiguousarray(vector, np.float32), limit)
                if chunk_ids is not None:
                    return self._index.score_chunks(vector, chunk_ids, limit)
                return self._index.search_vectors(vector, limit, None)
            except (ChromaUnavailable, ChromaError) as error:
                self._engine.metrics.add_failure(error)
                self._ready = None
                if isinstance(error, ChromaError):
                    self._known_key = ""
                self._engine.enqueue(self)
        self._engine.metrics.add("fallbacks")
        return replace(self._index.search_vectors(vector, limit, None), degraded=True)

    def _propose_chunks(self, ready: ReadyCollection, vector: FloatArray, limit: int) -> IntArray | None:
        """Return the chunks that Chroma finds; None if they may not be the nearest."""
        count = len(ready.chunks_by_record)
        row_limit = min(max(limit + _EXTRA_ROWS, _COMPLETE_ROWS), count)
        if not row_limit or ready.version != self._version:
            return None
        (names,), reply = ready.records.search(vector[None], row_limit, self._engine.config.timeout_s)
        if reply.instance_id != ready.instance_id:
            raise ChromaUnavailable("Chroma is not the process that was verified.")
        is_other_server = reply.is_new_connection and not reply.instance_id
        if is_other_server and time.monotonic() - self._checked_at > _RECONNECT_CHECK_INTERVAL_S:
            self._request_check()
        chunk_ids = ready.get_chunk_ids(names)
        if len(chunk_ids) < _MIN_RETURNED_SHARE * row_limit:
            raise ChromaError("Chroma returns fewer rows than the collection has.")
        self._engine.metrics.add("queries")
        # Rows that Chroma misses must not be hidden by farther ones that make up for their number.
        return None if len(chunk_ids) < row_limit == count else chunk_ids

    def verify(self) -> None:
        """Schedule a check of the collection."""
        self._request_check()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        return self.idle.wait(timeout_s)

    def close(self) -> None:
        self.is_closed = True
        self.idle.wait(STOP_TIMEOUT_S)
        self._ready = None

    def stop_using_collection(self) -> None:
        """Search exactly until the next sync."""
        self._ready = None

    def _check_stop(self) -> None:
        if self.is_closed or self._engine.is_closing:
            raise Cancelled

    def _request_check(self) -> None:
        """Compare the collection with the index in the background. Searches keep using it."""
        self._checked_at = time.monotonic()
        self._known_key = ""
        self._engine.enqueue(self)

    # ── the sync, in the engine's thread ─────────────────────────────────────────────────────────

    def sync(self, instance_id: str) -> None:
        """Make the collection equal to the index, for the engine's thread; searches use it from then on.

        A collection that cannot be updated is rebuilt. Raises Cancelled, CollectionBusy, ChromaUnavailable, ChromaError
        and ForeignCollection.
        """
        self._ready = None if self._ready is None or self._ready.instance_id != instance_id else self._ready
        try:
            with lock_collection(self._directory):
                self._ready = self._find_or_rebuild(instance_id)
        except KeyError as error:
            raise CollectionBusy from error
        except (ChromaUnavailable, ChromaError) as error:
            # Only one collection is synced at a time: if Chroma crashes twice at this one, it is rebuilt.
            self._crash_count += isinstance(error, ChromaUnavailable)
            self._known_key = ""
            raise

    def _find_or_rebuild(self, instance_id: str) -> ReadyCollection:
        collection = self._engine.client.find_collection(self._name)
        if collection is not None:
            self._check_owner(collection)
        if collection is not None and self._is_usable(collection) and self._crash_count < 2:
            try:
                return self._update(collection, instance_id)
            except ChromaError as error:
                _LOG.warning("rebuilding a damaged Chroma collection: %s", error.message)
        return self._update(self._create(), instance_id)

    def _check_owner(self, collection: CollectionInfo) -> None:
        """Raise ForeignCollection if the collection belongs neither to this wiki nor to a removed one."""
        if collection.metadata.get("wikiholt_wiki") != self._wiki_id and not self._engine.is_orphan(collection):
            raise ForeignCollection(
                "Chroma has a collection of this name that Wikiholt did not create.",
                hint="rename or remove it, or choose another chroma.database or chroma.layout",
            )

    def _create(self) -> CollectionInfo:
        """Create the collection, or replace it by an empty one."""
        if not self._is_published() or not self._directory.exists():
            raise Cancelled  # the collection belongs to the published generation, or the wiki was removed
        self._engine.metrics.add("rebuilds")
        self._engine.client.delete_collection(self._name)
        return self._engine.client.create_collection(self._name, self._build_metadata(-1))

    def _build_metadata(self, version: int) -> Metadata:
        state = self._index.get_state()
        return {
            "wikiholt_wiki": self._wiki_id,
            "wikiholt_owner": self._engine.installation_id,
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

    def _update(self, collection: CollectionInfo, instance_id: str) -> ReadyCollection:
        records, old_version = self._engine.client.open_records(collection), collection.metadata["wikiholt_version"]
        is_unknown = self._known_key != f"{collection.id} {instance_id} {old_version}"
        known = self._list_records(records) if is_unknown else dict(self._known)
        with self._index.open_vector_snapshot() as snapshot:
            version = snapshot.version
            chunk_ids, page_ids = read_ids(snapshot)
            names = self._layout.format_record_ids(self._index, chunk_ids, page_ids)
            expected = dict(zip(names, chunk_ids.tolist(), strict=True))
            changed = {chunk_id: name for name, chunk_id in expected.items() if known.get(name) != chunk_id}
            extra = [name for name in known if name not in expected]
            if (changed or extra) and version == old_version:
                self._engine.metrics.add("repairs")
                _LOG.warning("repairing a Chroma collection: %d rows missing, %d extra", len(changed), len(extra))
            for ids, vectors in iter_vectors(snapshot, np.array(sorted(changed), np.int64), _UPSERT_BATCH_ROWS):
                self._check_stop()
                names = [changed[chunk_id] for chunk_id in ids]
                records.upsert(names, vectors, *self._layout.read_contents(self._index, names, ids))
                self._engine.metrics.add("rows_written", len(ids))
        for start in range(0, len(extra), _DELETE_BATCH_ROWS):
            self._check_stop()
            records.delete(extra[start : start + _DELETE_BATCH_ROWS])
        self._engine.metrics.add("rows_removed", len(extra))
        if version != old_version:
            records.replace_metadata(self._build_metadata(version))
        ready = ReadyCollection(records, version, instance_id, expected)
        if is_unknown:
            self._verify_neighbours(ready)
        self._known, self._known_key = expected, f"{collection.id} {instance_id} {version}"
        self._crash_count = 0
        return ready

    def _list_records(self, records: CollectionRecords) -> dict[str, int]:
        self._engine.metrics.add("checks")
        known: dict[str, int] = {}
        for names, *columns in records.iter_batches(self._layout.columns):
            known.update(zip(names, map(self._layout.get_chunk_id, names, *columns), strict=True))
        if records.count() != len(known):
            raise ChromaError("The count and the ids of the collection differ.")
        return known

    def _verify_neighbours(self, ready: ReadyCollection) -> None:
        """Query the neighbours of a sample. Raises ChromaError if too few are found."""
        sample = self._index.sample_vectors(_SAMPLE_ROWS).vectors
        recalls = [(1.0, True)] * (not len(sample))
        for start in range(0, len(sample), _QUERY_BATCH_ROWS):
            self._check_stop()
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
