"""Writers in several processes, and writers that are killed at random times."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.support.fork_server import ForkedPopen
from tests.support.git_repository import Repository, limit_lock_wait
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import Busy
from wikiholt.git.source import GitSource

_WRITER = """
import sys
from pathlib import Path
from wikiholt.domain.git import Author, FileEdit
from wikiholt.git.source import GitSource
source, name, rounds = GitSource(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for number in range(rounds):
    entry = source.find_file(name, source.get_head())
    edits = [FileEdit(name, f"{number}".encode(), entry.blob if entry else None)]
    if name == "shared.md":
        from wikiholt.errors import RevisionMismatch
        while True:
            entry = source.find_file(name, source.get_head())
            count = int(next(iter(source.read_blobs([entry.blob], 99))).data)
            try:
                source.commit([FileEdit(name, str(count + 1).encode(), entry.blob)], Author("A", "a"), "count")
                break
            except RevisionMismatch:
                continue
    else:
        source.commit(edits, Author("A", "a"), "write")
"""


_WRITER_COUNT, _ROUNDS_PER_WRITER = 4, choose(6, 3)


def start_writer(repository: Repository, name: str, rounds: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _WRITER, str(repository.path), name, str(rounds)]
    return ForkedPopen(command, stdout=subprocess.PIPE, start_new_session=True)


@pytest.mark.parametrize("options", [(), ("--bare",)])
def test_processes_that_count_in_one_page_lose_no_count(
    make_repository: Callable[..., Repository], options: list[str]
) -> None:
    repository = make_repository("wiki", *options)
    source = GitSource(repository.path)
    source.commit([FileEdit("shared.md", b"0", None)], Author("A", "a"), "Begin")
    processes = [start_writer(repository, "shared.md", _ROUNDS_PER_WRITER) for _ in range(_WRITER_COUNT)]
    for process in processes:
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
    count = _WRITER_COUNT * _ROUNDS_PER_WRITER
    assert repository.run_git("show", "HEAD:shared.md") == str(count).encode()
    assert len(source.read_log(100)) == count + 1
    if not options:
        assert repository.run_git("status", "--porcelain") == b""


@pytest.mark.parametrize("options", [(), ("--bare",)])
def test_a_writer_killed_at_any_time_leaves_the_old_or_the_new_commit(
    make_repository: Callable[..., Repository], options: list[str]
) -> None:
    repository = make_repository("wiki", *options)
    source = GitSource(repository.path)
    source.commit([FileEdit("a.md", b"start", None)], Author("A", "a"), "Begin")
    chance = random.Random(7)
    for _ in range(choose(8, 3)):
        process = start_writer(repository, "a.md", 10_000)
        assert process.stdout is not None
        process.stdout.readline()
        before = source.get_head()
        wait_until(lambda before=before: source.get_head() != before)  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.06))  # the time of the kill, not a wait for a condition
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        head = source.get_head()
        assert repository.run_git("cat-file", "-t", head) == b"commit"
        entry = source.find_file("a.md", head)
        assert entry is not None
        revision = source.commit([FileEdit("a.md", b"after the kill", entry.blob)], Author("A", "a"), "Again")
        assert source.read_history("a.md", 1)[0].revision == revision
        assert repository.run_git("rev-parse", "HEAD^") == head.encode()
        if not options:
            assert repository.run_git("status", "--porcelain", "--untracked-files=no") == b""
    assert repository.run_git("fsck", "--full", "--strict", "--no-dangling") == b""


@pytest.mark.parametrize("options", [(), ("--bare",)])
def test_only_locks_left_by_a_killed_writer_are_removed(
    make_repository: Callable[..., Repository], options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository("wiki", *options)
    source = GitSource(repository.path)
    source.commit([FileEdit("a.md", b"a", None)], Author("A", "a"), "Begin")
    git_dir = repository.path if options else repository.path / ".git"
    locks = [git_dir / "refs/heads/main.lock", git_dir / "HEAD.lock"]
    note = git_dir / "wikiholt.pending"
    for file in [note, *locks]:
        file.write_text("")
        os.utime(file, (1_700_000_000, 1_700_000_000))
    source.commit([FileEdit("b.md", b"b", None)], Author("A", "a"), "After")
    assert not any(file.exists() for file in [note, *locks])
    locks[0].write_text("")
    with limit_lock_wait(monkeypatch, 0.5), pytest.raises(Busy):
        source.commit([FileEdit("c.md", b"c", None)], Author("A", "a"), "Held by somebody else")
    assert locks[0].exists()
