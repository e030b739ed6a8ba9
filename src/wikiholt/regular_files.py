"""Safe access to the program's own files: never blocks on a pipe, never follows a link, writes atomically.

Damage or a mistake may leave a directory, a symbolic link or a named pipe where a file should be. Opening a pipe for
reading blocks forever, and writing through a link changes another file.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

_MAX_READ_BYTES = 1 << 20
_IRREGULAR_ERRORS = {errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EMLINK}


class NotRegularFile(OSError):
    """The path exists but is not a regular file."""

    def __init__(self, file: str | Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(file))


def is_irregular(file: Path, *, follow: bool = False) -> bool:
    """Whether the path exists and is not a regular file. With `follow`, a link to a regular file counts as regular."""
    try:
        return not stat.S_ISREG((os.stat if follow else os.lstat)(file).st_mode)
    except FileNotFoundError:
        # Only a link that leads nowhere: SQLite may create the file in the meantime.
        return follow and file.is_symlink()
    except OSError:
        return os.path.lexists(file)


def open_regular(file: str | Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file and return its descriptor; never blocks, never follows a link.

    Raises NotRegularFile and other OSErrors.
    """
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


def read_regular(file: str | Path, max_bytes: int = _MAX_READ_BYTES) -> bytes:
    """Read a regular file, at most its first `max_bytes` (a MiB). Raises NotRegularFile and other OSErrors."""
    descriptor = open_regular(file)
    try:
        # Not `max_bytes`: allocating a MiB takes longer than all else here.
        return os.pread(descriptor, min(max_bytes, os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)


def open_lock(file: Path) -> int:
    """Open a lock file, creating it if needed, and return its descriptor. Moves an irregular file out of the way."""
    with suppress(NotRegularFile):
        return open_regular(file, os.O_RDWR | os.O_CREAT)
    # Only one process at a time may check and replace: two would end up with locks on two different files.
    directory = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        if is_irregular(file):
            move_away(file)
        return open_regular(file, os.O_RDWR | os.O_CREAT)
    finally:
        os.close(directory)


def move_away(file: Path) -> None:
    """Remove whatever has this path. A directory that is not empty is renamed instead. Raises OSError."""
    if not stat.S_ISDIR(os.lstat(file).st_mode):
        file.unlink(missing_ok=True)
        return
    try:
        file.rmdir()
    except OSError:
        file.rename(file.with_name(make_quarantine_name(file.name)))


def make_quarantine_name(label: str) -> str:
    """A name for a damaged file or index that is kept: `broken-`, the time in UTC, and the label."""
    return f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{label}"


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(file: Path, draft: Path, data: bytes, mode: int = 0o666) -> None:
    """Write `data` to the temporary file `draft`, flush it to disk and rename it to `file`. Raises OSError.

    To survive a power failure the rename also needs `fsync_path` of the directory.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, mode), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
