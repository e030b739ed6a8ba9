"""The main loop of a sync: read a batch of pages, prepare them, embed new texts, commit.

While one batch is embedded (the model releases the GIL), the next one is read and prepared.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from itertools import chain, islice

import numpy as np

from wikiholt.domain.git import Blob, EntryKind, TreeEntry
from wikiholt.domain.index import PENDING_HASH, FloatArray, IndexChange, PageContents, PageEntry
from wikiholt.domain.page import MAX_LISTED_WARNINGS, PageProblem, PageWarnings
from wikiholt.domain.protocols import Embedder, Source, SupportsPageWorkers
from wikiholt.domain.storage_protocols import VectorSource, WikiIndex
from wikiholt.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelSelfTestFailed, ModelUnavailable
from wikiholt.index.moved_pages import needs_blob, plan_move
from wikiholt.index.page_helpers import MIN_HELPED_PAGES, PageHelpers, TaskBatch, count_page_helpers
from wikiholt.index.page_process import PageProcess, is_large
from wikiholt.index.page_workers import MIN_PAGES, PageWorkers, count_page_workers
from wikiholt.index.pipeline import BATCH_PAGES, PageTask, PreparedPage, TextPipeline, iter_batches

_MODEL_FAULTS = (ModelMissing, ModelCorrupt, ModelMismatch, ModelUnavailable)
"""Faults of the model itself. ModelSelfTestFailed is not listed: a single text may cause an invalid vector."""

_EMBED_TEXTS_PER_CORE = 16
"""Texts per core and embedding call: enough to use every core, few enough to pause within a second or two."""
_EMBED_TEXTS_ON_GPU = 4_096
"""Texts per embedding call on a GPU, which computes them in large batches."""
_MAX_BATCH_TEXTS = 64
"""Texts per transaction, unless a single page has more: a second of work, which is what a crash loses."""
_MAX_BATCH_TEXTS_ON_GPU = 256
_MOVED_BATCH_PAGES = 400
"""Moved pages per transaction: they take little time, so that a transaction may have more of them."""
_WANTED_BATCH_PAGES = 16
"""Pages per batch if some are wanted first: few enough that they are ready within seconds."""
_BATCHES_AHEAD = 8
"""Batches that worker processes prepare while one is committed."""
_PROGRESS_INTERVAL_S = 0.2
"""Seconds between two reports while the model works on a batch."""

_TEST_SENTENCE = "a sentence that any model can embed"


class Pause(IntEnum):
    """What a sync does when it polls for a pause."""

    CONTINUE = 0
    AFTER_BATCH = 1
    """Commit the current batch, then stop."""
    NOW = 2
    """Commit the pages of the current batch that are ready, then stop."""


PauseCheck = Callable[[], Pause]


def never_pause() -> Pause:
    return Pause.CONTINUE


class SyncPaused(Exception):
    """The sync stopped early on request. Committed work is kept; the next sync continues from there."""


@dataclass(slots=True)
class BatchStats:
    """Counts of what has been committed so far, and of what has been prepared and embedded for it."""

    pages: int = 0
    embedded: int = 0
    reused: int = 0
    pages_prepared: int = 0
    texts_prepared: int = 0
    """New texts of the prepared pages."""
    texts_done: int = 0
    """Those of them that the model has embedded."""
    characters_done: int = 0
    """The length of these."""
    pages_with_warnings: int = 0
    warnings: list[PageWarnings] = field(default_factory=list)
    """The first `MAX_LISTED_WARNINGS` of them."""
    newer_blobs: dict[str, str] = field(default_factory=dict)
    """The blobs of files that have changed since the tree was read: those of a directory may."""

    def add_warnings(self, entries: Sequence[PageEntry]) -> None:
        found = [PageWarnings(entry.page.file, entry.page.warnings) for entry in entries if entry.page.warnings]
        self.pages_with_warnings += len(found)
        self.warnings += found[: MAX_LISTED_WARNINGS - len(self.warnings)]


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
    """Hashes of texts that were not embedded because the sync was paused."""


class BatchIndexer:
    """Writes files into one index. Vectors of the index and of `vector_sources` are reused.

    With `defer`, new texts are not embedded, except in a wiki of one batch or by a model that is as fast as reading:
    the pages are found by their words until they are written again.
    """

    def __init__(
        self,
        index: WikiIndex,
        vector_sources: Sequence[VectorSource],
        source: Source,
        embedder: Embedder,
        pipeline: TextPipeline,
        changed_at: Mapping[str, datetime],
        former_files: Mapping[str, Sequence[str]],
        *,
        defer: bool = False,
    ) -> None:
        self._index = index
        self._defer = defer
        self._vector_sources = (index, *vector_sources)
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._changed_at = changed_at
        self._former_files = former_files
        self._embed_call_texts = _EMBED_TEXTS_PER_CORE * (os.cpu_count() or 1)
        self._max_batch_texts = _MAX_BATCH_TEXTS

    def run(
        self,
        entries: Mapping[str, TreeEntry],
        moved: Mapping[str, str],
        on_progress: Callable[[BatchStats], None],
        pause: PauseCheck = never_pause,
        get_wanted: Callable[[], Sequence[str]] | None = None,
    ) -> BatchStats:
        """Index every file. A moved file replaces its old path in the same transaction.

        `pause` is polled between batches and texts, from two threads. Raises SyncPaused after a commit. `get_wanted`
        returns files that come before all others.
        """
        stats = BatchStats()
        on_progress(stats)
        entries = self._move_pages(entries, moved, stats, on_progress, pause)
        batches = iter_batches(entries) if get_wanted is None else _iter_wanted_batches(entries, get_wanted)
        prepared_batches = self._iter_prepared(entries, batches, stats)
        with ThreadPoolExecutor(1, "embed") as executor, closing(prepared_batches) as prepared:
            pending: _Batch | None = None
            for results in chain.from_iterable(self._split_results(each) for each in prepared):
                if pending is not None and pause():
                    self._commit(pending, moved, stats, on_progress)
                    raise SyncPaused
                batch = self._build_batch(results)
                stats.pages_prepared += len(results)
                stats.texts_prepared += len(batch.new_texts)
                if not self._defer:
                    batch.embed_future = executor.submit(self._embed_new, batch.new_texts, stats, pause)
                if pending is not None:
                    self._commit(pending, moved, stats, on_progress)
                pending = batch
            if pending is not None:
                if self._defer and not stats.pages and len(pending.new_texts) <= self._max_batch_texts:
                    pending.embed_future = executor.submit(self._embed_new, pending.new_texts, stats, pause)
                self._commit(pending, moved, stats, on_progress)
        return stats

    def _move_pages(
        self,
        entries: Mapping[str, TreeEntry],
        moved: Mapping[str, str],
        stats: BatchStats,
        on_progress: Callable[[BatchStats], None],
        pause: PauseCheck,
    ) -> Mapping[str, TreeEntry]:
        """Move pages in the index, a batch at a time. Returns the entries that must be prepared. Raises SyncPaused."""
        candidates = [file for file in moved if entries[file].kind is EntryKind.FILE]
        remaining = dict(entries)
        for files in iter_batches(candidates, _MOVED_BATCH_PAGES):
            if stats.pages and pause():
                raise SyncPaused
            contents = self._index.get_page_contents([moved[file] for file in files])
            tasks = self._make_move_tasks(
                {file: entries[file] for file in files if moved[file] in contents}, moved, contents
            )
            plans = (plan_move(self._pipeline, task, moved[task.file], contents[moved[task.file]]) for task in tasks)
            moves = tuple(move for move in plans if move is not None)
            if moves:
                self._index.apply(IndexChange(moved=moves))
            for move in moves:
                del remaining[move.file]
                stats.reused += contents[move.old_file].chunks
            stats.pages += len(moves)
            on_progress(stats)
        return remaining

    def _make_move_tasks(
        self, entries: Mapping[str, TreeEntry], moved: Mapping[str, str], contents: Mapping[str, PageContents]
    ) -> list[PageTask]:
        """Tasks for moved files, with the blobs that are needed."""
        needed = {
            file: entry for file, entry in entries.items() if needs_blob(contents[moved[file]], file, moved[file])
        }
        tasks, _ = self._read_batch(needed)
        tasks = [task for task in tasks if task.blob.id == entries[task.file].blob]
        for file, entry in entries.items():
            if file not in needed:
                blob = Blob(entry.blob, -1, None)
                tasks.append(PageTask(file, blob, self._changed_at.get(file), self._former_files.get(file, ())))
        return tasks

    def _read_batch(self, entries: Mapping[str, TreeEntry]) -> tuple[list[PageTask], list[PageProblem]]:
        return self._pipeline.read_batch(self._source, entries, self._changed_at, self._former_files)

    def _iter_prepared(
        self, entries: Mapping[str, TreeEntry], batches: Iterable[Sequence[str]], stats: BatchStats
    ) -> Generator[list[PreparedPage | PageProblem]]:
        """Batches of prepared files. With other processes, a few batches are prepared ahead."""
        workers = self._start_workers(len(entries))
        # Without texts, nothing can be reused or embedded.
        words_only = self._defer and len(entries) > BATCH_PAGES and len(self._vector_sources) == 1
        task_batches = self._iter_tasks(entries, batches, stats, words_only=words_only)
        pages = PageProcess(self._pipeline, self._embedder)
        helpers = self._start_helpers(pages, len(entries))
        try:
            if helpers is not None:
                yield from helpers.iter_prepared(task_batches)
            elif workers is not None:
                yield from _iter_workers_results(workers, pages, task_batches)
            else:
                for tasks, problems in task_batches:
                    yield [*problems, *map(pages.prepare, tasks)]
        finally:
            pages.close()
            if helpers is not None:
                helpers.close()
            if workers is not None:
                workers.close()

    def _iter_tasks(
        self,
        entries: Mapping[str, TreeEntry],
        batches: Iterable[Sequence[str]],
        stats: BatchStats,
        *,
        words_only: bool,
    ) -> Iterator[TaskBatch]:
        for files in batches:
            tasks, problems = self._read_batch({file: entries[file] for file in files})
            newer = (task for task in tasks if task.blob.id != entries[task.file].blob)
            stats.newer_blobs.update((task.file, task.blob.id) for task in newer)
            yield [replace(task, words_only=words_only) for task in tasks], problems

    def _start_workers(self, page_count: int) -> PageWorkers | None:
        embedder, count = self._embedder, count_page_workers()
        if (
            page_count < MIN_PAGES
            or count < 2
            or not isinstance(embedder, SupportsPageWorkers)
            or not embedder.uses_gpu
        ):
            return None
        self._embed_call_texts, self._max_batch_texts = _EMBED_TEXTS_ON_GPU, _MAX_BATCH_TEXTS_ON_GPU
        self._defer = False  # reading the pages twice would take longer
        return PageWorkers(self._pipeline, embedder, embedder.get_tokenizer_factory(), count)

    def _start_helpers(self, pages: PageProcess, page_count: int) -> PageHelpers | None:
        """Processes that prepare pages while nothing is embedded."""
        embedder, count = self._embedder, count_page_helpers()
        if (
            not self._defer
            or page_count < MIN_HELPED_PAGES
            or not count
            or not isinstance(embedder, SupportsPageWorkers)
        ):
            return None
        return PageHelpers(pages, self._pipeline, embedder.get_tokenizer_factory(), count)

    def _split_results(
        self, results: Sequence[PreparedPage | PageProblem]
    ) -> Iterator[list[PreparedPage | PageProblem]]:
        """The results in parts of at most as many texts as a transaction has, or of one page."""
        part: list[PreparedPage | PageProblem] = []
        count = 0
        for result in results:
            texts = len(result.texts) if isinstance(result, PreparedPage) and not self._defer else 0
            if part and count + texts > self._max_batch_texts:
                yield part
                part, count = [], 0
            part.append(result)
            count += texts
        yield part

    def _build_batch(self, results: Sequence[PreparedPage | PageProblem]) -> _Batch:
        pages = [result for result in results if isinstance(result, PreparedPage)]
        problems = [result for result in results if isinstance(result, PageProblem)]
        known: dict[bytes, FloatArray] = {}
        texts: dict[bytes, str] = {}
        for page in pages:
            texts |= zip(page.hashes, page.texts, strict=True)
        for vectors in self._vector_sources:
            known |= vectors.find_vectors_by_hash([h for h in texts if h not in known])
        return _Batch(pages, problems, known, {h: text for h, text in texts.items() if h not in known})

    def _embed_new(self, new_texts: Mapping[bytes, str], stats: BatchStats, pause: PauseCheck) -> _EmbedResult:
        """Embed the texts until `pause` returns NOW. Texts with an invalid vector are left out of the result."""
        embedded: dict[bytes, FloatArray] = {}
        hashes = list(new_texts)
        count = self._embed_call_texts
        for start in range(0, len(hashes), count):
            if pause() is Pause.NOW:
                return _EmbedResult(embedded, frozenset(hashes[start:]))
            batch = hashes[start : start + count]
            vectors = self._embed_many([new_texts[h] for h in batch])
            embedded |= {h: vector for h, vector in zip(batch, vectors, strict=True) if _is_unit_vector(vector)}
            stats.texts_done += len(batch)  # written by this thread only
            stats.characters_done += sum(len(new_texts[h]) for h in batch)
        return _EmbedResult(embedded, frozenset())

    def _embed_many(self, texts: Sequence[str]) -> Sequence[FloatArray]:
        try:
            return list(self._embedder.embed_passages(texts))
        except _MODEL_FAULTS:
            raise
        except Exception:  # noqa: BLE001 - a single text may have caused it: embed one by one
            return [self._embed_one(text) for text in texts]

    def _embed_one(self, text: str) -> FloatArray:
        try:
            return np.asarray(self._embedder.embed_passages([text])[0], np.float32)
        except _MODEL_FAULTS:
            raise
        except Exception:  # noqa: BLE001 - becomes a problem of the page
            return np.zeros(self._embedder.dimensions, np.float32)

    def _commit(
        self,
        batch: _Batch,
        moved: Mapping[str, str],
        stats: BatchStats,
        on_progress: Callable[[BatchStats], None],
    ) -> None:
        while batch.embed_future is not None and wait([batch.embed_future], _PROGRESS_INTERVAL_S).not_done:
            on_progress(stats)
        is_deferred = batch.embed_future is None
        embedded = batch.embed_future.result() if batch.embed_future else _EmbedResult({}, frozenset(batch.new_texts))
        new_vectors = embedded.vectors
        attempted = len(batch.new_texts) > len(embedded.not_embedded)
        if attempted and not new_vectors and not _is_unit_vector(self._embed_one(_TEST_SENTENCE)):
            raise ModelSelfTestFailed(
                "the model returned no valid vector for an entire batch", hint="run `wikiholt doctor`"
            )
        entries, problems = _build_entries(batch, embedded, self._embedder.dimensions, keep_pending=is_deferred)
        deleted = [moved[entry.page.file] for entry in entries if entry.page.file in moved]
        deleted += [moved[problem.file] for problem in problems if problem.file in moved]
        self._index.apply(IndexChange(tuple(entries), tuple(deleted), tuple(problems)))
        stats.add_warnings(entries)
        stats.pages += len(entries) + len(problems)
        stats.embedded += len(new_vectors)
        stored = sum(len(entry.chunks) for entry in entries if PENDING_HASH not in entry.hashes)
        stats.reused += max(0, stored - len(new_vectors))
        if embedded.not_embedded and not is_deferred:
            raise SyncPaused
        on_progress(stats)


def _iter_workers_results(
    workers: PageWorkers, pages: PageProcess, batches: Iterable[TaskBatch]
) -> Iterator[list[PreparedPage | PageProblem]]:
    ahead: deque[tuple[list[PreparedPage | PageProblem], Callable[[], list[PreparedPage | PageProblem]]]] = deque()
    for tasks, problems in batches:
        collect = workers.submit([task for task in tasks if not is_large(task)])
        ahead.append(([*problems, *map(pages.prepare, filter(is_large, tasks))], collect))
        if len(ahead) > _BATCHES_AHEAD:
            ready, collect = ahead.popleft()
            yield [*ready, *collect()]
    for ready, collect in ahead:
        yield [*ready, *collect()]


def _iter_wanted_batches(files: Iterable[str], get_wanted: Callable[[], Sequence[str]]) -> Iterator[list[str]]:
    """The files in batches, those that are wanted at the time of a batch first."""
    remaining = dict.fromkeys(files)
    while remaining:
        wanted = [file for file in dict.fromkeys(get_wanted()) if file in remaining]
        batch = wanted[:_WANTED_BATCH_PAGES] or list(islice(remaining, BATCH_PAGES))
        for file in batch:
            del remaining[file]
        yield batch


def _build_entries(
    batch: _Batch, embedded: _EmbedResult, dimensions: int, *, keep_pending: bool
) -> tuple[list[PageEntry], list[PageProblem]]:
    vectors = {**batch.known_vectors, **embedded.vectors}
    entries, problems = [], list(batch.problems)
    for page in batch.pages:
        if len(page.hashes) < len(page.chunks) or not embedded.not_embedded.isdisjoint(page.hashes):
            if keep_pending:
                entries.append(PageEntry.make_pending(page.blob, page.page, page.chunks, dimensions, page.terms))
            continue
        if any(h not in vectors for h in page.hashes):
            problems.append(PageProblem(page.page.file, page.blob, "failed", "the model could not embed this page"))
            continue
        rows = [vectors[h] for h in page.hashes]
        matrix = np.stack(rows) if rows else np.empty((0, dimensions), np.float32)
        entries.append(PageEntry(page.blob, page.page, page.chunks, page.hashes, matrix, page.terms))
    return entries, problems


def _is_unit_vector(vector: FloatArray) -> bool:
    """Whether a vector is finite and of unit length."""
    norm = float(np.linalg.norm(vector))
    return bool(np.isfinite(norm)) and abs(norm - 1) < 1e-2
