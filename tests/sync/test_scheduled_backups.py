"""Scheduled backups: of the registry, and of the pages of wikis that are in no other repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S, wait_until
from tests.wikis.test_managed_wikis import open_service, write
from wikiholt.sync.periodic import ScheduledBackups
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.wikis.service import WikiService


class ScheduledFixture:
    """Scheduled backups without the threads of a scheduler. A test starts every round."""

    def __init__(self, service: WikiService, data: Path) -> None:
        self.service = service
        self.state = SchedulerState()
        self._root = data / "backups"
        self._backups = ScheduledBackups(service, self.state, 0.0, lambda _: None)

    def get_directory(self, slug: str) -> Path:
        return self._root / self.service.registry.get(slug).id

    def run_once(self) -> dict[str, list[str]]:
        """Run one round. Returns the suffixes of the backups by slug, and of the registry."""
        for wiki in self.service.list_wikis():
            self.state.add(wiki, 60.0)
        self._backups.run_once()
        found = {wiki.slug: self.get_directory(wiki.slug) for wiki in self.service.list_wikis()}
        found["(registry)"] = self._root / "registry"
        return {slug: sorted(file.suffix for file in directory.glob("*")) for slug, directory in found.items()}


@pytest.fixture
def scheduled(tmp_path: Path) -> Iterator[ScheduledFixture]:
    service = open_service(tmp_path / "data")
    service.create("notes", {})
    write(service, "notes", "Home")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "Home.md").write_text("# Home")
    service.add("folder", str(tmp_path / "pages"), {})
    for slug in ("notes", "folder"):
        service.get_handle(slug).sync()
    yield ScheduledFixture(service, tmp_path / "data")
    service.close()


def test_the_registry_and_pages_without_another_repository_are_backed_up_once_while_nothing_changes(
    scheduled: ScheduledFixture,
) -> None:
    for _ in range(3):
        assert scheduled.run_once() == {"notes": [".bundle"], "folder": [], "(registry)": [".sqlite"]}
    assert (scheduled.state.counts["backups"], scheduled.state.counts["backup_failures"]) == (1, 0)


def test_new_pages_are_backed_up_by_the_next_round(scheduled: ScheduledFixture) -> None:
    scheduled.run_once()
    (before,) = scheduled.get_directory("notes").iterdir()
    write(scheduled.service, "notes", "Other")
    scheduled.run_once()
    (after,) = scheduled.get_directory("notes").iterdir()
    assert after != before


def test_a_failed_backup_is_reported_and_does_not_affect_the_registry(
    scheduled: ScheduledFixture, caplog: pytest.LogCaptureFixture
) -> None:
    directory = scheduled.get_directory("notes")
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("a file where the directory should be")
    assert scheduled.run_once()["(registry)"] == [".sqlite"]
    entry = scheduled.state.get(scheduled.service.registry.get("notes").id)
    assert entry is not None
    assert scheduled.state.get_sync_state(entry).backup_error is not None
    assert scheduled.state.counts["backup_failures"] == 1
    assert "notes: no backup could be made" in caplog.text
    directory.unlink()
    assert scheduled.run_once()["notes"] == [".bundle"]
    assert scheduled.state.get_sync_state(entry).backup_error is None


def test_the_scheduler_creates_backups(scheduled: ScheduledFixture) -> None:
    scheduler = Scheduler(scheduled.service, SchedulerConfig(backup_interval_s=0.05))
    scheduler.start()
    wait_until(lambda: list(scheduled.get_directory("notes").glob("*.bundle")))
    assert scheduler.stop(TIMEOUT_S)
    assert scheduler.get_counters().backups == 1
