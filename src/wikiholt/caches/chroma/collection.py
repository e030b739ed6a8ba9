"""A collection compared with the truth: its count, its ids, and whether rows find their neighbours; and mended."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.caches.background_worker import Cancelled
from wikiholt.caches.chroma.client import (
    ChromaError,
    ChromaMetrics,
    ChromaUnavailable,
    CollectionBusy,
    ForeignCollection,
)
from wikiholt.caches.chroma.record_layout import (
    DELETE_BATCH_ROWS,
    CollectionWriter,
    RecordLayout,
    ShouldStop,
    iter_slices,
)
from wikiholt.caches.chroma.rest_api import ChromaApi, ChromaRow, CollectionInfo, CollectionRows, MetadataValue
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.domain.index import FloatArray, IntArray, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex

_LOG = logging.getLogger(__name__)

VERIFY_SAMPLE_ROWS, VERIFY_NEIGHBOURS, MIN_RECALL, MIN_SELF_RECALL = 100, 10, 0.95, 0.99
"""So many rows are looked for, and so many neighbours of each; so many of these must be found, and of the rows."""

EXTRA_NEIGHBOURS = 20
"""So many more are asked for than are needed: Chroma may miss some, and some are gone since."""


class CollectionVerifier:
    """Knows one index, and how its chunks lie in a collection."""

    def __init__(
        self,
        index: WikiIndex,
        exact: ExactVectorCache,
        layout: RecordLayout,
        metrics: ChromaMetrics,
        writer: CollectionWriter,
    ) -> None:
        self._index = index
        self._exact = exact
        self._layout = layout
        self._metrics = metrics
        self._writer = writer

    def verify(self, collection: CollectionRows, version: int, should_stop: ShouldStop, *, can_write: bool) -> None:
        """Compare count, ids and a sample of nearest neighbours with the truth; differing rows are mended."""
        self._metrics.add("checks")
        if self.repair(collection, should_stop, version=version, can_write=can_write):
            self._metrics.add("repairs")
        self._exact.refresh()
        sample = self._exact.sample(VERIFY_SAMPLE_ROWS)
        if not len(sample.chunk_ids):
            return
        near: list[IntArray] = []
        for part in iter_slices(len(sample.chunk_ids), 20, should_stop):
            marked = self._layout.uses_metadata
            found = collection.search(sample.vectors[part], VERIFY_NEIGHBOURS + EXTRA_NEIGHBOURS, with_metadata=marked)
            near += [self.to_chunk_ids(rows) for rows in found.rows]
        self._exact.refresh()
        since = self._index.get_vector_changes(version)
        if since is None:
            raise CollectionBusy("The index has moved on far meanwhile.")
        judged = [self._measure_recall(*each, since.added.chunk_ids) for each in zip(sample.vectors, near, strict=True)]
        share, themselves = np.mean(judged, axis=0)
        if share >= MIN_RECALL and themselves >= MIN_SELF_RECALL:
            return
        if self._index.get_version() != since.version:
            raise CollectionBusy("The index has moved on meanwhile.")
        raise ChromaError(f"It finds {share:.0%} of the neighbours and {themselves:.0%} of the rows that are there.")

    def _measure_recall(self, vector: FloatArray, near: IntArray, new_chunk_ids: IntArray) -> tuple[float, bool]:
        """Which share of the nearest was found, and whether the row itself; rows at the same distance count alike.

        What came since is not Chroma's to find.
        """
        expected = self._exact.search(vector, VERIFY_NEIGHBOURS, None)
        found = self._exact.score_chunks(vector, np.union1d(near, new_chunk_ids), VERIFY_NEIGHBOURS)
        if not len(expected.distances):
            return 1.0, True
        share = float((found.distances <= expected.distances[-1] + 1e-5).sum()) / len(expected.distances)
        there = expected.distances[0] <= 1e-3
        return share, not there or (bool(len(found.distances)) and bool(found.distances[0] <= 1e-3))

    def to_chunk_ids(self, rows: Iterable[ChromaRow]) -> IntArray:
        """The chunks these rows are; raises ChromaRefused where one is none of ours."""
        chunks = [self._layout.get_chunk_id(row) for row in rows]
        if None in chunks:
            raise ChromaError("A collection holds rows that Wikiholt did not write.")
        return np.array(chunks, np.int64)

    def repair(
        self,
        collection: CollectionRows,
        should_stop: ShouldStop,
        *,
        version: int | None = None,
        can_write: bool = True,
    ) -> bool:
        """Write rows that are missing and remove those that are not the truth's; whether there were any.

        With a version, chunks that changed since it are left to whoever follows.
        """
        layout = self._layout
        there = list(collection.iter_rows(with_metadata=layout.uses_metadata))
        if collection.count() != len(there):
            wrong = ChromaError("Its count and its ids differ.")
            raise wrong if can_write else CollectionBusy(wrong.message)
        chunks = np.array([-1 if (c := layout.get_chunk_id(row)) is None else c for row in there], np.int64)
        since = self._index.get_vector_changes(version) if version is not None else None
        lacking: list[VectorRows] = []
        true: list[IntArray] = []
        with self._index.open_vector_snapshot() as snapshot:
            for block in snapshot.iter_blocks():
                keep = ~np.isin(block.chunk_ids, chunks)
                if since is not None:
                    keep &= ~np.isin(block.chunk_ids, since.added.chunk_ids)
                lacking.append(VectorRows(block.chunk_ids[keep], block.page_ids[keep], block.vectors[keep]))
                true.append(block.chunk_ids)
        allowed = np.concatenate([np.empty(0, np.int64), *true, *([since.dropped] if since is not None else [])])
        strangers = [row.id for row, strange in zip(there, ~np.isin(chunks, allowed), strict=True) if strange]
        missing = sum(len(rows.chunk_ids) for rows in lacking)
        if not can_write or not (missing or strangers):
            if missing or strangers:
                raise CollectionBusy("A collection differs from the index; the process that writes it is to mend it.")
            return False
        _LOG.warning("a collection of Chroma's lacked %d rows and had %d too many: mended", missing, len(strangers))
        for rows in lacking:
            self._writer.upsert(collection, rows, should_stop)
        for part in iter_slices(len(strangers), DELETE_BATCH_ROWS, should_stop):
            collection.delete({"ids": strangers[part]})
        self._metrics.add("rows_removed", len(strangers))
        return True


# One wiki's collection: made from the truth, brought to its version, compared with it, made again where it differs.
# For the one background worker of a process; between processes the writer of a collection is the one that holds its
# lock. Each step may be cut off at any moment: the version a collection stands for is written last, so what was done
# is done again. Rows are replaced by one upsert, never by deleting and adding.


_LOG = logging.getLogger(__name__)

COLLECTION_FORMAT = 1
_LOCK_FILE = "chroma.lock"


@dataclass(frozen=True, slots=True)
class VerifiedCollection:
    """A collection that was compared with the truth: searches may ask it."""

    collection: CollectionRows
    version: int
    row_count: int
    instance_id: str
    new_chunk_ids: IntArray
    """Chunks that came after its version, which it may lack."""


@dataclass(frozen=True, slots=True)
class CollectionOwner:
    """To whom a collection belongs, and how it is made."""

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
    """The collection of one index. `known` says which wikis this installation has."""

    def __init__(
        self,
        index: WikiIndex,
        exact: ExactVectorCache,
        directory: Path,
        owner: CollectionOwner,
        metrics: ChromaMetrics,
        get_wiki_ids: Callable[[], Iterable[str]],
        is_published: Callable[[], bool],
    ) -> None:
        """`published` says whether this index is still the one its wiki is searched by."""
        self._index = index
        self._directory = directory
        self._owner = owner
        self._metrics = metrics
        self._writer = CollectionWriter(index, owner.layout, metrics)
        self._verifier = CollectionVerifier(index, exact, owner.layout, metrics, self._writer)
        self.to_chunk_ids = self._verifier.to_chunk_ids
        self._get_wiki_ids = get_wiki_ids
        self._is_published = is_published
        self._verified_key = ""
        self._crash_count = 0
        self._must_rebuild = False
        self._must_verify = False

    @property
    def uses_metadata(self) -> bool:
        """Whether rows have to be asked for with their marks."""
        return self._owner.layout.uses_metadata

    def request_check(self) -> None:
        """Have it compared with the truth before it is asked again."""
        self._verified_key, self._must_verify = "", True

    def sync(self, api: ChromaApi, instance_id: str, should_stop: ShouldStop) -> VerifiedCollection:
        """Make the collection equal to the index and say so; raises ChromaAway, ChromaRefused, NotOurs."""
        try:
            with self._try_write_lock() as writes:
                standing = self._sync_locked(api, instance_id, should_stop, can_write=writes)
        except ChromaUnavailable:
            # Nobody else was at work: if Chroma dies of this collection twice, the collection goes.
            self._crash_count += 1
            self._must_rebuild = self._must_rebuild or self._crash_count >= 2
            raise
        self._crash_count, self._must_rebuild = 0, False
        return standing

    def _sync_locked(
        self, api: ChromaApi, instance_id: str, should_stop: ShouldStop, *, can_write: bool
    ) -> VerifiedCollection:
        found = self._find_collection(api)
        if can_write and (found is None or self._must_rebuild or not self._is_usable(found)):
            if not self._is_published():
                raise Cancelled  # the collection belongs to the generation that is
            found = self._rebuild(api, should_stop)
        if found is None or not self._is_usable(found):
            raise CollectionBusy("Another process is filling the collection.")
        try:
            return self._bring_up_to_date(api, found, instance_id, should_stop, can_write=can_write)
        except ChromaError as refusal:
            if not can_write:
                raise
            _LOG.warning("a collection of Chroma's is damaged and filled anew: %s", refusal.message)
        return self._bring_up_to_date(api, self._rebuild(api, should_stop), instance_id, should_stop, can_write=True)

    def _bring_up_to_date(
        self, api: ChromaApi, collection: CollectionInfo, instance_id: str, should_stop: ShouldStop, *, can_write: bool
    ) -> VerifiedCollection:
        version = _get_version(collection)
        if can_write and version != self._index.get_version():
            version = self._apply_changes(api, collection, version, should_stop)
        if self._must_verify or self._verified_key != f"{collection.id} {instance_id}":
            self._verifier.verify(api.open_rows(collection), version, should_stop, can_write=can_write)
        delta = self._index.get_vector_changes(version)
        if delta is None:
            raise CollectionBusy("Another process is bringing the collection up to date.")
        rows = max(0, self._index.get_state().chunks - len(delta.added.chunk_ids))
        self._verified_key, self._must_verify = f"{collection.id} {instance_id}", False
        return VerifiedCollection(api.open_rows(collection), version, rows, instance_id, delta.added.chunk_ids)

    # ── whose it is ──────────────────────────────────────────────────────────────────────────────

    def _find_collection(self, api: ChromaApi) -> CollectionInfo | None:
        """The collection, if it is this wiki's; one that was left by a wiki we no longer have makes way."""
        for name in (self._owner.draft_name, self._owner.name):
            found = api.find_collection(name)
            if found is None or found.metadata.get("wikiholt_wiki") == self._owner.wiki_id:
                continue
            left = (
                bool(self._owner.installation_id)
                and found.metadata.get("wikiholt_owner") == self._owner.installation_id
            )
            if not left or found.metadata.get("wikiholt_wiki") in set(self._get_wiki_ids()):
                raise ForeignCollection(
                    "In Chroma there is a collection of the name ours would have, and Wikiholt did not make it.",
                    hint="rename or remove it, or choose another chroma.database or chroma.layout",
                )
            api.delete_collection(name)
            found = None
        return found

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
        """Whether the collection was made of this index, in today's way, and to its end."""
        version = _get_version(collection)
        alike = dict(collection.metadata) == dict(self._build_metadata(version))
        dimension = collection.dimension in (None, self._index.get_state().recipe.dimensions)
        return alike and dimension and 0 <= version <= self._index.get_version()

    # ── filling ──────────────────────────────────────────────────────────────────────────────────

    def _rebuild(self, api: ChromaApi, should_stop: ShouldStop) -> CollectionInfo:
        """A collection filled from the truth beside the one there is, which it then replaces."""
        self._metrics.add("rebuilds")
        api.delete_collection(self._owner.draft_name)
        made = api.create_collection(self._owner.draft_name, self._build_metadata(-1))
        with self._index.open_vector_snapshot() as snapshot:
            version = snapshot.version
            for block in snapshot.iter_blocks():
                self._writer.upsert(api.open_rows(made), block, should_stop)
        marks = self._build_metadata(version)
        if not self._directory.exists():
            raise Cancelled  # the wiki was removed meanwhile
        api.delete_collection(self._owner.name)
        api.open_rows(made).update_collection(marks, self._owner.name)
        return CollectionInfo(made.id, self._owner.name, made.dimension, marks)

    def _apply_changes(self, api: ChromaApi, collection: CollectionInfo, version: int, should_stop: ShouldStop) -> int:
        """Write what changed since; where that is unknown, every id is compared."""
        delta = self._index.get_vector_changes(version)
        if delta is None:
            now = self._index.get_version()
            self._verifier.repair(api.open_rows(collection), should_stop)
        else:
            now = delta.version
            self._writer.upsert(api.open_rows(collection), delta.added, should_stop)
            self._writer.delete(
                api.open_rows(collection), np.setdiff1d(delta.dropped, delta.added.chunk_ids), should_stop
            )
        api.open_rows(collection).update_collection(self._build_metadata(now))
        return now

    @contextlib.contextmanager
    def _try_write_lock(self) -> Iterator[bool]:
        """Whether this process is the one that may write the collection, while the block runs."""
        # Where the directory is gone, the wiki was removed and nothing of it may come back.
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
