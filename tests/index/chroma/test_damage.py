"""Every file of Chroma with every kind of damage: answers stay right, and Chroma recovers."""

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.index.chroma.chroma_fixtures import (
    EMBEDDER,
    OTHER_WIKI_ID,
    WIKI_ID,
    ChromaFixture,
    assert_same_as_store,
    is_helped_by_chroma,
)
from tests.support.tiers import choose
from tests.support.wait import wait_until
from wikiholt.domain.index import IndexChange
from wikiholt.index.chroma import client
from wikiholt.index.chroma.engine import ChromaEngine
from wikiholt.index.chroma.searcher import ChromaSearcher
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.testing.fakes import make_entry

Damage = Callable[[Path], None]


def zero_length(file: Path) -> None:
    os.truncate(file, 0)


def half(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def random_bytes(file: Path) -> None:
    file.write_bytes(random.Random(7).randbytes(file.stat().st_size))


def bad_head(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(random.Random(7).randbytes(100))


def gone(file: Path) -> None:
    file.unlink()


def directory_gone(file: Path) -> None:
    shutil.rmtree(file.parent)


DAMAGES: list[tuple[str, Damage]] = [
    *(("chroma.sqlite3", damage) for damage in (zero_length, gone, half, random_bytes, bad_head)),
    ("index_metadata.pickle", directory_gone),
    *(("index_metadata.pickle", damage) for damage in (gone, zero_length, half, random_bytes)),
    *(("header.bin", damage) for damage in (zeroed, random_bytes, half)),
    *(("data_level0.bin", damage) for damage in (zeroed, half, random_bytes)),
    *(("link_lists.bin", damage) for damage in (zeroed, random_bytes, half)),
]
NAMES = [f"{file} {damage.__name__}" for file, damage in DAMAGES]


class DamageFixture:
    """Two wikis in one Chroma directory, and the location of the first one's vectors."""

    def __init__(self, place: Path) -> None:
        self.fixture = ChromaFixture(place)
        self.index, self.other = (
            self.fixture.create_index(WIKI_ID, 40),
            self.fixture.create_index(OTHER_WIKI_ID, 25, "forest"),
        )
        self.saved = place / "kept"
        with self.fixture.open_engine() as engine:
            cache, other = self.open_caches(engine)
            wait_until_recovered(cache, self.index, engine)
            wait_until_recovered(other, self.other, engine)
            self.segment = self._find_segment(cache)
            cache.close()
            other.close()
        shutil.copytree(self.fixture.path, self.saved)
        self.number = 0

    def open_caches(self, engine: ChromaEngine) -> tuple[ChromaSearcher, ChromaSearcher]:
        return self.fixture.open_cache(engine), self.fixture.open_cache(engine, OTHER_WIKI_ID, "other")

    def restore_files(self) -> None:
        shutil.rmtree(self.fixture.path)
        shutil.copytree(self.saved, self.fixture.path)

    def write_changes(self) -> None:
        self.number += 1
        texts = [f"river stone{i} edit {self.number}" for i in range(15)]
        self.index.apply(IndexChange(pages=(make_entry("p3.md", texts, EMBEDDER),)))

    def apply_damage(self, file: str, damage: Damage) -> None:
        damage((self.fixture.path if file.endswith("sqlite3") else self.segment) / file)

    def _find_segment(self, cache: ChromaSearcher) -> Path:
        assert cache._ready is not None
        with closing(sqlite3.connect(self.fixture.path / "chroma.sqlite3")) as database:
            sql = "SELECT id FROM segments WHERE collection = ? AND scope = 'VECTOR'"
            return self.fixture.path / str(
                database.execute(sql, (cache._ready.records._path.rpartition("/")[2],)).fetchone()[0]
            )


@pytest.fixture(scope="module")
def damaged_wikis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DamageFixture]:
    """Segments are written to disk after a few rows, not after a thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(client.INDEX_CONFIGURATION, "hnsw", {**client.INDEX_CONFIGURATION["hnsw"], "sync_threshold": 20})
        made = DamageFixture(tmp_path_factory.mktemp("damage"))
        yield made
        made.fixture.close()


def wait_until_recovered(cache: ChromaSearcher, index: SqliteIndex, engine: ChromaEngine) -> None:
    """Search until Chroma takes part again; every answer until then must be right."""

    def back() -> bool:
        assert_same_as_store(cache, index)
        return is_helped_by_chroma(cache)

    wait_until(back, f"Chroma helps again: {engine.get_metrics()} {engine._unavailable_reason}")


def may_hang(file: str) -> bool:
    """Whether damage to this file may put Chroma into an endless loop."""
    return file == "link_lists.bin"


def get_timeouts(file: str) -> dict[str, object]:
    seconds = choose(10, 4) if may_hang(file) else 60.0
    return {"write_timeout_s": seconds, "read_timeout_s": seconds}


def hangs_at_start(file: str, damage: Damage) -> bool:
    """Whether Chroma hangs on this damage until it is killed, twenty seconds later. `test_a_child_that_hangs_…` does
    the same with a child that is stopped."""
    return may_hang(file) and damage is not zeroed


@pytest.mark.parametrize(
    ("file", "damage"),
    [pytest.param(*case, marks=pytest.mark.long if hangs_at_start(*case) else ()) for case in DAMAGES],
    ids=NAMES,
)
def test_damage_found_at_the_start_never_shows_in_an_answer(
    damaged_wikis: DamageFixture, file: str, damage: Damage
) -> None:
    damaged_wikis.restore_files()
    damaged_wikis.apply_damage(file, damage)
    damaged_wikis.write_changes()
    with damaged_wikis.fixture.open_engine(**get_timeouts(file)) as engine:
        cache, other = damaged_wikis.open_caches(engine)
        wait_until_recovered(cache, damaged_wikis.index, engine)
        wait_until_recovered(other, damaged_wikis.other, engine)
        if not file.endswith("sqlite3") and not may_hang(file):
            assert engine.get_metrics()["rebuilds"][1] <= 1, "the other wiki's collection is unchanged"
        cache.close()
        other.close()


@pytest.mark.parametrize(("file", "damage"), DAMAGES[::2], ids=NAMES[::2])
def test_damage_under_a_running_chroma_never_shows_in_an_answer(
    damaged_wikis: DamageFixture, file: str, damage: Damage
) -> None:
    damaged_wikis.restore_files()
    with damaged_wikis.fixture.open_engine(**get_timeouts(file)) as engine:
        cache, other = damaged_wikis.open_caches(engine)
        wait_until_recovered(cache, damaged_wikis.index, engine)
        segment = damaged_wikis._find_segment(cache)
        place = damaged_wikis.fixture.path if file.endswith("sqlite3") else segment
        damage(place / file)
        assert_same_as_store(cache, damaged_wikis.index)
        damaged_wikis.write_changes()
        wait_until_recovered(cache, damaged_wikis.index, engine)
        os.kill(damaged_wikis.fixture.get_child_pid(engine), signal.SIGKILL)
        wait_until_recovered(cache, damaged_wikis.index, engine)
        wait_until_recovered(other, damaged_wikis.other, engine)
        cache.close()
        other.close()
