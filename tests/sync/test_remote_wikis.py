"""Wikis with a remote repository: fetched on schedule, without delaying other wikis."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event

import pytest

from tests.support.git_repository import Repository
from tests.support.git_servers import make_git_handler, run_http_server
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import SchedulerFixture, make_pages
from wikiholt.domain.wiki import Wiki
from wikiholt.git.remote import FetchLimits, RemoteSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.wikis.live_index import WikiConfig


class RemoteSchedulerFixture(SchedulerFixture):
    def make_config(self, wiki: Wiki) -> WikiConfig:
        if wiki.source.startswith("/"):
            return super().make_config(wiki)
        limits = FetchLimits(schemes=("http",), allow_private=True, timeout_s=TIMEOUT_S)
        return WikiConfig(
            RemoteSource(wiki.source, self.store.get_directory(wiki.id), limits), TextPipeline(), "{path}"
        )


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[RemoteSchedulerFixture]:
    created = RemoteSchedulerFixture(tmp_path)
    yield created
    created.close()


def test_a_remote_is_fetched_indexed_and_kept_up_to_date(fixture: RemoteSchedulerFixture, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "elsewhere" / "garden")
    repository.commit({"Beans.md": "# Beans\n\nClimbing.\n"})
    with run_http_server(make_git_handler(tmp_path / "elsewhere")) as server:
        wiki = fixture.service.registry.add("garden", server.get_url("garden/.git")).id
        scheduler = fixture.make_scheduler()
        wait_until(lambda: fixture.can_find("garden", "climbing", "Beans"))
        repository.commit({"Peas.md": "# Peas\n\nSow early.\n"})
        wait_until(lambda: fixture.can_find("garden", "sow early", "Peas"))
        repository.commit({"Sage.md": "# Sage\n\nDry soil.\n"})
        assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
        assert fixture.can_find("garden", "dry soil", "Sage")
        fetches = scheduler.get_counters().fetches
        wait_until(lambda: scheduler.get_counters().fetches > fetches + 3)
        assert scheduler.get_counters().syncs == 3
    wait_until(lambda: scheduler.get_sync_state(wiki).failures > 0)  # the server has stopped
    assert fixture.can_find("garden", "dry soil", "Sage")
    assert not scheduler.wait_until_fresh(wiki, TIMEOUT_S)


def test_unresponsive_remotes_delay_neither_other_wikis_nor_the_stop(fixture: RemoteSchedulerFixture) -> None:
    finished, connected = Event(), Event()

    def never_answer(_: BaseHTTPRequestHandler) -> None:
        connected.set()
        finished.wait(TIMEOUT_S)

    with run_http_server(never_answer) as server:
        for number in range(4):
            fixture.service.registry.add(f"silent-{number}", server.get_url(f"{number}/.git"))
        scheduler = fixture.make_scheduler(workers=1)
        assert connected.wait(TIMEOUT_S)
        fixture.create_repository("garden", make_pages(3, "garden"))
        wait_until(lambda: fixture.can_find("garden", "garden text 1", "garden-0001"))
        assert scheduler.stop(TIMEOUT_S)
        finished.set()
    # The garden is not asserted: it may have failed once if it was discovered before its first commit.
    assert [scheduler.get_sync_state(fixture.get_wiki_id(f"silent-{n}")).failures for n in range(4)] == [0] * 4
