"""A remote wiki on two nodes over one PostgreSQL: every node has its own mirror, or none yet."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import make_git_handler, run_http_server
from tests.support.wait import TIMEOUT_S
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.wiki import BackupReason
from wikiholt.git.mirror import MirrorRefresher
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService


@pytest.fixture
def nodes(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[WikiService, WikiService]]:
    # A reader waits for a fetch as long as a busy machine needs.
    monkeypatch.setattr(MirrorRefresher.__init__, "__defaults__", (TIMEOUT_S,))
    remote = {"remote.schemes": "http", "remote.allow_private": True, "remote.timeout": 60}
    with ExitStack() as stack:
        services = []
        for name in ("one", "other"):
            service = build_service(load_settings(tmp_path / name, overrides={"store": database, **remote}))
            embedder = FakeEmbedder()
            service.components = replace(service.components, embedder=lambda embedder=embedder: embedder, identity=None)
            services.append(stack.enter_context(closing(service)))
        yield services[0], services[1]


def test_pages_are_read_and_answers_are_fresh_on_a_node_that_never_fetched(
    nodes: tuple[WikiService, WikiService], tmp_path: Path
) -> None:
    one, other = nodes
    repository = Repository(tmp_path / "served" / "wiki")
    repository.commit({"Home.md": "# Home\n\nfirst words\n"})
    with run_http_server(make_git_handler(repository.path.parent)) as server:
        wiki = one.add("far", server.get_url("wiki/.git"), {})
        one.get_handle("far").sync()
        answer = other.get_handle("far").search(SearchRequest("first words"))
        assert ([hit.path for hit in answer.hits], answer.stale) == (["Home"], False)
        mirror = other.components.store.get_directory(wiki.id) / "mirror.git"
        assert not mirror.exists(), "a search does not fetch"
        assert other.get_handle("far").pages.read("Home").content.endswith("first words\n")
        assert mirror.exists()

        repository.commit({"Home.md": "# Home\n\nsecond words\n"})
        one.get_handle("far").fetch()
        assert other.get_handle("far").search(SearchRequest("first words")).stale is True
        assert other.get_handle("far").pages.read("Home").content.endswith("second words\n"), (
            "commits seen by the other node are fetched"
        )
        other.get_handle("far").sync()
        assert one.get_handle("far").search(SearchRequest("second words")).stale is False
        assert one.get_handle("far").backups.create(BackupReason.REQUESTED).state is not None


def test_local_files_of_a_wiki_removed_by_another_node_are_deleted(
    nodes: tuple[WikiService, WikiService], tmp_path: Path
) -> None:
    one, other = nodes
    repository = Repository(tmp_path / "wiki")
    repository.commit({f"Page-{n}.md": f"# Page {n}\n\nword{n}\n" for n in range(60)})
    wiki = one.add("near", str(repository.path), {})
    kept = one.add("kept", str(repository.path), {})
    for service in (one, other):
        for slug in ("near", "kept"):
            service.get_handle(slug).sync()
            service.get_handle(slug).wait_for_caches(60)
    places = [service.components.store.get_directory(wiki.id) for service in nodes]
    for place in (*places, other.components.store.get_directory(kept.id)):
        place.mkdir(parents=True, exist_ok=True)
        (place / "copy-g000001.sqlite").touch()
    one.remove("near")
    assert [place.exists() for place in places] == [False, True]
    assert other.components.databases is not None
    other.components.databases.remove_leftovers([wiki.id for wiki in other.list_wikis()])
    assert not places[1].exists()
    assert other.components.store.get_directory(kept.id).exists()
