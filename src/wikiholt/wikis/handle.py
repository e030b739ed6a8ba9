"""One wiki, opened: search it, sync it, ask how it stands.

A handle is bound to one wiki when it is made; nothing in it can name another. Safe to use from many threads.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from threading import Lock, Thread
from typing import Final

from wikiholt.domain.index import IndexHealth, ReindexEstimate, SyncReport, VerificationResult
from wikiholt.domain.page import PageTerms
from wikiholt.domain.search import PageFilter, SearchInterface, SearchResult
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Backup, Wiki
from wikiholt.errors import (
    Busy,
    IndexCorrupt,
    IndexMissing,
    IndexRepairing,
    IndexUnavailable,
    NothingIndexed,
    QueryLogNotFound,
    WikiholtError,
)
from wikiholt.indexing.batch import Pause, SyncPaused, never_pause
from wikiholt.indexing.estimate import estimate_reindex
from wikiholt.indexing.index_backups import IndexBackups
from wikiholt.indexing.reconciler import SyncProgress
from wikiholt.indexing.reconciler import ignore_progress as _unseen
from wikiholt.indexing.repair import CONFIRMATION_TTL_S, EMPTY_CONFIRMATION_TTL_S, IndexRepair
from wikiholt.indexing.sync import Syncer
from wikiholt.search.hits import format_page_link
from wikiholt.search.request import SearchRequest
from wikiholt.search.searcher import Searcher
from wikiholt.wikis.evaluation.mined_questions import (
    MinedQuestions,
    build_terms_without,
    make_path_resolver,
    mine_questions,
)
from wikiholt.wikis.evaluation.questions import MINED_KINDS, Question, QuestionKind, parse_judged_questions
from wikiholt.wikis.live_index import Components, LiveIndex, WikiConfig
from wikiholt.wikis.pages.wiki_pages import WikiPages
from wikiholt.wikis.query_log import WikiQueryLog
from wikiholt.wikis.status import StatusReader, WikiStatus

_LOG = logging.getLogger(__name__)

__all__ = ["Components", "WikiConfig", "WikiHandle", "WikiStatus"]


def _never_stop() -> bool:
    return False


class WikiHandle:
    """One wiki's search, sync and status."""

    def __init__(
        self,
        wiki: Wiki,
        config: WikiConfig,
        components: Components,
        is_registered: Callable[[], bool] = lambda: True,
        is_being_removed: Callable[[], bool] = _never_stop,
        on_damage: Callable[[], None] = lambda: None,
    ) -> None:
        """`alarm` is called when the index proves broken: somebody had better sync it."""
        self.wiki: Final = wiki
        self._config = config
        self._components = components
        self._is_registered = is_registered
        self._is_being_removed = is_being_removed
        self._closed = False
        self._live_index: LiveIndex | None = None
        self._syncer: Syncer | None = None
        self._lock = Lock()
        self._estimate_lock = Lock()
        self.pages: Final = WikiPages(config.source, config.pipeline, self._open_index)
        self.backups: Final = IndexBackups(
            wiki.id,
            components.store,
            components.backup_policy,
            components.lock_timeout,
            is_registered,
            is_being_removed,
        )
        self._repair = IndexRepair(wiki.id, wiki.slug, components.store, self.backups, on_damage)
        scribe = components.query_log_writer
        self._query_log = (
            WikiQueryLog(scribe, wiki.id, self._open_index, enabled=config.log_queries) if scribe else None
        )

    def search(self, request: SearchRequest, *, interface: SearchInterface | None = None) -> SearchResult:
        """The answer. Searches by somebody name the way they came by, and are written down if that is wanted."""
        answer = self._run_search(lambda searcher: searcher.search(request))
        if self._query_log is not None:
            self._query_log.record(answer, interface, filtered=bool(request.where))
        return answer

    def find_similar(self, path: str, n: int = 5, where: PageFilter | None = None) -> SearchResult:
        """The pages whose passages are nearest to those of this page; needs no model."""
        return self._run_search(lambda searcher: searcher.find_similar(path, n, where or PageFilter()))

    @property
    def query_log(self) -> WikiQueryLog:
        """What was asked of this wiki; raises NoQueryLog where nothing can be written down."""
        if self._query_log is None:
            raise QueryLogNotFound(
                "Searches are not written down here.", hint="Ask a service that has a data directory."
            )
        return self._query_log

    def build_link(self, path: str) -> str:
        """The link of a page, as hits have it."""
        return format_page_link(self._config.url, path)

    def _run_search(self, search: Callable[[Searcher], SearchResult]) -> SearchResult:
        try:
            with self._use_live_index() as serving:
                return self._with_damage_note(search(serving.searcher))
        except IndexMissing:
            # Another generation may have been published in the middle of it: the new one answers.
            if self._components.store.get_published(self.wiki.id) is None:
                raise
        with self._use_live_index() as serving:
            return self._with_damage_note(search(serving.searcher))

    def _with_damage_note(self, result: SearchResult) -> SearchResult:
        """The answer, which says so while the index it comes from cannot be trusted; raises IndexCorrupt for an empty
        one from an index that is not as it was written."""
        if not result.hits:
            self._repair.confirm(EMPTY_CONFIRMATION_TTL_S)
        doubt = self._repair.report_suspicion()
        return replace(result, degraded=True, notes=(*result.notes, doubt)) if doubt else result

    @property
    def reranker_identity(self) -> str:
        """What answers depend on beside the stamp: who reads the best pages again; empty for nobody."""
        reranking = self._components.reranking
        return reranking.identity if reranking is not None else ""

    def get_version_token(self) -> tuple[int, int, str | None]:
        """What every answer depends on: generation, version and HEAD; cheap, and raises IndexMissing like a search."""
        with self._use_live_index() as serving:
            generation, version = serving.generation, serving.index.get_version()
        head = None
        if self._config.check_head:
            with suppress(WikiholtError):
                head = self._config.source.get_last_known_head()
        return generation, version, head

    def sync(
        self,
        progress: Callable[[SyncProgress], None] = _unseen,
        pause: Callable[[], Pause] = never_pause,
        lock_timeout: float | None = None,
    ) -> SyncReport:
        """Make the index equal to HEAD; raises Paused, Busy and what a sync may raise."""
        return self._run_sync(self._get_syncer().sync, progress, pause, lock_timeout)

    def reindex(
        self,
        progress: Callable[[SyncProgress], None] = _unseen,
        pause: Callable[[], Pause] = never_pause,
        lock_timeout: float | None = None,
    ) -> SyncReport:
        """Build a new generation from nothing, or go on with one that was paused; the old one answers meanwhile."""
        return self._run_sync(self._get_syncer().rebuild, progress, pause, lock_timeout)

    def estimate_reindex(self, time_limit_s: float = 3600.0) -> ReindexEstimate:
        """What a reindexing would take; reads pages for `limit` seconds at most and writes nothing. Raises Busy."""
        if not self._estimate_lock.acquire(blocking=False):
            raise Busy("this is being worked out already", hint="wait for it to finish")
        try:
            shop, parts = self._components, self._config
            place = shop.store.get_directory(self.wiki.id)
            try:
                with self._open_index() as index:
                    return estimate_reindex(parts.source, parts.pipeline, shop.embedder(), index, place, time_limit_s)
            except IndexUnavailable:
                return estimate_reindex(parts.source, parts.pipeline, shop.embedder(), None, place, time_limit_s)
        finally:
            self._estimate_lock.release()

    def _run_sync(
        self,
        work: Callable[[Callable[[SyncProgress], None], Callable[[], Pause], float | None], SyncReport],
        progress: Callable[[SyncProgress], None],
        pause: Callable[[], Pause],
        lock_timeout: float | None,
    ) -> SyncReport:
        going = False

        def check_pause() -> Pause:
            nonlocal going
            going = self._is_being_removed()
            return Pause.NOW if going else pause()

        try:
            report = work(progress, check_pause, lock_timeout)
        except SyncPaused as error:
            if going:  # nobody will go on with it
                raise Busy("this wiki is being removed", hint="`wikiholt list` shows the wikis there are") from error
            raise
        self._warm_caches()
        # Not before: searches that began in the generation before may still need its file.
        self._components.store.remove_old_generations(self.wiki.id)
        return report

    def restore(self, at: datetime | None = None) -> Backup:
        """Have the newest good backup not taken after `at` answer from now on; the next sync brings it to HEAD."""
        restored = self.backups.restore(at)
        self._warm_caches()
        self._components.store.remove_old_generations(self.wiki.id)
        return restored

    def fetch(self, stop: Callable[[], bool] = _never_stop) -> bool:
        """Bring what is new from where the pages live, if that is elsewhere; whether something came."""
        try:
            return self._config.source.fetch(lambda: stop() or self._is_being_removed())
        finally:
            # A wiki that was removed meanwhile is left removed, with all that came for it.
            if not self._is_registered():
                self._components.store.delete(self.wiki.id)

    def get_indexed_revision(self) -> str | None:
        """The revision the index stands for; None when a sync has work to do, or would fail for want of pages."""
        if not self._repair.health.is_ok:
            return None  # a sync reads all of it first
        try:
            index = self._components.store.open(self.wiki.id)
        except WikiholtError:
            return None
        try:
            state = index.get_state()
        except WikiholtError:
            return None
        finally:
            index.close()
        shop = self._components
        today = self._config.pipeline.build_recipe((shop.identity or shop.embedder)())
        return state.revision if state.recipe == today and state.pages else None

    def wait_for_caches(self, timeout: float) -> None:
        """Wait until the caches are built, for a process that is about to end; they are written on the way."""
        with self._use_live_index() as serving:
            serving.wait_idle(timeout)

    def mine_questions(
        self, kinds: Collection[QuestionKind] = MINED_KINDS, limit: int = 200, seed: int = 0
    ) -> MinedQuestions:
        """Questions this wiki's own links, history and descriptions ask of its search; raises InvalidEvaluation."""
        with self._open_index() as index:
            return mine_questions(index, self._config.source, self._config.pipeline, kinds, limit, seed)

    def load_judged_questions(self, queries: Iterable[str], judgements: Iterable[str]) -> list[Question]:
        """Questions that people have judged; raises InvalidEvaluation for a page that is none of this wiki's."""
        with self._open_index() as index:
            return parse_judged_questions(queries, judgements, make_path_resolver(index))

    def build_terms_without(self, questions: Iterable[Question]) -> Mapping[int, PageTerms]:
        """Words of pages without what these questions have taken from them."""
        with self._open_index() as index:
            return build_terms_without(index, self._config.source, self._config.pipeline, questions)

    def get_status(self) -> WikiStatus:
        """How the wiki stands; never raises for a wiki that is in trouble."""
        return StatusReader(self.wiki, self._config.source, self._components.store, self._repair).read()

    def check(self) -> Sequence[str]:
        """What is wrong with the index, in words."""
        index = self._components.store.open(self.wiki.id)
        try:
            return index.check()
        finally:
            index.close()

    @property
    def health(self) -> IndexHealth:
        return self._repair.health

    def check_integrity(self, stop: Callable[[], bool] = _never_stop) -> IndexHealth:
        """Read every byte of index and caches, while others read and write; what proves broken is noted, and mended
        by the next sync. Raises Busy once `stop` says so, and IndexMissing."""
        if self._query_log is not None:
            with suppress(WikiholtError):  # nobody may have searched for longer than searches are remembered
                self._query_log.trim()
        store = self._components.store
        try:
            index = store.open(self.wiki.id)
            try:
                faults = index.check(lambda: stop() or self._is_being_removed())
            finally:
                index.close()
        except IndexCorrupt as error:
            self._repair.report(error.message)
            return self._repair.health
        if store.get_published(self.wiki.id) == index.generation:
            if faults:
                self._repair.report(faults[0])
            elif self._repair.health.is_ok:
                self._repair.mark_checked()
                self._verify_caches()
        return self._repair.health

    def compare(self) -> VerificationResult:
        """Compare the bytes of an index in use with those its last writer left; raises IndexCorrupt, once noted."""
        if self._live_index is None:
            return VerificationResult.NONE  # whoever opens it next compares them
        with self._use_live_index():
            return self._repair.confirm()

    def _verify_caches(self) -> None:
        with self._lock:
            serving = self._live_index
            if serving is None:
                return  # whoever opens them next looks at them
            serving.acquire()
        try:
            serving.verify()
        finally:
            serving.release()

    def remove(self) -> Sequence[str]:
        """Remove every byte of the index and its backups, once nobody is writing it; returns what was removed."""
        store = self._components.store
        if not store.exists(self.wiki.id):
            # Nobody can be writing it; what a removal that was killed half way left may still be there.
            return [*store.delete(self.wiki.id), *self.backups.delete_all()]
        with store.write_lock(self.wiki.id, self._components.lock_timeout):
            self.close()
            if self._query_log is not None:
                self._query_log.discard()
            return [*self.backups.delete_all(), *store.delete(self.wiki.id)]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            serving, self._live_index = self._live_index, None
        if serving is not None:
            serving.close_when_idle()

    def _get_syncer(self) -> Syncer:
        """The one syncer of this handle: it remembers what it has compared, so that the next sync compares less."""
        shop, parts = self._components, self._config
        embedder = shop.embedder()
        with self._lock:
            if self._syncer is None:
                self._syncer = Syncer(
                    self.wiki.id,
                    shop.store,
                    parts.source,
                    embedder,
                    parts.pipeline,
                    shop.lock_timeout,
                    self._is_registered,
                    self.backups.create_before_publish,
                    shop.previous_model,
                    self._repair,
                )
            return self._syncer

    def _warm_caches(self) -> None:
        """Bring the caches up to date after a sync, so that the next search finds them ready."""
        try:
            with self._use_live_index() as serving:
                serving.refresh()
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the sync is done all the same
            _LOG.warning("the caches are not ready after the sync (%s)", error)

    @contextmanager
    def _open_index(self) -> Iterator[WikiIndex]:
        with self._use_live_index() as serving:
            yield serving.index

    @contextmanager
    def _use_live_index(self) -> Iterator[LiveIndex]:
        """The published generation; damage that is met in it is noted, and mended by the next sync."""
        serving: LiveIndex | None = None
        try:
            serving = self._acquire_live_index()
            yield serving
        except IndexCorrupt as error:
            self._repair.report(error.message)
            raise
        except (IndexMissing, NothingIndexed) as error:
            if self._repair.health.is_ok or isinstance(error, IndexRepairing):
                raise
            raise IndexRepairing(
                "this wiki's index was damaged and is being mended", hint="wait a moment; `wikiholt sync` mends it"
            ) from error
        finally:
            if serving is not None:
                serving.release()
            if self._closed:
                self.close()

    def _acquire_live_index(self) -> LiveIndex:
        """The published generation, opened once and again whenever another one is published or it has outgrown."""
        published = self._components.store.get_published(self.wiki.id)
        old: LiveIndex | None = None
        if self._live_index is None or self._live_index.generation != published:
            self._repair.confirm(CONFIRMATION_TTL_S)
        with self._lock:
            if (
                self._live_index is None
                or self._live_index.generation != published
                or self._live_index.has_outgrown_caches()
            ):
                fresh = LiveIndex(self.wiki.id, self._config, self._components)
                old, self._live_index = self._live_index, fresh
            serving = self._live_index
            serving.acquire()
        if old is not None:
            # Closing waits for work in the background; no search waits for that.
            Thread(target=old.close_when_idle, name="retire", daemon=True).start()
        return serving
