"""Settings for a PostgreSQL store: which caches a node has, and an unavailable home database."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import InvalidSetting
from wikiholt.index.postgres import local_copy
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService


def use_fake_model(service: WikiService) -> WikiService:
    embedder = FakeEmbedder()
    service.components = replace(service.components, embedder=lambda: embedder, identity=None)
    return service


def test_a_copy_on_the_node_gives_the_answers_of_the_database(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "wiki")
    repository.commit({f"Page-{n}.md": f"# Page {n}\n\nword{n} and word{n % 7} together\n" for n in range(80)})
    answers, copied = {}, set()
    for kind in ("store", "auto", "auto large", "exact large", "faiss large"):
        data = tmp_path / kind
        monkeypatch.setattr(local_copy, "COPY_MIN_PAGES", 5 if "large" in kind else 500)
        overrides = {"store": database, "vectors": kind.split()[0]}
        with closing(use_fake_model(build_service(load_settings(data, overrides=overrides)))) as service:
            if kind == "store":
                service.add("notes", str(repository.path), {})
                service.get_handle("notes").sync()
            handle = service.get_handle("notes")
            handle.search(SearchRequest("word3 together"))
            handle.wait_for_caches(60)
            answer = handle.search(SearchRequest("word3 together", n=10))
            answers[kind] = [(hit.path, round(hit.score, 6)) for hit in answer.hits]
            assert (answer.degraded, answer.stale) == (False, False)
            copied |= {kind for _ in data.rglob("copy-g000001.sqlite")}
    assert all(answer == answers["store"] for answer in answers.values())
    assert copied == {"auto large", "exact large", "faiss large"}


def test_store_side_vector_search_requires_postgresql(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_settings(tmp_path, overrides={"vectors": "store"})
    assert "postgresql://" in caught.value.hint
