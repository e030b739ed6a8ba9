"""Locks on a repository: one of our own among writers, and git's on the index of a work tree."""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import Busy, NotWritable
from wikiholt.git.tree_editor import GitEntry

_LOCK_POLL_INTERVAL_S = 0.01
_CLAIM_CONTENT = b"wikiholt\n"


@contextmanager
def lock_file(file: Path, deadline: float) -> Iterator[None]:
    """Hold the lock of this file across threads and processes; the kernel frees it, whatever happens."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _make_write_error(error) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _wait_for_lock(deadline)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_index(git_dir: Path, deadline: float) -> Iterator[None]:
    """Hold the lock that git itself takes before it changes the index; raises Busy while another git has it."""
    lock, claim = git_dir / "index.lock", git_dir / "wikiholt.claim"
    try:
        claim.write_bytes(_CLAIM_CONTENT)
        while True:
            try:
                # A link comes into being with its content: a lock without our mark is never ours.
                os.link(claim, lock)
                break
            except FileExistsError:
                _wait_for_lock(deadline)
    except OSError as error:
        raise _make_write_error(error) from error
    finally:
        claim.unlink(missing_ok=True)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def release_stale_lock(git_dir: Path) -> None:
    """Take away a lock on the index that a writer of ours left when it was killed. For who holds the writers' lock."""
    lock = git_dir / "index.lock"
    with suppress(OSError):
        if lock.read_bytes() == _CLAIM_CONTENT:
            lock.unlink()


def _wait_for_lock(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Busy("Somebody else is writing to the repository.", hint="Try again in a moment.")
    time.sleep(_LOCK_POLL_INTERVAL_S)


@contextmanager
def translate_write_errors() -> Iterator[None]:
    """Say it in words when the system does not let the repository be written: a full disk, missing rights."""
    try:
        yield
    except OSError as error:
        raise _make_write_error(error) from error


def _make_write_error(error: OSError) -> NotWritable:
    return NotWritable(
        f"The repository cannot be written: {error.strerror or 'the system refuses'}.",
        hint="Check free disk space, and that the user who runs wikiholt may write to it.",
    )


# A note in the git directory of the commit that is just being made: what a killed writer leaves for the next one. It
# lies there from before the branch moves until the work tree has followed. All of this is for who holds the writers'
# lock: a note that is found then is one whose writer is dead.


_JOURNAL_FILE = "wikiholt.pending"
# Git holds the locks of a branch for milliseconds. One made right after a dead writer's note is what that writer's git
# left when it was killed with it, unless it is still about to end by itself.
_SAME_WRITER_WINDOW_S = 5.0
_DEAD_LOCK_AGE_S = 5.0


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One file of a commit, named from the top of the repository: what it was and what it becomes."""

    path: str
    old: GitEntry | None
    new: GitEntry | None
    data: bytes | None = None


def has_unfinished_write(git_dir: Path) -> bool:
    """Whether there may be something to finish; cheap."""
    return (git_dir / _JOURNAL_FILE).exists() or (git_dir / "index.lock").exists()


class WriteJournal:
    """The note of one repository."""

    def __init__(self, git_dir: Path, common_dir: Path) -> None:
        self._git_dir = git_dir
        self._common_dir = common_dir
        self._file = git_dir / _JOURNAL_FILE

    def write(self, commit: str, changes: Sequence[PlannedChange]) -> None:
        """Note, for good, that this commit is about to be made HEAD."""
        files = [
            {"path": change.path, "old": _encode_entry(change.old), "new": _encode_entry(change.new)}
            for change in changes
        ]
        fresh = self._file.with_suffix(".new")
        with fresh.open("w") as out:
            json.dump({"commit": commit, "files": files}, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._file)

    def read(self) -> tuple[str, list[PlannedChange]] | None:
        """The commit and its files, or None when there is no note, or none that makes sense."""
        try:
            note = json.loads(self._file.read_text())
            files = [
                PlannedChange(str(each["path"]), _decode_entry(each["old"]), _decode_entry(each["new"]))
                for each in note["files"]
            ]
            return str(note["commit"]), files
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)

    def release_locks(self, branch: str) -> None:
        """Take away the locks that a dead writer of ours, or its git, holds on the index and the branch."""
        release_stale_lock(self._git_dir)
        with suppress(OSError):
            noted = self._file.stat().st_mtime
            for lock in (self._common_dir / f"{branch}.lock", self._git_dir / "HEAD.lock"):
                with suppress(OSError):
                    made = lock.stat().st_mtime
                    if 0 <= made - noted < _SAME_WRITER_WINDOW_S:
                        time.sleep(max(0.0, min(_DEAD_LOCK_AGE_S, made + _DEAD_LOCK_AGE_S - time.time())))
                        if lock.stat().st_mtime == made:
                            lock.unlink()


def _encode_entry(entry: GitEntry | None) -> list[str] | None:
    return [entry.mode, entry.object_id] if entry else None


def _decode_entry(fields: list[str] | None) -> GitEntry | None:
    return GitEntry(str(fields[0]), str(fields[1])) if fields else None
