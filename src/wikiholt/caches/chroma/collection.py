"""Keeps the collection of one wiki equal to its index: build, update, check, repair, rebuild.

For the one background worker of a process. Among processes, only the holder of the lock file writes. Every step may be
interrupted: the version of a collection is written last, so an interrupted step is repeated. Rows are replaced by one
upsert, never by delete and add.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.caches.chroma.client import (
    ChromaError,
    ChromaMetrics,
    ChromaUnavailable,
    CollectionBusy,
    ForeignCollection,
)
from wikiholt.caches.chroma.record_layout import (
    DELETE_BATCH_ROWS,
    Cancelled,
    CollectionWriter,
    RecordLayout,
    ShouldStop,
    iter_slices,
)
from wikiholt.caches.chroma.rest_api import ChromaApi, ChromaRow, CollectionInfo, CollectionRows, MetadataValue
from wikiholt.domain.index import FloatArray, IntArray, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex

_LOG = logging.getLogger(__name__)

COLLECTION_FORMAT = 1
_LOCK_FILE = "chroma.lock"

VERIFY_SAMPLE_ROWS, VERIFY_NEIGHBOURS, MIN_RECALL, MIN_SELF_RECALL = 100, 10, 0.95, 0.99
"""A check queries a sample of rows for their neighbours. It requires this recall of neighbours and of the rows."""

EXTRA_NEIGHBOURS = 20
"""Neighbours requested beyond the limit: Chroma may miss some, and some are deleted by now."""
SAME_ROW_DISTANCE = 1e-3
"""Up to this distance a row counts as the queried row itself."""
_TIE_DISTANCE = 1e-5
_VERIFY_BATCH_ROWS = 20


@dataclass(frozen=True, slots=True)
class _CollectionVerifier:
    """Checks and repairs the collection of one index."""

    index: WikiIndex
    layout: RecordLayout
    metrics: ChromaMetrics
    writer: CollectionWriter

    def verify(self, collection: CollectionRows, version: int, should_stop: ShouldStop, *, can_write: bool) -> None:
        """Compare count, ids and a sample of nearest neighbours with the index, and repair rows that differ.

        Raises ChromaError if the recall is too low, CollectionBusy if the index changes in the meantime.
        """
        self.metrics.add("checks")
        if self.repair(collection, should_stop, version=version, can_write=can_write):
            self.metrics.add("repairs")
        sample = self.index.sample_vectors(VERIFY_SAMPLE_ROWS)
        if not len(sample.chunk_ids):
            return
        candidates = self._query_neighbours(collection, sample.vectors, should_stop)
        delta = self.index.get_vector_changes(version)
        if delta is None:
            raise CollectionBusy("The index has changed too much during the check.")
        recalls = [
            self._measure_recall(vector, chunk_ids, delta.added.chunk_ids)
            for vector, chunk_ids in zip(sample.vectors, candidates, strict=True)
        ]
        recall, self_recall = np.mean(recalls, axis=0)
        if recall >= MIN_RECALL and self_recall >= MIN_SELF_RECALL:
            return
        if self.index.get_version() != delta.version:
            raise CollectionBusy("The index has changed during the check.")
        raise ChromaError(f"The collection finds {recall:.0%} of the neighbours and {self_recall:.0%} of its own rows.")

    def _query_neighbours(
        self, collection: CollectionRows, vectors: FloatArray, should_stop: ShouldStop
    ) -> list[IntArray]:
        """Return for each vector the chunks that Chroma finds."""
        chunk_ids: list[IntArray] = []
        limit = VERIFY_NEIGHBOURS + EXTRA_NEIGHBOURS
        for part in iter_slices(len(vectors), _VERIFY_BATCH_ROWS, should_stop):
            nearest = collection.search(vectors[part], limit, with_metadata=self.layout.uses_metadata)
            chunk_ids += [self.to_chunk_ids(rows) for rows in nearest.rows]
        return chunk_ids

    def _measure_recall(self, vector: FloatArray, chunk_ids: IntArray, new_chunk_ids: IntArray) -> tuple[float, bool]:
        """Return the share of the nearest rows found and whether the row itself was. Ties count as found.

        Chunks newer than the collection count as found too.
        """
        expected = self.index.search_vectors(vector, VERIFY_NEIGHBOURS, None)
        hits = self.index.score_chunks(vector, np.union1d(chunk_ids, new_chunk_ids), VERIFY_NEIGHBOURS)
        if not len(expected.distances):
            return 1.0, True
        recall = float((hits.distances <= expected.distances[-1] + _TIE_DISTANCE).sum()) / len(expected.distances)
        exists = expected.distances[0] <= SAME_ROW_DISTANCE
        found = bool(len(hits.distances)) and bool(hits.distances[0] <= SAME_ROW_DISTANCE)
        return recall, not exists or found

    def to_chunk_ids(self, rows: Iterable[ChromaRow]) -> IntArray:
        """Return the chunk ids of these rows. Raises ChromaError if Wikiholt did not write one of them."""
        chunk_ids = [self.layout.get_chunk_id(row) for row in rows]
        if None in chunk_ids:
            raise ChromaError("The collection contains rows that Wikiholt did not write.")
        return np.array(chunk_ids, np.int64)

    def repair(
        self,
        collection: CollectionRows,
        should_stop: ShouldStop,
        *,
        version: int | None = None,
        can_write: bool = True,
    ) -> bool:
        """Write missing rows and delete extra ones. Returns whether there were any.

        With a version, chunks that changed since then are ignored. Raises CollectionBusy if rows differ and this
        process may not write, ChromaError if the collection is inconsistent.
        """
        rows = list(collection.iter_rows(with_metadata=self.layout.uses_metadata))
        if collection.count() != len(rows):
            error = ChromaError("The count and the ids of the collection differ.")
            raise error if can_write else CollectionBusy(error.message)
        missing, extra_ids = self._find_differences(rows, version)
        missing_count = sum(len(block.chunk_ids) for block in missing)
        if not missing_count and not extra_ids:
            return False
        if not can_write:
            raise CollectionBusy("The collection differs from the index; the process that writes it must repair it.")
        _LOG.warning("repairing a Chroma collection: %d rows missing, %d extra", missing_count, len(extra_ids))
        for block in missing:
            self.writer.upsert(collection, block, should_stop)
        for part in iter_slices(len(extra_ids), DELETE_BATCH_ROWS, should_stop):
            collection.delete({"ids": extra_ids[part]})
        self.metrics.add("rows_removed", len(extra_ids))
        return True

    def _find_differences(self, rows: Sequence[ChromaRow], version: int | None) -> tuple[list[VectorRows], list[str]]:
        """Return the rows of the index that are missing, and the ids of rows that are not in the index."""
        chunk_ids = np.array([-1 if (c := self.layout.get_chunk_id(row)) is None else c for row in rows], np.int64)
        delta = self.index.get_vector_changes(version) if version is not None else None
        missing: list[VectorRows] = []
        allowed: list[IntArray] = [np.empty(0, np.int64)]
        with self.index.open_vector_snapshot() as snapshot:
            for block in snapshot.iter_blocks():
                is_missing = ~np.isin(block.chunk_ids, chunk_ids)
                if delta is not None:
                    is_missing &= ~np.isin(block.chunk_ids, delta.added.chunk_ids)
                missing.append(
                    VectorRows(block.chunk_ids[is_missing], block.page_ids[is_missing], block.vectors[is_missing])
                )
                allowed.append(block.chunk_ids)
        if delta is not None:
            allowed.append(delta.dropped)
        is_extra = ~np.isin(chunk_ids, np.concatenate(allowed))
        return missing, [row.id for row, extra in zip(rows, is_extra, strict=True) if extra]


@dataclass(frozen=True, slots=True)
class VerifiedCollection:
    """A collection that was checked against the index; searches may use it."""

    collection: CollectionRows
    version: int
    row_count: int
    instance_id: str
    new_chunk_ids: IntArray
    """Chunks newer than its version, which it may not have."""


@dataclass(frozen=True, slots=True)
class CollectionOwner:
    """The wiki and installation that own a collection, and its layout."""

    wiki_id: str
    slug: str
    installation_id: str
    layout: RecordLayout

    @property
    def name(self) -> str:
        return self.layout.format_collection_name(self.wiki_id, self.slug)

    @property
    def draft_name(self) -> str:
        return f"{self.name}.new"


class CollectionSync:
    """Syncs the collection of one index. `get_wiki_ids` returns the wikis of this installation."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        owner: CollectionOwner,
        metrics: ChromaMetrics,
        get_wiki_ids: Callable[[], Iterable[str]],
        is_published: Callable[[], bool],
    ) -> None:
        """`is_published` tells whether searches still use this index."""
        self._index = index
        self._directory = directory
        self._owner = owner
        self._metrics = metrics
        self._writer = CollectionWriter(index, owner.layout, metrics)
        self._verifier = _CollectionVerifier(index, owner.layout, metrics, self._writer)
        self.to_chunk_ids = self._verifier.to_chunk_ids
        self._get_wiki_ids = get_wiki_ids
        self._is_published = is_published
        self._verified_key = ""
        self._crash_count = 0
        self._must_rebuild = False
        self._must_verify = False

    @property
    def uses_metadata(self) -> bool:
        """Whether rows must be requested with their metadata."""
        return self._owner.layout.uses_metadata

    def request_check(self) -> None:
        """Check the collection against the index at the next sync."""
        self._verified_key, self._must_verify = "", True

    def sync(self, api: ChromaApi, instance_id: str, should_stop: ShouldStop) -> VerifiedCollection:
        """Make the collection equal to the index.

        Raises ChromaUnavailable, ChromaError, ForeignCollection, CollectionBusy and Cancelled.
        """
        try:
            with self._try_write_lock() as can_write:
                verified = self._sync_locked(api, instance_id, should_stop, can_write=can_write)
        except ChromaUnavailable:
            # Only one collection is synced at a time: if Chroma crashes twice at this one, it is rebuilt.
            self._crash_count += 1
            self._must_rebuild = self._must_rebuild or self._crash_count >= 2
            raise
        self._crash_count, self._must_rebuild = 0, False
        return verified

    def _sync_locked(
        self, api: ChromaApi, instance_id: str, should_stop: ShouldStop, *, can_write: bool
    ) -> VerifiedCollection:
        collection = self._find_collection(api)
        if can_write and (collection is None or self._must_rebuild or not self._is_usable(collection)):
            if not self._is_published():
                raise Cancelled  # the collection belongs to the published generation
            collection = self._rebuild(api, should_stop)
        if collection is None or not self._is_usable(collection):
            raise CollectionBusy("Another process is building the collection.")
        try:
            return self._bring_up_to_date(api, collection, instance_id, should_stop, can_write=can_write)
        except ChromaError as error:
            if not can_write:
                raise
            _LOG.warning("rebuilding a damaged Chroma collection: %s", error.message)
        return self._bring_up_to_date(api, self._rebuild(api, should_stop), instance_id, should_stop, can_write=True)

    def _bring_up_to_date(
        self, api: ChromaApi, collection: CollectionInfo, instance_id: str, should_stop: ShouldStop, *, can_write: bool
    ) -> VerifiedCollection:
        version = _get_version(collection)
        if can_write and version != self._index.get_version():
            version = self._apply_changes(api, collection, version, should_stop)
        key = f"{collection.id} {instance_id}"
        if self._must_verify or self._verified_key != key:
            self._verifier.verify(api.open_rows(collection), version, should_stop, can_write=can_write)
        delta = self._index.get_vector_changes(version)
        if delta is None:
            raise CollectionBusy("Another process is updating the collection.")
        row_count = max(0, self._index.get_state().chunks - len(delta.added.chunk_ids))
        self._verified_key, self._must_verify = key, False
        return VerifiedCollection(api.open_rows(collection), version, row_count, instance_id, delta.added.chunk_ids)

    # ── ownership ────────────────────────────────────────────────────────────────────────────────

    def _find_collection(self, api: ChromaApi) -> CollectionInfo | None:
        """Return the collection of this wiki. Deletes one that a removed wiki of this installation left.

        Raises ForeignCollection if the name belongs to another owner.
        """
        collection: CollectionInfo | None = None
        for name in (self._owner.draft_name, self._owner.name):
            collection = api.find_collection(name)
            if collection is None or collection.metadata.get("wikiholt_wiki") == self._owner.wiki_id:
                continue
            installation_id = self._owner.installation_id
            is_ours = bool(installation_id) and collection.metadata.get("wikiholt_owner") == installation_id
            if not is_ours or collection.metadata.get("wikiholt_wiki") in set(self._get_wiki_ids()):
                raise ForeignCollection(
                    "Chroma has a collection of this name that Wikiholt did not create.",
                    hint="rename or remove it, or choose another chroma.database or chroma.layout",
                )
            api.delete_collection(name)
            collection = None
        return collection

    def _build_metadata(self, version: int) -> Mapping[str, MetadataValue]:
        state = self._index.get_state()
        return {
            "wikiholt_wiki": self._owner.wiki_id,
            "wikiholt_owner": self._owner.installation_id,
            "wikiholt_format": COLLECTION_FORMAT,
            "wikiholt_layout": self._owner.layout.name,
            "wikiholt_model": state.recipe.fingerprint,
            "wikiholt_generation": state.generation,
            "wikiholt_version": version,
        }

    def _is_usable(self, collection: CollectionInfo) -> bool:
        """Whether the collection was built completely from this index, in the current format."""
        version = _get_version(collection)
        same_metadata = dict(collection.metadata) == dict(self._build_metadata(version))
        same_dimensions = collection.dimension in (None, self._index.get_state().recipe.dimensions)
        return same_metadata and same_dimensions and 0 <= version <= self._index.get_version()

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def _rebuild(self, api: ChromaApi, should_stop: ShouldStop) -> CollectionInfo:
        """Build a draft collection from the index and replace the existing one with it."""
        self._metrics.add("rebuilds")
        api.delete_collection(self._owner.draft_name)
        draft = api.create_collection(self._owner.draft_name, self._build_metadata(-1))
        with self._index.open_vector_snapshot() as snapshot:
            version = snapshot.version
            for block in snapshot.iter_blocks():
                self._writer.upsert(api.open_rows(draft), block, should_stop)
        metadata = self._build_metadata(version)
        if not self._directory.exists():
            raise Cancelled  # the wiki was removed in the meantime
        api.delete_collection(self._owner.name)
        api.open_rows(draft).update_collection(metadata, self._owner.name)
        return CollectionInfo(draft.id, self._owner.name, draft.dimension, metadata)

    def _apply_changes(self, api: ChromaApi, collection: CollectionInfo, version: int, should_stop: ShouldStop) -> int:
        """Write the changes since `version` and return the new version. If they are unknown, compare all ids.

        A page that moved keeps its chunks. Raises ChromaError if records of its old path cannot be found.
        """
        rows = api.open_rows(collection)
        delta = self._index.get_vector_changes(version)
        if delta is None:
            if self.uses_metadata:
                raise ChromaError("The collection is too old to be updated.")
            new_version = self._index.get_version()
            self._verifier.repair(rows, should_stop)
        else:
            new_version = delta.version
            if self.uses_metadata:
                # Records of a page that moved have another id.
                for part in iter_slices(len(delta.added.chunk_ids), DELETE_BATCH_ROWS, should_stop):
                    rows.delete(self._owner.layout.build_selector(delta.added.chunk_ids[part]))
            self._writer.upsert(rows, delta.added, should_stop)
            self._writer.delete(rows, np.setdiff1d(delta.dropped, delta.added.chunk_ids), should_stop)
        rows.update_collection(self._build_metadata(new_version))
        return new_version

    @contextlib.contextmanager
    def _try_write_lock(self) -> Iterator[bool]:
        """Yield whether this process may write the collection while the block runs."""
        # The directory is not created: if it is gone, the wiki was removed and must not reappear.
        descriptor = os.open(self._directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def _get_version(collection: CollectionInfo) -> int:
    version = collection.metadata.get("wikiholt_version")
    return version if isinstance(version, int) else -1
