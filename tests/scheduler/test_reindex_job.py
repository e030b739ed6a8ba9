"""Reindexing as a job: one at a time, beside the index that answers, and over the death of a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture, make_pages, wait_until
from tests.support.paths import PYTHON_PATH
from wikiholt.errors import Busy
from wikiholt.scheduler.reindex_job import ReindexJob, ReindexState, read_job, write_job
from wikiholt.storage.sqlite.store import SqliteStore


@contextmanager
def run_scheduler_process(directory: Path, seconds: float, *slugs: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A keeper over the same directories, in a process of its own."""
    command = [sys.executable, "-m", "tests.scheduler.scheduler_process", str(directory), str(seconds), *slugs]
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"begun\n"
            yield running
        finally:
            running.kill()


def test_reindexing_is_refused_while_it_runs_and_told_when_done(ground: SchedulerFixture) -> None:
    embedder = RecordingEmbedder()
    ground.embedder = embedder
    ground.create_repository("garden", make_pages(100, "garden"))
    (wiki,) = ground.register_wikis("garden")
    keeper = ground.make_scheduler()
    assert keeper.wait_until_fresh(wiki, 60)
    assert keeper.get_reindex_job(wiki) == ReindexJob()
    gate = embedder.block("garden text 60")
    began = keeper.reindex(wiki)
    assert embedder.reached.wait(60)
    with pytest.raises(Busy):
        keeper.reindex(wiki)
    assert keeper.get_reindex_job(wiki).id == began.id
    assert keeper.get_reindex_job(wiki).state is ReindexState.RUNNING
    assert ground.can_find("garden", "garden text 7", "garden-0007")
    gate.set()
    wait_until(lambda: not keeper.get_reindex_job(wiki).is_open)
    done = keeper.get_reindex_job(wiki)
    assert (done.state, done.pages_done, done.pages_total, done.chunks_embedded) == (
        ReindexState.COMPLETE,
        100,
        100,
        100,
    )
    assert len(embedder.embedded) == 200
    assert ground.service.get_handle("garden").get_status().state.generation == 2  # type: ignore[union-attr]
    assert keeper.reindex(wiki).id != began.id


@pytest.mark.slow
def test_a_commit_made_during_a_reindexing_is_searchable_before_it_ends(ground: SchedulerFixture) -> None:
    ground.embedder = RecordingEmbedder(seconds=0.05)
    repository = ground.create_repository("garden", make_pages(1000, "garden"))
    (wiki,) = ground.register_wikis("garden")
    keeper = ground.make_scheduler(interval=3600.0)
    assert keeper.wait_until_fresh(wiki, 60)
    keeper.reindex(wiki)
    wait_until(lambda: keeper.get_reindex_job(wiki).state is ReindexState.RUNNING)
    repository.commit({"New.md": "# New\n\nwritten meanwhile\n"})
    assert keeper.wait_until_fresh(wiki, 60)
    assert keeper.get_reindex_job(wiki).is_open
    assert ground.can_find("garden", "written meanwhile", "New")
    wait_until(lambda: not keeper.get_reindex_job(wiki).is_open)
    assert keeper.get_reindex_job(wiki).state is ReindexState.COMPLETE
    assert ground.can_find("garden", "written meanwhile", "New")
    assert ground.service.get_handle("garden").get_status().state.pages == 1001  # type: ignore[union-attr]


def test_a_reindexing_that_fails_says_why_and_the_old_index_answers(ground: SchedulerFixture) -> None:
    repository = ground.create_repository("garden", make_pages(3, "garden"))
    (wiki,) = ground.register_wikis("garden")
    keeper = ground.make_scheduler()
    assert keeper.wait_until_fresh(wiki, 60)
    repository.path.rename(ground.data.parent / "gone")
    keeper.reindex(wiki)
    wait_until(lambda: not keeper.get_reindex_job(wiki).is_open)
    failed = keeper.get_reindex_job(wiki)
    assert (failed.state, failed.error_code) == (ReindexState.FAILED, "source-missing")
    assert str(ground.wikis) not in failed.error
    assert ground.can_find("garden", "garden text 1", "garden-0001")


@pytest.mark.process
def test_a_reindexing_whose_process_was_killed_is_gone_on_with_and_says_so(ground: SchedulerFixture) -> None:
    ground.create_repository("garden", make_pages(600, "garden"))
    (wiki,) = ground.register_wikis("garden")
    ground.service.get_handle("garden").sync()
    with run_scheduler_process(ground.data.parent, 0.1, "garden") as running:
        wait_until(lambda: read_job(ground.store, wiki).pages_done >= 100)
        running.kill()
        running.wait()
    left = read_job(ground.store, wiki)
    assert left.state is ReindexState.RUNNING
    assert 100 <= left.pages_done < 600
    assert ground.can_find("garden", "garden text 7", "garden-0007")
    embedder = ground.embedder
    embedder.embedded.clear()
    keeper = ground.make_scheduler()
    wait_until(lambda: not keeper.get_reindex_job(wiki).is_open)
    done = keeper.get_reindex_job(wiki)
    assert (done.state, done.id, done.resumed) == (ReindexState.COMPLETE, left.id, 1)
    assert (done.pages_done, done.pages_total) == (600, 600)
    assert 0 < len(embedder.embedded) <= 600 - left.pages_done
    assert ground.service.get_handle("garden").check() == []
    assert ground.service.get_handle("garden").get_status().state.generation == 2  # type: ignore[union-attr]


@pytest.mark.process
def test_two_processes_on_one_data_directory_do_not_harm_each_other(ground: SchedulerFixture) -> None:
    ground.embedder = RecordingEmbedder(seconds=0.02)
    repositories = {slug: ground.create_repository(slug, make_pages(300, slug)) for slug in ("north", "south", "west")}
    with run_scheduler_process(ground.data.parent, 0.02):
        keeper = ground.make_scheduler(workers=2)
        wait_until(lambda: len(ground.service.registry.list_wikis()) == 3)
        for slug, repository in repositories.items():
            head = repository.get_head()
            wait_until(lambda slug=slug, head=head: ground.service.get_handle(slug).get_indexed_revision() == head)
        assert sorted(wiki.slug for wiki in ground.service.registry.list_wikis()) == ["north", "south", "west"]
        for number in range(3):
            for slug, repository in repositories.items():
                repository.commit({f"New-{number}.md": f"# New\n\nnumber {number}\n"})
                assert keeper.wait_until_fresh(ground.get_wiki_id(slug), 60)
        assert keeper.get_counters().failures == 0
    for slug in repositories:
        assert ground.service.get_handle(slug).check() == []
        assert ground.service.get_handle(slug).get_status().state.pages == 303  # type: ignore[union-attr]


def test_another_writer_is_waited_for_and_is_no_failure(ground: SchedulerFixture) -> None:
    ground.create_repository("garden", make_pages(3, "garden"))
    (wiki,) = ground.register_wikis("garden")
    with ground.store.write_lock(wiki, 1.0):
        keeper = ground.make_scheduler()
        wait_until(lambda: keeper._get_entry(wiki).retry_priority is not None)
        assert keeper.get_counters().failures == 0
    wait_until(lambda: ground.can_find("garden", "garden text 1", "garden-0001"))
    assert keeper.get_counters().failures == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "odd"}', '{"state": "running", "started_at": 5}', "\0"])
def test_a_job_file_that_cannot_be_read_counts_as_none_and_is_replaced(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    directory = store.get_directory("somewikiid")
    directory.mkdir()
    (directory / "reindex.json").write_text(text)
    assert read_job(store, directory.name) == ReindexJob()
    write_job(store, directory.name, ReindexJob(ReindexState.QUEUED, "abc"))
    assert read_job(store, directory.name) == ReindexJob(ReindexState.QUEUED, "abc")
    assert [file.name for file in directory.iterdir()] == ["reindex.json"]


def test_a_job_brings_no_removed_wiki_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    write_job(store, "somewikiid", ReindexJob(ReindexState.COMPLETE, "abc"))
    assert not store.exists("somewikiid")
    write_job(store, "somewikiid", ReindexJob(ReindexState.COMPLETE, "abc"), create=True)
    assert store.exists("somewikiid")
