"""Many wikis without searches and without changes."""

import shutil
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.git_repository import Repository
from tests.support.tiers import choose
from tests.support.wait import wait_until
from tests.sync.scheduler_fixtures import SchedulerFixture
from wikiholt.git.source import GitSource
from wikiholt.index.rows import compute_row_checksum
from wikiholt.index.sqlite.connections import open_connection
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.index.sqlite.vector_file import read_vector_header
from wikiholt.index.sqlite.vectors import get_vector_path
from wikiholt.sync.scheduler import Scheduler

IDLE_WIKI_COUNT = choose(2000, 150)


class IdleWikis:
    """Thousands of indexed wikis: copies of one repository and of one index."""

    def __init__(self, fixture: SchedulerFixture, count: int) -> None:
        self.fixture = fixture
        self.slugs = [f"w{number:05}" for number in range(count)]
        original = Repository(fixture.data.parent / "original")
        original.commit({"A.md": "# A\n\nIdle pages.\n"})
        bare = fixture.data.parent / "bare"
        original.run_git("clone", "--quiet", "--bare", "--template=", ".", str(bare))
        fixture.service.add("first", str(bare), {})
        fixture.service.get_handle("first").sync()
        fixture.service.close()
        index = fixture.store.get_directory(fixture.get_wiki_id("first"))
        sources = {slug: self._copy_wiki(bare, slug) for slug in self.slugs}
        fixture.service.registry.add_many([(slug, str(path), {}) for slug, path in sources.items()])
        for wiki in fixture.service.registry.list_wikis():
            if wiki.slug != "first":
                shutil.copytree(index, fixture.store.get_directory(wiki.id))
                _set_owner(fixture.store.get_directory(wiki.id) / "g000001.sqlite", wiki.id)

    def _copy_wiki(self, bare: Path, slug: str) -> Path:
        copy = self.fixture.wikis / f"{slug}.git"
        shutil.copytree(bare, copy)
        return copy


def _set_owner(file: Path, wiki_id: str) -> None:
    """Set the owner of a copied index to this wiki."""
    with closing(open_connection(file)) as db:
        db.execute("UPDATE owner SET wiki_id = ?, checksum = ?", (wiki_id, compute_row_checksum((wiki_id,))))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    vectors = get_vector_path(file, 1)
    header = replace(read_vector_header(vectors), wiki_id=wiki_id).encode()
    with vectors.open("r+b") as opened:
        opened.write(header)


@pytest.mark.slow
def test_thousands_of_idle_wikis_start_no_process_and_open_no_index(
    fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_wikis = IdleWikis(fixture, IDLE_WIKI_COUNT)
    started: list[Any] = []
    opened: list[str] = []
    popen, real_open = subprocess.Popen.__init__, SqliteStore.open

    def recording_popen(self: Any, *arguments: Any, **options: Any) -> None:
        if str(fixture.wikis) in str((arguments, options)):  # ignore threads that other tests have left running
            started.append(arguments)
        popen(self, *arguments, **options)

    def recording_open(self: SqliteStore, wiki_id: str) -> Any:
        if self is fixture.store:  # ignore threads that other tests have left running
            opened.append(wiki_id)
        return real_open(self, wiki_id)

    monkeypatch.setattr(subprocess.Popen, "__init__", recording_popen)
    monkeypatch.setattr(SqliteStore, "open", recording_open)
    scheduler = fixture.make_scheduler(workers=2, interval=1.0)
    assert fixture.can_find(idle_wikis.slugs[-1], "idle pages", "A")  # immediately, regardless of the number of wikis
    wait_until(lambda: scheduler.get_counters().head_checks >= IDLE_WIKI_COUNT + 1)
    wait_until(lambda: all(entry.revision for entry in scheduler._state.list_entries()))
    assert not started
    # A check that raced with the search above is repeated. After that no index is opened.
    assert len(opened) <= IDLE_WIKI_COUNT + 5
    assert any(_run_idle_round(scheduler, opened) for _ in range(3)), opened
    assert not started
    assert scheduler.get_counters().syncs == 0


def _run_idle_round(scheduler: Scheduler, opened: list[str]) -> bool:
    """Whether every wiki is checked about twice without opening an index."""
    opened.clear()
    looks = scheduler.get_counters().head_checks
    wait_until(lambda: scheduler.get_counters().head_checks >= looks + 2 * IDLE_WIKI_COUNT)
    return not opened


@pytest.fixture
def complete_checks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of the repositories that get a complete check. All files look as if they were at rest."""
    real_time, check, paths = time.time_ns, GitSource.get_head_and_probe, list[Path]()

    def record(self: GitSource) -> Any:
        paths.append(self._path)
        return check(self)

    monkeypatch.setattr(time, "time_ns", lambda: real_time() + 10_000_000_000)
    monkeypatch.setattr(GitSource, "get_head_and_probe", record)
    return paths


def wait_for_rest(scheduler: Scheduler, complete_checks: list[Path], slug: str = "wiki") -> None:
    """Wait until the wiki is synced and its checks are no longer complete ones."""
    wait_until(lambda: any(entry.revision for entry in scheduler._state.list_entries()))

    def is_resting() -> bool:
        complete_checks.clear()
        done = scheduler.get_counters().head_checks
        wait_until(lambda: scheduler.get_counters().head_checks >= done + 3)
        return not any(path.name == slug for path in complete_checks)

    wait_until(is_resting)


def test_a_commit_without_a_hook_is_noticed_in_a_wiki_at_rest(
    fixture: SchedulerFixture, complete_checks: list[Path]
) -> None:
    repository = fixture.create_repository("wiki", {"A.md": "# A\n\nIdle pages.\n"})
    scheduler = fixture.make_scheduler(interval=0.02)
    wait_for_rest(scheduler, complete_checks)
    repository.commit({"B.md": "# B\n\nUnexpected giraffe.\n"})
    wait_until(lambda: fixture.can_find("wiki", "unexpected giraffe", "B"))
    wait_for_rest(scheduler, complete_checks)
    state = scheduler._state.get(fixture.get_wiki_id("wiki"))
    assert state is not None
    assert state.revision == repository.get_head()


def test_a_repository_that_disappears_is_reported_in_a_wiki_at_rest(
    fixture: SchedulerFixture, complete_checks: list[Path]
) -> None:
    repository = fixture.create_repository("wiki", {"A.md": "# A\n\nIdle pages.\n"})
    scheduler = fixture.make_scheduler(interval=0.02)
    wait_for_rest(scheduler, complete_checks)
    wiki_id, away = fixture.get_wiki_id("wiki"), fixture.data.parent / "away"
    repository.path.rename(away)
    wait_until(lambda: scheduler.get_sync_state(wiki_id).missing)
    assert fixture.can_find("wiki", "idle pages", "A"), "its index keeps answering"
    away.rename(repository.path)
    wait_until(lambda: not scheduler.get_sync_state(wiki_id).missing)


def test_a_broken_head_is_reported_in_a_wiki_at_rest(fixture: SchedulerFixture, complete_checks: list[Path]) -> None:
    repository = fixture.create_repository("wiki", {"A.md": "# A\n\nIdle pages.\n"})
    scheduler = fixture.make_scheduler(interval=0.02)
    wait_for_rest(scheduler, complete_checks)
    (repository.path / ".git" / "refs" / "heads" / "main").write_bytes(b"")
    wait_until(lambda: scheduler.get_sync_state(fixture.get_wiki_id("wiki")).failures)
    assert fixture.can_find("wiki", "idle pages", "A"), "its index keeps answering"


def test_an_index_that_another_process_changed_is_noticed_in_a_wiki_at_rest(
    fixture: SchedulerFixture, complete_checks: list[Path]
) -> None:
    fixture.create_repository("wiki", {"A.md": "# A\n\nIdle pages.\n"})
    scheduler = fixture.make_scheduler(interval=0.02)
    wait_for_rest(scheduler, complete_checks)
    entry = scheduler._state.get(fixture.get_wiki_id("wiki"))
    assert entry is not None
    token = entry.change_token
    index = fixture.store.get_directory(entry.wiki.id) / "g000001.sqlite"
    shutil.copy2(index, index.with_suffix(".copy"))  # the same size, time and bytes, but another inode
    index.with_suffix(".copy").replace(index)
    wait_until(lambda: entry.change_token not in ("", token) and entry.revision is not None)
