"""The folder a cache keeps its files in: their names, who may remove which, and how a new one appears.

Any number of processes may share it. A file appears by an atomic rename; while one is being written its writer holds
a lock on it, so what a killed writer left behind can be told from work in progress.
"""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wikiholt.plainfiles import move_away, open_regular

_FILE_NAME_PATTERN = re.compile(r"([a-z]+)-g(\d{6,18})-v(\d{1,18})\.([a-z]+)")
_TEMPORARY_SUFFIX = ".writing"


@dataclass(frozen=True, slots=True)
class CacheFileName:
    """Whose file it is, which generation and version it stands for, and which kind of cache wrote it."""

    family: str
    generation: int
    version: int
    kind: str

    def __str__(self) -> str:
        return f"{self.family}-g{self.generation:06d}-v{self.version}.{self.kind}"


class CacheDirectory:
    """The cache files of one family (`vectors`, `words`) of one wiki."""

    def __init__(self, path: Path, family: str) -> None:
        self.path = path
        self.family = family

    @property
    def owner(self) -> str:
        """Whose caches these are: the folder bears the id of its wiki."""
        return self.path.name

    def list_files(self, generation: int, kind: str) -> list[CacheFileName]:
        """The files of that generation and kind, newest first; none when the folder cannot be read."""
        found = [name for name in self._list_all() if (name.generation, name.kind) == (generation, kind)]
        return sorted(found, key=lambda name: -name.version)

    def get_path(self, name: CacheFileName) -> Path:
        return self.path / str(name)

    def remove(self, name: CacheFileName) -> None:
        """Remove a file; whoever mapped it keeps it."""
        with contextlib.suppress(OSError):
            move_away(self.get_path(name))

    def remove_older(self, newest: CacheFileName) -> None:
        """Remove what a file makes superfluous: older versions of its generation, and older generations."""
        for name in self._list_all():
            older = (name.generation, name.version) < (newest.generation, newest.version)
            same = (name.generation, name.version) == (newest.generation, newest.version) and name.kind != newest.kind
            if older or same:
                self.remove(name)

    @contextlib.contextmanager
    def open_for_writing(self, name: CacheFileName) -> Iterator[BinaryIO]:
        """A new file that takes this name when the block ends well, and leaves nothing when it does not.

        Until then it lies where its own `name` says.
        """
        # The folder is never made here: where it is gone, its wiki was removed and nothing of it may come back.
        self._remove_abandoned()
        temporary, file = self._create_temporary(name)
        try:
            with file:
                yield file
                temporary.replace(self.get_path(name))
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._fsync_directory()

    def _list_all(self) -> list[CacheFileName]:
        try:
            entries = [entry.name for entry in self.path.iterdir()]
        except OSError:
            return []
        matches = (_FILE_NAME_PATTERN.fullmatch(entry) for entry in entries)
        names = [CacheFileName(match[1], int(match[2]), int(match[3]), match[4]) for match in matches if match]
        return [name for name in names if name.family == self.family]

    def _create_temporary(self, name: CacheFileName) -> tuple[Path, BinaryIO]:
        while True:
            path = self.path / f"{name}.{secrets.token_hex(6)}{_TEMPORARY_SUFFIX}"
            file = open(path, "x+b", opener=_open_world_readable)  # noqa: SIM115 - the caller closes it
            with contextlib.suppress(OSError):
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A sweep may have taken the file between its creation and our lock.
            if os.fstat(file.fileno()).st_nlink:
                return path, file
            file.close()

    def _remove_abandoned(self) -> None:
        """Remove what killed writers left; a live writer holds the lock of its file."""
        for path in self.path.glob(f"{self.family}-*{_TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError):
                descriptor = open_regular(path)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)

    def _fsync_directory(self) -> None:
        """Make the rename durable; a cache may do without where the system cannot."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _open_world_readable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)
