"""Reindexing as a job: one at a time, beside the index that answers, and over the death of a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from keeper_ground import Ground, WatchedEmbedder, many, until

from wikiholt.errors import Busy
from wikiholt.keeper import JobState
from wikiholt.keeper.jobs import Job, read_job, write_job
from wikiholt.stores.sqlite.store import SqliteStore

HERE = Path(__file__).parent


@contextmanager
def process(directory: Path, seconds: float, *slugs: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A keeper over the same directories, in a process of its own."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "sources")])
    command = [sys.executable, str(HERE / "keeper_process.py"), str(directory), str(seconds), *slugs]
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"begun\n"
            yield running
        finally:
            running.kill()


def test_reindexing_is_refused_while_it_runs_and_told_when_done(ground: Ground) -> None:
    embedder = WatchedEmbedder()
    ground.embedder = embedder
    ground.repository("garden", many(100, "garden"))
    (wiki,) = ground.registered("garden")
    keeper = ground.keeper()
    assert keeper.fresh(wiki, 60)
    assert keeper.job(wiki) == Job()
    gate = embedder.hold("garden text 60")
    began = keeper.reindex(wiki)
    assert embedder.reached.wait(60)
    with pytest.raises(Busy):
        keeper.reindex(wiki)
    assert keeper.job(wiki).id == began.id
    assert keeper.job(wiki).state is JobState.RUNNING
    assert ground.finds("garden", "garden text 7", "garden-0007")
    gate.set()
    until(lambda: not keeper.job(wiki).open)
    done = keeper.job(wiki)
    assert (done.state, done.pages_done, done.pages_total, done.chunks_embedded) == (JobState.COMPLETE, 100, 100, 100)
    assert len(embedder.embedded) == 200
    assert ground.service.wiki("garden").status().state.generation == 2  # type: ignore[union-attr]
    assert keeper.reindex(wiki).id != began.id


def test_a_commit_made_during_a_reindexing_is_searchable_before_it_ends(ground: Ground) -> None:
    ground.embedder = WatchedEmbedder(seconds=0.05)
    repository = ground.repository("garden", many(1000, "garden"))
    (wiki,) = ground.registered("garden")
    keeper = ground.keeper(interval=3600.0)
    assert keeper.fresh(wiki, 60)
    keeper.reindex(wiki)
    until(lambda: keeper.job(wiki).state is JobState.RUNNING)
    repository.commit({"New.md": "# New\n\nwritten meanwhile\n"})
    assert keeper.fresh(wiki, 60)
    assert keeper.job(wiki).open
    assert ground.finds("garden", "written meanwhile", "New")
    until(lambda: not keeper.job(wiki).open)
    assert keeper.job(wiki).state is JobState.COMPLETE
    assert ground.finds("garden", "written meanwhile", "New")
    assert ground.service.wiki("garden").status().state.pages == 1001  # type: ignore[union-attr]


def test_a_reindexing_that_fails_says_why_and_the_old_index_answers(ground: Ground) -> None:
    repository = ground.repository("garden", many(3, "garden"))
    (wiki,) = ground.registered("garden")
    keeper = ground.keeper()
    assert keeper.fresh(wiki, 60)
    repository.path.rename(ground.data.parent / "gone")
    keeper.reindex(wiki)
    until(lambda: not keeper.job(wiki).open)
    failed = keeper.job(wiki)
    assert (failed.state, failed.error_code) == (JobState.FAILED, "source-missing")
    assert str(ground.wikis) not in failed.error
    assert ground.finds("garden", "garden text 1", "garden-0001")


def test_a_reindexing_whose_process_was_killed_is_gone_on_with_and_says_so(ground: Ground) -> None:
    ground.repository("garden", many(600, "garden"))
    (wiki,) = ground.registered("garden")
    ground.service.wiki("garden").sync()
    with process(ground.data.parent, 0.1, "garden") as running:
        until(lambda: read_job(ground.store, wiki).pages_done >= 100)
        running.kill()
        running.wait()
    left = read_job(ground.store, wiki)
    assert left.state is JobState.RUNNING
    assert 100 <= left.pages_done < 600
    assert ground.finds("garden", "garden text 7", "garden-0007")
    embedder = ground.embedder
    embedder.embedded.clear()
    keeper = ground.keeper()
    until(lambda: not keeper.job(wiki).open)
    done = keeper.job(wiki)
    assert (done.state, done.id, done.resumed) == (JobState.COMPLETE, left.id, 1)
    assert (done.pages_done, done.pages_total) == (600, 600)
    assert 0 < len(embedder.embedded) <= 600 - left.pages_done
    assert ground.service.wiki("garden").check() == []
    assert ground.service.wiki("garden").status().state.generation == 2  # type: ignore[union-attr]


def test_two_processes_on_one_data_directory_do_not_harm_each_other(ground: Ground) -> None:
    ground.embedder = WatchedEmbedder(seconds=0.02)
    repositories = {slug: ground.repository(slug, many(300, slug)) for slug in ("north", "south", "west")}
    with process(ground.data.parent, 0.02):
        keeper = ground.keeper(workers=2)
        until(lambda: len(ground.service.registry.list()) == 3)
        for slug, repository in repositories.items():
            head = repository.head()
            until(lambda slug=slug, head=head: ground.service.wiki(slug).settled_at() == head)
        assert sorted(wiki.slug for wiki in ground.service.registry.list()) == ["north", "south", "west"]
        for number in range(3):
            for slug, repository in repositories.items():
                repository.commit({f"New-{number}.md": f"# New\n\nnumber {number}\n"})
                assert keeper.fresh(ground.id(slug), 60)
        assert keeper.counters().failures == 0
    for slug in repositories:
        assert ground.service.wiki(slug).check() == []
        assert ground.service.wiki(slug).status().state.pages == 303  # type: ignore[union-attr]


def test_another_writer_is_waited_for_and_is_no_failure(ground: Ground) -> None:
    ground.repository("garden", many(3, "garden"))
    (wiki,) = ground.registered("garden")
    with ground.store.writing(wiki, 1.0):
        keeper = ground.keeper()
        until(lambda: keeper._entry(wiki).postponed is not None)
        assert keeper.counters().failures == 0
    until(lambda: ground.finds("garden", "garden text 1", "garden-0001"))
    assert keeper.counters().failures == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "odd"}', '{"state": "running", "started_at": 5}', "\0"])
def test_a_job_file_that_cannot_be_read_counts_as_none_and_is_replaced(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    directory = store.directory("somewikiid")
    directory.mkdir()
    (directory / "reindex.json").write_text(text)
    assert read_job(store, directory.name) == Job()
    write_job(store, directory.name, Job(JobState.QUEUED, "abc"))
    assert read_job(store, directory.name) == Job(JobState.QUEUED, "abc")
    assert [file.name for file in directory.iterdir()] == ["reindex.json"]


def test_a_job_brings_no_removed_wiki_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    write_job(store, "somewikiid", Job(JobState.COMPLETE, "abc"))
    assert not store.holds("somewikiid")
    write_job(store, "somewikiid", Job(JobState.COMPLETE, "abc"), make=True)
    assert store.holds("somewikiid")
