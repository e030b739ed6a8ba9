"""Syncing: make what an index holds equal to the tree at HEAD, whatever happened in between.

The tree is compared with the index, never with a log of events, so a missed hook, a force-push, a renamed
directory, a restored backup and a crash all heal the same way. Work is committed batch by batch; the revision is
set by the last batch, when the counts add up. One process syncs a wiki at a time (the store's writer lock).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from wikiholt.batches import Batches, Tally
from wikiholt.errors import IndexCorrupt, IndexMissing, NoPages, SyncFailed
from wikiholt.model import Change, Problem, Recipe, SyncReport, TreeEntry
from wikiholt.pages import Pipeline
from wikiholt.ports import Embedder, Source, Store, WikiIndex


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sync is."""

    pages_done: int
    pages_total: int
    chunks_embedded: int


def _unseen(_: Progress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Plan:
    """What separates an index from a tree."""

    put: tuple[str, ...]
    """Files to index: new, changed, or listed as a problem before."""
    moved: Mapping[str, str]
    """New file → the file whose content it has and which is gone."""
    deleted: tuple[str, ...]
    """Files that are gone and whose content did not move."""
    changed: int
    added: int


def plan(tree: Mapping[str, TreeEntry], have: Mapping[str, str], problems: Sequence[Problem]) -> Plan:
    """Compare a tree with what an index holds; pure."""
    listed = {problem.file for problem in problems}
    put = tuple(sorted(file for file, entry in tree.items() if have.get(file) != entry.blob))
    gone = sorted(file for file in have if file not in tree)
    by_blob: dict[str, list[str]] = {}
    for file in reversed(gone):
        by_blob.setdefault(have[file], []).append(file)
    moved = {}
    for file in put:
        if file not in have and (old := by_blob.get(tree[file].blob)):
            moved[file] = old.pop()
    left = set(gone) - set(moved.values()) | {file for file in listed if file not in tree}
    changed = sum(file in have for file in put)
    added = sum(file not in have and file not in moved and file not in listed for file in put)
    return Plan(put, moved, tuple(sorted(left)), changed, added)


class Syncer:
    """Syncs one wiki. Bound to its store, source and embedder when made."""

    def __init__(
        self, wiki_id: str, store: Store, source: Source, embedder: Embedder, pipeline: Pipeline, lock_timeout: float
    ) -> None:
        self._wiki_id = wiki_id
        self._store = store
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._lock_timeout = lock_timeout

    def sync(self, progress: Callable[[Progress], None] = _unseen) -> SyncReport:
        """Converge to HEAD and say what was done; raises when the index could not be made to stand for it."""
        began = time.monotonic()
        self._embedder.prove()
        recipe = self._pipeline.recipe(self._embedder)
        with self._store.writing(self._wiki_id, self._lock_timeout):
            revision = self._source.head()
            serving = self._serving(recipe)
            try:
                report = self._converge(serving, recipe, revision, progress)
            finally:
                serving.close()
        return replace(report, seconds=time.monotonic() - began)

    def _serving(self, recipe: Recipe) -> WikiIndex:
        """The published index; a broken one is set aside and begun anew from git."""
        try:
            return self._store.open(self._wiki_id)
        except IndexMissing:
            if self._store.published(self._wiki_id) is not None:
                self._store.set_aside(self._wiki_id, "its file is gone")
        except IndexCorrupt as error:
            self._store.set_aside(self._wiki_id, error.message)
        return self._store.create(self._wiki_id, recipe)

    def _converge(
        self, serving: WikiIndex, recipe: Recipe, revision: str, progress: Callable[[Progress], None]
    ) -> SyncReport:
        tree = self._source.tree(revision)
        if serving.state().recipe == recipe or not tree:
            return self._make_equal(serving, serving, revision, tree, progress)
        building = self._store.new_generation(self._wiki_id, recipe)
        try:
            report = self._make_equal(building, serving, revision, tree, progress)
            while (head := self._source.head()) != report.revision:
                again = self._make_equal(building, serving, head, self._source.tree(head), progress)
                report = _sum(report, again)
            self._store.publish(self._wiki_id, building.generation)
        finally:
            building.close()
        return replace(report, rebuilt=True)

    def _make_equal(
        self,
        index: WikiIndex,
        donor: WikiIndex,
        revision: str,
        tree: Mapping[str, TreeEntry],
        progress: Callable[[Progress], None],
    ) -> SyncReport:
        state = index.state()
        listed = index.problems()
        if state.revision == revision and not any(problem.reason in TRANSIENT for problem in listed):
            return self._finished(index, tree, SyncReport(revision, unchanged=state.pages))
        have = index.pages()
        todo = plan(tree, have, listed)
        times = self._source.last_changed(todo.put, revision, state.revision)
        batches = Batches(index, donor, self._source, self._embedder, self._pipeline, times)
        files = {file: tree[file] for file in todo.put}
        tally = batches.run(files, todo.moved, lambda t: progress(_progress(t, len(files))))
        index.apply(Change(deleted=todo.deleted, revision=revision))
        gone = sum(file in have for file in todo.deleted)
        return self._finished(index, tree, _report(revision, todo, gone, tally, len(tree)))

    def _finished(self, index: WikiIndex, tree: Mapping[str, TreeEntry], report: SyncReport) -> SyncReport:
        """The report with its problems, if and only if pages in the tree = indexed + listed problems."""
        problems = tuple(index.problems())
        have = index.pages()
        expected = {file: entry.blob for file, entry in tree.items()}
        for problem in problems:
            if expected.pop(problem.file, None) is None:
                raise SyncFailed(f"a problem is listed for {problem.file}, which is not in the tree", hint=_AGAIN)
        if dict(have) != expected:
            raise SyncFailed(
                f"the counts do not add up: {len(tree)} in the tree, {len(have)} indexed, {len(problems)} problems",
                hint=_AGAIN,
            )
        if not tree:
            raise NoPages(
                "there is no page at HEAD", hint="check the branch, the sub-directory and the ignore globs of this wiki"
            )
        if not have:
            raise NoPages(
                f"none of the {len(tree)} pages could be indexed; the first: {problems[0].file}: {problems[0].detail}",
                hint="see the problems in `wikiholt status`",
            )
        return replace(report, problems=problems)


TRANSIENT = ("unreadable", "failed")
"""Reasons that may go away without the page being edited, so that a sync tries again."""

_AGAIN = "run `wikiholt sync` again; if it stays so, run `wikiholt doctor`"


def _progress(tally: Tally, total: int) -> Progress:
    return Progress(tally.pages, total, tally.embedded)


def _report(revision: str, todo: Plan, gone: int, tally: Tally, total: int) -> SyncReport:
    return SyncReport(
        revision,
        added=todo.added,
        changed=todo.changed,
        moved=len(todo.moved),
        deleted=gone,
        unchanged=total - len(todo.put),
        chunks_embedded=tally.embedded,
        chunks_reused=tally.reused,
    )


def _sum(first: SyncReport, then: SyncReport) -> SyncReport:
    names = ("added", "changed", "moved", "deleted", "chunks_embedded", "chunks_reused")
    return replace(then, **{name: getattr(first, name) + getattr(then, name) for name in names})
