"""Locks on a repository: one of our own among writers, and git's on the index of a work tree."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wikiholt.errors import Busy, NotWritable

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
