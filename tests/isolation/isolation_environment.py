"""Wikis with canary words, queries that try to read other wikis, and a concurrent load."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.isolation.backends import IsolationBackend
from tests.isolation.canaries import COMMON_TEXT, WORD_PLACES, CanaryWiki, find_codes
from tests.support.tiers import choose
from wikiholt.api.documents.admin_documents import build_status_document
from wikiholt.api.documents.search_documents import build_result_document
from wikiholt.domain.index import SyncReport
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.errors import IndexMissing, ModelMismatch, ModelMissing, WikiholtError, WikiNotFound
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

WIKI_COUNT, THREAD_COUNT, HUGE_PAGE_COUNT = 20, 16, choose(2500, 300)
_MIN_SEARCHES = 15
"""Searches of each thread without a pause."""
_PAUSE_S = choose(0, 250) / 1000
"""Seconds between the later searches of a thread, until the other tasks have ended."""


class IsolationEnvironment:
    """Twenty wikis in one storage; the first is hundreds of times as large as the others."""

    def __init__(self, directory: Path, backend: IsolationBackend, huge: int = HUGE_PAGE_COUNT) -> None:
        self.backend = backend
        self.huge = huge
        self.wikis = [CanaryWiki(directory / "r", n, huge if n == 0 else 0) for n in range(WIKI_COUNT)]
        service = backend.open_service()
        for wiki in self.wikis:
            service.add(wiki.slug, str(wiki.repository.path), {"kind": "directory"} if wiki.is_directory else {})
            fetch_and_sync(service, wiki)
        self.ids = {wiki.slug: wiki.id for wiki in service.list_wikis()}
        service.close()

    @property
    def data(self) -> Path:
        return self.backend.data

    def get_directory(self, wiki: CanaryWiki) -> Path:
        return self.data / "wikis" / self.ids[wiki.slug]

    def read_wikis(self, wikis: Sequence[CanaryWiki]) -> dict[str, Mapping[str, object]]:
        return {wiki.slug: self.backend.read_wiki(self.ids[wiki.slug]) for wiki in wikis}

    def read_other_wikis(self, wiki: CanaryWiki) -> dict[str, Mapping[str, object]]:
        return self.read_wikis([other for other in self.wikis if other is not wiki])

    def find_wiki_codes(self, wiki: CanaryWiki) -> set[str]:
        return self.backend.find_wiki_codes(self.ids[wiki.slug])


def fetch_and_sync(service: WikiService, wiki: CanaryWiki) -> SyncReport:
    handle = service.get_handle(wiki.slug)
    handle.fetch()
    return handle.sync()


def make_queries(me: CanaryWiki, other: CanaryWiki) -> list[tuple[str, PageFilter]]:
    """Queries to one wiki about the content of another."""
    about_other = [(other.get_word(place), PageFilter()) for place in WORD_PLACES]
    return [
        *about_other,
        (f'"night shift" {other.get_word("body")}', PageFilter()),
        (f'"{other.get_word("body")} {other.get_word("edit")}"', PageFilter()),
        (f"zq{other.code}", PageFilter()),
        *((misspell(other.get_word(place)), PageFilter()) for place in ("body", "title", "text")),
        ("zq", PageFilter()),
        (f"{COMMON_TEXT} -{me.get_word('body')}", PageFilter()),
        (f"pump -{other.get_word('heading')}", PageFilter()),
        (COMMON_TEXT, PageFilter(tags=(other.get_word("tag"),))),
        (COMMON_TEXT, PageFilter(categories=(other.get_word("category"),))),
        (COMMON_TEXT, PageFilter(path_prefix=other.get_word("path"))),
        (COMMON_TEXT, PageFilter(path_prefix="../../")),
        (f"' OR 1=1 -- {other.slug}", PageFilter(path_prefix="%")),
        (COMMON_TEXT, PageFilter()),
    ]


def misspell(word: str) -> str:
    """A canary with a spelling mistake: only an index that has the word can correct it."""
    return f"{word[:-2]}{word[-1]}{word[-2]}"


def search_as_json(
    handle: WikiHandle, query: str, where: PageFilter, mode: SearchMode, *, rerank: bool | None = False
) -> str:
    """A search result as JSON, without the query."""
    found = handle.search(SearchRequest(query, 100, mode, where, rerank=rerank))
    assert rerank is not False or not found.reranked
    answer = build_result_document(found)
    del answer["query"], answer["as_typed"]
    return json.dumps(answer, ensure_ascii=False)


def search_everything(handle: WikiHandle, me: CanaryWiki, other: CanaryWiki) -> int:
    """Call every entry point of a handle with the words of another wiki. Returns the number of checked results."""
    checked = 0
    for query, where in make_queries(me, other):
        variants = [*((mode, False) for mode in SearchMode), (SearchMode.HYBRID, None), (SearchMode.SEMANTIC, None)]
        for mode, rerank in variants:
            text = search_as_json(handle, query, where, mode, rerank=rerank)
            assert find_codes(text) <= {me.code}, f"{me.slug} returned for {query!r}: {text}"
            checked += 1
    status = json.dumps(build_status_document(handle.get_status()))
    assert find_codes(status) == {me.code}
    return checked


class ConcurrentLoad:
    """Sixteen threads that search every wiki while some are edited and synced, one is rebuilt and some are removed."""

    def __init__(self, env: IsolationEnvironment) -> None:
        self.env = env
        self.wikis_to_remove = env.wikis[-4:]
        self.rebuilt = env.wikis[-5]
        self.answers = 0
        self._finished = threading.Event()
        self._lock = threading.Lock()

    def run(self, service: WikiService) -> None:
        with ThreadPoolExecutor(THREAD_COUNT) as threads:
            searches = [
                threads.submit(self._run_searches, service, seed)
                for seed in range(THREAD_COUNT - len(self.get_tasks()))
            ]
            tasks = [threads.submit(task, service) for task in self.get_tasks()]
            try:
                for task in tasks:
                    task.result()
            finally:
                self._finished.set()
            for search in searches:
                search.result()

    def get_tasks(self) -> Sequence[Callable[[WikiService], None]]:
        """Tasks that run at the same time as the searches."""
        return self._sync_wikis, self._rebuild_wiki, self._remove_wikis

    def _run_searches(self, service: WikiService, seed: int) -> None:
        rng = Random(seed)
        rounds = 0
        while rounds < _MIN_SEARCHES or not self._finished.wait(_PAUSE_S if rounds >= _MIN_SEARCHES else 0):
            rounds += 1
            me, other = rng.sample(self.env.wikis, 2)
            query, where = rng.choice(make_queries(me, other))
            found = self._search_once(
                service, me, query, where, rng.choice(list(SearchMode)), rng.choice([None, False])
            )
            with self._lock:
                self.answers += not isinstance(found, WikiholtError)
            if isinstance(found, WikiholtError):
                another_model = me is self.rebuilt and isinstance(found, ModelMismatch | ModelMissing)
                assert me in self.wikis_to_remove or another_model, f"{me.slug}: {found}"
                found = found.message + found.hint
            assert find_codes(found) <= {me.code}, f"{me.slug} returned for {query!r}: {found}"

    @staticmethod
    def _search_once(
        service: WikiService, me: CanaryWiki, query: str, where: PageFilter, mode: SearchMode, rerank: bool | None
    ) -> str | WikiholtError:
        try:
            return search_as_json(service.get_handle(me.slug), query, where, mode, rerank=rerank)
        except (WikiNotFound, IndexMissing, ModelMismatch, ModelMissing) as error:
            return error

    def _sync_wikis(self, service: WikiService) -> None:
        for number in range(3):
            for wiki in self.env.wikis[10:14]:
                wiki.commit_edit(number)
                assert find_codes(repr(fetch_and_sync(service, wiki))) == {wiki.code}

    def _rebuild_wiki(self, _: WikiService) -> None:
        for model in ("other", "fake"):
            another = self.env.backend.open_service(model=model, seconds=0.02)
            assert another.get_handle(self.rebuilt.slug).sync().rebuilt
            another.close()

    def _remove_wikis(self, service: WikiService) -> None:
        for wiki in self.wikis_to_remove:
            removed = service.remove(wiki.slug)
            assert removed.wiki.slug == wiki.slug
            assert find_codes(repr(removed)) <= {wiki.code}


def check_under_load(env: IsolationEnvironment, load: ConcurrentLoad, caplog: pytest.LogCaptureFixture) -> int:
    """Run the load, and check that it changed only what it should. Returns the number of answers."""
    caplog.set_level(logging.DEBUG)
    untouched = env.wikis[1:10]
    before = env.read_wikis(untouched)
    service = env.backend.open_service(background=True)
    load.run(service)
    service.close()
    assert [record.getMessage() for record in caplog.records if find_codes(record.getMessage())] == []
    assert env.read_wikis(untouched) == before
    removed = load.wikis_to_remove
    assert env.backend.find_places(*(wiki.code for wiki in removed)) == []
    assert env.backend.find_traces(*(env.ids[wiki.slug] for wiki in removed)) == []
    assert not any(env.get_directory(wiki).exists() for wiki in removed)
    for wiki in env.wikis[:-4]:
        assert env.find_wiki_codes(wiki) == {wiki.code}
    env.wikis = env.wikis[:-4]
    return load.answers
