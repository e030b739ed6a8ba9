"""Making what one index holds equal to a tree: compare, index what differs in batches, verify, set the revision.

The tree is compared with the index, never with a log of events. A process compares whole trees the first time; as long
as nobody else has written the index since, only the difference of two trees is looked at after that, so that an edit
costs the same in a large wiki as in a small one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from wikiholt.domain.git import TreeEntry
from wikiholt.domain.index import IndexChange, IndexState, SyncReport
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import NoPages, SyncFailed
from wikiholt.indexing.batch import BatchIndexer, BatchStats, Pause
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.indexing.plan import SyncWork, build_plan, plan_from_diff

RETRY_HINT = "run `wikiholt sync` again; if it stays so, run `wikiholt doctor`"


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """How far a sync is."""

    pages_done: int
    pages_total: int
    chunks_embedded: int


def ignore_progress(_: SyncProgress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SyncCallbacks:
    """Who is told how far a sync is, and says when it is to let others go first."""

    on_progress: Callable[[SyncProgress], None]
    pause: Callable[[], Pause]


@dataclass(frozen=True, slots=True)
class _KnownGood:
    """A state in which this process found an index equal to a whole tree; it holds while the version stays."""

    version: int
    revision: str
    page_count: int


@dataclass(frozen=True, slots=True)
class _PausedSync:
    """What a sync that was paused had asked git for, kept until it is done."""

    revision: str
    changed_at: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class ModelAndPipeline:
    """With what pages are made into an index."""

    embedder: Embedder
    pipeline: TextPipeline


class Reconciler:
    """Bound to one wiki's source; remembers what it has compared. For the one thread that holds the writer lock."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known_good: dict[int, _KnownGood] = {}
        self._paused_sync: _PausedSync | None = None

    def reconcile(
        self,
        index: WikiIndex,
        vector_source: WikiIndex,
        revision: str,
        callbacks: SyncCallbacks,
        model_and_pipeline: ModelAndPipeline,
    ) -> SyncReport:
        """Have the index stand for the revision; vectors of `donor` are taken over if its model is the same.

        Raises Paused after a commit when the watch says so, SyncFailed, and NoPages.
        """
        state = index.get_state()
        work = self._plan_work(index, state, revision)
        times = self._get_change_dates(work.plan.to_index, revision, state.revision)
        batches = BatchIndexer(
            index, vector_source, self._source, model_and_pipeline.embedder, model_and_pipeline.pipeline, times
        )
        tell = callbacks.on_progress
        tally = batches.run(
            work.entries, work.plan.moved, lambda t: tell(_to_progress(t, len(work.entries))), callbacks.pause
        )
        self._known_good.pop(index.generation, None)
        self._paused_sync = None
        index.apply(IndexChange(deleted=work.plan.deleted))
        problems = _verify_counts(index, work)
        index.apply(IndexChange(revision=revision))
        self._known_good[index.generation] = _KnownGood(index.get_version(), revision, work.page_count)
        _require_pages(work.page_count, problems)
        return _build_report(revision, work, tally, problems)

    def _get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When the files last changed; after a pause that is remembered, for git has to walk the history to tell."""
        known = self._paused_sync
        if known is None or known.revision != revision or not known.changed_at.keys() >= set(files):
            known = self._paused_sync = _PausedSync(revision, self._source.get_change_dates(files, revision, since))
        return known.changed_at

    def _plan_work(self, index: WikiIndex, state: IndexState, revision: str) -> SyncWork:
        """What separates the index from the revision, by the trees' difference where that is enough."""
        listed = index.get_problems()
        known = self._known_good.get(state.generation)
        if known and (state.version, state.revision) == (known.version, known.revision):
            changes = self._source.get_changes(known.revision, revision)
            if changes is not None:
                return plan_from_diff(changes, listed, known.page_count)
        tree = self._source.read_tree(revision)
        todo = build_plan(tree, index.get_page_blobs(), listed)
        return SyncWork(todo, {file: tree[file] for file in todo.to_index}, len(tree), tree)


def _verify_counts(index: WikiIndex, work: SyncWork) -> tuple[PageProblem, ...]:
    """The problems, if and only if pages in the tree = indexed + listed problems."""
    problems = tuple(index.get_problems())
    pages = index.get_state().pages
    whole = work.tree is None or _is_equal_to_tree(index.get_page_blobs(), work.tree, problems)
    if not whole or pages + len(problems) != work.page_count:
        counts = f"{work.page_count} in the tree, {pages} indexed, {len(problems)} problems"
        raise SyncFailed(f"the counts do not add up: {counts}", hint=RETRY_HINT)
    return problems


def _require_pages(page_count: int, problems: Sequence[PageProblem]) -> None:
    """Nothing indexed is an error, however truly it stands for HEAD."""
    if not page_count:
        raise NoPages(
            "there is no page at HEAD", hint="check the branch, the sub-directory and the ignore globs of this wiki"
        )
    if len(problems) == page_count:
        raise NoPages(
            f"none of the {page_count} pages could be indexed; the first: {problems[0].file}: {problems[0].detail}",
            hint="see the problems in `wikiholt status`",
        )


def _is_equal_to_tree(
    indexed: Mapping[str, str], tree: Mapping[str, TreeEntry], problems: Sequence[PageProblem]
) -> bool:
    odd = {problem.file for problem in problems}
    expected = {file: entry.blob for file, entry in tree.items() if file not in odd}
    return odd <= tree.keys() and dict(indexed) == expected


def _to_progress(stats: BatchStats, total: int) -> SyncProgress:
    return SyncProgress(stats.pages, total, stats.embedded)


def _build_report(revision: str, work: SyncWork, stats: BatchStats, problems: tuple[PageProblem, ...]) -> SyncReport:
    odd = {problem.file for problem in problems}
    return SyncReport(
        revision,
        added=len(work.plan.added - odd),
        changed=len(work.plan.changed - odd),
        moved=len(work.plan.moved),
        deleted=work.plan.deleted_pages,
        unchanged=work.page_count - len(work.plan.to_index),
        chunks_embedded=stats.embedded,
        chunks_reused=stats.reused,
        problems=problems,
    )
