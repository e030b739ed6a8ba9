"""Wikis whose repository lies elsewhere: fetched on their schedule, and delaying nobody."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

import pytest
from git_repository import Repository
from keeper_ground import Ground, many, until
from servers import git_backend, serving

from wikiholt.handle import Parts
from wikiholt.model import Wiki
from wikiholt.pages import Pipeline
from wikiholt.sources.remote import RemoteSource
from wikiholt.sources.transfer import Costs


class RemoteGround(Ground):
    def parts(self, wiki: Wiki) -> Parts:
        if wiki.source.startswith("/"):
            return super().parts(wiki)
        costs = Costs(schemes=("http",), allow_private=True, timeout=60)
        return Parts(RemoteSource(wiki.source, self.store.directory(wiki.id), costs), Pipeline(), "{path}")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[RemoteGround]:
    made = RemoteGround(tmp_path)
    yield made
    made.close()


def test_a_remote_is_fetched_indexed_and_followed(ground: RemoteGround, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "elsewhere" / "garden")
    repository.commit({"Beans.md": "# Beans\n\nClimbing.\n"})
    with serving(git_backend(tmp_path / "elsewhere")) as server:
        wiki = ground.service.registry.add("garden", server.url("garden/.git")).id
        keeper = ground.keeper()
        until(lambda: ground.finds("garden", "climbing", "Beans"))
        repository.commit({"Peas.md": "# Peas\n\nSow early.\n"})
        until(lambda: ground.finds("garden", "sow early", "Peas"))
        repository.commit({"Sage.md": "# Sage\n\nDry soil.\n"})
        assert keeper.fresh(wiki, 60)
        assert ground.finds("garden", "dry soil", "Sage")
        fetches = keeper.counters().fetches
        until(lambda: keeper.counters().fetches > fetches + 3)
        assert keeper.counters().syncs == 3
    until(lambda: keeper.standing(wiki).failures > 0)  # the server is gone
    assert ground.finds("garden", "dry soil", "Sage")
    assert not keeper.fresh(wiki, 60)


def test_remotes_that_do_not_answer_delay_no_other_wiki_and_not_the_end(ground: RemoteGround) -> None:
    over, stuck = Event(), Event()

    def silent(_: BaseHTTPRequestHandler) -> None:
        stuck.set()
        over.wait(60)

    with serving(silent) as server:
        for number in range(4):
            ground.service.registry.add(f"silent-{number}", server.url(f"{number}/.git"))
        keeper = ground.keeper(workers=1)
        assert stuck.wait(60)
        ground.repository("garden", many(3, "garden"))
        until(lambda: ground.finds("garden", "garden text 1", "garden-0001"))
        assert keeper.stop(30)
        over.set()
    # The garden may have been found before its first commit; the others were neither given up nor counted as failed.
    assert [keeper.standing(ground.id(f"silent-{number}")).failures for number in range(4)] == [0] * 4
