"""A wiki whose repository is elsewhere, on two nodes over one PostgreSQL: each has a mirror, and may have none yet."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from git_repository import Repository
from servers import git_backend, serving

from wikiholt.model import Occasion
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import load
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import build


@pytest.fixture
def nodes(database: str, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    remote = {"remote.schemes": "http", "remote.allow_private": True, "remote.timeout": 60}
    with ExitStack() as stack:
        made = []
        for name in ("one", "other"):
            service = build(load(tmp_path / name, overrides={"store": database, **remote}))
            embedder = FakeEmbedder()
            service.workshop = replace(service.workshop, embedder=lambda embedder=embedder: embedder, identity=None)
            made.append(stack.enter_context(closing(service)))
        yield made[0], made[1]


def test_pages_are_read_and_answers_are_fresh_on_a_node_that_never_fetched(
    nodes: tuple[Service, Service], tmp_path: Path
) -> None:
    one, other = nodes
    repository = Repository(tmp_path / "served" / "wiki")
    repository.commit({"Home.md": "# Home\n\nfirst words\n"})
    with serving(git_backend(repository.path.parent)) as server:
        wiki = one.add("far", server.url("wiki/.git"), {})
        one.wiki("far").sync()
        answer = other.wiki("far").search(Request("first words"))
        assert ([hit.path for hit in answer.hits], answer.stale) == (["Home"], False)
        mirror = other.workshop.store.directory(wiki.id) / "mirror.git"
        assert not mirror.exists(), "searching fetches nothing"
        assert other.wiki("far").contents.read("Home").content.endswith("first words\n")
        assert mirror.exists()

        repository.commit({"Home.md": "# Home\n\nsecond words\n"})
        one.wiki("far").fetch()
        assert other.wiki("far").search(Request("first words")).stale is True
        assert other.wiki("far").contents.read("Home").content.endswith("second words\n"), (
            "what another has seen is brought"
        )
        other.wiki("far").sync()
        assert one.wiki("far").search(Request("second words")).stale is False
        assert one.wiki("far").backups.take(Occasion.ASKED).state is not None


def test_what_a_node_keeps_of_a_wiki_that_another_removed_goes(nodes: tuple[Service, Service], tmp_path: Path) -> None:
    one, other = nodes
    repository = Repository(tmp_path / "wiki")
    repository.commit({f"Page-{n}.md": f"# Page {n}\n\nword{n}\n" for n in range(60)})
    wiki = one.add("near", str(repository.path), {})
    kept = one.add("kept", str(repository.path), {})
    for service in (one, other):
        for slug in ("near", "kept"):
            service.wiki(slug).sync()
            service.wiki(slug).settle(60)
    places = [service.workshop.store.directory(wiki.id) for service in nodes]
    assert all(any(place.iterdir()) for place in places), "more than a few pages get a word cache"
    one.remove("near")
    assert [place.exists() for place in places] == [False, True]
    assert other.workshop.databases is not None
    other.workshop.databases.tidy([each.id for each in other.wikis()])
    assert not places[1].exists()
    assert other.workshop.store.directory(kept.id).exists()
