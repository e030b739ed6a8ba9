"""Backups by schedule: of what has changed, one at a time, and a failure of one harms no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.scheduler.scheduler_fixtures import SchedulerFixture, wait_until
from tests.support.git_repository import Repository
from wikiholt.indexing.index_backups import BackupPolicy
from wikiholt.scheduler.periodic import ScheduledBackups
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_records import SchedulerConfig
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService


class ScheduledFixture:
    """A keeper's rounds without its threads, so that a test says when."""

    def __init__(self, ground: SchedulerFixture, every: float) -> None:
        self.backup_root = ground.data / "backups"
        plan = BackupPolicy(self.backup_root)
        self.service = WikiService(
            Registry(ground.data / "registry.sqlite", backups=plan),
            replace(ground.service.components, backup_policy=plan),
            ground.make_config,
        )
        self.state = SchedulerState()
        self.delays: list[float] = []
        self.backups = ScheduledBackups(self.service, self.state, every, self.delays.append)

    def run_once(self) -> dict[str, int]:
        """Have a round; returns how many backups there are by slug, and of the registry."""
        for wiki in self.service.list_wikis():
            self.state.add(wiki, 60.0)
        self.backups.run_once()
        found = {
            wiki.slug: len(self.service.get_handle(wiki.slug).backups.list()) for wiki in self.service.list_wikis()
        }
        return found | {"(registry)": len(self.service.registry.backups.list())}


@contextmanager
def run_scheduled(ground: SchedulerFixture, every: float) -> Iterator[ScheduledFixture]:
    made = ScheduledFixture(ground, every)
    try:
        yield made
    finally:
        made.service.close()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[SchedulerFixture]:
    made = SchedulerFixture(tmp_path)
    for slug in ("one", "two"):
        made.service.add(slug, str(made.create_repository(slug, {"Home.md": f"# Home\n\n{slug}"}).path), {})
        made.service.get_handle(slug).sync()
    yield made
    made.close()


def test_every_wiki_and_the_registry_are_backed_up_once_while_nothing_changes(ground: SchedulerFixture) -> None:
    with run_scheduled(ground, 0.001) as each:
        for _ in range(3):
            assert each.run_once() == {"one": 1, "two": 1, "(registry)": 1}
        assert each.state.counts["backups"] == 2


def test_what_has_changed_is_backed_up_when_its_newest_backup_is_old_enough(ground: SchedulerFixture) -> None:
    with run_scheduled(ground, 3600.0) as patient, run_scheduled(ground, 0.001) as eager:
        patient.run_once()
        Repository(ground.wikis / "one").commit({"New.md": "# New"})
        ground.service.get_handle("one").sync()
        assert patient.run_once() == {"one": 1, "two": 1, "(registry)": 1}
        assert eager.run_once() == {"one": 2, "two": 1, "(registry)": 1}


def test_it_rests_four_times_as_long_as_it_works(ground: SchedulerFixture) -> None:
    with run_scheduled(ground, 0.001) as each:
        each.run_once()
        assert len(each.delays) == 2
        assert all(rest > 0 for rest in each.delays)


def test_a_wiki_that_cannot_be_backed_up_says_so_and_harms_no_other(
    ground: SchedulerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    with run_scheduled(ground, 0.001) as each:
        wiki = each.service.registry.get("one")
        each.backup_root.mkdir(parents=True)
        (each.backup_root / wiki.id).write_text("a file where the directory should be")
        assert each.run_once() == {"one": 0, "two": 1, "(registry)": 1}
        entry = each.state.get(wiki.id)
        assert entry is not None
        assert each.state.get_sync_state(entry).backup_error is not None
        assert each.state.counts["backup_failures"] == 1
        assert "one: no backup could be made" in caplog.text
        (each.backup_root / wiki.id).unlink()
        each.backups._due_at.clear()
        assert each.run_once()["one"] == 1
        assert each.state.get_sync_state(entry).backup_error is None


def test_a_wiki_that_was_never_synced_is_no_failure(ground: SchedulerFixture) -> None:
    ground.service.add("third", str(ground.create_repository("third", {"Home.md": "# New"}).path), {})
    with run_scheduled(ground, 0.001) as each:
        assert each.run_once()["third"] == 0
        assert each.state.counts["backup_failures"] == 0
        each.service.get_handle("third").sync()
        assert each.run_once()["third"] == 1


def test_a_keeper_backs_up_by_itself(ground: SchedulerFixture) -> None:
    keeper = Scheduler(ground.service, SchedulerConfig(backup_interval_s=0.05))
    keeper.start()
    wait_until(lambda: all(ground.service.get_handle(slug).backups.list() for slug in ("one", "two")))
    assert keeper.stop(30)
    assert keeper.get_counters().backups == 2
