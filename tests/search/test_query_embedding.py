"""The query is embedded beside the keyword search: the same answers, the same errors, and only when it is useful."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.search.test_search import PAGES, SearchFixture
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.errors import InvalidQuery, ModelMissing
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle


class StartingEmbedder(FakeEmbedder):
    """Records what is started and what is embedded by the caller. Started queries run when they are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []
        self.waited: list[str] = []
        self.called: list[str] = []
        self.error: Exception | None = None
        self.is_busy = False

    def embed_query(self, text: str) -> FloatArray:
        self.called.append(text)
        return super().embed_query(text)

    def start_query(self, text: str) -> Callable[[], FloatArray] | None:
        if self.is_busy:
            return None
        self.started.append(text)
        return lambda: self._finish(text)

    def _finish(self, text: str) -> FloatArray:
        self.waited.append(text)
        if self.error is not None:
            raise self.error
        return self._embed(text)


@pytest.fixture
def embedder() -> StartingEmbedder:
    return StartingEmbedder()


@pytest.fixture
def wiki(tmp_path: Path, embedder: StartingEmbedder) -> Iterator[WikiHandle]:
    garden = SearchFixture(tmp_path)
    garden.repository.commit(PAGES)
    garden.embedder = embedder
    handle = garden.open_handle()
    handle.sync()
    handle.search(SearchRequest("warm up"))
    assert not embedder.started, "the first search must not start anything"
    embedder.called.clear()
    yield handle
    handle.close()


def get_hits(answer: SearchResult) -> list[tuple[str, float, str]]:
    return [(hit.path, hit.score, hit.snippet.text) for hit in answer.hits]


def test_nothing_is_started_while_many_searches_run(wiki: WikiHandle, embedder: StartingEmbedder) -> None:
    load = wiki._components.search_load
    with load.count_search():
        with load.count_search():
            wiki.search(SearchRequest("oil the handle"))
            assert (embedder.started, embedder.called) == ([], ["oil the handle"])
        wiki.search(SearchRequest("sharpen the blade"))
    assert embedder.started == ["sharpen the blade"]


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.SEMANTIC])
def test_a_started_query_gives_the_answer_of_the_caller(
    wiki: WikiHandle, embedder: StartingEmbedder, mode: SearchMode
) -> None:
    request = SearchRequest("oil the handle", mode=mode)
    started = wiki.search(request)
    assert (embedder.started, embedder.waited, embedder.called) == (["oil the handle"], ["oil the handle"], [])
    embedder.is_busy = True
    alone = wiki.search(request)
    assert embedder.called == ["oil the handle"]
    assert get_hits(started) == get_hits(alone)


def test_a_corrected_query_is_embedded_again(
    wiki: WikiHandle, embedder: StartingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct = "wikiholt.search.spell_check.SpellingCorrector.correct"
    monkeypatch.setattr(correct, lambda *_: "gathers leaves")
    answer = wiki.search(SearchRequest("gathrs leaves"))
    assert answer.did_you_mean == "gathers leaves"
    assert (embedder.started, embedder.waited, embedder.called) == (["gathrs leaves"], [], ["gathers leaves"])


def test_keyword_search_starts_nothing(wiki: WikiHandle, embedder: StartingEmbedder) -> None:
    wiki.search(SearchRequest("leaves", mode=SearchMode.KEYWORD))
    assert not embedder.started


def test_a_search_without_candidates_does_not_wait(wiki: WikiHandle, embedder: StartingEmbedder) -> None:
    embedder.error = ModelMissing("the weights are gone", hint="install them")
    answer = wiki.search(SearchRequest("leaves", where=PageFilter(path_prefix="nowhere")))
    assert not answer.hits
    assert not answer.degraded
    with pytest.raises(InvalidQuery):
        wiki.search(SearchRequest("-leaves"))
    assert not embedder.waited


def test_an_error_of_the_model_degrades_a_hybrid_search(wiki: WikiHandle, embedder: StartingEmbedder) -> None:
    embedder.error = ModelMissing("the weights are gone", hint="install them")
    answer = wiki.search(SearchRequest("gathers leaves"))
    assert answer.degraded
    assert [hit.path for hit in answer.hits] == ["tools/rake"]
    with pytest.raises(ModelMissing):
        wiki.search(SearchRequest("gathers leaves", mode=SearchMode.SEMANTIC))


def test_any_other_error_is_raised_in_the_caller(wiki: WikiHandle, embedder: StartingEmbedder) -> None:
    embedder.error = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        wiki.search(SearchRequest("gathers leaves"))
