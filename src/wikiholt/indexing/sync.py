"""Syncing: make an index equal to the tree at HEAD.

The tree is compared with the index, so a missed hook, a force-push, a renamed directory, a restored backup and a crash
are all handled the same way. Work is committed batch by batch; the last commit sets the revision after the counts have
been verified. A damaged index is repaired. An index with another recipe is built as a new generation while the
published one keeps answering. One process at a time syncs a wiki (the store's write lock).
"""

import logging
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from wikiholt.domain.index import Recipe, SyncReport
from wikiholt.domain.page import MAX_LISTED_WARNINGS
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
    NoPagesYet,
    SourceError,
    SyncFailed,
    WikiNotFound,
)
from wikiholt.indexing.batch import Pause, PauseCheck, SyncPaused, never_pause
from wikiholt.indexing.history_warning import HistoryWarnings
from wikiholt.indexing.pipeline import DialectDetector, TextPipeline, TreeReader
from wikiholt.indexing.reconciler import (
    RETRY_HINT,
    ModelAndPipeline,
    ProgressCallback,
    Reconciler,
    SyncCallbacks,
    SyncProgress,
    ignore_progress,
)
from wikiholt.indexing.repair import IndexRepair

__all__ = ["SyncProgress", "Syncer"]

_LOG = logging.getLogger(__name__)


class Syncer:
    """Syncs one wiki. Runs one sync at a time."""

    def __init__(
        self,
        wiki_id: str,
        store: IndexStore,
        source: Source,
        embedder: Embedder,
        pipeline: TextPipeline,
        lock_timeout_s: float,
        is_registered: Callable[[], bool] = lambda: True,
        before_publish: Callable[[], None] = lambda: None,
        get_previous_model: Callable[[Recipe], Embedder] | None = None,
        repair: IndexRepair | None = None,
    ) -> None:
        """`before_publish` is called before a generation replaces another. `get_previous_model` returns the model of
        an older recipe."""
        self._wiki_id = wiki_id
        self._store = store
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._lock_timeout_s = lock_timeout_s
        self._is_registered = is_registered
        self._before_publish = before_publish
        self._get_previous_model = get_previous_model
        self._repair = repair or IndexRepair(wiki_id, wiki_id, store)
        self._trees = TreeReader(source)
        self._dialect_detector = DialectDetector(source, self._trees, lambda: store.open(wiki_id))
        warnings = HistoryWarnings(wiki_id, store)
        self._reconciler = Reconciler(source, self._trees, warnings)
        self._published_reconciler = Reconciler(source, self._trees, warnings)
        """For the generation that answers while another is built."""

    def sync(
        self,
        progress: ProgressCallback = ignore_progress,
        pause: PauseCheck = never_pause,
        lock_timeout_s: float | None = None,
        *,
        from_scratch: bool = False,
    ) -> SyncReport:
        """Bring the index to HEAD and report what was done.

        Raises SyncPaused when `pause` requests it. `lock_timeout_s` is how long to wait for another writer. With
        `from_scratch`, builds a new generation without reusing vectors and publishes it, or continues one that was
        paused. The published generation answers meanwhile, and stays if the new one cannot be completed.
        """
        work = self._rebuild if from_scratch else self._sync_with_repair
        began = time.monotonic()
        self._embedder.run_self_test()
        report: SyncReport | None = None
        with self._store.write_lock(self._wiki_id, self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s):
            if not self._is_registered():
                # It was removed while this sync waited. Taking the lock created its directory again.
                self._store.delete(self._wiki_id)
                raise WikiNotFound("this wiki has been removed", hint="`wikiholt list` shows all wikis")
            if self._store.recover_published(self._wiki_id):
                self._repair.log_recovered_pointer()
            # SyncPaused must not leave the lock as an error: the next writer would check the entire index.
            with suppress(SyncPaused), self._trees.keep_last():
                head = self._get_head()
                self._pipeline = self._dialect_detector.update(self._pipeline, head)
                recipe = self._pipeline.build_recipe(self._embedder)
                report = work(recipe, head, SyncCallbacks(progress, pause))
        if report is None:
            raise SyncPaused
        return replace(report, seconds=time.monotonic() - began)

    def _get_head(self) -> str:
        """HEAD. If it cannot be read, a damaged index is still repaired from a backup, so that searches work."""
        try:
            return self._source.get_head()
        except NoPagesYet:
            self._repair.require_never_indexed()
            raise
        except SourceError:
            if not self._repair.health.is_ok and self._repair.has_backup():
                try:
                    self._store.verify(self._wiki_id, full=True)
                except IndexCorrupt as damage:
                    self._repair.repair(damage.message)
            raise

    def _sync_with_repair(self, recipe: Recipe, revision: str, callbacks: SyncCallbacks) -> SyncReport:
        """Sync. Repair a damaged index from a backup or, if that fails too, rebuild it from git."""
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
        published = self._open_published(recipe)
        try:
            if published.get_state().recipe == recipe or not self._trees.read(revision):
                return self._reconciler.reconcile(published, published, revision, callbacks, self._get_current_model())
            return self._build_generation(recipe, revision, published, callbacks, reuse=True)
        except NoPages:
            if published.get_state().revision == revision:
                # The index is intact now; the wiki itself is at fault, and that error is raised.
                self._repair.mark_repaired(revision, 0)
            raise
        finally:
            published.close()

    def _rebuild(self, recipe: Recipe, revision: str, callbacks: SyncCallbacks) -> SyncReport:
        """Build a new generation from scratch. A damaged index is quarantined first, so that it is not deleted."""
        try:
            self._store.verify(self._wiki_id, full=not self._repair.health.is_ok)
        except IndexCorrupt as error:
            self._repair.repair(error.message)
        except DatabaseUnavailable:
            raise
        except IndexUnavailable:
            pass
        try:
            published = self._store.open(self._wiki_id)
        except DatabaseUnavailable:
            raise
        except IndexUnavailable:
            report = self._build_generation(recipe, revision, None, callbacks, reuse=False)
        else:
            with closing(published):
                report = self._build_generation(recipe, revision, published, callbacks, reuse=False)
        self._repair.mark_repaired(report.revision, report.chunks_embedded)
        return report

    def _open_published(self, recipe: Recipe) -> WikiIndex:
        """Open the published index, after checking it if it may have changed since the last write; else create one."""
        try:
            self._store.verify(self._wiki_id, full=not self._repair.health.is_ok)
            return self._store.open(self._wiki_id)
        except IndexMissing as error:
            if self._store.get_published(self._wiki_id) is not None:
                raise IndexCorrupt("its file is missing", hint=error.hint) from error
        if self._repair.restore_missing():
            return self._store.open(self._wiki_id)
        return self._store.create(self._wiki_id, recipe)

    def _get_current_model(self) -> ModelAndPipeline:
        return ModelAndPipeline(self._embedder, self._pipeline)

    def _build_generation(
        self, recipe: Recipe, revision: str, published: WikiIndex | None, callbacks: SyncCallbacks, *, reuse: bool
    ) -> SyncReport:
        """Build a generation beside the published one, check it, and publish it once it is at HEAD.

        Until then the published one is updated whenever HEAD moves.
        """
        if published is not None:
            self._update_published(published, callbacks)
            callbacks = self._with_published_updates(published, callbacks)
        building = self._store.create_generation(self._wiki_id, recipe, from_scratch=not reuse)
        vector_source = published if published is not None and reuse else building
        try:
            report = self._reconciler.reconcile(building, vector_source, revision, callbacks, self._get_current_model())
            self._require_intact(building, callbacks)
            self._before_publish()
            while (head := self._source.get_head()) != report.revision:
                report = _merge_reports(
                    report,
                    self._reconciler.reconcile(building, vector_source, head, callbacks, self._get_current_model()),
                )
            self._store.publish(self._wiki_id, building.generation)
        except IndexCorrupt:
            # A fault of the new generation must not look like damage of the published one.
            self._require_intact(building, callbacks)
            raise
        finally:
            building.close()
        return replace(report, rebuilt=True)

    def _require_intact(self, building: WikiIndex, callbacks: SyncCallbacks) -> None:
        """Check the entire generation. Raises SyncFailed; the next sync then starts it again."""
        paused = False

        def stop() -> bool:
            nonlocal paused
            paused = callbacks.pause() is Pause.NOW
            return paused

        try:
            faults = building.check(stop)
        except Busy as error:
            if not paused:
                raise  # the store itself was busy: no pause was requested
            raise SyncPaused from error
        if faults:
            raise SyncFailed(
                f"the new index is damaged ({faults[0]}); the previous one keeps answering", hint=RETRY_HINT
            )

    def _with_published_updates(self, published: WikiIndex, callbacks: SyncCallbacks) -> SyncCallbacks:
        """The same callbacks, which also bring the published generation to HEAD between two batches."""
        # Updates take at most a fifth of the time.
        last_update, took = time.monotonic(), 0.0

        def on_progress(done: SyncProgress) -> None:
            nonlocal last_update, took
            callbacks.on_progress(done)
            if time.monotonic() - last_update >= 4 * took:
                began = time.monotonic()
                self._update_published(published, callbacks)
                last_update = time.monotonic()
                took = last_update - began

        return SyncCallbacks(on_progress, callbacks.pause)

    def _update_published(self, published: WikiIndex, callbacks: SyncCallbacks) -> None:
        """Bring the published generation to HEAD with its own recipe. If that is impossible, it stays behind."""
        head, state = self._source.get_head(), published.get_state()
        if state.revision == head:
            return
        try:
            model_and_pipeline = self._find_model_for(state.recipe)
            if model_and_pipeline is not None:
                self._published_reconciler.reconcile(
                    published, published, head, SyncCallbacks(ignore_progress, callbacks.pause), model_and_pipeline
                )
        except (ModelError, NoPages) as error:
            _LOG.info("the published index stays behind HEAD while another is built: %s", error.message)

    def _find_model_for(self, recipe: Recipe) -> ModelAndPipeline | None:
        """The model and pipeline of a recipe, or None if they are not available."""
        pipeline = TextPipeline.from_recipe(recipe)
        if pipeline is None:
            return None
        if recipe.fingerprint == self._embedder.fingerprint:
            return ModelAndPipeline(self._embedder, pipeline)
        if self._get_previous_model is None:
            return None
        previous = self._get_previous_model(recipe)
        previous.run_self_test()
        return ModelAndPipeline(previous, pipeline)


def _merge_reports(first: SyncReport, second: SyncReport) -> SyncReport:
    names = ("added", "changed", "moved", "deleted", "chunks_embedded", "chunks_reused", "pages_with_warnings")
    sums = {name: getattr(first, name) + getattr(second, name) for name in names}
    return replace(second, **sums, warnings=(*first.warnings, *second.warnings)[:MAX_LISTED_WARNINGS])
