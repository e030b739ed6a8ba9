"""Writes an export into a directory. At any moment the directory has a complete export, the last one or the new one.

The data is in a directory named by its digest, and the script that names it is replaced last.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from wikiholt.errors import Busy, Conflict, StorageError
from wikiholt.regular_files import fsync_path, write_atomically

SCRIPT = "wikiholt.js"
MARKER = "wikiholt-export.lock"
"""Shows that the directory was made by an export. Its lock is held while one is written."""
_PARTS_PREFIX = "parts-"
_PARTS_NAME = re.compile(_PARTS_PREFIX + r"[0-9a-f]{16}(?:\.draft)?")


def get_parts_name(digest: str) -> str:
    """The name of the directory with the data."""
    return f"{_PARTS_PREFIX}{digest}"


def write_export(directory: Path, digest: str, parts: Mapping[str, bytes], files: Mapping[str, bytes]) -> None:
    """Write the data files, then the other files, of which SCRIPT names the data; then remove older data.

    Raises Conflict for a directory with other files that no export has made, Busy and StorageError.
    """
    try:
        with _claim(directory):
            _write_parts(directory, get_parts_name(digest), parts)
            for name, data in sorted(files.items(), key=lambda file: file[0] == SCRIPT):
                write_atomically(directory / name, directory / f".{name}.draft", data)
            fsync_path(directory)
            for entry in directory.iterdir():
                if _PARTS_NAME.fullmatch(entry.name) and entry.name != get_parts_name(digest):
                    _remove(entry)
    except OSError as error:
        hint = "Name a directory that can be written, on a disk with free space; an earlier export there still works."
        raise StorageError(
            f"The export cannot be written to {directory} ({error.strerror or error}).", hint=hint
        ) from error


@contextmanager
def _claim(directory: Path) -> Iterator[None]:
    marker = directory / MARKER
    check_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+b"):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"Another export writes to {directory}.", hint="Wait until it has ended.") from None
        yield


def check_directory(directory: Path) -> None:
    """Raise Conflict unless the directory is new, empty or made by an export."""
    try:
        names = {entry.name for entry in directory.iterdir()}
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise Conflict(f"{directory} is a file.", hint="Name a directory.") from None
    except OSError as error:
        raise StorageError(f"{directory} cannot be read ({error.strerror}).", hint="Name another directory.") from error
    if names and MARKER not in names:
        raise Conflict(f"{directory} has files, and no export has made it.", hint="Name a new or an empty directory.")


def _write_parts(directory: Path, name: str, parts: Mapping[str, bytes]) -> None:
    """Write the data to a draft, and rename it when it is complete on the disk. Intact data stays as it is."""
    final, draft = directory / name, directory / f"{name}.draft"
    if _is_intact(final, parts):
        return
    _remove(draft)
    draft.mkdir()
    for file, data in parts.items():
        with (draft / file).open("xb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    fsync_path(draft)
    _remove(final)
    draft.rename(final)
    fsync_path(directory)


def _is_intact(final: Path, parts: Mapping[str, bytes]) -> bool:
    if final.is_symlink() or not final.is_dir() or {file.name for file in final.iterdir()} != set(parts):
        return False
    return all((final / name).is_file() and (final / name).read_bytes() == data for name, data in parts.items())


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
