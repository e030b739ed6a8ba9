"""Makes one index equal to a tree: compare, index the differences in batches, verify, set the revision.

The tree is compared with the index, never with a log of events. The first time, a process compares complete trees.
While nobody else writes the index, it then reads only the difference between two trees, so that an edit costs the same
in a large wiki as in a small one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wikiholt.domain.git import FileHistories, TreeEntry
from wikiholt.domain.index import IndexChange, IndexState, SyncReport
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import VectorSource, WikiIndex
from wikiholt.errors import NoPages, SyncFailed
from wikiholt.index.batch import BatchIndexer, BatchStats, Pause, PauseCheck
from wikiholt.index.history_warning import HistoryWarnings
from wikiholt.index.pipeline import TextPipeline, TreeReader
from wikiholt.index.plan import SyncWork, build_plan, plan_from_diff
from wikiholt.text.page_names import count_extensions, describe_skipped_files

RETRY_HINT = "run `wikiholt sync` again; if the error persists, run `wikiholt doctor`"

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


ProgressCallback = Callable[[SyncProgress], None]


def ignore_progress(_: SyncProgress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SyncCallbacks:
    """Callbacks of a sync: one reports progress, the other says whether to pause."""

    on_progress: ProgressCallback
    pause: PauseCheck


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


class Reconciler:
    """Bound to one wiki's source. Remembers what it has compared. Only for the thread that holds the write lock."""

    def __init__(self, source: Source, trees: TreeReader, warnings: HistoryWarnings) -> None:
        self._source = source
        self._trees = trees
        self._warnings = warnings
        self._known_good: dict[int, _KnownGood] = {}
        self._histories: tuple[str, FileHistories] | None = None
        """What the last sync read from git at a revision, for the next one, which may continue it."""

    def reconcile(
        self,
        index: WikiIndex,
        vector_sources: Sequence[VectorSource],
        revision: str,
        callbacks: SyncCallbacks,
        model_and_pipeline: ModelAndPipeline,
    ) -> SyncReport:
        """Make the index equal to the revision. Vectors of `vector_sources`, which have the same model, are reused.

        Raises SyncPaused after a commit, SyncFailed, and NoPages.
        """
        work, histories, pause = self._plan_with_histories(index, revision, callbacks.pause)
        indexer = BatchIndexer(
            index,
            vector_sources,
            self._source,
            model_and_pipeline.embedder,
            model_and_pipeline.pipeline,
            histories.changed_at,
            _drop_existing_names(index, work, histories.former_files),
        )
        stats = indexer.run(
            work.entries,
            work.plan.moved,
            lambda stats: callbacks.on_progress(_to_progress(stats, len(work.entries))),
            pause,
        )
        self._known_good.pop(index.generation, None)
        self._histories = None
        index.apply(IndexChange(deleted=work.plan.deleted))
        problems = _verify_counts(index, work, stats.newer_blobs)
        _log_unused_patterns(model_and_pipeline.pipeline, work)
        index.apply(IndexChange(revision=revision))
        self._warnings.write(index.generation, histories.fault)
        self._known_good[index.generation] = _KnownGood(index.get_version(), revision, work.page_count)
        if not work.page_count:
            raise _make_no_pages_error(self._source.list_other_files(revision))
        _require_indexed(work.page_count, problems)
        return _build_report(revision, work, stats, problems, histories.fault)

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
