"""Every file of Chroma's damaged in every way that is known to hurt: the answers stay right, and Chroma comes back."""

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from chroma_ground import EMBEDDER, ONE, OTHER, Ground, assert_right, helped, until

from wikiholt.model import Change
from wikiholt.ports import WikiIndex
from wikiholt.testing.entries import entry
from wikiholt.vectors.chroma import Chroma, ChromaCache, api

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


class Standing:
    """Two wikis in one directory of Chroma's, and where the first one's vectors lie in it."""

    def __init__(self, place: Path) -> None:
        self.ground = Ground(place)
        self.index, self.other = self.ground.wiki(ONE, 40), self.ground.wiki(OTHER, 25, "forest")
        self.kept = place / "kept"
        with self.ground.chroma() as engine:
            cache, other = self.caches(engine)
            heal(cache, self.index, engine)
            heal(other, self.other, engine)
            self.segment = self._segment(cache)
            cache.close()
            other.close()
        shutil.copytree(self.ground.path, self.kept)
        self.number = 0

    def caches(self, engine: Chroma) -> tuple[ChromaCache, ChromaCache]:
        return self.ground.cache(engine), self.ground.cache(engine, OTHER, "other")

    def as_it_was(self) -> None:
        shutil.rmtree(self.ground.path)
        shutil.copytree(self.kept, self.ground.path)

    def write(self) -> None:
        self.number += 1
        texts = [f"river stone{i} edit {self.number}" for i in range(15)]
        self.index.apply(Change(pages=(entry("p3.md", texts, EMBEDDER),)))

    def hurt(self, file: str, damage: Damage) -> None:
        damage((self.ground.path if file.endswith("sqlite3") else self.segment) / file)

    def _segment(self, cache: ChromaCache) -> Path:
        assert cache._standing is not None
        with closing(sqlite3.connect(self.ground.path / "chroma.sqlite3")) as database:
            sql = "SELECT id FROM segments WHERE collection = ? AND scope = 'VECTOR'"
            return self.ground.path / str(
                database.execute(sql, (cache._standing.collection._at.rpartition("/")[2],)).fetchone()[0]
            )


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Segments are written to the disk after a few rows, not after a thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(api.INDEX, "hnsw", {**api.INDEX["hnsw"], "sync_threshold": 20})
        made = Standing(tmp_path_factory.mktemp("damage"))
        yield made
        made.ground.close()


def heal(cache: ChromaCache, index: WikiIndex, engine: Chroma) -> None:
    """Search until Chroma helps again; every answer on the way is right."""

    def back() -> bool:
        assert_right(cache, index)
        return helped(cache)

    until(back, f"Chroma helps again: {engine.figures()} {engine._caretaker.trouble}")


def hangs(file: str) -> bool:
    """Whether Chroma may loop without end over it."""
    return file == "link_lists.bin"


def patience(file: str) -> dict[str, object]:
    seconds = 5.0 if hangs(file) else 60.0
    return {"patience": seconds, "heartbeat": seconds}


@pytest.mark.parametrize(("file", "damage"), DAMAGES, ids=NAMES)
def test_what_is_found_damaged_at_the_start_never_shows_in_an_answer(
    standing: Standing, file: str, damage: Damage
) -> None:
    standing.as_it_was()
    standing.hurt(file, damage)
    standing.write()
    with standing.ground.chroma(**patience(file)) as engine:
        cache, other = standing.caches(engine)
        heal(cache, standing.index, engine)
        heal(other, standing.other, engine)
        if not file.endswith("sqlite3") and not hangs(file):
            assert engine.figures()["rebuilds"][1] <= 1, "the neighbour's collection is left as it was"
        cache.close()
        other.close()


@pytest.mark.parametrize(("file", "damage"), DAMAGES[::2], ids=NAMES[::2])
def test_what_is_damaged_under_a_running_chroma_never_shows_in_an_answer(
    standing: Standing, file: str, damage: Damage
) -> None:
    standing.as_it_was()
    with standing.ground.chroma(**patience(file)) as engine:
        cache, other = standing.caches(engine)
        heal(cache, standing.index, engine)
        segment = standing._segment(cache)
        place = standing.ground.path if file.endswith("sqlite3") else segment
        damage(place / file)
        assert_right(cache, standing.index)
        standing.write()
        heal(cache, standing.index, engine)
        os.kill(standing.ground.child_pid(engine), signal.SIGKILL)
        heal(cache, standing.index, engine)
        heal(other, standing.other, engine)
        cache.close()
        other.close()
