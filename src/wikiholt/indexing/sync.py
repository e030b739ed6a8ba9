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

from wikiholt.domain.index import Recipe, SyncReport
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import (
    Busy,
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexUnavailable,
    ModelError,
    NoPages,
    SourceError,
    SyncFailed,
    WikiNotFound,
)
from wikiholt.indexing.batch import Pause, SyncPaused, never_pause
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.indexing.reconciler import (
    RETRY_HINT,
    ModelAndPipeline,
    Reconciler,
    SyncCallbacks,
    SyncProgress,
    ignore_progress,
)
from wikiholt.indexing.repair import IndexRepair

__all__ = ["SyncProgress", "Syncer"]

_LOG = logging.getLogger(__name__)


class Syncer:
    """Syncs one wiki. Bound to its store, source and embedder when made; one sync at a time."""

    def __init__(
        self,
        wiki_id: str,
        store: IndexStore,
        source: Source,
        embedder: Embedder,
        pipeline: TextPipeline,
        lock_timeout: float,
        is_registered: Callable[[], bool] = lambda: True,
        before_publish: Callable[[], None] = lambda: None,
        get_previous_model: Callable[[Recipe], Embedder] | None = None,
        repair: IndexRepair | None = None,
    ) -> None:
        """`before_publishing` is called when a generation is about to take the place of another; `former` gives the
        model that one was built with."""
        self._wiki_id = wiki_id
        self._store = store
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._lock_timeout = lock_timeout
        self._is_registered = is_registered
        self._before_publish = before_publish
        self._get_previous_model = get_previous_model
        self._repair = repair or IndexRepair(wiki_id, wiki_id, store)
        self._reconciler = Reconciler(source)
        self._published_reconciler = Reconciler(source)
        """For the generation that answers while another is built."""

    def sync(
        self,
        progress: Callable[[SyncProgress], None] = ignore_progress,
        pause: Callable[[], Pause] = never_pause,
        lock_timeout: float | None = None,
    ) -> SyncReport:
        """Converge to HEAD and say what was done; raises when the index could not be made to stand for it.

        Raises Paused when `pause` says so between two batches; `patience` is how long to wait for another writer.
        """
        return self._run_locked(
            lambda recipe, head: self._sync_with_repair(recipe, head, SyncCallbacks(progress, pause)), lock_timeout
        )

    def rebuild(
        self,
        progress: Callable[[SyncProgress], None] = ignore_progress,
        pause: Callable[[], Pause] = never_pause,
        lock_timeout: float | None = None,
    ) -> SyncReport:
        """Build a new generation without taking over any vector and publish it; one begun and paused is gone on with.

        The published one answers meanwhile, and stays if the new one cannot be completed.
        """
        return self._run_locked(
            lambda recipe, head: self._rebuild(recipe, head, SyncCallbacks(progress, pause)), lock_timeout
        )

    def _run_locked(self, work: Callable[[Recipe, str], SyncReport], lock_timeout: float | None) -> SyncReport:
        began = time.monotonic()
        self._embedder.run_self_test()
        recipe = self._pipeline.build_recipe(self._embedder)
        report: SyncReport | None = None
        with self._store.write_lock(self._wiki_id, self._lock_timeout if lock_timeout is None else lock_timeout):
            if not self._is_registered():
                # It was removed while this sync was waiting; what waiting made of it goes too.
                self._store.delete(self._wiki_id)
                raise WikiNotFound("this wiki was removed meanwhile", hint="`wikiholt list` shows the wikis there are")
            if self._store.recover_published(self._wiki_id):
                self._repair.log_recovered_pointer()
            # A paused writer leaves in good order, like one that is done: the next need not prove the whole index.
            with suppress(SyncPaused):
                report = work(recipe, self._get_head())
        if report is None:
            raise SyncPaused
        return replace(report, seconds=time.monotonic() - began)

    def _get_head(self) -> str:
        """HEAD; where it cannot be read, an index that proves broken is mended as far as a backup goes: nothing else is
        left to answer."""
        try:
            return self._source.get_head()
        except SourceError:
            if not self._repair.health.is_ok and self._repair.has_backup():
                try:
                    self._store.verify(self._wiki_id, full=True)
                except IndexCorrupt as broken:
                    self._repair.repair(broken.message)
            raise

    def _sync_with_repair(self, recipe: Recipe, revision: str, callbacks: SyncCallbacks) -> SyncReport:
        """A sync; whatever proves broken on the way is mended from a backup, and if that is no better, from git."""
        restored = None
        for from_backup in (True, False):
            try:
                report = self._sync_published(recipe, revision, callbacks)
                break
            except IndexCorrupt as error:
                restored = self._repair.repair(error.message, from_backup=from_backup)
        else:
            report = self._sync_published(recipe, revision, callbacks)
        self._repair.mark_repaired(report.revision, report.chunks_embedded)
        return report if restored is None else replace(report, rebuilt=report.rebuilt or not restored)

    def _sync_published(self, recipe: Recipe, revision: str, callbacks: SyncCallbacks) -> SyncReport:
        serving = self._open_published(recipe)
        try:
            if serving.get_state().recipe == recipe or not self._source.read_tree(revision):
                return self._reconciler.reconcile(serving, serving, revision, callbacks, self._get_current_model())
            return self._build_generation(recipe, revision, serving, callbacks, reuse=True)
        except NoPages:
            if serving.get_state().revision == revision:
                # If it was broken it is mended: what is wrong now is the wiki, and that is what is raised.
                self._repair.mark_repaired(revision, 0)
            raise
        finally:
            serving.close()

    def _rebuild(self, recipe: Recipe, revision: str, callbacks: SyncCallbacks) -> SyncReport:
        """A new generation from nothing. A broken one must not be swept away by it, but is set aside like any other."""
        try:
            self._store.verify(self._wiki_id, full=not self._repair.health.is_ok)
        except IndexCorrupt as error:
            self._repair.repair(error.message)
        except DatabaseUnavailable:
            raise
        except IndexUnavailable:
            pass
        try:
            serving = self._store.open(self._wiki_id)
        except DatabaseUnavailable:
            raise
        except IndexUnavailable:
            report = self._build_generation(recipe, revision, None, callbacks, reuse=False)
        else:
            try:
                report = self._build_generation(recipe, revision, serving, callbacks, reuse=False)
            finally:
                serving.close()
        self._repair.mark_repaired(report.revision, report.chunks_embedded)
        return report

    def _open_published(self, recipe: Recipe) -> WikiIndex:
        """The published index, proved where it may have changed since it was last written; else a new one."""
        try:
            self._store.verify(self._wiki_id, full=not self._repair.health.is_ok)
            return self._store.open(self._wiki_id)
        except IndexMissing as error:
            if self._store.get_published(self._wiki_id) is not None:
                raise IndexCorrupt("its file is gone", hint=error.hint) from error
        if self._repair.restore_missing():
            return self._store.open(self._wiki_id)
        return self._store.create(self._wiki_id, recipe)

    def _get_current_model(self) -> ModelAndPipeline:
        return ModelAndPipeline(self._embedder, self._pipeline)

    def _build_generation(
        self, recipe: Recipe, revision: str, published: WikiIndex | None, callbacks: SyncCallbacks, *, reuse: bool
    ) -> SyncReport:
        """A generation beside the published one, which takes its place once it stands for HEAD and has been checked.

        Until then the published one is brought to HEAD whenever that moves.
        """
        if published is not None:
            self._update_published(published, callbacks)
            callbacks = self._with_published_updates(published, callbacks)
        building = self._store.create_generation(self._wiki_id, recipe, from_scratch=not reuse)
        donor = published if published is not None and reuse else building
        try:
            report = self._reconciler.reconcile(building, donor, revision, callbacks, self._get_current_model())
            self._require_intact(building, callbacks)
            self._before_publish()
            while (head := self._source.get_head()) != report.revision:
                report = _merge_reports(
                    report, self._reconciler.reconcile(building, donor, head, callbacks, self._get_current_model())
                )
            self._store.publish(self._wiki_id, building.generation)
        except IndexCorrupt:
            # The one that serves must not be given up for a fault of the one that was to follow it.
            self._require_intact(building, callbacks)
            raise
        finally:
            building.close()
        return replace(report, rebuilt=True)

    def _require_intact(self, building: WikiIndex, callbacks: SyncCallbacks) -> None:
        """Raise unless every byte of a generation is right; one that is not is begun again by the next sync."""
        paused = False

        def stop() -> bool:
            nonlocal paused
            paused = callbacks.pause() is Pause.NOW
            return paused

        try:
            faults = building.check(stop)
        except Busy as error:
            if not paused:
                raise  # the store itself was busy: nobody asked for a pause
            raise SyncPaused from error
        if faults:
            raise SyncFailed(
                f"the new index is not whole ({faults[0]}); the one before goes on answering", hint=RETRY_HINT
            )

    def _with_published_updates(self, published: WikiIndex, callbacks: SyncCallbacks) -> SyncCallbacks:
        """The same watch; between two batches the generation that serves is brought to HEAD, if that has moved."""
        rested, took = time.monotonic(), 0.0

        def on_progress(done: SyncProgress) -> None:
            nonlocal rested, took
            callbacks.on_progress(done)
            if time.monotonic() - rested >= 4 * took:
                began = time.monotonic()
                self._update_published(published, callbacks)
                rested = time.monotonic()
                took = rested - began

        return SyncCallbacks(on_progress, callbacks.pause)

    def _update_published(self, published: WikiIndex, callbacks: SyncCallbacks) -> None:
        """Bring the generation that serves to HEAD in the way it was made; if that cannot be, it stays behind."""
        head, state = self._source.get_head(), published.get_state()
        if state.revision == head:
            return
        try:
            means = self._find_model_for(state.recipe)
            if means is not None:
                self._published_reconciler.reconcile(
                    published, published, head, SyncCallbacks(ignore_progress, callbacks.pause), means
                )
        except (ModelError, NoPages) as error:
            _LOG.info("the index that serves stays behind HEAD while another is built: %s", error.message)

    def _find_model_for(self, recipe: Recipe) -> ModelAndPipeline | None:
        """With what an index was made, as far as that is still to be had."""
        pipeline = TextPipeline.from_recipe(recipe)
        if pipeline is None:
            return None
        if recipe.fingerprint == self._embedder.fingerprint:
            return ModelAndPipeline(self._embedder, pipeline)
        if self._get_previous_model is None:
            return None
        former = self._get_previous_model(recipe)
        former.run_self_test()
        return ModelAndPipeline(former, pipeline)


def _merge_reports(first: SyncReport, second: SyncReport) -> SyncReport:
    names = ("added", "changed", "moved", "deleted", "chunks_embedded", "chunks_reused")
    return replace(second, **{name: getattr(first, name) + getattr(second, name) for name in names})
