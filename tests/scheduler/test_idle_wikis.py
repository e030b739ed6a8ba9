"""Many wikis without searches and without changes."""

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture
from tests.support.git_repository import Repository
from tests.support.tiers import choose
from tests.support.wait import wait_until
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.storage.checksums import compute_row_checksum
from wikiholt.storage.sqlite.schema import open_connection
from wikiholt.storage.sqlite.store import SqliteStore

IDLE_WIKI_COUNT = choose(2000, 150)


class IdleWikis:
    """Thousands of indexed wikis: copies of one repository and of one index."""

    def __init__(self, fixture: SchedulerFixture, count: int) -> None:
        self.fixture = fixture
        self.slugs = [f"w{number:05}" for number in range(count)]
        original = Repository(fixture.data.parent / "original")
        original.commit({"A.md": "# A\n\nIdle pages.\n"})
        bare = fixture.data.parent / "bare"
        original.run_git("clone", "--quiet", "--bare", "--template=", ".", str(bare))
        fixture.service.add("first", str(bare), {})
        fixture.service.get_handle("first").sync()
        fixture.service.close()
        index = fixture.store.get_directory(fixture.get_wiki_id("first"))
        sources = {slug: self._copy_wiki(bare, slug) for slug in self.slugs}
        fixture.service.registry.add_many([(slug, str(path), {}) for slug, path in sources.items()])
        for wiki in fixture.service.registry.list_wikis():
            if wiki.slug != "first":
                shutil.copytree(index, fixture.store.get_directory(wiki.id))
                _set_owner(fixture.store.get_directory(wiki.id) / "g000001.sqlite", wiki.id)

    def _copy_wiki(self, bare: Path, slug: str) -> Path:
        copy = self.fixture.wikis / f"{slug}.git"
        shutil.copytree(bare, copy)
        return copy


def _set_owner(file: Path, wiki_id: str) -> None:
    """Set the owner of a copied index to this wiki."""
    with closing(open_connection(file)) as db:
        db.execute("UPDATE owner SET wiki_id = ?, seal = ?", (wiki_id, compute_row_checksum((wiki_id,))))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.slow
def test_thousands_of_idle_wikis_start_no_process_and_open_no_index(
    fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_wikis = IdleWikis(fixture, IDLE_WIKI_COUNT)
    started: list[Any] = []
    opened: list[str] = []
    popen, real_open = subprocess.Popen.__init__, SqliteStore.open

    def recording_popen(self: Any, *arguments: Any, **options: Any) -> None:
        if str(fixture.wikis) in str((arguments, options)):  # ignore threads that other tests have left running
            started.append(arguments)
        popen(self, *arguments, **options)

    def recording_open(self: SqliteStore, wiki_id: str) -> Any:
        if self is fixture.store:  # ignore threads that other tests have left running
            opened.append(wiki_id)
        return real_open(self, wiki_id)

    monkeypatch.setattr(subprocess.Popen, "__init__", recording_popen)
    monkeypatch.setattr(SqliteStore, "open", recording_open)
    scheduler = fixture.make_scheduler(workers=2, interval=1.0)
    assert fixture.can_find(idle_wikis.slugs[-1], "idle pages", "A")  # immediately, regardless of the number of wikis
    wait_until(lambda: scheduler.get_counters().head_checks >= IDLE_WIKI_COUNT + 1)
    wait_until(lambda: all(entry.revision for entry in scheduler._state.list_entries()))
    assert not started
    # A check that raced with the search above is repeated. After that no index is opened.
    assert len(opened) <= IDLE_WIKI_COUNT + 5
    assert any(_run_idle_round(scheduler, opened) for _ in range(3)), opened
    assert not started
    assert scheduler.get_counters().syncs == 0


def _run_idle_round(scheduler: Scheduler, opened: list[str]) -> bool:
    """Whether every wiki is checked about twice without opening an index."""
    opened.clear()
    looks = scheduler.get_counters().head_checks
    wait_until(lambda: scheduler.get_counters().head_checks >= looks + 2 * IDLE_WIKI_COUNT)
    return not opened
