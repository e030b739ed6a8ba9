"""Makes one index equal to a tree: compare, index the differences in batches, verify, set the revision.

The tree is compared with the index, never with a log of events. The first time, a process compares complete trees.
While nobody else writes the index, it then reads only the difference between two trees, so that an edit costs the same
in a large wiki as in a small one.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wikiholt.domain.git import FileHistories, TreeChange, TreeEntry
from wikiholt.domain.index import IndexChange, IndexState, SyncReport
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import IndexStore, VectorSource, WikiIndex
from wikiholt.errors import NoPages, SyncFailed
from wikiholt.index.batch import BatchIndexer, BatchStats, Pause, PauseCheck
from wikiholt.index.pending_pages import EmbeddingSpeed, PendingPages
from wikiholt.index.pipeline import TextPipeline, TreeReader
from wikiholt.text.page_names import count_extensions, describe_skipped_files

RETRY_HINT = "run `wikiholt sync` again; if the error persists, run `wikiholt doctor`"

TRANSIENT_REASONS = ("unreadable", "failed")
"""Reasons that may disappear without an edit of the page, so each sync tries again."""
_HISTORY_NOTE = "history"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """Progress of a sync."""

    pages_done: int
    pages_total: int
    chunks_embedded: int
    chunks_done: int = 0
    """Chunks that the model has embedded, also those of pages that are not committed yet."""
    chunks_expected: int = 0
    """Estimated number of chunks to embed, from the pages prepared so far."""
    seconds_left: float | None = None
    """The time until all pages are found by their meaning, in a first sync that has read all pages."""


ProgressCallback = Callable[[SyncProgress], None]


def ignore_progress(_: SyncProgress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SyncCallbacks:
    """Callbacks of a sync: progress, whether to pause, and which files to embed first."""

    on_progress: ProgressCallback
    pause: PauseCheck
    get_wanted: Callable[[], Sequence[str]] = tuple


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The difference between an index and a tree."""

    to_index: tuple[str, ...]
    """Files to index: new, changed, or with a problem that may be transient."""
    moved: Mapping[str, str]
    """New file → deleted file with the same content."""
    deleted: tuple[str, ...]
    """Deleted files whose content did not move."""
    changed: frozenset[str]
    added: frozenset[str]
    deleted_pages: int
    """How many of the deleted files were pages, not problems."""


def build_plan(tree: Mapping[str, TreeEntry], indexed: Mapping[str, str], problems: Sequence[PageProblem]) -> SyncPlan:
    """Compare a tree with the contents of an index."""
    permanent = {problem.file: problem.blob for problem in problems if problem.reason not in TRANSIENT_REASONS}
    known = {**permanent, **indexed}
    to_index = tuple(sorted(file for file, entry in tree.items() if known.get(file) != entry.blob))
    gone = sorted(file for file in indexed if file not in tree)
    gone_by_blob: dict[str, list[str]] = {}
    for file in reversed(gone):
        gone_by_blob.setdefault(indexed[file], []).append(file)
    moved = {}
    for file in to_index:
        if file not in indexed and (old_files := gone_by_blob.get(tree[file].blob)):
            moved[file] = old_files.pop()
    deleted = set(gone) - set(moved.values()) | {problem.file for problem in problems if problem.file not in tree}
    changed = frozenset(file for file in to_index if file in indexed)
    added = frozenset(to_index) - changed - moved.keys()
    return SyncPlan(to_index, moved, tuple(sorted(deleted)), changed, added, len(gone) - len(moved))


@dataclass(frozen=True, slots=True)
class SyncWork:
    """The plan, the tree entries of the files to index, and the number of pages after the sync."""

    plan: SyncPlan
    entries: Mapping[str, TreeEntry]
    page_count: int
    tree: Mapping[str, TreeEntry] | None
    """The full tree, or None if only the difference between two trees was read."""


def plan_from_diff(changes: Sequence[TreeChange], problems: Sequence[PageProblem], page_count: int) -> SyncWork:
    """The work between two trees, if the index is equal to the older one."""
    problem_files = {problem.file for problem in problems}
    touched = {change.file for change in changes}
    indexed = {change.file: change.old.blob for change in changes if change.old and change.file not in problem_files}
    page_count += sum((change.new is not None) - (change.old is not None) for change in changes)
    entries = {change.file: change.new for change in changes if change.new}
    for problem in problems:
        if problem.file not in touched:
            entries[problem.file] = TreeEntry(problem.blob)
    plan = build_plan(entries, indexed, problems)
    return SyncWork(plan, {file: entries[file] for file in plan.to_index}, page_count, None)


@dataclass(frozen=True, slots=True)
class _KnownGood:
    """A state in which this process verified that the index equals a tree. Valid while the version is unchanged."""

    version: int
    revision: str
    page_count: int


@dataclass(frozen=True, slots=True)
class ModelAndPipeline:
    """What an index is built with."""

    embedder: Embedder
    pipeline: TextPipeline


class HistoryWarnings:
    """Why pages of an index lack dates and former names: the history of the repository could not be read completely.

    The warning is a small note beside the index, by generation. It is stored before the pages, and removed after all of
    them were indexed with a complete history. Writing is only for the thread that holds the write lock.
    """

    def __init__(self, wiki_id: str, store: IndexStore) -> None:
        self._wiki_id = wiki_id
        self._store = store

    def read(self, generation: int) -> str:
        """The warning of a generation; empty if there is none."""
        return str(self._load().get(str(generation), ""))

    def write(self, generation: int, text: str) -> None:
        """Store the warning of a generation, or remove it. Those of older generations are removed too."""
        known = self._load()
        if not text and not known:
            return
        current = {str(generation), str(self._store.get_published(self._wiki_id))}
        updated = {name: known[name] for name in current & known.keys()} | {str(generation): text}
        kept = {name: warning for name, warning in updated.items() if warning}
        if kept != known:
            self._store.set_note(self._wiki_id, _HISTORY_NOTE, json.dumps(kept))

    def _load(self) -> dict[str, Any]:
        try:
            known = json.loads(self._store.get_note(self._wiki_id, _HISTORY_NOTE) or "{}")
        except ValueError:
            return {}
        return known if isinstance(known, dict) else {}


class Reconciler:
    """Bound to one wiki's source. Remembers what it has compared. Only for the thread that holds the write lock."""

    def __init__(self, source: Source, trees: TreeReader, warnings: HistoryWarnings) -> None:
        self._source = source
        self._trees = trees
        self._warnings = warnings
        self._known_good: dict[int, _KnownGood] = {}
        self._speed = EmbeddingSpeed()
        self._histories: tuple[str, FileHistories] | None = None
        """What the last sync read from git at a revision, for the next one, which may continue it."""

    def reconcile(
        self,
        index: WikiIndex,
        vector_sources: Sequence[VectorSource],
        revision: str,
        callbacks: SyncCallbacks,
        model_and_pipeline: ModelAndPipeline,
        *,
        words_first: bool = False,
        words_only: bool = False,
    ) -> SyncReport:
        """Make the index equal to the revision. Vectors of `vector_sources`, which have the same model, are reused.

        With `words_first`, a first sync writes all pages before it embeds one; with `words_only` it embeds none.
        Raises SyncPaused after a commit, SyncFailed, and NoPages.
        """
        defers = words_first and index.get_state().revision is None
        work, histories, pause = self._plan_with_histories(index, revision, callbacks.pause)
        stats = BatchIndexer(
            index,
            vector_sources,
            self._source,
            model_and_pipeline.embedder,
            model_and_pipeline.pipeline,
            histories.changed_at,
            _drop_existing_names(index, work, histories.former_files),
            defer=defers,
        ).run(
            work.entries,
            work.plan.moved,
            lambda stats: callbacks.on_progress(_to_progress(stats, len(work.entries))),
            pause,
        )
        self._known_good.pop(index.generation, None)
        if work.plan.deleted:
            index.apply(IndexChange(deleted=work.plan.deleted))
        problems = self._complete(index, revision, work, stats, model_and_pipeline.pipeline, histories.fault)
        if not words_only and index.get_state().pending_chunks:
            embedded = self._embed_pending(index, revision, vector_sources, callbacks, model_and_pipeline)
            stats.embedded += embedded.embedded
            stats.reused += embedded.reused
            stats.newer_blobs |= embedded.newer_blobs
            problems = self._complete(index, revision, work, stats, model_and_pipeline.pipeline, histories.fault)
        return _build_report(revision, work, stats, problems, histories.fault)

    def _complete(
        self,
        index: WikiIndex,
        revision: str,
        work: SyncWork,
        stats: BatchStats,
        pipeline: TextPipeline,
        history_fault: str,
    ) -> tuple[PageProblem, ...]:
        """Compare the index with the tree, set its revision, and return the problems. Raises SyncFailed and NoPages."""
        problems = _verify_counts(index, work, stats.newer_blobs)
        _log_unused_patterns(pipeline, work)
        version = index.apply(IndexChange(revision=revision))
        self._warnings.write(index.generation, history_fault)
        if not index.get_state().pending_chunks:
            self._histories = None
            self._known_good[index.generation] = _KnownGood(version, revision, work.page_count)
        if not work.page_count:
            raise _make_no_pages_error(self._source.list_other_files(revision))
        _require_indexed(work.page_count, problems)
        return problems

    def _embed_pending(
        self,
        index: WikiIndex,
        revision: str,
        vector_sources: Sequence[VectorSource],
        callbacks: SyncCallbacks,
        model_and_pipeline: ModelAndPipeline,
    ) -> BatchStats:
        """Write the pages again that are found by their words only. Raises SyncPaused after a commit."""
        tree, pending = self._trees.read(revision), PendingPages.read(index)
        entries = {file: tree[file] for file in pending.lengths}
        histories = self._read_histories(list(entries), revision, None)
        former = {file: [name for name in names if name not in tree] for file, names in histories.former_files.items()}

        chunks = index.get_state().pending_chunks
        self._speed.start(pending)

        def report(stats: BatchStats) -> None:
            seconds_left = self._speed.estimate_seconds(stats.characters_done)
            done = SyncProgress(len(tree), len(tree), stats.embedded, stats.texts_done, chunks, seconds_left)
            callbacks.on_progress(done)

        return BatchIndexer(
            index,
            vector_sources,
            self._source,
            model_and_pipeline.embedder,
            model_and_pipeline.pipeline,
            histories.changed_at,
            former,
        ).run(entries, {}, report, callbacks.pause, callbacks.get_wanted)

    def _plan_with_histories(
        self, index: WikiIndex, revision: str, pause: PauseCheck
    ) -> tuple[SyncWork, FileHistories, PauseCheck]:
        """The work, what the history says about its files, and when to pause.

        If an earlier sync could not read the history and this one can, all pages are indexed again. That starts
        from the beginning after a pause, so it is not paused for other wikis.
        """
        state = index.get_state()
        work = self._plan_work(index, state, revision)
        histories = self._read_histories(work.plan.to_index, revision, state.revision)
        if not histories.fault and self._warnings.read(index.generation):
            tree = self._trees.read(revision)
            histories = self._read_histories(list(tree), revision, None)
            if not histories.fault:
                plan = build_plan(tree, dict.fromkeys(index.get_page_blobs(), ""), index.get_problems())
                work = SyncWork(plan, {file: tree[file] for file in plan.to_index}, len(tree), tree)
                return work, histories, lambda: Pause.NOW if pause() is Pause.NOW else Pause.CONTINUE
        if histories.fault:
            self._warnings.write(index.generation, histories.fault)
        return work, histories, pause

    def _read_histories(self, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        """What the history says about these files. Remembered after a pause, because git has to walk it."""
        if self._histories is not None and self._histories[0] == revision:
            known = self._histories[1]
            if known.changed_at.keys() >= set(files):
                return known
        histories = self._source.read_file_histories(files, revision, since)
        self._histories = (revision, histories)
        return histories

    def _plan_work(self, index: WikiIndex, state: IndexState, revision: str) -> SyncWork:
        """The difference between the index and the revision, from a diff of two trees where possible."""
        problems = index.get_problems()
        known = self._known_good.get(state.generation)
        if known and (state.version, state.revision) == (known.version, known.revision):
            changes = self._source.get_changes(known.revision, revision)
            if changes is not None:
                return plan_from_diff(changes, problems, known.page_count)
        tree = self._trees.read(revision)
        plan = build_plan(tree, index.get_page_blobs(), problems)
        return SyncWork(plan, {file: tree[file] for file in plan.to_index}, len(tree), tree)


def _drop_existing_names(
    index: WikiIndex, work: SyncWork, former: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[str]]:
    """The former names of the files to index, without names that another page has now."""
    if not former:
        return former
    gone = {*work.plan.deleted, *work.plan.moved.values()}
    existing = work.tree or {*index.get_page_blobs(), *work.plan.to_index} - gone
    return {file: [name for name in names if name not in existing] for file, names in former.items()}


def _log_unused_patterns(pipeline: TextPipeline, work: SyncWork) -> None:
    """Report patterns that hide nothing: the owner believes that they do."""
    for pattern in pipeline.find_unused_hide_patterns(work.tree) if work.tree is not None else ():
        _LOG.warning("the pattern %r of the setting `hide` matches no page, so it hides nothing", pattern)


def _verify_counts(index: WikiIndex, work: SyncWork, newer_blobs: Mapping[str, str]) -> tuple[PageProblem, ...]:
    """The problems. Raises SyncFailed unless pages in the tree = indexed pages + problems."""
    problems = tuple(index.get_problems())
    pages = index.get_state().pages
    is_equal = work.tree is None or _is_equal_to_tree(index.get_page_blobs(), work.tree, problems, newer_blobs)
    if not is_equal or pages + len(problems) != work.page_count:
        counts = f"{work.page_count} in the tree, {pages} indexed, {len(problems)} problems"
        raise SyncFailed(f"the counts do not add up: {counts}", hint=RETRY_HINT)
    return problems


def _make_no_pages_error(other_files: Sequence[str]) -> NoPages:
    skipped = describe_skipped_files(count_extensions(other_files))
    message = f"there is no page at HEAD ({skipped})" if skipped else "there is no page at HEAD"
    return NoPages(message, hint="check the branch, the sub-directory and the ignore globs of this wiki")


def _require_indexed(page_count: int, problems: Sequence[PageProblem]) -> None:
    """Raise NoPages if no page could be indexed."""
    if len(problems) == page_count:
        raise NoPages(
            f"none of the {page_count} pages could be indexed; the first: {problems[0].file}: {problems[0].detail}",
            hint="see the problems in `wikiholt status`",
        )


def _is_equal_to_tree(
    indexed: Mapping[str, str],
    tree: Mapping[str, TreeEntry],
    problems: Sequence[PageProblem],
    newer_blobs: Mapping[str, str],
) -> bool:
    problem_files = {problem.file for problem in problems}
    expected = {file: newer_blobs.get(file, entry.blob) for file, entry in tree.items() if file not in problem_files}
    return problem_files <= tree.keys() and dict(indexed) == expected


def _to_progress(stats: BatchStats, total: int) -> SyncProgress:
    expected = round(stats.texts_prepared * total / stats.pages_prepared) if stats.pages_prepared else 0
    return SyncProgress(stats.pages, total, stats.embedded, stats.texts_done, expected)


def _build_report(
    revision: str, work: SyncWork, stats: BatchStats, problems: tuple[PageProblem, ...], history_warning: str
) -> SyncReport:
    problem_files = {problem.file for problem in problems}
    return SyncReport(
        revision,
        added=len(work.plan.added - problem_files),
        changed=len(work.plan.changed - problem_files),
        moved=len(work.plan.moved),
        deleted=work.plan.deleted_pages,
        unchanged=work.page_count - len(work.plan.to_index),
        chunks_embedded=stats.embedded,
        chunks_reused=stats.reused,
        problems=problems,
        pages_with_warnings=stats.pages_with_warnings,
        warnings=tuple(stats.warnings),
        pages=work.page_count,
        history_warning=history_warning,
    )
