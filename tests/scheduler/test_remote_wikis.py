"""Wikis whose repository lies elsewhere: fetched on their schedule, and delaying nobody."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture, make_pages, wait_until
from tests.support.git_repository import Repository
from tests.support.git_servers import make_git_handler, run_http_server
from wikiholt.domain.wiki import Wiki
from wikiholt.git.fetch import FetchLimits
from wikiholt.git.remote import RemoteSource
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.wikis.live_index import WikiConfig


class RemoteSchedulerFixture(SchedulerFixture):
    def make_config(self, wiki: Wiki) -> WikiConfig:
        if wiki.source.startswith("/"):
            return super().make_config(wiki)
        costs = FetchLimits(schemes=("http",), allow_private=True, timeout=60)
        return WikiConfig(RemoteSource(wiki.source, self.store.get_directory(wiki.id), costs), TextPipeline(), "{path}")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[RemoteSchedulerFixture]:
    made = RemoteSchedulerFixture(tmp_path)
    yield made
    made.close()


def test_a_remote_is_fetched_indexed_and_followed(ground: RemoteSchedulerFixture, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "elsewhere" / "garden")
    repository.commit({"Beans.md": "# Beans\n\nClimbing.\n"})
    with run_http_server(make_git_handler(tmp_path / "elsewhere")) as server:
        wiki = ground.service.registry.add("garden", server.get_url("garden/.git")).id
        keeper = ground.make_scheduler()
        wait_until(lambda: ground.can_find("garden", "climbing", "Beans"))
        repository.commit({"Peas.md": "# Peas\n\nSow early.\n"})
        wait_until(lambda: ground.can_find("garden", "sow early", "Peas"))
        repository.commit({"Sage.md": "# Sage\n\nDry soil.\n"})
        assert keeper.wait_until_fresh(wiki, 60)
        assert ground.can_find("garden", "dry soil", "Sage")
        fetches = keeper.get_counters().fetches
        wait_until(lambda: keeper.get_counters().fetches > fetches + 3)
        assert keeper.get_counters().syncs == 3
    wait_until(lambda: keeper.get_sync_state(wiki).failures > 0)  # the server is gone
    assert ground.can_find("garden", "dry soil", "Sage")
    assert not keeper.wait_until_fresh(wiki, 60)


def test_remotes_that_do_not_answer_delay_no_other_wiki_and_not_the_end(ground: RemoteSchedulerFixture) -> None:
    over, stuck = Event(), Event()

    def silent(_: BaseHTTPRequestHandler) -> None:
        stuck.set()
        over.wait(60)

    with run_http_server(silent) as server:
        for number in range(4):
            ground.service.registry.add(f"silent-{number}", server.get_url(f"{number}/.git"))
        keeper = ground.make_scheduler(workers=1)
        assert stuck.wait(60)
        ground.create_repository("garden", make_pages(3, "garden"))
        wait_until(lambda: ground.can_find("garden", "garden text 1", "garden-0001"))
        assert keeper.stop(30)
        over.set()
    # The garden may have been found before its first commit; the others were neither given up nor counted as failed.
    assert [keeper.get_sync_state(ground.get_wiki_id(f"silent-{number}")).failures for number in range(4)] == [0] * 4
