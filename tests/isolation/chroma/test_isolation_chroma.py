"""Isolation with Chroma as the vector engine: one child process for all wikis."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.isolation.backends import FileBackend
from tests.isolation.canaries import CanaryWiki
from tests.isolation.isolation_environment import search_everything
from tests.support.services import SlowEmbedder
from tests.support.tiers import choose
from wikiholt.api import bootstrap
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import SearchMode
from wikiholt.search.request import SearchRequest
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeReranker
from wikiholt.wikis.service import WikiService

pytest.importorskip("chromadb", reason="the extra chroma is not installed")

WIKIS = 5


class ChromaBackend(FileBackend):
    """A data directory whose vector caches are collections of a Chroma child process."""

    def open_service(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> WikiService:
        chosen = {"vectors": "chroma", "chroma.path": "chroma", "chroma.timeout": 60, "page.max_bytes": 200_000}
        service = bootstrap.build_service(load_settings(self.data, overrides=chosen))
        embedder = SlowEmbedder(model, seconds)
        reranking = RerankConfig(FakeReranker, 60.0)
        service.components = replace(service.components, embedder=lambda: embedder, identity=None, reranking=reranking)
        return service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[WikiService]:
    with closing(ChromaBackend(tmp_path / "data").open_service()) as opened:
        yield opened


def test_every_mode_and_filter_returns_only_the_own_wiki(tmp_path: Path, service: WikiService) -> None:
    wikis = [CanaryWiki(tmp_path / "r", n, 30 if n == 0 else 0) for n in range(WIKIS)]
    for wiki in wikis:
        service.add(wiki.slug, str(wiki.repository.path), {})
        service.get_handle(wiki.slug).sync()
        service.get_handle(wiki.slug).wait_for_caches(60)
    pairs = list(zip(wikis, wikis[1:] + wikis[:1], strict=True))
    for me, other in pairs[:: choose(1, WIKIS)]:
        assert search_everything(service.get_handle(me.slug), me, other) > 60
    engine = service.components.vector_engine
    assert engine is not None
    assert engine.is_up
    found = {name: count for name, (_, count) in engine.get_metrics().items()}
    assert found["queries"] > 0, found
    removed_id = service.remove(wikis[1].slug).wiki.id
    for me in (wikis[0], wikis[2]):
        handle = service.get_handle(me.slug)
        search_everything(handle, me, wikis[1])
        answer = handle.search(SearchRequest("restart pump", 100, SearchMode.SEMANTIC))
        assert answer.considered == len(answer.hits) == (33 if me is wikis[0] else 3)
    service.close()
    backend = ChromaBackend(tmp_path / "data")
    assert backend.find_places(wikis[1].code) == []
    assert backend.find_traces(removed_id) == []
