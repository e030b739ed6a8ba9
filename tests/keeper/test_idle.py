"""Many wikis that nobody uses and nothing happens in."""

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository
from keeper_ground import Ground, until

from wikiholt.keeper import Keeper
from wikiholt.stores.sqlite.schema import connect
from wikiholt.stores.sqlite.seals import row_seal
from wikiholt.stores.sqlite.store import SqliteStore

IDLE = 2000


class Farm:
    """Thousands of wikis that are indexed: copies of one repository and of one index."""

    def __init__(self, ground: Ground, count: int) -> None:
        self.ground = ground
        self.slugs = [f"w{number:05}" for number in range(count)]
        original = Repository(ground.data.parent / "original")
        original.commit({"A.md": "# A\n\nIdle pages.\n"})
        bare = ground.data.parent / "bare"
        original.git("clone", "--quiet", "--bare", "--template=", ".", str(bare))
        ground.service.add("first", str(bare), {})
        ground.service.wiki("first").sync()
        ground.service.close()
        index = ground.store.directory(ground.id("first"))
        sources = {slug: self._copy(bare, slug) for slug in self.slugs}
        ground.service.registry.add_many([(slug, str(path), {}) for slug, path in sources.items()])
        for wiki in ground.service.registry.list():
            if wiki.slug != "first":
                shutil.copytree(index, ground.store.directory(wiki.id))
                _give(ground.store.directory(wiki.id) / "g000001.sqlite", wiki.id)

    def _copy(self, bare: Path, slug: str) -> Path:
        copy = self.ground.wikis / f"{slug}.git"
        shutil.copytree(bare, copy)
        return copy


def _give(file: Path, wiki_id: str) -> None:
    """Have the copy of an index say that it is this wiki's."""
    with closing(connect(file)) as db:
        db.execute("UPDATE owner SET wiki_id = ?, seal = ?", (wiki_id, row_seal((wiki_id,))))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_thousands_of_idle_wikis_start_no_process_and_open_no_index(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = Farm(ground, IDLE)
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
    keeper = ground.keeper(workers=2, interval=1.0)
    assert ground.finds(farm.slugs[-1], "idle pages", "A")  # at once, whatever the number of wikis
    until(lambda: keeper.counters().looks >= IDLE + 1, seconds=120)
    until(lambda: all(entry.revision for entry in keeper._board.all()), seconds=120)
    assert not started
    assert len(opened) <= IDLE + 2
    # A look that raced with the search above may be made once more; after that there is nothing left to open.
    assert any(_quiet_round(keeper, opened) for _ in range(3)), opened
    assert not started
    assert keeper.counters().syncs == 0


def _quiet_round(keeper: Keeper, opened: list[str]) -> bool:
    """Whether every wiki is looked at, about twice, without any being opened."""
    opened.clear()
    looks = keeper.counters().looks
    until(lambda: keeper.counters().looks >= looks + 2 * IDLE, seconds=120)
    return not opened
