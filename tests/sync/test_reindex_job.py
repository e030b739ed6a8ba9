"""Reindex jobs: one at a time, while the old index answers, resumed after a killed process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fork_server import ForkedPopen
from tests.support.paths import PYTHON_PATH
from tests.support.wait import TIMEOUT_S, wait_until
from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages
from wikiholt.errors import Busy
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.sync.reindex_job import ReindexJob, ReindexState, read_job, write_job


@contextmanager
def run_scheduler_process(directory: Path, seconds: float, *reindexed: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a scheduler on the same directories in a separate process."""
    command = [sys.executable, "-m", "tests.sync.scheduler_process", str(directory), str(seconds), *reindexed]
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    with ForkedPopen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"begun\n"
            yield running
        finally:
            running.kill()


def test_a_second_reindex_is_refused_while_one_runs_and_the_result_is_reported(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    fixture.embedder = embedder
    fixture.create_repository("garden", make_pages(100, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    scheduler = fixture.make_scheduler()
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    assert scheduler.get_reindex_job(wiki) == ReindexJob()
    gate = embedder.block("garden text 60")
    started = scheduler.reindex(wiki)
    assert embedder.reached.wait(TIMEOUT_S)
    with pytest.raises(Busy):
        scheduler.reindex(wiki)
    assert scheduler.get_reindex_job(wiki).id == started.id
    assert scheduler.get_reindex_job(wiki).state is ReindexState.RUNNING
    assert fixture.can_find("garden", "garden text 7", "garden-0007")
    gate.set()
    wait_until(lambda: not scheduler.get_reindex_job(wiki).is_open)
    done = scheduler.get_reindex_job(wiki)
    assert (done.state, done.pages_done, done.pages_total, done.chunks_embedded) == (
        ReindexState.COMPLETE,
        100,
        100,
        100,
    )
    assert len(embedder.embedded) == 200
    assert fixture.service.get_handle("garden").get_status().state.generation == 2  # type: ignore[union-attr]
    assert scheduler.reindex(wiki).id != started.id


@pytest.mark.slow
def test_a_commit_made_during_a_reindex_is_searchable_before_it_ends(fixture: SchedulerFixture) -> None:
    embedder = RecordingEmbedder(seconds=0.05)
    fixture.embedder = embedder
    repository = fixture.create_repository("garden", make_pages(400, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    scheduler = fixture.make_scheduler(interval=3600.0)
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    middle, end = embedder.block("garden text 100"), embedder.block("garden text 390")
    scheduler.reindex(wiki)
    assert embedder.reached.wait(TIMEOUT_S)
    repository.commit({"New.md": "# New\n\nwritten meanwhile\n"})
    with ThreadPoolExecutor(1) as pool:
        fresh = pool.submit(scheduler.wait_until_fresh, wiki, TIMEOUT_S)
        wait_until(lambda: scheduler._get_entry(wiki).rerun_priority is not None)
        middle.set()
        assert fresh.result()
    assert scheduler.get_reindex_job(wiki).is_open
    assert fixture.can_find("garden", "written meanwhile", "New")
    end.set()
    wait_until(lambda: not scheduler.get_reindex_job(wiki).is_open)
    assert scheduler.get_reindex_job(wiki).state is ReindexState.COMPLETE
    assert fixture.can_find("garden", "written meanwhile", "New")
    assert fixture.service.get_handle("garden").get_status().state.pages == 401  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("files", "pages", "embedded"),
    [({"New.md": "# New\n\nwritten meanwhile\n"}, 56, 56), ({"garden-0003.md": None}, 54, 55)],
    ids=["written", "deleted"],
)
def test_a_reindex_reports_the_entire_wiki_if_a_page_changes_meanwhile(
    fixture: SchedulerFixture, files: dict[str, str | bytes | None], pages: int, embedded: int
) -> None:
    fixture.embedder = RecordingEmbedder()
    repository = fixture.create_repository("garden", make_pages(55, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    scheduler = fixture.make_scheduler(interval=3600.0)
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    gate = fixture.embedder.block("garden text 54")
    scheduler.reindex(wiki)
    assert fixture.embedder.reached.wait(TIMEOUT_S)
    repository.commit(files)
    gate.set()
    wait_until(lambda: not scheduler.get_reindex_job(wiki).is_open)
    done = scheduler.get_reindex_job(wiki)
    assert (done.state, done.revision) == (ReindexState.COMPLETE, repository.get_head())
    assert (done.pages_done, done.pages_total, done.chunks_embedded) == (pages, pages, embedded)


def test_a_failed_reindex_reports_its_error_and_the_old_index_answers(fixture: SchedulerFixture) -> None:
    repository = fixture.create_repository("garden", make_pages(3, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    scheduler = fixture.make_scheduler()
    assert scheduler.wait_until_fresh(wiki, TIMEOUT_S)
    repository.path.rename(fixture.data.parent / "gone")
    scheduler.reindex(wiki)
    wait_until(lambda: not scheduler.get_reindex_job(wiki).is_open)
    failed = scheduler.get_reindex_job(wiki)
    assert (failed.state, failed.error_code) == (ReindexState.FAILED, "source-missing")
    assert str(fixture.wikis) not in failed.error
    assert fixture.can_find("garden", "garden text 1", "garden-0001")


@pytest.mark.process
def test_a_reindex_whose_process_was_killed_is_resumed_and_reports_it(fixture: SchedulerFixture) -> None:
    fixture.create_repository("garden", make_pages(600, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    fixture.service.get_handle("garden").sync()
    with run_scheduler_process(fixture.data.parent, 0.1, "garden", "garden text 500") as running:
        wait_until(lambda: read_job(fixture.store, wiki).pages_done >= 100)
        running.kill()
        running.wait()
    left = read_job(fixture.store, wiki)
    assert left.state is ReindexState.RUNNING
    assert 100 <= left.pages_done < 600
    assert fixture.can_find("garden", "garden text 7", "garden-0007")
    embedder = fixture.embedder
    embedder.embedded.clear()
    scheduler = fixture.make_scheduler()
    wait_until(lambda: not scheduler.get_reindex_job(wiki).is_open)
    done = scheduler.get_reindex_job(wiki)
    assert (done.state, done.id, done.resumed) == (ReindexState.COMPLETE, left.id, 1)
    assert (done.pages_done, done.pages_total) == (600, 600)
    assert 0 < len(embedder.embedded) <= 600 - left.pages_done
    assert fixture.service.get_handle("garden").check() == []
    assert fixture.service.get_handle("garden").get_status().state.generation == 2  # type: ignore[union-attr]


@pytest.mark.process
def test_two_processes_on_one_data_directory_sync_without_failures(fixture: SchedulerFixture) -> None:
    fixture.embedder = RecordingEmbedder(seconds=0.02)
    repositories = {slug: fixture.create_repository(slug, make_pages(300, slug)) for slug in ("north", "south", "west")}
    with run_scheduler_process(fixture.data.parent, 0.02):
        scheduler = fixture.make_scheduler(workers=2)
        wait_until(lambda: len(fixture.service.registry.list_wikis()) == 3)
        for slug, repository in repositories.items():
            head = repository.get_head()
            wait_until(lambda slug=slug, head=head: fixture.service.get_handle(slug).get_indexed_revision() == head)
        assert sorted(wiki.slug for wiki in fixture.service.registry.list_wikis()) == ["north", "south", "west"]
        for number in range(3):
            for slug, repository in repositories.items():
                repository.commit({f"New-{number}.md": f"# New\n\nnumber {number}\n"})
                assert scheduler.wait_until_fresh(fixture.get_wiki_id(slug), TIMEOUT_S)
        assert scheduler.get_counters().failures == 0
    for slug in repositories:
        assert fixture.service.get_handle(slug).check() == []
        assert fixture.service.get_handle(slug).get_status().state.pages == 303  # type: ignore[union-attr]


def test_waiting_for_another_writer_is_not_a_failure(fixture: SchedulerFixture) -> None:
    fixture.create_repository("garden", make_pages(3, "garden"))
    (wiki,) = fixture.register_wikis("garden")
    with fixture.store.write_lock(wiki, 1.0):
        scheduler = fixture.make_scheduler()
        wait_until(lambda: scheduler._get_entry(wiki).retry_priority is not None)
        assert scheduler.get_counters().failures == 0
    wait_until(lambda: fixture.can_find("garden", "garden text 1", "garden-0001"))
    assert scheduler.get_counters().failures == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "odd"}', '{"state": "running", "started_at": 5}', "\0"])
def test_an_invalid_job_file_is_ignored_and_replaced(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    directory = store.get_directory("somewikiid")
    directory.mkdir()
    (directory / "reindex.json").write_text(text)
    assert read_job(store, directory.name) == ReindexJob()
    write_job(store, directory.name, ReindexJob(ReindexState.QUEUED, "abc"))
    assert read_job(store, directory.name) == ReindexJob(ReindexState.QUEUED, "abc")
    assert [file.name for file in directory.iterdir()] == ["reindex.json"]


def test_writing_a_job_does_not_recreate_a_removed_wiki(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    write_job(store, "somewikiid", ReindexJob(ReindexState.COMPLETE, "abc"))
    assert not store.exists("somewikiid")
    write_job(store, "somewikiid", ReindexJob(ReindexState.COMPLETE, "abc"), create=True)
    assert store.exists("somewikiid")
