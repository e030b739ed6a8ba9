"""Locks for writers of a repository, and the write journal from which the next writer finishes an interrupted write."""

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
from wikiholt.regular_files import open_regular, read_regular, write_atomically

_LOCK_POLL_INTERVAL_S = 0.01
_CLAIM_CONTENT = b"wikiholt\n"


@contextmanager
def lock_file(file: Path, deadline: float) -> Iterator[None]:
    """Hold an exclusive lock on this file across threads and processes; the kernel releases it if the process dies.

    Raises Busy at the deadline.
    """
    try:
        descriptor = open_regular(file, os.O_RDWR | os.O_CREAT, 0o666)
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
    """Hold git's own lock on the index. Raises Busy if another git process still holds it at the deadline."""
    lock, claim = git_dir / "index.lock", git_dir / "wikiholt.claim"
    try:
        claim.unlink(missing_ok=True)
        with claim.open("xb") as out:  # creates the file, and follows no link
            out.write(_CLAIM_CONTENT)
        while True:
            try:
                # A hard link appears together with its content: a lock without this content is not Wikiholt's.
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
    """Remove the index lock of a killed Wikiholt writer. Requires the writer lock."""
    lock = git_dir / "index.lock"
    with suppress(OSError):
        if read_regular(lock) == _CLAIM_CONTENT:
            lock.unlink()


def _wait_for_lock(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Busy("Another process is writing to the repository.", hint="Try again in a moment.")
    time.sleep(_LOCK_POLL_INTERVAL_S)


@contextmanager
def translate_write_errors(place: str = "repository") -> Iterator[None]:
    """Translate an OSError (disk full, permission denied) into NotWritable."""
    try:
        yield
    except OSError as error:
        raise _make_write_error(error, place) from error


def _make_write_error(error: OSError, place: str = "repository") -> NotWritable:
    return NotWritable(
        f"The {place} cannot be written: {error.strerror or 'unknown error'}.",
        hint="Check the free disk space, and that the user who runs wikiholt may write to it.",
    )


# The write journal: a file in the git directory that describes the commit in progress. It exists from before the branch
# moves until the work tree is updated. Using it requires the writer lock, so an existing journal is a dead writer's.

_JOURNAL_FILE = "wikiholt.pending"
_MAX_JOURNAL_BYTES = 64 * 1024 * 1024
# Git holds branch locks for milliseconds. A lock created right after a dead writer's journal belongs to that writer's
# git process, which was killed with it unless it is just finishing.
_SAME_WRITER_WINDOW_S = 5.0
_DEAD_LOCK_AGE_S = 5.0


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One file of a commit, by path from the repository root: its old and its new entry."""

    path: str
    old: GitEntry | None
    new: GitEntry | None
    data: bytes | None = None


def has_unfinished_write(git_dir: Path) -> bool:
    """Whether a write may need to be finished; cheap."""
    return (git_dir / _JOURNAL_FILE).exists() or (git_dir / "index.lock").exists()


class WriteJournal:
    """The write journal of one repository."""

    def __init__(self, git_dir: Path, common_dir: Path) -> None:
        self._git_dir = git_dir
        self._common_dir = common_dir
        self._file = git_dir / _JOURNAL_FILE

    def write(self, commit: str, changes: Sequence[PlannedChange]) -> None:
        """Record durably that HEAD is about to move to this commit."""
        files = [
            {"path": change.path, "old": _encode_entry(change.old), "new": _encode_entry(change.new)}
            for change in changes
        ]
        record = json.dumps({"commit": commit, "files": files}).encode()
        write_atomically(self._file, self._file.with_suffix(".new"), record)

    def read(self) -> tuple[str, list[PlannedChange]] | None:
        """The commit and its files, or None when there is no valid journal."""
        try:
            record = json.loads(read_regular(self._file, _MAX_JOURNAL_BYTES))
            files = [
                PlannedChange(str(entry["path"]), _decode_entry(entry["old"]), _decode_entry(entry["new"]))
                for entry in record["files"]
            ]
            return str(record["commit"]), files
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)

    def release_locks(self, branch: str) -> None:
        """Remove locks on the index and the branch that a dead Wikiholt writer, or its git process, left behind."""
        release_stale_lock(self._git_dir)
        with suppress(OSError):
            journal_time = self._file.stat().st_mtime
            for lock in (self._common_dir / f"{branch}.lock", self._git_dir / "HEAD.lock"):
                with suppress(OSError):
                    lock_time = lock.stat().st_mtime
                    if 0 <= lock_time - journal_time < _SAME_WRITER_WINDOW_S:
                        time.sleep(max(0.0, min(_DEAD_LOCK_AGE_S, lock_time + _DEAD_LOCK_AGE_S - time.time())))
                        if lock.stat().st_mtime == lock_time:
                            lock.unlink()


def _encode_entry(entry: GitEntry | None) -> list[str] | None:
    return [entry.mode, entry.object_id] if entry else None


def _decode_entry(fields: list[str] | None) -> GitEntry | None:
    return GitEntry(str(fields[0]), str(fields[1])) if fields else None
