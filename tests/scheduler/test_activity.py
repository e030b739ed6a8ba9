"""Several processes look after the same wikis: one is at work, and the others can say how far it is."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages, wait_until
from tests.support.paths import PYTHON_PATH
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.domain.protocols import Embedder
from wikiholt.errors import Busy
from wikiholt.scheduler.activity import lock_activity, read_activity
from wikiholt.scheduler.reindex_job import ReindexState
from wikiholt.scheduler.scheduler import Scheduler
from wikiholt.scheduler.wiki_records import SchedulerConfig, WikiActivity
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.wikis.live_index import Components
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService

_WIKI_ID = "somewikiid"
_ACTIVITY = WikiActivity("sync", datetime(2026, 11, 16, tzinfo=UTC), 3, 10, 42)


def test_what_is_told_at_a_desk_is_read_by_others_while_one_sits_there(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert read_activity(store, _WIKI_ID) is None
    with lock_activity(store, _WIKI_ID) as desk:
        assert (store.get_activity(_WIKI_ID), read_activity(store, _WIKI_ID)) == ("", None)
        desk.report(_ACTIVITY)
        assert read_activity(store, _WIKI_ID) == _ACTIVITY
    assert (store.get_activity(_WIKI_ID), read_activity(store, _WIKI_ID)) == (None, None)
    assert list(store.get_directory(_WIKI_ID).iterdir()) == []


def test_two_cannot_sit_at_one_desk_and_the_second_leaves_it_as_it_is(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with lock_activity(store, _WIKI_ID) as desk:
        desk.report(_ACTIVITY)
        with pytest.raises(Busy), lock_activity(store, _WIKI_ID):
            pass
        assert read_activity(store, _WIKI_ID) == _ACTIVITY


def test_the_desk_of_a_process_that_was_killed_is_free_and_says_nothing(tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "from tests.scheduler.test_activity import _ACTIVITY, _WIKI_ID, SqliteStore, lock_activity\n"
        f"with lock_activity(SqliteStore(pathlib.Path({str(tmp_path)!r})), _WIKI_ID) as reporter:\n"
        "    reporter.report(_ACTIVITY)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    assert subprocess.run([sys.executable, "-c", code], env=surroundings, check=False).returncode == -9
    store = SqliteStore(tmp_path)
    assert (store.get_directory(_WIKI_ID) / "activity.json").read_text().startswith("{")
    assert read_activity(store, _WIKI_ID) is None
    with lock_activity(store, _WIKI_ID) as desk:
        desk.report(_ACTIVITY)
        assert read_activity(store, _WIKI_ID) == _ACTIVITY


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "sync"}', '{"since": 7}', "\x00" * 5000])
def test_a_note_that_makes_no_sense_counts_as_none(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    with lock_activity(store, _WIKI_ID):
        (store.get_directory(_WIKI_ID) / "activity.json").write_text(text)
        assert read_activity(store, _WIKI_ID) is None


class _SecondProcess:
    """Another worker's service and keeper on the same data directory; it fails the test if it loads the model."""

    def __init__(self, ground: SchedulerFixture) -> None:
        self.model_loads = 0
        shop = Components(
            ground.store,
            self._load_model,
            lambda index, wiki_id: ExactVectorCache(index, ground.store.get_directory(wiki_id)),
            lambda _, __: None,
            30.0,
            identity=lambda: ground.embedder,
        )
        self.service = WikiService(Registry(ground.data / "registry.sqlite"), shop, ground.make_config)
        self.scheduler = Scheduler(self.service, SchedulerConfig(1, 0.1, 0.1, lambda _: 0.1))
        ground.schedulers.append(self.scheduler)
        self.scheduler.start()

    def _load_model(self) -> Embedder:
        self.model_loads += 1
        raise AssertionError("there was no need for the model")


def test_who_finds_another_at_work_says_how_far_it_is_and_loads_no_model(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    gate = embedder.block("garden 100")
    ground.create_repository("garden", make_pages(120, "garden"))
    (wiki,) = ground.register_wikis("garden")
    ground.make_scheduler()
    assert embedder.reached.wait(60)
    bystander = _SecondProcess(ground)
    wait_until(
        lambda: (
            (bystander.scheduler.get_activity(wiki) or _ACTIVITY).kind == "sync"
            and bystander.scheduler.get_activity(wiki)
        )
    )
    bystander.scheduler.notify_changed(wiki)
    wait_until(lambda: bystander.scheduler.get_counters().wakes)
    gate.set()
    wait_until(lambda: bystander.scheduler.get_sync_state(wiki).synced_revision is not None)
    wait_until(lambda: bystander.scheduler.get_activity(wiki) is None)
    assert bystander.model_loads == 0
    bystander.service.close()


def test_a_reindexing_in_one_worker_is_neither_taken_up_nor_told_wrong_by_another(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    ground.create_repository("garden", make_pages(120, "garden"))
    (wiki,) = ground.register_wikis("garden")
    keeper = ground.make_scheduler()
    assert keeper.wait_until_fresh(wiki, 60)
    bystander = _SecondProcess(ground)
    wait_until(lambda: bystander.scheduler.get_sync_state(wiki).synced_revision is not None)
    gate = embedder.block("garden 100")
    embedder.reached.clear()
    job = keeper.reindex(wiki)
    assert embedder.reached.wait(60)
    with pytest.raises(Busy):
        bystander.scheduler.reindex(wiki)
    bystander.scheduler.notify_changed(wiki)
    wait_until(lambda: (bystander.scheduler.get_activity(wiki) or _ACTIVITY).kind == "reindex")
    gate.set()
    wait_until(lambda: not bystander.scheduler.get_reindex_job(wiki).is_open)
    done = bystander.scheduler.get_reindex_job(wiki)
    assert (done.state, done.id, done.resumed, done.pages_done) == (ReindexState.COMPLETE, job.id, 0, 120)
    assert bystander.model_loads == 0
    bystander.service.close()
