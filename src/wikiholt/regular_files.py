"""Files of our own that may not be files any more: opened without waiting, never through a link, and cleared away.

Where a file should be, damage or a mistake may have put a directory, a symbolic link or a named pipe. Whoever opens a
pipe to read waits for ever, and whoever writes through a link writes somewhere else.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

_READ_BYTES = 1 << 20
_IRREGULAR_ERRORS = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK}


class NotRegularFile(OSError):
    """Something that is not a regular file has its name."""

    def __init__(self, file: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(file))


def is_irregular(file: Path, *, follow: bool = False) -> bool:
    """Whether something other than a regular file has this name; with `follow` a link to a regular file is one."""
    try:
        return not stat.S_ISREG((os.stat if follow else os.lstat)(file).st_mode)
    except OSError:
        return os.path.lexists(file)


def open_regular(file: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of a regular file; never waits, never follows a link. Raises NotPlain and other OSErrors."""
    try:
        descriptor = os.open(file, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _IRREGULAR_ERRORS:
            raise NotRegularFile(file) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NotRegularFile(file)


def read_regular(file: Path) -> bytes:
    """The first bytes of a small regular file; raises NotPlain and other OSErrors."""
    descriptor = open_regular(file)
    try:
        return os.pread(descriptor, _READ_BYTES, 0)
    finally:
        os.close(descriptor)


def open_lock(file: Path) -> int:
    """A descriptor of a file to lock, made where there is none; what is no file in its place is moved away."""
    with suppress(NotRegularFile):
        return open_regular(file, os.O_RDWR | os.O_CREAT)
    # Only one process at a time may look and replace: two would end up with locks on two different files.
    directory = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        if is_irregular(file):
            move_away(file)
        return open_regular(file, os.O_RDWR | os.O_CREAT)
    finally:
        os.close(directory)


def move_away(file: Path) -> None:
    """Remove what has this name; a directory that holds something is renamed instead. Raises OSError."""
    if not stat.S_ISDIR(os.lstat(file).st_mode):
        file.unlink(missing_ok=True)
        return
    try:
        file.rmdir()
    except OSError:
        file.rename(file.with_name(f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{file.name}"))


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
