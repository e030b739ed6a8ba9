"""Syncing: make an index equal to the tree at HEAD.

The tree is compared with the index, so a missed hook, a force-push, a renamed directory, a restored backup and a crash
are all handled the same way. Work is committed batch by batch; the last commit sets the revision after the counts have
been verified. A damaged index is repaired. An index with another recipe is built as a new generation while the
published one keeps answering. One process at a time syncs a wiki (the store's write lock).
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial

from wikiholt.domain.index import IndexState, Recipe, SyncReport
from wikiholt.domain.page import MAX_LISTED_WARNINGS
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import IndexStore, VectorSource, WikiIndex
from wikiholt.errors import (
    Busy,
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexUnavailable,
    ModelError,
    NoPages,
    NoPagesYet,
    SyncFailed,
    WikiNotFound,
)
from wikiholt.index.batch import Pause, PauseCheck, SyncPaused, never_pause
from wikiholt.index.pending_pages import make_wanted_reader
from wikiholt.index.pipeline import PipelineDetector, TextPipeline, TreeReader
from wikiholt.index.reconciler import (
    RETRY_HINT,
    HistoryWarnings,
    ModelAndPipeline,
    ProgressCallback,
    Reconciler,
    SyncCallbacks,
    SyncProgress,
    ignore_progress,
)
from wikiholt.index.repair import IndexRepair

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
        self._detector = PipelineDetector(source, self._trees)
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
        words_only: bool = False,
    ) -> SyncReport:
        """Bring the index to HEAD and report what was done. The first time, all pages are found by their words before
        one is embedded; with `words_only`, the next sync embeds them.

        Raises SyncPaused when `pause` requests it. `lock_timeout_s` is how long to wait for another writer. With
        `from_scratch`, builds a new generation without reusing vectors and publishes it, or continues one that was
        paused. The published generation answers meanwhile, and stays if the new one cannot be completed.
        """
        work = self._rebuild if from_scratch else partial(self._sync_with_repair, words_only=words_only)
        began = time.monotonic()
        self._embedder.run_self_test()
        timeout_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s
        with self._store.write_lock(self._wiki_id, timeout_s), self._trees.keep_last():
            if self._store.recover_published(self._wiki_id):
                self._repair.log_recovered_pointer()
            get_wanted = make_wanted_reader(self._store, self._wiki_id)
            report = work(self._get_head(), SyncCallbacks(progress, pause, get_wanted))
        return replace(report, seconds=time.monotonic() - began)

    def _get_head(self) -> str:
        try:
            return self._source.get_head()
        except NoPagesYet:
            self._repair.require_never_indexed()
            raise

    def _sync_with_repair(self, revision: str, callbacks: SyncCallbacks, *, words_only: bool) -> SyncReport:
        """Sync. A damaged index is quarantined and rebuilt from git with the vectors that are intact."""
        try:
            report = self._sync_published(revision, callbacks, words_only=words_only)
        except IndexCorrupt as error:
            self._repair.quarantine(error.message)
            report = replace(self._sync_published(revision, callbacks, words_only=words_only), rebuilt=True)
        self._repair.mark_repaired(report.revision, report.chunks_embedded)
        return report

    def _sync_published(self, revision: str, callbacks: SyncCallbacks, *, words_only: bool) -> SyncReport:
        with ExitStack() as stack:
            published = self._open_intact()
            if published is not None:
                stack.enter_context(closing(published))
            state = published.get_state() if published is not None else None
            recipe = self._update_recipe(revision, state)
            if published is None:
                published = stack.enter_context(closing(self._store.create(self._wiki_id, recipe)))
            if state is not None and state.recipe != recipe and self._trees.read(revision):
                return self._build_generation(recipe, revision, published, callbacks, reuse=True)
            is_new = state is None or state.revision is None or bool(state.pending_chunks)
            kept = stack.enter_context(self._repair.open_kept_vectors(recipe.fingerprint)) if is_new else ()
            try:
                return self._reconciler.reconcile(
                    published,
                    kept,
                    revision,
                    callbacks,
                    self._get_current_model(),
                    words_first=True,
                    words_only=words_only,
                )
            except NoPages:
                if published.get_state().revision == revision:
                    # The index is intact now; the wiki itself is at fault, and that error is raised.
                    self._repair.mark_repaired(revision, 0)
                raise

    def _update_recipe(self, revision: str, state: IndexState | None) -> Recipe:
        """The recipe of the configured model, and of the pipeline with the dialect and the languages of the wiki."""
        self._pipeline = self._detector.update(self._pipeline, revision, state)
        return self._pipeline.build_recipe(self._embedder)

    def _rebuild(self, revision: str, callbacks: SyncCallbacks) -> SyncReport:
        """Build a new generation from scratch. A damaged index is quarantined first, so that it is not deleted."""
        try:
            published = self._open_intact()
        except IndexCorrupt as error:
            self._repair.quarantine(error.message)
            published = None
        except DatabaseUnavailable:
            raise
        except IndexUnavailable:
            published = None
        with nullcontext() if published is None else closing(published):
            recipe = self._update_recipe(revision, published.get_state() if published is not None else None)
            report = self._build_generation(recipe, revision, published, callbacks, reuse=False)
        self._repair.mark_repaired(report.revision, report.chunks_embedded)
        return report

    def _open_intact(self) -> WikiIndex | None:
        """Open the published index, or return None if there is none yet.

        If damage was reported, all of it is checked. Raises IndexCorrupt, and WikiNotFound after a removal.
        """
        if self._store.get_published(self._wiki_id) is None:
            self._require_registered()
            return None
        try:
            published = self._store.open(self._wiki_id)
        except IndexMissing:
            raise IndexCorrupt("its file is missing", hint="run `wikiholt sync` to build it again") from None
        if self._repair.health.is_ok:
            return published
        try:
            faults = published.check()
        except BaseException:
            published.close()
            raise
        if faults:
            published.close()
            raise IndexCorrupt(f"the index is damaged: {faults[0]}", hint="run `wikiholt sync` to build it again")
        return published

    def _require_registered(self) -> None:
        """Raise WikiNotFound if the wiki was removed while this sync waited.

        Its index is gone then. Taking the lock created its directory again.
        """
        if not self._is_registered():
            self._store.delete(self._wiki_id)
            raise WikiNotFound("this wiki has been removed", hint="`wikiholt list` shows all wikis")

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
        vectors: Sequence[VectorSource] = ()
        if published is not None and reuse and published.get_state().recipe.fingerprint == recipe.fingerprint:
            vectors = (published,)
        try:
            report = self._reconciler.reconcile(building, vectors, revision, callbacks, self._get_current_model())
            self._require_intact(building, callbacks)
            self._before_publish()
            while (head := self._source.get_head()) != report.revision:
                report = _merge_reports(
                    report,
                    self._reconciler.reconcile(building, vectors, head, callbacks, self._get_current_model()),
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

        return replace(callbacks, on_progress=on_progress)

    def _update_published(self, published: WikiIndex, callbacks: SyncCallbacks) -> None:
        """Bring the published generation to HEAD with its own recipe. If that is impossible, it stays behind."""
        head, state = self._source.get_head(), published.get_state()
        if state.revision == head:
            return
        try:
            model_and_pipeline = self._find_model_for(state.recipe)
            if model_and_pipeline is not None:
                self._published_reconciler.reconcile(
                    published, (), head, SyncCallbacks(ignore_progress, callbacks.pause), model_and_pipeline
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
