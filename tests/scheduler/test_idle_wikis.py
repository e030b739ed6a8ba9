"""Many wikis that nobody uses and nothing happens in."""

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture, wait_until
from tests.support.git_repository import Repository
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.storage.checksums import compute_row_checksum
from wikiholt.storage.sqlite.schema import open_connection
from wikiholt.storage.sqlite.store import SqliteStore

IDLE_WIKI_COUNT = 2000


class IdleWikis:
    """Thousands of wikis that are indexed: copies of one repository and of one index."""

    def __init__(self, ground: SchedulerFixture, count: int) -> None:
        self.fixture = ground
        self.slugs = [f"w{number:05}" for number in range(count)]
        original = Repository(ground.data.parent / "original")
        original.commit({"A.md": "# A\n\nIdle pages.\n"})
        bare = ground.data.parent / "bare"
        original.run_git("clone", "--quiet", "--bare", "--template=", ".", str(bare))
        ground.service.add("first", str(bare), {})
        ground.service.get_handle("first").sync()
        ground.service.close()
        index = ground.store.get_directory(ground.get_wiki_id("first"))
        sources = {slug: self._copy_wiki(bare, slug) for slug in self.slugs}
        ground.service.registry.add_many([(slug, str(path), {}) for slug, path in sources.items()])
        for wiki in ground.service.registry.list_wikis():
            if wiki.slug != "first":
                shutil.copytree(index, ground.store.get_directory(wiki.id))
                _give(ground.store.get_directory(wiki.id) / "g000001.sqlite", wiki.id)

    def _copy_wiki(self, bare: Path, slug: str) -> Path:
        copy = self.fixture.wikis / f"{slug}.git"
        shutil.copytree(bare, copy)
        return copy


def _give(file: Path, wiki_id: str) -> None:
    """Have the copy of an index say that it is this wiki's."""
    with closing(open_connection(file)) as db:
        db.execute("UPDATE owner SET wiki_id = ?, seal = ?", (wiki_id, compute_row_checksum((wiki_id,))))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.slow
def test_thousands_of_idle_wikis_start_no_process_and_open_no_index(
    ground: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = IdleWikis(ground, IDLE_WIKI_COUNT)
    started: list[Any] = []
    opened: list[str] = []
    popen, really_open = subprocess.Popen.__init__, SqliteStore.open

    def noted_popen(self: Any, *arguments: Any, **options: Any) -> None:
        started.append(arguments)
        popen(self, *arguments, **options)

    def noted_open(self: SqliteStore, wiki_id: str) -> Any:
        if self is ground.store:  # and not that of a thread that another test has left behind
            opened.append(wiki_id)
        return really_open(self, wiki_id)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted_popen)
    monkeypatch.setattr(SqliteStore, "open", noted_open)
    keeper = ground.make_scheduler(workers=2, interval=1.0)
    assert ground.can_find(farm.slugs[-1], "idle pages", "A")  # at once, whatever the number of wikis
    wait_until(lambda: keeper.get_counters().looks >= IDLE_WIKI_COUNT + 1, seconds=120)
    wait_until(lambda: all(entry.revision for entry in keeper._state.list_entries()), seconds=120)
    assert not started
    assert len(opened) <= IDLE_WIKI_COUNT + 2
    # A look that raced with the search above may be made once more; after that there is nothing left to open.
    assert any(_run_idle_round(keeper, opened) for _ in range(3)), opened
    assert not started
    assert keeper.get_counters().syncs == 0


def _run_idle_round(keeper: Scheduler, opened: list[str]) -> bool:
    """Whether every wiki is looked at, about twice, without any being opened."""
    opened.clear()
    looks = keeper.get_counters().looks
    wait_until(lambda: keeper.get_counters().looks >= looks + 2 * IDLE_WIKI_COUNT, seconds=120)
    return not opened
