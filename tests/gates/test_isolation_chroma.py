"""The isolation gate where Chroma helps to find vectors: one child for all wikis, and no word or number of another."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from canaries import CanaryWiki
from farm import SlowEmbedder
from gate_grounds import Files
from isolation_farm import ask_everything

from wikiholt import wiring
from wikiholt.model import Mode
from wikiholt.search import Request, Reranking
from wikiholt.service import Service
from wikiholt.settings import load
from wikiholt.testing import FakeReranker

pytest.importorskip("chromadb_rust_bindings", reason="the extra chroma is not installed")

WIKIS = 5


class WithChroma(Files):
    """A data directory whose vector caches are collections of a child of Chroma's."""

    def open(self, *, model: str = "fake", seconds: float = 0.0, background: bool = False) -> Service:
        chosen = {"vectors": "chroma", "chroma.path": "chroma", "page.max_bytes": 200_000}
        service = wiring.build(load(self.data, overrides=chosen))
        embedder = SlowEmbedder(model, seconds)
        reranking = Reranking(FakeReranker, 60.0)
        service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None, reranking=reranking)
        return service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(WithChroma(tmp_path / "data").open()) as opened:
        yield opened


def test_every_mode_and_filter_shows_the_wiki_itself_and_no_other(tmp_path: Path, service: Service) -> None:
    wikis = [CanaryWiki(tmp_path / "r", n, 30 if n == 0 else 0) for n in range(WIKIS)]
    for wiki in wikis:
        service.add(wiki.slug, str(wiki.repository.path), {})
        service.wiki(wiki.slug).sync()
        service.wiki(wiki.slug).settle(60)
    for me, other in zip(wikis, wikis[1:] + wikis[:1], strict=True):
        assert ask_everything(service.wiki(me.slug), me, other) > 60
    engine = service.workshop.engine
    assert engine is not None
    assert engine.up
    found = {name: count for name, (_, count) in engine.figures().items()}
    assert found["queries"] > 0, found
    gone = service.remove(wikis[1].slug).wiki.id
    for me in (wikis[0], wikis[2]):
        handle = service.wiki(me.slug)
        ask_everything(handle, me, wikis[1])
        answer = handle.search(Request("restart pump", 100, Mode.SEMANTIC))
        assert answer.total == len(answer.hits) == (33 if me is wikis[0] else 3)
    service.close()
    ground = WithChroma(tmp_path / "data")
    assert ground.where(wikis[1].code) == []
    assert ground.traces(gone) == []
