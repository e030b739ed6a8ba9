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

from wikiholt.asked import Queries
from wikiholt.backups import Backups
from wikiholt.batches import Pause, Paused, never
from wikiholt.contents import Contents
from wikiholt.converging import unseen as _unseen
from wikiholt.errors import (
    Busy,
    IndexCorrupt,
    IndexFault,
    IndexHealing,
    IndexMissing,
    NoQueryLog,
    NothingIndexed,
    WikiholtError,
)
from wikiholt.evaluating import MINED, Kind, Mined, Question, known_paths, labelled, mine, words_without
from wikiholt.forecast import foresee
from wikiholt.healing import CONFIRMED_FOR_S, EMPTY_CONFIRMED_FOR_S, Healing
from wikiholt.hits import page_link
from wikiholt.model import Answer, Backup, Filter, Forecast, Health, Proof, Surface, SyncReport, Wiki, Words
from wikiholt.ports import WikiIndex
from wikiholt.search import Request, Searcher
from wikiholt.serving import Parts, Serving, Workshop
from wikiholt.status import Status, Survey
from wikiholt.sync import Progress, Syncer

_LOG = logging.getLogger(__name__)

__all__ = ["Parts", "Status", "WikiHandle", "Workshop"]


def _never() -> bool:
    return False


class WikiHandle:
    """One wiki's search, sync and status."""

    def __init__(
        self,
        wiki: Wiki,
        parts: Parts,
        workshop: Workshop,
        wanted: Callable[[], bool] = lambda: True,
        leaving: Callable[[], bool] = _never,
        alarm: Callable[[], None] = lambda: None,
    ) -> None:
        """`alarm` is called when the index proves broken: somebody had better sync it."""
        self.wiki: Final = wiki
        self._parts = parts
        self._workshop = workshop
        self._wanted = wanted
        self._leaving = leaving
        self._closed = False
        self._serving: Serving | None = None
        self._syncer: Syncer | None = None
        self._lock = Lock()
        self._foreseeing = Lock()
        self.contents: Final = Contents(parts.source, parts.pipeline, self._index)
        self.backups: Final = Backups(wiki.id, workshop.store, workshop.backups, workshop.lock_timeout, wanted, leaving)
        self._healing = Healing(wiki.id, wiki.slug, workshop.store, self.backups, alarm)
        scribe = workshop.scribe
        self._queries = Queries(scribe, wiki.id, self._index, logging=parts.log_queries) if scribe else None

    def search(self, request: Request, *, surface: Surface | None = None) -> Answer:
        """The answer. Searches by somebody name the way they came by, and are written down if that is wanted."""
        answer = self._answered(lambda searcher: searcher.search(request))
        if self._queries is not None:
            self._queries.note(answer, surface, filtered=bool(request.where))
        return answer

    def similar(self, path: str, n: int = 5, where: Filter | None = None) -> Answer:
        """The pages whose passages are nearest to those of this page; needs no model."""
        return self._answered(lambda searcher: searcher.similar(path, n, where or Filter()))

    @property
    def queries(self) -> Queries:
        """What was asked of this wiki; raises NoQueryLog where nothing can be written down."""
        if self._queries is None:
            raise NoQueryLog("Searches are not written down here.", hint="Ask a service that has a data directory.")
        return self._queries

    def link(self, path: str) -> str:
        """The link of a page, as hits have it."""
        return page_link(self._parts.url, path)

    def _answered(self, ask: Callable[[Searcher], Answer]) -> Answer:
        try:
            with self._served() as serving:
                return self._told(ask(serving.searcher))
        except IndexMissing:
            # Another generation may have been published in the middle of it: the new one answers.
            if self._workshop.store.published(self.wiki.id) is None:
                raise
        with self._served() as serving:
            return self._told(ask(serving.searcher))

    def _told(self, answer: Answer) -> Answer:
        """The answer, which says so while the index it comes from cannot be trusted; raises IndexCorrupt for an empty
        one from an index that is not as it was written."""
        if not answer.hits:
            self._healing.confirm(EMPTY_CONFIRMED_FOR_S)
        doubt = self._healing.doubt()
        return replace(answer, degraded=True, notes=(*answer.notes, doubt)) if doubt else answer

    @property
    def reranker(self) -> str:
        """What answers depend on beside the stamp: who reads the best pages again; empty for nobody."""
        reranking = self._workshop.reranking
        return reranking.identity if reranking is not None else ""

    def stamp(self) -> tuple[int, int, str | None]:
        """What every answer depends on: generation, version and HEAD; cheap, and raises IndexMissing like a search."""
        with self._served() as serving:
            generation, version = serving.generation, serving.index.version()
        head = None
        if self._parts.check_head:
            with suppress(WikiholtError):
                head = self._parts.source.seen()
        return generation, version, head

    def sync(
        self,
        progress: Callable[[Progress], None] = _unseen,
        pause: Callable[[], Pause] = never,
        patience: float | None = None,
    ) -> SyncReport:
        """Make the index equal to HEAD; raises Paused, Busy and what a sync may raise."""
        return self._written(self._its_syncer().sync, progress, pause, patience)

    def reindex(
        self,
        progress: Callable[[Progress], None] = _unseen,
        pause: Callable[[], Pause] = never,
        patience: float | None = None,
    ) -> SyncReport:
        """Build a new generation from nothing, or go on with one that was paused; the old one answers meanwhile."""
        return self._written(self._its_syncer().rebuild, progress, pause, patience)

    def forecast(self, limit: float = 3600.0) -> Forecast:
        """What a reindexing would take; reads pages for `limit` seconds at most and writes nothing. Raises Busy."""
        if not self._foreseeing.acquire(blocking=False):
            raise Busy("this is being worked out already", hint="wait for it to finish")
        try:
            shop, parts = self._workshop, self._parts
            place = shop.store.directory(self.wiki.id)
            try:
                with self._index() as index:
                    return foresee(parts.source, parts.pipeline, shop.embedder(), index, place, limit)
            except IndexFault:
                return foresee(parts.source, parts.pipeline, shop.embedder(), None, place, limit)
        finally:
            self._foreseeing.release()

    def _written(
        self,
        work: Callable[[Callable[[Progress], None], Callable[[], Pause], float | None], SyncReport],
        progress: Callable[[Progress], None],
        pause: Callable[[], Pause],
        patience: float | None,
    ) -> SyncReport:
        going = False

        def asked() -> Pause:
            nonlocal going
            going = self._leaving()
            return Pause.AT_ONCE if going else pause()

        try:
            report = work(progress, asked, patience)
        except Paused as error:
            if going:  # nobody will go on with it
                raise Busy("this wiki is being removed", hint="`wikiholt list` shows the wikis there are") from error
            raise
        self._warm()
        # Not before: searches that began in the generation before may still need its file.
        self._workshop.store.sweep(self.wiki.id)
        return report

    def restore(self, at: datetime | None = None) -> Backup:
        """Have the newest good backup not taken after `at` answer from now on; the next sync brings it to HEAD."""
        restored = self.backups.restore(at)
        self._warm()
        self._workshop.store.sweep(self.wiki.id)
        return restored

    def fetch(self, stop: Callable[[], bool] = _never) -> bool:
        """Bring what is new from where the pages live, if that is elsewhere; whether something came."""
        try:
            return self._parts.source.fetch(lambda: stop() or self._leaving())
        finally:
            # A wiki that was removed meanwhile is left removed, with all that came for it.
            if not self._wanted():
                self._workshop.store.drop(self.wiki.id)

    def settled_at(self) -> str | None:
        """The revision the index stands for; None when a sync has work to do, or would fail for want of pages."""
        if not self._healing.health.well:
            return None  # a sync reads all of it first
        try:
            index = self._workshop.store.open(self.wiki.id)
        except WikiholtError:
            return None
        try:
            state = index.state()
        except WikiholtError:
            return None
        finally:
            index.close()
        shop = self._workshop
        today = self._parts.pipeline.recipe((shop.identity or shop.embedder)())
        return state.revision if state.recipe == today and state.pages else None

    def settle(self, timeout: float) -> None:
        """Wait until the caches are built, for a process that is about to end; they are written on the way."""
        with self._served() as serving:
            serving.settle(timeout)

    def mine(self, kinds: Collection[Kind] = MINED, limit: int = 200, seed: int = 0) -> Mined:
        """Questions this wiki's own links, history and descriptions ask of its search; raises InvalidEvaluation."""
        with self._index() as index:
            return mine(index, self._parts.source, self._parts.pipeline, kinds, limit, seed)

    def labelled(self, queries: Iterable[str], judgements: Iterable[str]) -> list[Question]:
        """Questions that people have judged; raises InvalidEvaluation for a page that is none of this wiki's."""
        with self._index() as index:
            return labelled(queries, judgements, known_paths(index))

    def words_without(self, questions: Iterable[Question]) -> Mapping[int, Words]:
        """Words of pages without what these questions have taken from them."""
        with self._index() as index:
            return words_without(index, self._parts.source, self._parts.pipeline, questions)

    def status(self) -> Status:
        """How the wiki stands; never raises for a wiki that is in trouble."""
        return Survey(self.wiki, self._parts.source, self._workshop.store, self._healing).status()

    def check(self) -> Sequence[str]:
        """What is wrong with the index, in words."""
        index = self._workshop.store.open(self.wiki.id)
        try:
            return index.check()
        finally:
            index.close()

    @property
    def health(self) -> Health:
        return self._healing.health

    def examine(self, stop: Callable[[], bool] = _never) -> Health:
        """Read every byte of index and caches, while others read and write; what proves broken is noted, and mended
        by the next sync. Raises Busy once `stop` says so, and IndexMissing."""
        if self._queries is not None:
            with suppress(WikiholtError):  # nobody may have searched for longer than searches are remembered
                self._queries.trim()
        store = self._workshop.store
        try:
            index = store.open(self.wiki.id)
            try:
                faults = index.check(lambda: stop() or self._leaving())
            finally:
                index.close()
        except IndexCorrupt as error:
            self._healing.report(error.message)
            return self._healing.health
        if store.published(self.wiki.id) == index.generation:
            if faults:
                self._healing.report(faults[0])
            elif self._healing.health.well:
                self._healing.checked()
                self._verify_caches()
        return self._healing.health

    def compare(self) -> Proof:
        """Compare the bytes of an index in use with those its last writer left; raises IndexCorrupt, once noted."""
        if self._serving is None:
            return Proof.NONE  # whoever opens it next compares them
        with self._served():
            return self._healing.confirm()

    def _verify_caches(self) -> None:
        with self._lock:
            serving = self._serving
            if serving is None:
                return  # whoever opens them next looks at them
            serving.begin()
        try:
            serving.verify()
        finally:
            serving.end()

    def remove(self) -> Sequence[str]:
        """Remove every byte of the index and its backups, once nobody is writing it; returns what was removed."""
        store = self._workshop.store
        if not store.holds(self.wiki.id):
            # Nobody can be writing it; what a removal that was killed half way left may still be there.
            return [*store.drop(self.wiki.id), *self.backups.drop()]
        with store.writing(self.wiki.id, self._workshop.lock_timeout):
            self.close()
            if self._queries is not None:
                self._queries.discard()
            return [*self.backups.drop(), *store.drop(self.wiki.id)]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            serving, self._serving = self._serving, None
        if serving is not None:
            serving.retire()

    def _its_syncer(self) -> Syncer:
        """The one syncer of this handle: it remembers what it has compared, so that the next sync compares less."""
        shop, parts = self._workshop, self._parts
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
                    self._wanted,
                    self.backups.take_before_publishing,
                    shop.former,
                    self._healing,
                )
            return self._syncer

    def _warm(self) -> None:
        """Bring the caches up to date after a sync, so that the next search finds them ready."""
        try:
            with self._served() as serving:
                serving.refresh()
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the sync is done all the same
            _LOG.warning("the caches are not ready after the sync (%s)", error)

    @contextmanager
    def _index(self) -> Iterator[WikiIndex]:
        with self._served() as serving:
            yield serving.index

    @contextmanager
    def _served(self) -> Iterator[Serving]:
        """The published generation; damage that is met in it is noted, and mended by the next sync."""
        serving: Serving | None = None
        try:
            serving = self._taken()
            yield serving
        except IndexCorrupt as error:
            self._healing.report(error.message)
            raise
        except (IndexMissing, NothingIndexed) as error:
            if self._healing.health.well or isinstance(error, IndexHealing):
                raise
            raise IndexHealing(
                "this wiki's index was damaged and is being mended", hint="wait a moment; `wikiholt sync` mends it"
            ) from error
        finally:
            if serving is not None:
                serving.end()
            if self._closed:
                self.close()

    def _taken(self) -> Serving:
        """The published generation, opened once and again whenever another one is published or it has outgrown."""
        published = self._workshop.store.published(self.wiki.id)
        old: Serving | None = None
        if self._serving is None or self._serving.generation != published:
            self._healing.confirm(CONFIRMED_FOR_S)
        with self._lock:
            if self._serving is None or self._serving.generation != published or self._serving.outgrown():
                fresh = Serving(self.wiki.id, self._parts, self._workshop)
                old, self._serving = self._serving, fresh
            serving = self._serving
            serving.begin()
        if old is not None:
            # Closing waits for work in the background; no search waits for that.
            Thread(target=old.retire, name="retire", daemon=True).start()
        return serving
