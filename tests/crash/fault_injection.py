"""Injects a fault into a process at one of its steps: a kill, a full disk, a clock change.

A step is an operation on the disk or another process: a file opened, renamed or removed, a program started, an SQL
statement. Steps are counted from the start of the operation that is to fail.
"""

import _strptime  # noqa: F401 - imported lazily, when the user may not have permission to read it
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
from types import ModuleType
from typing import Any

from tests.crash.child_process import ChildChannel

_CONNECT = sqlite3.connect
_FSYNC = os.fsync
_NOBODY_UID = 65534
_COUNTED_EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.utime", "os.truncate", "os.link")
UNSYNCED = "unsynced"
"""The message about a file that was renamed before fsync."""


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """What happens at which step: `kill`, `file limit` (bytes), `clock` (seconds), `drop`."""

    kind: str = ""
    step: int = 0
    amount: float = 0.0


class FaultInjector:
    """Counts the steps of this process and injects the fault at the chosen one."""

    def __init__(
        self, channel: ChildChannel, fault: InjectedFault, window: tuple[type | ModuleType, str] | None
    ) -> None:
        self._channel = channel
        self._fault = fault
        self._synced: set[int] = set()
        self._appended: set[Path] = set()
        """Files of vectors that were opened for writing and not flushed since."""
        self._connections: list[sqlite3.Connection] = []
        if fault.kind == "drop":
            _become_nobody()
        elif fault.kind == "clock":
            _shift_clock(lambda: fault.amount if channel.steps >= fault.step else 0.0)
        if window is None:
            channel.mark_entered()
        else:
            _wrap_method(channel, *window)
        sys.addaudithook(self._audit)
        sqlite3.connect = self._connect  # type: ignore[assignment]
        os.fsync = self._fsync

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _COUNTED_EVENTS:
            if event == "os.rename":
                self._check_rename(arguments)
            elif event == "open":
                self._watch_vectors(arguments)
            self._count_step()
        elif event == "subprocess.Popen":
            self._count_step()

    def _connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Replaces `sqlite3.connect`: every statement is a step."""
        connection = _CONNECT(*arguments, **options)
        connection.set_trace_callback(self._trace)
        return connection

    def _fsync(self, descriptor: int) -> None:
        _FSYNC(descriptor)
        inode = os.fstat(descriptor).st_ino
        self._synced.add(inode)
        for file in [file for file in self._appended if file.stat().st_ino == inode]:
            self._appended.remove(file)
            self._channel.send("synced", str(file))

    def _watch_vectors(self, arguments: tuple[Any, ...]) -> None:
        path, _, flags = arguments
        if str(path).endswith(".vectors") and flags & os.O_RDWR:
            self._appended.add(Path(path).absolute())

    def _trace(self, statement: str) -> None:
        """Every statement is a step. Report vectors that a commit counts before they were flushed to the disk."""
        if statement == "COMMIT":
            for file in self._appended:
                self._channel.send(UNSYNCED, str(file))
        self._count_step()

    def _check_rename(self, arguments: tuple[Any, ...]) -> None:
        """Report a rename without fsync. A power cut may leave such a file empty; the parent truncates it."""
        source = Path(os.fsdecode(arguments[0]))
        if source.is_file() and source.stat().st_ino not in self._synced:
            self._channel.send(UNSYNCED, str(Path(os.fsdecode(arguments[1])).absolute()))

    def _count_step(self, _: str = "") -> None:
        if self._channel.has_entered and self._channel.count_step() == self._fault.step:
            self._inject()

    def _inject(self) -> None:
        kind, amount = self._fault.kind, int(self._fault.amount)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "kill group":
            os.killpg(os.getpid(), signal.SIGKILL)
        elif kind == "file limit":
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (amount, hard))


def _wrap_method(channel: ChildChannel, owner: type | ModuleType, name: str) -> None:
    """Mark in the channel when this method starts and ends."""
    original = getattr(owner, name)

    def wrapper(*arguments: Any, **options: Any) -> Any:
        channel.mark_entered()
        try:
            return original(*arguments, **options)
        finally:
            channel.mark_left()

    setattr(owner, name, wrapper)


def _become_nobody() -> None:
    """Change to the user nobody, because root can write to read-only directories."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY_UID)
        os.setuid(_NOBODY_UID)


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def _shift_clock(offset: Callable[[], float]) -> None:
    """Shift `datetime.now` and `time.time` by the offset in every module of the package.

    The monotonic clock and file times are not shifted, as in a real clock change.
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
