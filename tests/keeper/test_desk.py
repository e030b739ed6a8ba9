"""Several processes look after the same wikis: one is at work, and the others can say how far it is."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from keeper_ground import Ground, WatchedEmbedder, many, until

from wikiholt.errors import Busy
from wikiholt.handle import Workshop
from wikiholt.keeper import JobState, Keeper, Pace
from wikiholt.keeper.desk import read_activity, sitting
from wikiholt.keeper.entries import Activity
from wikiholt.ports import Embedder
from wikiholt.registry import Registry
from wikiholt.service import Service
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.vectors.exact import ExactCache

_WIKI = "somewikiid"
_DONE = Activity("sync", datetime(2026, 11, 16, tzinfo=UTC), 3, 10, 42)


def test_what_is_told_at_a_desk_is_read_by_others_while_one_sits_there(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert read_activity(store, _WIKI) is None
    with sitting(store, _WIKI) as desk:
        assert (store.seated(_WIKI), read_activity(store, _WIKI)) == ("", None)
        desk.tell(_DONE)
        assert read_activity(store, _WIKI) == _DONE
    assert (store.seated(_WIKI), read_activity(store, _WIKI)) == (None, None)
    assert list(store.directory(_WIKI).iterdir()) == []


def test_two_cannot_sit_at_one_desk_and_the_second_leaves_it_as_it_is(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with sitting(store, _WIKI) as desk:
        desk.tell(_DONE)
        with pytest.raises(Busy), sitting(store, _WIKI):
            pass
        assert read_activity(store, _WIKI) == _DONE


def test_the_desk_of_a_process_that_was_killed_is_free_and_says_nothing(tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "from test_desk import _DONE, _WIKI, SqliteStore, sitting\n"
        f"with sitting(SqliteStore(pathlib.Path({str(tmp_path)!r})), _WIKI) as desk:\n"
        "    desk.tell(_DONE)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=surroundings, check=False).returncode == -9
    store = SqliteStore(tmp_path)
    assert (store.directory(_WIKI) / "activity.json").read_text().startswith("{")
    assert read_activity(store, _WIKI) is None
    with sitting(store, _WIKI) as desk:
        desk.tell(_DONE)
        assert read_activity(store, _WIKI) == _DONE


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "sync"}', '{"since": 7}', "\x00" * 5000])
def test_a_note_that_makes_no_sense_counts_as_none(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    with sitting(store, _WIKI):
        (store.directory(_WIKI) / "activity.json").write_text(text)
        assert read_activity(store, _WIKI) is None


class _Bystander:
    """Another worker's service and keeper on the same data directory; it fails the test if it loads the model."""

    def __init__(self, ground: Ground) -> None:
        self.loaded = 0
        shop = Workshop(
            ground.store,
            self._load,
            lambda index, wiki_id: ExactCache(index, ground.store.directory(wiki_id)),
            lambda _, __: None,
            30.0,
            identity=lambda: ground.embedder,
        )
        self.service = Service(Registry(ground.data / "registry.sqlite"), shop, ground.parts)
        self.keeper = Keeper(self.service, Pace(1, 0.1, 0.1, lambda _: 0.1))
        ground.keepers.append(self.keeper)
        self.keeper.start()

    def _load(self) -> Embedder:
        self.loaded += 1
        raise AssertionError("there was no need for the model")


def test_who_finds_another_at_work_says_how_far_it_is_and_loads_no_model(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    gate = embedder.hold("garden 100")
    ground.repository("garden", many(120, "garden"))
    (wiki,) = ground.registered("garden")
    ground.keeper()
    assert embedder.reached.wait(60)
    bystander = _Bystander(ground)
    until(lambda: (bystander.keeper.activity(wiki) or _DONE).kind == "sync" and bystander.keeper.activity(wiki))
    bystander.keeper.wake(wiki)
    until(lambda: bystander.keeper.counters().wakes)
    gate.set()
    until(lambda: bystander.keeper.standing(wiki).synced_revision is not None)
    until(lambda: bystander.keeper.activity(wiki) is None)
    assert bystander.loaded == 0
    bystander.service.close()


def test_a_reindexing_in_one_worker_is_neither_taken_up_nor_told_wrong_by_another(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    ground.repository("garden", many(120, "garden"))
    (wiki,) = ground.registered("garden")
    keeper = ground.keeper()
    assert keeper.fresh(wiki, 60)
    bystander = _Bystander(ground)
    until(lambda: bystander.keeper.standing(wiki).synced_revision is not None)
    gate = embedder.hold("garden 100")
    embedder.reached.clear()
    job = keeper.reindex(wiki)
    assert embedder.reached.wait(60)
    with pytest.raises(Busy):
        bystander.keeper.reindex(wiki)
    bystander.keeper.wake(wiki)
    until(lambda: (bystander.keeper.activity(wiki) or _DONE).kind == "reindex")
    gate.set()
    until(lambda: not bystander.keeper.job(wiki).open)
    done = bystander.keeper.job(wiki)
    assert (done.state, done.id, done.resumed, done.pages_done) == (JobState.COMPLETE, job.id, 0, 120)
    assert bystander.loaded == 0
    bystander.service.close()
