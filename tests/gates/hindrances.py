"""What can happen to a process at one of its steps: an end, a full disk, no memory, another time of day.

A step is whatever reaches the disk or another process: a file opened, renamed or removed, a program started, an SQL
statement. Steps are counted from the moment the work begins that the blow is meant for.
"""

import _strptime  # noqa: F401 - loaded late by the standard library, from where nobody may not be able to read
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from processes import Line

_CONNECT = sqlite3.connect
_FSYNC = os.fsync
_NOBODY = 65534
_WATCHED = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.utime", "os.truncate", "os.link")
UNSYNCED = "unsynced"
"""Told of a file that was given its name before its bytes were sure to be on the disk."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What is to happen at which step: `kill`, `file limit` (bytes), `memory` (bytes), `clock` (seconds), `drop`."""

    kind: str = ""
    step: int = 0
    amount: float = 0.0


class Hindered:
    """Counts the steps of this process and hinders it at the chosen one."""

    def __init__(self, line: Line, hindrance: Hindrance, window: tuple[type, str] | None) -> None:
        self._line = line
        self._hindrance = hindrance
        self._synced: set[int] = set()
        self._connections: list[sqlite3.Connection] = []
        if hindrance.kind == "drop":
            _become_nobody()
        elif hindrance.kind == "clock":
            _shift_clock(lambda: hindrance.amount if line.steps >= hindrance.step else 0.0)
        if window is None:
            line.enter()
        else:
            _watch(line, *window)
        sys.addaudithook(self._audit)
        sqlite3.connect = self._connect  # type: ignore[assignment]
        os.fsync = self._fsync

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED:
            if event == "os.rename":
                self._note_rename(arguments)
            self._step()
        elif event == "subprocess.Popen":
            self._step()

    def _connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """In the place of `sqlite3.connect`: every statement is a step."""
        connection = _CONNECT(*arguments, **options)
        connection.set_trace_callback(self._step)
        return connection

    def _fsync(self, descriptor: int) -> None:
        _FSYNC(descriptor)
        self._synced.add(os.fstat(descriptor).st_ino)

    def _note_rename(self, arguments: tuple[Any, ...]) -> None:
        """A power cut may leave such a file empty under its new name; the parent sees to it."""
        source = Path(os.fsdecode(arguments[0]))
        if source.is_file() and source.stat().st_ino not in self._synced:
            self._line.tell(UNSYNCED, str(Path(os.fsdecode(arguments[1])).absolute()))

    def _step(self, _: str = "") -> None:
        if self._line.entered and self._line.step() == self._hindrance.step:
            self._strike()

    def _strike(self) -> None:
        kind, amount = self._hindrance.kind, int(self._hindrance.amount)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "kill group":
            os.killpg(os.getpid(), signal.SIGKILL)
        elif kind == "file limit":
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (amount, hard))
        elif kind == "memory":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + amount
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _watch(line: Line, owner: type, name: str) -> None:
    """Let the line know when this method begins and ends."""
    original = getattr(owner, name)

    def watched(*arguments: Any, **options: Any) -> Any:
        line.enter()
        try:
            return original(*arguments, **options)
        finally:
            line.leave()

    setattr(owner, name, watched)


def _become_nobody() -> None:
    """Root may write anywhere; a read-only directory is one for a user without its rights."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def _shift_clock(offset: Callable[[], float]) -> None:
    """Put another clock into every module of the product: what `datetime.now` and `time.time` say jumps with offset.

    The monotonic clock does not jump in reality either. Times of files are the kernel's and stay true.
    """

    class Shifted(datetime, metaclass=_Meta):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz or UTC) + timedelta(seconds=offset())

    for name, module in list(sys.modules.items()):
        if name.startswith("wikiholt") and getattr(module, "datetime", None) is datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]
    true_time = time.time
    time.time = lambda: true_time() + offset()
