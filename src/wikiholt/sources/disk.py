"""Files of a work tree, reached without ever following a link: each directory is opened from the one above it."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wikiholt.errors import NotWritable
from wikiholt.sources.folders import GitEntry
from wikiholt.sources.objects import hash_object

_OPEN_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_same_as_entry(root: Path, path: str, entry: GitEntry | None) -> bool:
    """Whether the file on disk is what git has for it (line ends of another system apart), or rightly not there."""
    try:
        with _open_parent(root, path) as (folder, name):
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return False
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
                data = file.read()
    except FileNotFoundError:
        return entry is None
    except NotADirectoryError:
        return False
    return entry is not None and any(
        hash_object(form, entry.object_id) == entry.object_id for form in (data, data.replace(b"\r\n", b"\n"))
    )


def is_writable(root: Path, path: str) -> bool:
    """Whether a file could be made or replaced in the nearest directory that is there."""
    place = root / path
    while not (place := place.parent).is_dir():
        pass
    return os.access(place, os.W_OK | os.X_OK)


def update_file(root: Path, path: str, entry: GitEntry | None, data: bytes | None) -> None:
    """Replace the file by what it shall hold, in one step; or remove it, with the directories it leaves empty."""
    if entry is None or data is None:
        with suppress(FileNotFoundError), _open_parent(root, path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        _remove_empty_directories(root, path)
        return
    with _open_parent(root, path, make=True) as (folder, name):
        # The same name for the same content: what a killed writer left is taken up by the one that comes after it.
        fresh = f".wikiholt-{entry.object_id[:16]}"
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        mode = 0o777 if entry.mode == "100755" else 0o666
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise


@contextmanager
def _open_parent(root: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """The open directory that holds the file, and the file's name in it."""
    *parts, name = path.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            below = _open_subdirectory(part, folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)


def _open_subdirectory(part: str, parent: int) -> int:
    if stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
        raise NotWritable(
            "A directory on the way to the page is a link in the repository's work tree.",
            hint="Put a real directory in its place.",
        )
    return os.open(part, _OPEN_DIRECTORY_FLAGS, dir_fd=parent)


def _remove_empty_directories(root: Path, path: str) -> None:
    with suppress(OSError):
        while path := path.rpartition("/")[0]:
            with _open_parent(root, path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
