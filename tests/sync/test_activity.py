"""Several processes sync the same wikis: one process works, and the others show its progress."""

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.paths import PYTHON_PATH
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import Busy
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.sync.reindex_job import ReindexState, lock_activity, read_activity
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_records import SchedulerConfig, SchedulerProgress, SyncPriority, WikiActivity
from wikiholt.wikis.live_index import Components
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService

_WIKI_ID = "somewikiid"
_ACTIVITY = WikiActivity("sync", datetime(2026, 11, 16, tzinfo=UTC), 3, 10, 42)


@pytest.mark.process
def test_the_activity_lock_of_a_killed_process_is_free_and_its_activity_ignored(tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "from tests.sync.test_activity import _ACTIVITY, _WIKI_ID, SqliteStore, lock_activity\n"
        f"with lock_activity(SqliteStore(pathlib.Path({str(tmp_path)!r})), _WIKI_ID) as reporter:\n"
        "    reporter.report(_ACTIVITY)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -9
    store = SqliteStore(tmp_path)
    assert (store.get_directory(_WIKI_ID) / "activity.json").read_text().startswith("{")
    assert read_activity(store, _WIKI_ID) is None
    with lock_activity(store, _WIKI_ID) as reporter:
        reporter.report(_ACTIVITY)
        assert read_activity(store, _WIKI_ID) == _ACTIVITY


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "sync"}', '{"since": 7}', "\x00" * 5000])
def test_an_invalid_activity_file_is_ignored(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    with lock_activity(store, _WIKI_ID):
        (store.get_directory(_WIKI_ID) / "activity.json").write_text(text)
        assert read_activity(store, _WIKI_ID) is None


class _SecondProcess:
    """Service and scheduler of another process on the same data directory. Loading its model fails the test."""

    def __init__(self, fixture: SchedulerFixture) -> None:
        self.model_loads = 0
        components = Components(
            fixture.store,
            self._load_model,
            lambda _, __: None,
            30.0,
            identity=lambda: fixture.embedder,
        )
        self.service = WikiService(Registry(fixture.data / "registry.sqlite"), components, fixture.make_config)
        self.scheduler = Scheduler(self.service, SchedulerConfig(1, 0.1, 0.1, lambda _: 0.1))
        fixture.schedulers.append(self.scheduler)
        self.scheduler.start()

    def close(self) -> None:
        assert self.scheduler.stop(TIMEOUT_S)
        self.service.close()

    def _load_model(self) -> Embedder:
        self.model_loads += 1
        raise AssertionError("the model is not needed")


def test_a_second_process_shows_the_progress_of_the_first_and_loads_no_model(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    gate = embedder.block("garden 100")
    fixture.create_repository("garden", make_pages(120, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    fixture.make_scheduler()
    assert embedder.reached.wait(TIMEOUT_S)
    second = _SecondProcess(fixture)
    wait_until(
        lambda: (
            (second.scheduler.get_activity(wiki) or _ACTIVITY).kind == "sync" and second.scheduler.get_activity(wiki)
        )
    )
    second.scheduler.notify_changed(wiki)
    wait_until(lambda: second.scheduler.get_counters().notifications)
    gate.set()
    wait_until(lambda: second.scheduler.get_sync_state(wiki).synced_revision is not None)
    wait_until(lambda: second.scheduler.get_activity(wiki) is None)
    assert second.model_loads == 0
    second.close()


def test_a_second_process_shows_the_reindex_of_the_first_and_does_not_continue_it(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    fixture.create_repository("garden", make_pages(120, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    # The first process does not pause: the second one may continue a paused reindex.
    scheduler = fixture.make_scheduler(reindex_share=TIMEOUT_S)
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    second = _SecondProcess(fixture)
    wait_until(lambda: second.scheduler.get_sync_state(wiki).synced_revision is not None)
    gate = embedder.block("garden 100")
    embedder.reached.clear()
    job = scheduler.reindex(wiki)
    assert embedder.reached.wait(TIMEOUT_S)
    with pytest.raises(Busy):
        second.scheduler.reindex(wiki)
    second.scheduler.notify_changed(wiki)
    wait_until(lambda: (second.scheduler.get_activity(wiki) or _ACTIVITY).kind == "reindex")
    gate.set()
    wait_until(lambda: not second.scheduler.get_reindex_job(wiki).is_open)
    done = second.scheduler.get_reindex_job(wiki)
    assert (done.state, done.id, done.resumed, done.pages_done) == (ReindexState.COMPLETE, job.id, 0, 120)
    assert second.model_loads == 0
    second.close()


def test_progress_counts_wikis_at_head_failed_and_running() -> None:
    state = SchedulerState()
    entries = [state.add(Wiki(f"id{n}", f"wiki-{n}", "/repository", datetime.now(UTC)), 60.0) for n in range(4)]
    entries[0].revision = "a" * 40
    entries[1].failures = 1
    entries[2].missing = True
    entries[3].activity = WikiActivity("sync", datetime.now(UTC), 1, 2)
    assert state.get_progress() == SchedulerProgress(4, 1, 2, (("wiki-3", entries[3].activity),))


def test_a_run_waits_until_it_has_an_activity() -> None:
    state = SchedulerState()
    entry = state.add(Wiki(_WIKI_ID, "notes", "/nowhere", datetime.now(UTC)), 60.0, SyncPriority.NOTIFIED)
    assert next(state.iter_syncs()) is entry
    assert state.get_sync_state(entry).waiting, "it has begun, but may still find work to do"
    entry.activity = _ACTIVITY
    assert not state.get_sync_state(entry).waiting
    state.finish(entry, lambda _: None)
    assert not state.get_sync_state(entry).waiting


def test_a_wiki_that_is_added_while_the_registry_is_read_stays(fixture: SchedulerFixture) -> None:
    scheduler = fixture.make_scheduler(start=False)
    repository = Repository(fixture.data / "elsewhere")
    repository.commit(make_pages(1, "late"))
    list_wikis = fixture.service.list_wikis

    def add_meanwhile() -> Sequence[Wiki]:
        wikis = list_wikis()
        scheduler.touch(fixture.service.add("late", str(repository.path), {}).id)
        return wikis

    fixture.service.list_wikis = add_meanwhile  # type: ignore[method-assign]
    scheduler._discovery.scan()
    assert scheduler.get_counters().wikis == 1
