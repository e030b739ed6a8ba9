"""One open wiki: search, sync, status, backups, pages.

A handle is bound to one wiki and cannot name another. Safe to use from many threads.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from wikiholt.domain.answer import Answer
from wikiholt.domain.index import IndexHealth, ReindexEstimate, SyncReport
from wikiholt.domain.protocols import Source, never_stop
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
    PageNotFound,
    QueryLogNotFound,
    WikiholtError,
)
from wikiholt.index.batch import Pause, PauseCheck, SyncPaused, never_pause
from wikiholt.index.estimate import estimate_reindex
from wikiholt.index.index_backups import IndexBackups
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.reconciler import ProgressCallback, ignore_progress
from wikiholt.index.repair import IndexRepair, OtherStores
from wikiholt.index.sync import Syncer
from wikiholt.search.duplicates import Duplicates, find_duplicates
from wikiholt.search.hits import format_page_link
from wikiholt.search.request import IndexVersion, SearchRequest
from wikiholt.search.searcher import Searcher
from wikiholt.wikis.live_index import Components, IndexSnapshot, LiveIndex, WikiConfig
from wikiholt.wikis.pages.wiki_pages import WikiPages
from wikiholt.wikis.past_views import PastViews
from wikiholt.wikis.query_log import WikiQueryLog
from wikiholt.wikis.status import StatusReader, WikiStatus

if TYPE_CHECKING:  # few installations use it
    from wikiholt.search.answer_writer import AnswerDraft

_LOG = logging.getLogger(__name__)
_WRITE_NOTE = "written"
_REMOVAL_CHECK_S = 1.0
"""How often a sync asks whether the wiki is being removed."""


class WikiHandle:
    """Search, sync and status of one wiki."""

    def __init__(
        self,
        wiki: Wiki,
        config: WikiConfig,
        components: Components,
        is_registered: Callable[[], bool] = lambda: True,
        is_being_removed: Callable[[], bool] = never_stop,
        on_damage: Callable[[], None] = lambda: None,
        save_pages: Callable[[Path], None] | None = None,
        list_others: OtherStores = tuple,
    ) -> None:
        """`on_damage` is called when the index proves damaged. `save_pages` adds the pages to their backups.
        `list_others` returns stores that may know vectors of this wiki's texts."""
        self.wiki: Final = wiki
        self._config = config
        self._components = components
        self._is_registered = is_registered
        self._is_being_removed = is_being_removed
        self._closed = False
        self._live_index: LiveIndex | None = None
        self._syncer: Syncer | None = None
        self._past: PastViews | None = None
        self._lock = Lock()
        self._estimate_lock = Lock()
        self.pages: Final = WikiPages(config.source, config.pipeline, self._open_index)
        self.backups: Final = IndexBackups(
            wiki.id,
            components.store,
            components.backup_policy,
            components.lock_timeout_s,
            is_registered,
            is_being_removed,
            save_pages,
        )
        self._repair = IndexRepair(wiki.id, wiki.slug, components.store, self.backups, on_damage, list_others)
        writer = components.query_log_writer
        self._query_log = (
            WikiQueryLog(writer, writer.open_log(wiki.id), self._open_index, enabled=config.log_queries)
            if writer
            else None
        )

    def search(
        self,
        request: SearchRequest,
        *,
        interface: SearchInterface | None = None,
        snapshot: IndexSnapshot | None = None,
    ) -> SearchResult:
        """Search the wiki. A search with an `interface` is recorded in the query log, if that is enabled.

        With a snapshot, the published generation and HEAD are not read again.
        """
        live_index = self._live_index
        started = live_index.start_query(request) if live_index is not None else None
        result = self._run_search(
            lambda searcher, known: searcher.search(request, interface=interface, known=known, started=started),
            snapshot,
        )
        if self._query_log is not None and not request.offset:  # more hits of a query are not another search
            self._query_log.record(result, interface, filtered=bool(request.where))
        return result

    def ask(
        self,
        question: str,
        previous: str = "",
        where: PageFilter | None = None,
        *,
        explain: bool = False,
        interface: SearchInterface | None = None,
        snapshot: IndexSnapshot | None = None,
    ) -> Answer:
        """The sentences of pages that answer a question, or the closest pages. Recorded like a search."""
        with self._use_live_index() as live_index:
            searcher = live_index.searcher
            request = searcher.make_answer_request(question, previous, where or PageFilter(), explain=explain)
        result = self.search(request, interface=interface, snapshot=snapshot)
        with self._use_live_index() as live_index:
            return live_index.searcher.answer(result, question)

    @property
    def language_model(self) -> str:
        """The language model that may write answers about this wiki; empty if none may."""
        writer = self._components.answer_writer
        return writer.server.model if writer is not None and self._config.writes_answers else ""

    def start_writing(self, answer: Answer) -> "AnswerDraft | None":
        """Prepare to let the language model write from the passages of an answer of this wiki; None if it may not, or
        if nothing relevant was found."""
        writer = self._components.answer_writer
        if writer is None or not self._config.writes_answers:
            return None
        with self._use_live_index() as live_index:
            return live_index.searcher.start_writing(answer, writer)

    def find_similar(
        self,
        path: str,
        n: int = 5,
        where: PageFilter | None = None,
        *,
        collapse: bool = True,
        snapshot: IndexSnapshot | None = None,
    ) -> SearchResult:
        """The pages whose passages are nearest to those of this page. Needs no model. With `collapse`, no
        near-duplicates of the page."""
        where = where or PageFilter()
        try:
            return self._run_search(
                lambda searcher, known: searcher.find_similar(path, n, where, collapse=collapse, known=known), snapshot
            )
        except PageNotFound:
            self.pages.resolve_path(path)  # its error names the page that has this former name
            raise

    def find_duplicates(self, where: PageFilter | None = None, *, snapshot: IndexSnapshot | None = None) -> Duplicates:
        """The pages and passages that are nearly the same. Reads the text of all pages that pass the filter."""
        with self._open_index() if snapshot is None else nullcontext(snapshot.live_index.index) as index:
            return find_duplicates(index, where or PageFilter(), self._config.url)

    @property
    def query_log(self) -> WikiQueryLog:
        """The query log of this wiki. Raises QueryLogNotFound if searches cannot be recorded."""
        if self._query_log is None:
            raise QueryLogNotFound("Searches are not recorded here.", hint="Use a service that has a data directory.")
        return self._query_log

    def build_link(self, path: str) -> str:
        """The link to a page, as in hits."""
        return format_page_link(self._config.url, path)

    def _run_search(
        self, search: Callable[[Searcher, IndexVersion | None], SearchResult], snapshot: IndexSnapshot | None
    ) -> SearchResult:
        try:
            if snapshot is not None:
                return self._with_damage_note(search(snapshot.live_index.searcher, snapshot.version))
            with self._use_live_index() as live_index:
                return self._with_damage_note(search(live_index.searcher, None))
        except IndexMissing:
            # Another generation may have been published during the search: search that one.
            if self._components.store.get_published(self.wiki.id) is None:
                raise
        with self._use_live_index() as live_index:
            return self._with_damage_note(search(live_index.searcher, None))

    def _with_damage_note(self, result: SearchResult) -> SearchResult:
        """The result, with a note if the index is damaged."""
        note = self._repair.read_damage_note()
        return replace(result, degraded=True, notes=(*result.notes, note)) if note else result

    @property
    def past(self) -> PastViews:
        """The wiki as it was at past commits."""
        with self._lock:
            if self._past is None:
                self._past = PastViews(self.wiki, self._config, self._components, self._open_view)
            return self._past

    def _open_view(self, config: WikiConfig, components: Components, list_others: OtherStores) -> "WikiHandle":
        return WikiHandle(
            self.wiki, config, components, self._is_registered, self._is_being_removed, list_others=list_others
        )

    @property
    def reranker_identity(self) -> str:
        """Identifies the reranker on which results depend, beside the version token; empty if there is none."""
        reranking = self._components.reranking
        return reranking.identity if reranking is not None else ""

    @contextmanager
    def open_snapshot(self) -> Iterator[IndexSnapshot]:
        """Read the published generation and HEAD once, for all that a request does. Raises IndexMissing."""
        with self._use_live_index() as live_index, live_index.index.open_search():
            head = None
            if self._config.check_head:
                with suppress(WikiholtError):
                    head = self._config.source.get_last_known_head()
            version = IndexVersion(live_index.generation, live_index.index.get_version(), head)
            yield IndexSnapshot(live_index, version)

    def get_version_token(self) -> IndexVersion:
        """Generation, version and HEAD, on which every result depends. Cheap. Raises IndexMissing like a search."""
        with self.open_snapshot() as snapshot:
            return snapshot.version

    def sync(
        self,
        progress: ProgressCallback = ignore_progress,
        pause: PauseCheck = never_pause,
        lock_timeout_s: float | None = None,
        *,
        from_scratch: bool = False,
        words_only: bool = False,
    ) -> SyncReport:
        """Bring the index to HEAD. Raises SyncPaused, Busy, and the errors of a sync.

        With `words_only`, a first sync leaves the vectors to the next one. With `from_scratch`, build a new generation,
        or continue a paused one; the published one answers meanwhile.
        """
        removing, asked_at = False, time.monotonic()

        def check_pause() -> Pause:
            nonlocal removing, asked_at
            if time.monotonic() - asked_at > _REMOVAL_CHECK_S:
                removing, asked_at = self._is_being_removed(), time.monotonic()
            return Pause.NOW if removing else pause()

        try:
            report = self._get_syncer().sync(
                progress, check_pause, lock_timeout_s, from_scratch=from_scratch, words_only=words_only
            )
        except SyncPaused as error:
            if removing:  # nobody will continue it
                raise Busy("this wiki is being removed", hint="`wikiholt list` shows all wikis") from error
            raise
        self._warm_caches()
        # Only now: searches in the previous generation may have needed its file until here.
        self._components.store.remove_old_generations(self.wiki.id)
        self.past.remove_excess()  # also if no page has changed: the history, a tag or a branch may have
        return report

    def estimate_reindex(self, time_limit_s: float = 3600.0) -> ReindexEstimate:
        """Estimate a reindex. Reads pages for at most `time_limit_s` seconds and writes nothing. Raises Busy."""
        if not self._estimate_lock.acquire(blocking=False):
            raise Busy("an estimate is already running", hint="wait for it to finish")
        try:
            components, config = self._components, self._config
            directory = components.store.get_directory(self.wiki.id)
            embedder, pipeline = components.embedder(), self.pages.get_pipeline()
            try:
                with self._open_index() as index:
                    return estimate_reindex(config.source, pipeline, embedder, index, directory, time_limit_s)
            except IndexUnavailable:
                return estimate_reindex(config.source, pipeline, embedder, None, directory, time_limit_s)
        finally:
            self._estimate_lock.release()

    def restore(self, at: datetime | None = None) -> Backup:
        """Publish the newest intact backup taken at or before `at`. The next sync brings it to HEAD."""
        restored = self.backups.restore(at)
        self._warm_caches()
        self._components.store.remove_old_generations(self.wiki.id)
        return restored

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Fetch from the wiki's remote, if it has one. Returns whether anything new arrived."""
        try:
            return self._config.source.fetch(lambda: stop() or self._is_being_removed())
        finally:
            # If the wiki was removed meanwhile, delete what the fetch created again.
            if not self._is_registered():
                self._components.store.delete(self.wiki.id)

    def record_write(self, revision: str) -> None:
        """Record a commit for which agents' searches wait, in this process or on another node. Never raises."""
        with suppress(WikiholtError):
            self._components.store.set_note(self.wiki.id, _WRITE_NOTE, revision)

    def get_recorded_write(self) -> str:
        """The last recorded commit; empty if there is none, or if the index contains it."""
        return self._components.store.get_note(self.wiki.id, _WRITE_NOTE) or ""

    def get_indexed_revision(self, *, words_only: bool = False) -> str | None:
        """The revision of the index; None if a sync has work to do, or would fail because there are no pages.

        With `words_only`, also if pages are not embedded yet.
        """
        if not self._repair.health.is_ok:
            return None  # the next sync checks the entire index
        try:
            with closing(self._components.store.open(self.wiki.id)) as index:
                state = index.get_state()
        except WikiholtError:
            return None
        identify = self._components.identity or self._components.embedder
        recipe = self._config.pipeline.with_detected(state.recipe).build_recipe(identify())
        is_complete = state.recipe == recipe and state.pages and (words_only or not state.pending_chunks)
        return state.revision if is_complete else None

    def require_never_indexed(self) -> None:
        """Raise NoCommits if there is or was an index: a wiki that has no pages then has lost them."""
        self._repair.require_never_indexed()

    def wait_for_caches(self, timeout_s: float) -> None:
        """Wait until the caches are built and written. For a process that is about to end."""
        with self._use_live_index() as live_index:
            live_index.wait_idle(timeout_s)

    @contextmanager
    def open_contents(self) -> Iterator[tuple[WikiIndex, Source, TextPipeline]]:
        """The published index, the source and the pipeline, to make evaluation questions from."""
        with self._open_index() as index:
            yield index, self._config.source, self._config.pipeline

    def get_status(self) -> WikiStatus:
        """The status of the wiki. Never raises; errors are part of the status."""
        return StatusReader(self.wiki, self._config.source, self._components.store, self._repair).read()

    def check(self) -> Sequence[str]:
        """Faults of the index, as text."""
        with closing(self._components.store.open(self.wiki.id)) as index:
            return index.check()

    @property
    def health(self) -> IndexHealth:
        return self._repair.health

    def check_integrity(self, stop: Callable[[], bool] = never_stop) -> IndexHealth:
        """Check the entire index and its caches, while others read and write. Damage is recorded, and the next sync
        repairs it. Raises Busy when `stop` returns true, and IndexMissing."""
        if self._query_log is not None:
            with suppress(WikiholtError):  # also trims logs of wikis that nobody searches any more
                self._query_log.trim()
        store = self._components.store
        try:
            with closing(store.open(self.wiki.id)) as index:
                faults = index.check(lambda: stop() or self._is_being_removed())
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

    def _verify_caches(self) -> None:
        with self._lock:
            live_index = self._live_index
            if live_index is None:
                return  # checked when they are next opened
            live_index.acquire()
        try:
            live_index.verify()
        finally:
            live_index.release()

    def remove(self) -> Sequence[str]:
        """Delete the index and its backups, once nobody is writing it. Returns the names of the deleted files."""
        store = self._components.store
        if not store.exists(self.wiki.id):
            # Nobody can be writing it, but a removal that was killed may have left files.
            return [*store.delete(self.wiki.id), *self.backups.delete_all()]
        with store.write_lock(self.wiki.id, self._components.lock_timeout_s):
            self.close()
            if self._query_log is not None:
                self._query_log.discard()
            return [*self.backups.delete_all(), *store.delete(self.wiki.id)]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            live_index, self._live_index = self._live_index, None
            past, self._past = self._past, None
        if past is not None:
            past.close()
        if live_index is not None:
            live_index.close_when_idle()

    def _get_syncer(self) -> Syncer:
        """The only syncer of this handle. It remembers what it has compared, so that the next sync compares less."""
        components, config = self._components, self._config
        if self._syncer is not None:
            return self._syncer
        embedder = components.embedder()
        with self._lock:
            if self._syncer is None:
                self._syncer = Syncer(
                    self.wiki.id,
                    components.store,
                    config.source,
                    embedder,
                    config.pipeline,
                    components.lock_timeout_s,
                    self._is_registered,
                    self.backups.create_before_publish,
                    components.previous_model,
                    self._repair,
                )
            return self._syncer

    def _warm_caches(self) -> None:
        """Update the caches after a sync, so that the next search finds them ready."""
        try:
            with self._use_live_index() as live_index:
                live_index.refresh()
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the sync has succeeded
            _LOG.warning("the caches are not ready after the sync (%s)", error)

    @contextmanager
    def _open_index(self) -> Iterator[WikiIndex]:
        with self._use_live_index() as live_index:
            yield live_index.index

    @contextmanager
    def _use_live_index(self) -> Iterator[LiveIndex]:
        """Use the published generation. Damage found on the way is recorded, and the next sync repairs it."""
        live_index: LiveIndex | None = None
        try:
            live_index = self._acquire_live_index()
            yield live_index
        except IndexCorrupt as error:
            self._repair.report(error.message)
            raise
        except (IndexMissing, NothingIndexed) as error:
            if self._repair.health.is_ok or isinstance(error, IndexRepairing):
                raise
            raise IndexRepairing(
                "this wiki's index is damaged and is being repaired", hint="wait a moment, or run `wikiholt sync`"
            ) from error
        finally:
            if live_index is not None:
                live_index.release()
            if self._closed:
                self.close()

    def _acquire_live_index(self) -> LiveIndex:
        """The published generation. Opened again when another is published or the wiki has outgrown its caches."""
        published = self._components.store.get_published(self.wiki.id)
        old: LiveIndex | None = None
        if self._live_index is None or self._live_index.generation != published:
            self._repair.recall_damage()
        with self._lock:
            if (
                self._live_index is None
                or self._live_index.generation != published
                or self._live_index.has_outgrown_caches()
            ):
                new = LiveIndex(self.wiki, self._config, self._components)
                old, self._live_index = self._live_index, new
            live_index = self._live_index
            live_index.acquire()
        if old is not None:
            # Closing waits for background work; searches must not wait for that.
            Thread(target=old.close_when_idle, name="retire", daemon=True).start()
        return live_index
