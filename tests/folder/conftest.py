import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from wikiholt.folder.file_table import FileTable
from wikiholt.folder.source import DirectorySource

OLD_TIME_S = 1_700_000_000
"""A modification time in the past: no scan has to wait for such a file."""


class Vault:
    """A directory of pages for a test, and its source."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "vault"
        self.path.mkdir()
        self.data = directory / "data"
        self.table = FileTable(self.data / "files.sqlite")
        self._seconds = 0

    def write(self, name: str, content: str | bytes, *, at: float | None = None) -> Path:
        """Write a file with a modification time in the past, a second later for each file."""
        self._seconds += 1
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        moment = OLD_TIME_S + self._seconds if at is None else at
        os.utime(file, (moment, moment))
        return file

    def open(self, **options: object) -> DirectorySource:
        return DirectorySource(self.path, self.data, **options)  # type: ignore[arg-type]

    def read(self) -> dict[str, bytes | None]:
        """Scan, and read every file at the new revision; None for a file that is a problem."""
        source = self.open()
        source.fetch()
        return read_all(source)


def read_all(source: DirectorySource) -> dict[str, bytes | None]:
    tree = source.read_tree(source.get_head())
    blobs = source.read_blobs([entry.blob for entry in tree.values()], 1 << 20)
    return {file: blob.data for file, blob in zip(tree, blobs, strict=True)}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


@pytest.fixture(autouse=True)
def no_quiet_time(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tests of the quiet time itself are marked; the change time of every file in a test is now."""
    if "quiet_time" not in request.fixturenames:
        monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", 0.0)


class QuietTime:
    """A quiet time so long that no machine exceeds it by chance, with a clock that only sleeping moves."""

    seconds = 120.0

    def __init__(self) -> None:
        self.slept = 0.0
        self.on_sleep: Callable[[], object] = lambda: None
        """What happens while a scan waits."""

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.on_sleep()

    def monotonic(self) -> float:
        return self.slept

    def time_ns(self) -> int:
        return time.time_ns() + int(self.slept * 1e9)


@pytest.fixture
def quiet_time(monkeypatch: pytest.MonkeyPatch) -> QuietTime:
    quiet_time = QuietTime()
    monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", quiet_time.seconds)
    monkeypatch.setattr("wikiholt.folder.files_on_disk.time", quiet_time)
    return quiet_time


@pytest.fixture
def deny(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let opening or listing this name fail as it does without permission, for any user."""
    denied: set[str] = set()
    real_open, real_scandir = os.open, os.scandir

    def open_checked(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if Path(os.fsdecode(path)).name in denied:
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    def scandir_checked(path: str | Path | int) -> object:
        if not isinstance(path, int) and Path(path).name in denied:
            raise PermissionError(13, "Permission denied")
        return real_scandir(path)

    monkeypatch.setattr(os, "open", open_checked)
    monkeypatch.setattr(os, "scandir", scandir_checked)
    return denied.add
