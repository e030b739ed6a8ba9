"""Scheduled backups: of changed wikis only, one at a time; a failure does not affect other wikis."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.indexing.backup_directory import BackupPolicy
from wikiholt.scheduler.periodic import ScheduledBackups
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_records import SchedulerConfig
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService


class ScheduledFixture:
    """Scheduled backups without the threads of a scheduler. A test starts every round."""

    def __init__(self, fixture: SchedulerFixture, every: float) -> None:
        self.backup_root = fixture.data / "backups"
        policy = BackupPolicy(self.backup_root)
        self.service = WikiService(
            Registry(fixture.data / "registry.sqlite", backups=policy),
            replace(fixture.service.components, backup_policy=policy),
            fixture.make_config,
        )
        self.state = SchedulerState()
        self.delays: list[float] = []
        self.backups = ScheduledBackups(self.service, self.state, every, self.delays.append)

    def run_once(self) -> dict[str, int]:
        """Run one round. Returns the number of backups by slug, and of the registry."""
        for wiki in self.service.list_wikis():
            self.state.add(wiki, 60.0)
        self.backups.run_once()
        counts = {
            wiki.slug: len(self.service.get_handle(wiki.slug).backups.list()) for wiki in self.service.list_wikis()
        }
        return counts | {"(registry)": len(self.service.registry.backups.list())}


@contextmanager
def run_scheduled(fixture: SchedulerFixture, every: float) -> Iterator[ScheduledFixture]:
    created = ScheduledFixture(fixture, every)
    try:
        yield created
    finally:
        created.service.close()


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[SchedulerFixture]:
    created = SchedulerFixture(tmp_path)
    for slug in ("one", "two"):
        created.service.add(slug, str(created.create_repository(slug, {"Home.md": f"# Home\n\n{slug}"}).path), {})
        created.service.get_handle(slug).sync()
    yield created
    created.close()


def test_every_wiki_and_the_registry_are_backed_up_once_while_nothing_changes(fixture: SchedulerFixture) -> None:
    with run_scheduled(fixture, 0.001) as scheduled:
        for _ in range(3):
            assert scheduled.run_once() == {"one": 1, "two": 1, "(registry)": 1}
        assert scheduled.state.counts["backups"] == 2


def test_a_changed_wiki_is_backed_up_when_its_newest_backup_is_old_enough(fixture: SchedulerFixture) -> None:
    with run_scheduled(fixture, 3600.0) as hourly, run_scheduled(fixture, 0.001) as frequent:
        hourly.run_once()
        Repository(fixture.wikis / "one").commit({"New.md": "# New"})
        fixture.service.get_handle("one").sync()
        assert hourly.run_once() == {"one": 1, "two": 1, "(registry)": 1}
        assert frequent.run_once() == {"one": 2, "two": 1, "(registry)": 1}


def test_every_backup_is_followed_by_a_delay(fixture: SchedulerFixture) -> None:
    with run_scheduled(fixture, 0.001) as scheduled:
        scheduled.run_once()
        assert len(scheduled.delays) == 2
        assert all(delay > 0 for delay in scheduled.delays)


def test_a_failed_backup_is_reported_and_does_not_affect_other_wikis(
    fixture: SchedulerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    with run_scheduled(fixture, 0.001) as scheduled:
        wiki = scheduled.service.registry.get("one")
        scheduled.backup_root.mkdir(parents=True)
        (scheduled.backup_root / wiki.id).write_text("a file where the directory should be")
        assert scheduled.run_once() == {"one": 0, "two": 1, "(registry)": 1}
        entry = scheduled.state.get(wiki.id)
        assert entry is not None
        assert scheduled.state.get_sync_state(entry).backup_error is not None
        assert scheduled.state.counts["backup_failures"] == 1
        assert "one: no backup could be made" in caplog.text
        (scheduled.backup_root / wiki.id).unlink()
        scheduled.backups._due_at.clear()
        assert scheduled.run_once()["one"] == 1
        assert scheduled.state.get_sync_state(entry).backup_error is None


def test_a_wiki_that_was_never_synced_is_not_a_backup_failure(fixture: SchedulerFixture) -> None:
    fixture.service.add("third", str(fixture.create_repository("third", {"Home.md": "# New"}).path), {})
    with run_scheduled(fixture, 0.001) as scheduled:
        assert scheduled.run_once()["third"] == 0
        assert scheduled.state.counts["backup_failures"] == 0
        scheduled.service.get_handle("third").sync()
        assert scheduled.run_once()["third"] == 1


def test_the_scheduler_creates_backups(fixture: SchedulerFixture) -> None:
    scheduler = Scheduler(fixture.service, SchedulerConfig(backup_interval_s=0.05))
    scheduler.start()
    wait_until(lambda: all(fixture.service.get_handle(slug).backups.list() for slug in ("one", "two")))
    assert scheduler.stop(TIMEOUT_S)
    assert scheduler.get_counters().backups == 2
