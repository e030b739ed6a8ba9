"""The working loop of a sync: read, draft, embed what is new, commit; batch after batch.

While one batch is being embedded (outside Python's lock) the next one is read and drafted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from itertools import islice

import numpy as np

from wikiholt.domain.git import TreeEntry
from wikiholt.domain.index import FloatArray, IndexChange, PageEntry
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelSelfTestFailed
from wikiholt.indexing.pipeline import PreparedPage, TextPipeline, check_regular_file

_MODEL_FAULTS = (ModelMissing, ModelCorrupt, ModelMismatch)
"""Faults of the model itself; a vector that is none (ModelUnproven) may be the fault of one text."""

_BATCH_PAGES = 48
"""Pages a batch: enough to keep every core busy, few enough that little is redone after a crash."""


_EMBED_BATCH_TEXTS = 64
"""Texts embedded at a time: enough to keep every core busy, few enough to stop within a second or two."""


class Pause(IntEnum):
    """What a sync is to do when it asks whether to pause."""

    CONTINUE = 0
    AFTER_BATCH = 1
    """Commit the batch in hand, then stop."""
    NOW = 2
    """Commit those pages of it that are ready, then stop."""


def never_pause() -> Pause:
    return Pause.CONTINUE


class SyncPaused(Exception):
    """A sync was asked to let others go first; what it committed stays, and the next one goes on from there."""


@dataclass(slots=True)
class BatchStats:
    """What has been done so far."""

    pages: int = 0
    embedded: int = 0
    reused: int = 0


@dataclass(slots=True)
class _Batch:
    pages: list[PreparedPage]
    problems: list[PageProblem]
    known_vectors: dict[bytes, FloatArray]
    new_texts: dict[bytes, str]
    embed_future: "Future[_EmbedResult] | None" = None


@dataclass(frozen=True, slots=True)
class _EmbedResult:
    vectors: dict[bytes, FloatArray]
    not_embedded: frozenset[bytes]
    """Hashes of texts that were not come to before the sync was to stop."""


class BatchIndexer:
    """Puts files into one index. `donor` is an index whose vectors may be taken over if its model is the same."""

    def __init__(
        self,
        index: WikiIndex,
        vector_source: WikiIndex,
        source: Source,
        embedder: Embedder,
        pipeline: TextPipeline,
        changed_at: Mapping[str, datetime],
    ) -> None:
        self._index = index
        self._vector_sources = [index]
        if vector_source is not index and vector_source.get_state().recipe.fingerprint == embedder.fingerprint:
            self._vector_sources.append(vector_source)
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._changed_at = changed_at

    def run(
        self,
        entries: Mapping[str, TreeEntry],
        moved: Mapping[str, str],
        on_progress: Callable[[BatchStats], None],
        pause: Callable[[], Pause] = never_pause,
    ) -> BatchStats:
        """Index every file; a moved one takes the place of the one it was, in the same transaction.

        `pause` is asked between batches and texts, from two threads; when it says so, Paused is raised after a commit.
        """
        tally = BatchStats()
        on_progress(tally)
        with ThreadPoolExecutor(1, "embed") as executor:
            waiting: _Batch | None = None
            for some in _iter_batches(entries):
                if waiting is not None and pause():
                    self._commit(waiting, moved, tally)
                    on_progress(tally)
                    raise SyncPaused
                batch = self._prepare_batch(some, entries)
                batch.embed_future = executor.submit(self._embed_new, batch.new_texts, pause)
                if waiting is not None:
                    self._commit(waiting, moved, tally)
                    on_progress(tally)
                waiting = batch
            if waiting is not None:
                self._commit(waiting, moved, tally)
                on_progress(tally)
        return tally

    def _prepare_batch(self, batch_files: Sequence[str], entries: Mapping[str, TreeEntry]) -> _Batch:
        drafts: list[PreparedPage] = []
        problems = [problem for file in batch_files if (problem := check_regular_file(file, entries[file]))]
        odd = {problem.file for problem in problems}
        wanted = [file for file in batch_files if file not in odd]
        blobs = self._source.read_blobs((entries[file].blob for file in wanted), self._pipeline.max_bytes)
        for file, blob in zip(wanted, blobs, strict=True):
            draft = self._pipeline.prepare(file, blob, self._changed_at.get(file), self._embedder)
            if isinstance(draft, PageProblem):
                problems.append(draft)
            else:
                drafts.append(draft)
        texts = {h: text for draft in drafts for h, text in zip(draft.hashes, draft.texts, strict=True)}
        known: dict[bytes, FloatArray] = {}
        for donor in self._vector_sources:
            known |= donor.find_vectors_by_hash([h for h in texts if h not in known])
        return _Batch(drafts, problems, known, {h: text for h, text in texts.items() if h not in known})

    def _embed_new(self, new_texts: Mapping[bytes, str], pause: Callable[[], Pause]) -> _EmbedResult:
        """Vectors for these texts, as far as it came; those a fault of the model spoils are left out."""
        found: dict[bytes, FloatArray] = {}
        hashes = list(new_texts)
        for start in range(0, len(hashes), _EMBED_BATCH_TEXTS):
            if pause() is Pause.NOW:
                return _EmbedResult(found, frozenset(hashes[start:]))
            some = hashes[start : start + _EMBED_BATCH_TEXTS]
            vectors = self._embed_many([new_texts[h] for h in some])
            found |= {h: vector for h, vector in zip(some, vectors, strict=True) if _is_unit_vector(vector)}
        return _EmbedResult(found, frozenset())

    def _embed_many(self, texts: Sequence[str]) -> Sequence[FloatArray]:
        try:
            return list(self._embedder.embed_passages(texts))
        except _MODEL_FAULTS:
            raise
        except Exception:  # noqa: BLE001 - one text may be at fault: find out which
            return [self._embed_one(text) for text in texts]

    def _embed_one(self, text: str) -> FloatArray:
        try:
            return np.asarray(self._embedder.embed_passages([text])[0], np.float32)
        except _MODEL_FAULTS:
            raise
        except Exception:  # noqa: BLE001 - becomes a problem of its page
            return np.zeros(self._embedder.dimensions, np.float32)

    def _commit(self, batch: _Batch, moved: Mapping[str, str], stats: BatchStats) -> None:
        assert batch.embed_future is not None
        embedded = batch.embed_future.result()
        fresh = embedded.vectors
        tried = len(batch.new_texts) > len(embedded.not_embedded)
        if tried and not fresh and not _is_unit_vector(self._embed_one("a sentence that any model can embed")):
            raise ModelSelfTestFailed("the model gave no usable vector for a whole batch", hint="run `wikiholt doctor`")
        entries, problems = _build_entries(batch, embedded, self._embedder.dimensions)
        gone = [moved[entry.page.file] for entry in entries if entry.page.file in moved]
        gone += [moved[problem.file] for problem in problems if problem.file in moved]
        self._index.apply(IndexChange(tuple(entries), tuple(gone), tuple(problems)))
        stats.pages += len(entries) + len(problems)
        stats.embedded += len(fresh)
        stats.reused += max(0, sum(len(entry.chunks) for entry in entries) - len(fresh))
        if embedded.not_embedded:
            raise SyncPaused


def _build_entries(batch: _Batch, embedded: _EmbedResult, dimensions: int) -> tuple[list[PageEntry], list[PageProblem]]:
    vectors = {**batch.known_vectors, **embedded.vectors}
    entries, problems = [], list(batch.problems)
    for draft in batch.pages:
        if not embedded.not_embedded.isdisjoint(draft.hashes):
            continue
        if any(h not in vectors for h in draft.hashes):
            problems.append(PageProblem(draft.page.file, draft.blob, "failed", "the model could not embed this page"))
            continue
        rows = [vectors[h] for h in draft.hashes]
        matrix = np.stack(rows) if rows else np.empty((0, dimensions), np.float32)
        entries.append(PageEntry(draft.blob, draft.page, draft.chunks, draft.hashes, matrix, draft.terms))
    return entries, problems


def _is_unit_vector(vector: FloatArray) -> bool:
    """Whether a vector is one: finite and of unit length."""
    norm = float(np.linalg.norm(vector))
    return bool(np.isfinite(norm)) and abs(norm - 1) < 1e-2


def _iter_batches(entries: Mapping[str, TreeEntry]) -> Iterator[list[str]]:
    names = iter(entries)
    while some := list(islice(names, _BATCH_PAGES)):
        yield some
