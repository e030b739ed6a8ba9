"""Syncing: make what an index holds equal to the tree at HEAD, whatever happened in between.

The tree is compared with the index, never with a log of events, so a missed hook, a force-push, a renamed
directory, a restored backup and a crash all heal the same way. A process compares whole trees the first time; as long
as nobody else has written the index since, only the difference of the two trees is looked at after that, so that an
edit costs the same in a large wiki as in a small one. Work is committed batch by batch; the last batch sets the
revision, and then the counts must add up. One process syncs a wiki at a time (the store's writer lock).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from wikiholt.batches import Batches, Pause, Paused, Tally, never
from wikiholt.errors import IndexCorrupt, IndexMissing, NoPages, SyncFailed, WikiNotFound
from wikiholt.model import Change, Problem, Recipe, State, SyncReport, TreeEntry
from wikiholt.pages import Pipeline
from wikiholt.planning import Work, difference, plan
from wikiholt.ports import Embedder, Source, Store, WikiIndex

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sync is."""

    pages_done: int
    pages_total: int
    chunks_embedded: int


def _unseen(_: Progress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Watch:
    """Who is told how far a sync is, and says when it is to let others go first."""

    progress: Callable[[Progress], None]
    pause: Callable[[], Pause]


@dataclass(frozen=True, slots=True)
class _Trusted:
    """A state in which this process found an index equal to a whole tree; it holds while the version stays."""

    generation: int
    version: int
    revision: str
    total: int


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a sync that was paused had asked git for, kept until it is done."""

    revision: str
    times: Mapping[str, datetime]


class Syncer:
    """Syncs one wiki. Bound to its store, source and embedder when made; one sync at a time."""

    def __init__(
        self,
        wiki_id: str,
        store: Store,
        source: Source,
        embedder: Embedder,
        pipeline: Pipeline,
        lock_timeout: float,
        wanted: Callable[[], bool] = lambda: True,
        before_publishing: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_publishing` is called when a generation is about to take the place of another."""
        self._wiki_id = wiki_id
        self._store = store
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._lock_timeout = lock_timeout
        self._wanted = wanted
        self._before_publishing = before_publishing
        self._trusted: _Trusted | None = None
        self._begun: _Begun | None = None

    def sync(
        self,
        progress: Callable[[Progress], None] = _unseen,
        pause: Callable[[], Pause] = never,
        patience: float | None = None,
    ) -> SyncReport:
        """Converge to HEAD and say what was done; raises when the index could not be made to stand for it.

        Raises Paused when `pause` says so between two batches; `patience` is how long to wait for another writer.
        """
        return self._write(lambda recipe, head: self._healed(recipe, head, _Watch(progress, pause)), patience)

    def rebuild(
        self,
        progress: Callable[[Progress], None] = _unseen,
        pause: Callable[[], Pause] = never,
        patience: float | None = None,
    ) -> SyncReport:
        """Build a new generation without taking over any vector and publish it; one begun and paused is gone on with.

        The published one answers meanwhile, and stays if the new one cannot be completed.
        """
        return self._write(lambda recipe, head: self._anew(recipe, head, None, _Watch(progress, pause)), patience)

    def _write(self, work: Callable[[Recipe, str], SyncReport], patience: float | None) -> SyncReport:
        began = time.monotonic()
        self._embedder.prove()
        recipe = self._pipeline.recipe(self._embedder)
        report: SyncReport | None = None
        with self._store.writing(self._wiki_id, self._lock_timeout if patience is None else patience):
            if not self._wanted():
                # It was removed while this sync was waiting; what waiting made of it goes too.
                self._store.drop(self._wiki_id)
                raise WikiNotFound("this wiki was removed meanwhile", hint="`wikiholt list` shows the wikis there are")
            # A paused writer leaves in good order, like one that is done: the next need not prove the whole index.
            with suppress(Paused):
                report = work(recipe, self._source.head())
        if report is None:
            raise Paused
        return replace(report, seconds=time.monotonic() - began)

    def _healed(self, recipe: Recipe, revision: str, watch: _Watch) -> SyncReport:
        try:
            return self._on_serving(recipe, revision, watch)
        except IndexCorrupt as error:
            # Whatever it was that proved broken: git has it all, so begin again from there, once.
            _LOG.warning("%s; it is set aside and built anew", error.message)
            self._store.set_aside(self._wiki_id, error.message)
            return replace(self._on_serving(recipe, revision, watch), rebuilt=True)

    def _on_serving(self, recipe: Recipe, revision: str, watch: _Watch) -> SyncReport:
        serving = self._serving(recipe)
        try:
            if serving.state().recipe == recipe or not self._source.tree(revision):
                return self._make_equal(serving, serving, revision, watch)
            return self._anew(recipe, revision, serving, watch)
        finally:
            serving.close()

    def _serving(self, recipe: Recipe) -> WikiIndex:
        """The published index, proved where it may have changed since it was last written; else a new one."""
        try:
            self._store.prove(self._wiki_id)
            return self._store.open(self._wiki_id)
        except IndexMissing:
            if self._store.published(self._wiki_id) is not None:
                self._store.set_aside(self._wiki_id, "its file is gone")
        return self._store.create(self._wiki_id, recipe)

    def _anew(self, recipe: Recipe, revision: str, donor: WikiIndex | None, watch: _Watch) -> SyncReport:
        """A generation beside the published one, published once it stands for HEAD."""
        building = self._store.new_generation(self._wiki_id, recipe)
        try:
            report = self._make_equal(building, donor or building, revision, watch)
            self._before_publishing()
            while (head := self._source.head()) != report.revision:
                report = _sum(report, self._make_equal(building, donor or building, head, watch))
            self._store.publish(self._wiki_id, building.generation)
        finally:
            building.close()
        return replace(report, rebuilt=True)

    def _make_equal(self, index: WikiIndex, donor: WikiIndex, revision: str, watch: _Watch) -> SyncReport:
        state = index.state()
        work = self._compare(index, state, revision)
        times = self._times(work.plan.put, revision, state.revision)
        batches = Batches(index, donor, self._source, self._embedder, self._pipeline, times)
        tell = watch.progress
        tally = batches.run(work.entries, work.plan.moved, lambda t: tell(_progress(t, len(work.entries))), watch.pause)
        self._trusted = self._begun = None
        index.apply(Change(deleted=work.plan.deleted))
        problems = _verified(index, work)
        index.apply(Change(revision=revision))
        self._trusted = _Trusted(index.generation, index.version(), revision, work.total)
        _require_pages(work.total, problems)
        return _report(revision, work, tally, problems)

    def _times(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When the files last changed; after a pause that is remembered, for git has to walk the history to tell."""
        known = self._begun
        if known is None or known.revision != revision or not known.times.keys() >= set(files):
            known = self._begun = _Begun(revision, self._source.last_changed(files, revision, since))
        return known.times

    def _compare(self, index: WikiIndex, state: State, revision: str) -> Work:
        """What separates the index from the revision, by the trees' difference where that is enough."""
        listed = index.problems()
        known = self._trusted
        here = (state.generation, state.version, state.revision)
        if known and here == (known.generation, known.version, known.revision):
            changes = self._source.changes(known.revision, revision)
            if changes is not None:
                return difference(changes, listed, known.total)
        tree = self._source.tree(revision)
        todo = plan(tree, index.pages(), listed)
        return Work(todo, {file: tree[file] for file in todo.put}, len(tree), tree)


def _verified(index: WikiIndex, work: Work) -> tuple[Problem, ...]:
    """The problems, if and only if pages in the tree = indexed + listed problems."""
    problems = tuple(index.problems())
    pages = index.state().pages
    whole = work.tree is None or _equal(index.pages(), work.tree, problems)
    if not whole or pages + len(problems) != work.total:
        counts = f"{work.total} in the tree, {pages} indexed, {len(problems)} problems"
        raise SyncFailed(f"the counts do not add up: {counts}", hint=_AGAIN)
    return problems


def _require_pages(total: int, problems: Sequence[Problem]) -> None:
    """Nothing indexed is an error, however truly it stands for HEAD."""
    if not total:
        raise NoPages(
            "there is no page at HEAD", hint="check the branch, the sub-directory and the ignore globs of this wiki"
        )
    if len(problems) == total:
        raise NoPages(
            f"none of the {total} pages could be indexed; the first: {problems[0].file}: {problems[0].detail}",
            hint="see the problems in `wikiholt status`",
        )


def _equal(have: Mapping[str, str], tree: Mapping[str, TreeEntry], problems: Sequence[Problem]) -> bool:
    odd = {problem.file for problem in problems}
    expected = {file: entry.blob for file, entry in tree.items() if file not in odd}
    return odd <= tree.keys() and dict(have) == expected


_AGAIN = "run `wikiholt sync` again; if it stays so, run `wikiholt doctor`"


def _progress(tally: Tally, total: int) -> Progress:
    return Progress(tally.pages, total, tally.embedded)


def _report(revision: str, work: Work, tally: Tally, problems: tuple[Problem, ...]) -> SyncReport:
    odd = {problem.file for problem in problems}
    return SyncReport(
        revision,
        added=len(work.plan.added - odd),
        changed=len(work.plan.changed - odd),
        moved=len(work.plan.moved),
        deleted=work.plan.gone,
        unchanged=work.total - len(work.plan.put),
        chunks_embedded=tally.embedded,
        chunks_reused=tally.reused,
        problems=problems,
    )


def _sum(first: SyncReport, then: SyncReport) -> SyncReport:
    names = ("added", "changed", "moved", "deleted", "chunks_embedded", "chunks_reused")
    return replace(then, **{name: getattr(first, name) + getattr(then, name) for name in names})
