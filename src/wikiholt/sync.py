"""Syncing: make what an index holds equal to the tree at HEAD, whatever happened in between.

The tree is compared with the index, so a missed hook, a force-push, a renamed directory, a restored backup and a crash
all heal the same way. Work is committed batch by batch; the last batch sets the revision, and then the counts must add
up. What proves broken is mended, and another recipe is built as a generation beside the one that answers. One process
syncs a wiki at a time (the store's writer lock).
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from wikiholt.batches import Pause, Paused, never
from wikiholt.converging import AGAIN, Converging, Means, Progress, Watch, unseen
from wikiholt.errors import (
    Busy,
    DatabaseAway,
    IndexCorrupt,
    IndexFault,
    IndexMissing,
    ModelError,
    NoPages,
    SourceError,
    SyncFailed,
    WikiNotFound,
)
from wikiholt.healing import Healing
from wikiholt.model import Recipe, SyncReport
from wikiholt.pages import Pipeline
from wikiholt.ports import Embedder, Source, Store, WikiIndex

__all__ = ["Progress", "Syncer"]

_LOG = logging.getLogger(__name__)


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
        former: Callable[[Recipe], Embedder] | None = None,
        healing: Healing | None = None,
    ) -> None:
        """`before_publishing` is called when a generation is about to take the place of another; `former` gives the
        model that one was built with."""
        self._wiki_id = wiki_id
        self._store = store
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._lock_timeout = lock_timeout
        self._wanted = wanted
        self._before_publishing = before_publishing
        self._former = former
        self._healing = healing or Healing(wiki_id, wiki_id, store)
        self._converging = Converging(source)
        self._beside = Converging(source)
        """For the generation that answers while another is built."""

    def sync(
        self,
        progress: Callable[[Progress], None] = unseen,
        pause: Callable[[], Pause] = never,
        patience: float | None = None,
    ) -> SyncReport:
        """Converge to HEAD and say what was done; raises when the index could not be made to stand for it.

        Raises Paused when `pause` says so between two batches; `patience` is how long to wait for another writer.
        """
        return self._write(lambda recipe, head: self._healed(recipe, head, Watch(progress, pause)), patience)

    def rebuild(
        self,
        progress: Callable[[Progress], None] = unseen,
        pause: Callable[[], Pause] = never,
        patience: float | None = None,
    ) -> SyncReport:
        """Build a new generation without taking over any vector and publish it; one begun and paused is gone on with.

        The published one answers meanwhile, and stays if the new one cannot be completed.
        """
        return self._write(lambda recipe, head: self._rebuilt(recipe, head, Watch(progress, pause)), patience)

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
            if self._store.regain(self._wiki_id):
                self._healing.regained()
            # A paused writer leaves in good order, like one that is done: the next need not prove the whole index.
            with suppress(Paused):
                report = work(recipe, self._head())
        if report is None:
            raise Paused
        return replace(report, seconds=time.monotonic() - began)

    def _head(self) -> str:
        """HEAD; where it cannot be read, an index that proves broken is mended as far as a backup goes: nothing else is
        left to answer."""
        try:
            return self._source.head()
        except SourceError:
            if not self._healing.health.well and self._healing.has_backup():
                try:
                    self._store.prove(self._wiki_id, fully=True)
                except IndexCorrupt as broken:
                    self._healing.heal(broken.message)
            raise

    def _healed(self, recipe: Recipe, revision: str, watch: Watch) -> SyncReport:
        """A sync; whatever proves broken on the way is mended from a backup, and if that is no better, from git."""
        restored = None
        for from_backup in (True, False):
            try:
                report = self._on_serving(recipe, revision, watch)
                break
            except IndexCorrupt as error:
                restored = self._healing.heal(error.message, from_backup=from_backup)
        else:
            report = self._on_serving(recipe, revision, watch)
        self._healing.stands(report.revision, report.chunks_embedded)
        return report if restored is None else replace(report, rebuilt=report.rebuilt or not restored)

    def _on_serving(self, recipe: Recipe, revision: str, watch: Watch) -> SyncReport:
        serving = self._serving(recipe)
        try:
            if serving.state().recipe == recipe or not self._source.tree(revision):
                return self._converging.make_equal(serving, serving, revision, watch, self._today())
            return self._anew(recipe, revision, serving, watch, reuse=True)
        except NoPages:
            if serving.state().revision == revision:
                # If it was broken it is mended: what is wrong now is the wiki, and that is what is raised.
                self._healing.stands(revision, 0)
            raise
        finally:
            serving.close()

    def _rebuilt(self, recipe: Recipe, revision: str, watch: Watch) -> SyncReport:
        """A new generation from nothing. A broken one must not be swept away by it, but is set aside like any other."""
        try:
            self._store.prove(self._wiki_id, fully=not self._healing.health.well)
        except IndexCorrupt as error:
            self._healing.heal(error.message)
        except DatabaseAway:
            raise
        except IndexFault:
            pass
        try:
            serving = self._store.open(self._wiki_id)
        except DatabaseAway:
            raise
        except IndexFault:
            report = self._anew(recipe, revision, None, watch, reuse=False)
        else:
            try:
                report = self._anew(recipe, revision, serving, watch, reuse=False)
            finally:
                serving.close()
        self._healing.stands(report.revision, report.chunks_embedded)
        return report

    def _serving(self, recipe: Recipe) -> WikiIndex:
        """The published index, proved where it may have changed since it was last written; else a new one."""
        try:
            self._store.prove(self._wiki_id, fully=not self._healing.health.well)
            return self._store.open(self._wiki_id)
        except IndexMissing as error:
            if self._store.published(self._wiki_id) is not None:
                raise IndexCorrupt("its file is gone", hint=error.hint) from error
        if self._healing.restore_lost():
            return self._store.open(self._wiki_id)
        return self._store.create(self._wiki_id, recipe)

    def _today(self) -> Means:
        return Means(self._embedder, self._pipeline)

    def _anew(
        self, recipe: Recipe, revision: str, serving: WikiIndex | None, watch: Watch, *, reuse: bool
    ) -> SyncReport:
        """A generation beside the published one, which takes its place once it stands for HEAD and has been checked.

        Until then the published one is brought to HEAD whenever that moves.
        """
        if serving is not None:
            self._follow(serving, watch)
            watch = self._following(serving, watch)
        building = self._store.new_generation(self._wiki_id, recipe, afresh=not reuse)
        donor = serving if serving is not None and reuse else building
        try:
            report = self._converging.make_equal(building, donor, revision, watch, self._today())
            self._require_whole(building, watch)
            self._before_publishing()
            while (head := self._source.head()) != report.revision:
                report = _sum(report, self._converging.make_equal(building, donor, head, watch, self._today()))
            self._store.publish(self._wiki_id, building.generation)
        except IndexCorrupt:
            # The one that serves must not be given up for a fault of the one that was to follow it.
            self._require_whole(building, watch)
            raise
        finally:
            building.close()
        return replace(report, rebuilt=True)

    def _require_whole(self, building: WikiIndex, watch: Watch) -> None:
        """Raise unless every byte of a generation is right; one that is not is begun again by the next sync."""
        paused = False

        def stop() -> bool:
            nonlocal paused
            paused = watch.pause() is Pause.AT_ONCE
            return paused

        try:
            faults = building.check(stop)
        except Busy as error:
            if not paused:
                raise  # the store itself was busy: nobody asked for a pause
            raise Paused from error
        if faults:
            raise SyncFailed(f"the new index is not whole ({faults[0]}); the one before goes on answering", hint=AGAIN)

    def _following(self, serving: WikiIndex, watch: Watch) -> Watch:
        """The same watch; between two batches the generation that serves is brought to HEAD, if that has moved."""
        rested, took = time.monotonic(), 0.0

        def progress(done: Progress) -> None:
            nonlocal rested, took
            watch.progress(done)
            if time.monotonic() - rested >= 4 * took:
                began = time.monotonic()
                self._follow(serving, watch)
                rested = time.monotonic()
                took = rested - began

        return Watch(progress, watch.pause)

    def _follow(self, serving: WikiIndex, watch: Watch) -> None:
        """Bring the generation that serves to HEAD in the way it was made; if that cannot be, it stays behind."""
        head, state = self._source.head(), serving.state()
        if state.revision == head:
            return
        try:
            means = self._means_of(state.recipe)
            if means is not None:
                self._beside.make_equal(serving, serving, head, Watch(unseen, watch.pause), means)
        except (ModelError, NoPages) as error:
            _LOG.info("the index that serves stays behind HEAD while another is built: %s", error.message)

    def _means_of(self, recipe: Recipe) -> Means | None:
        """With what an index was made, as far as that is still to be had."""
        pipeline = Pipeline.of(recipe)
        if pipeline is None:
            return None
        if recipe.fingerprint == self._embedder.fingerprint:
            return Means(self._embedder, pipeline)
        if self._former is None:
            return None
        former = self._former(recipe)
        former.prove()
        return Means(former, pipeline)


def _sum(first: SyncReport, then: SyncReport) -> SyncReport:
    names = ("added", "changed", "moved", "deleted", "chunks_embedded", "chunks_reused")
    return replace(then, **{name: getattr(first, name) + getattr(then, name) for name in names})
