"""Backups by schedule: of what has changed, one at a time, and a failure of one harms no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from git_repository import Repository
from keeper_ground import Ground, until

from wikiholt.backups import BackupPlan
from wikiholt.keeper import Keeper, Pace
from wikiholt.keeper.backups import Rounds
from wikiholt.keeper.board import Board
from wikiholt.registry import Registry
from wikiholt.service import Service


class Scheduled:
    """A keeper's rounds without its threads, so that a test says when."""

    def __init__(self, ground: Ground, every: float) -> None:
        self.place = ground.data / "backups"
        plan = BackupPlan(self.place)
        self.service = Service(
            Registry(ground.data / "registry.sqlite", backups=plan),
            replace(ground.service.workshop, backups=plan),
            ground.parts,
        )
        self.board = Board()
        self.rested: list[float] = []
        self.rounds = Rounds(self.service, self.board, every, self.rested.append)

    def go_round(self) -> dict[str, int]:
        """Have a round; returns how many backups there are by slug, and of the registry."""
        for wiki in self.service.wikis():
            self.board.adopt(wiki, 60.0)
        self.rounds.go_round()
        found = {wiki.slug: len(self.service.wiki(wiki.slug).backups.list()) for wiki in self.service.wikis()}
        return found | {"(registry)": len(self.service.registry.backups.list())}


@contextmanager
def scheduled(ground: Ground, every: float) -> Iterator[Scheduled]:
    made = Scheduled(ground, every)
    try:
        yield made
    finally:
        made.service.close()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    for slug in ("one", "two"):
        made.service.add(slug, str(made.repository(slug, {"Home.md": f"# Home\n\n{slug}"}).path), {})
        made.service.wiki(slug).sync()
    yield made
    made.close()


def test_every_wiki_and_the_registry_are_backed_up_once_while_nothing_changes(ground: Ground) -> None:
    with scheduled(ground, 0.001) as each:
        for _ in range(3):
            assert each.go_round() == {"one": 1, "two": 1, "(registry)": 1}
        assert each.board.count["backups"] == 2


def test_what_has_changed_is_backed_up_when_its_newest_backup_is_old_enough(ground: Ground) -> None:
    with scheduled(ground, 3600.0) as patient, scheduled(ground, 0.001) as eager:
        patient.go_round()
        Repository(ground.wikis / "one").commit({"New.md": "# New"})
        ground.service.wiki("one").sync()
        assert patient.go_round() == {"one": 1, "two": 1, "(registry)": 1}
        assert eager.go_round() == {"one": 2, "two": 1, "(registry)": 1}


def test_it_rests_four_times_as_long_as_it_works(ground: Ground) -> None:
    with scheduled(ground, 0.001) as each:
        each.go_round()
        assert len(each.rested) == 2
        assert all(rest > 0 for rest in each.rested)


def test_a_wiki_that_cannot_be_backed_up_says_so_and_harms_no_other(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    with scheduled(ground, 0.001) as each:
        wiki = each.service.registry.get("one")
        each.place.mkdir(parents=True)
        (each.place / wiki.id).write_text("a file where the directory should be")
        assert each.go_round() == {"one": 0, "two": 1, "(registry)": 1}
        entry = each.board.get(wiki.id)
        assert entry is not None
        assert each.board.standing(entry).backup_error is not None
        assert each.board.count["backup_failures"] == 1
        assert "one: no backup could be made" in caplog.text
        (each.place / wiki.id).unlink()
        each.rounds._due.clear()
        assert each.go_round()["one"] == 1
        assert each.board.standing(entry).backup_error is None


def test_a_wiki_that_was_never_synced_is_no_failure(ground: Ground) -> None:
    ground.service.add("third", str(ground.repository("third", {"Home.md": "# New"}).path), {})
    with scheduled(ground, 0.001) as each:
        assert each.go_round()["third"] == 0
        assert each.board.count["backup_failures"] == 0
        each.service.wiki("third").sync()
        assert each.go_round()["third"] == 1


def test_a_keeper_backs_up_by_itself(ground: Ground) -> None:
    keeper = Keeper(ground.service, Pace(backups=0.05))
    keeper.start()
    until(lambda: all(ground.service.wiki(slug).backups.list() for slug in ("one", "two")))
    assert keeper.stop(30)
    assert keeper.counters().backups == 2
