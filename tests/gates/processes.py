"""Real processes that do the product's work and can be killed at any step of it."""

import json
import os
import resource
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farm import open_farm
from history import EVERYWHERE

from wikiholt.errors import WikiholtError
from wikiholt.model import Mode
from wikiholt.search import Request

ESCAPED = "escaped"
"""The outcome of work that ended with an error that is not one of ours."""
_PATIENCE = 120.0
_CONNECT = sqlite3.connect


@dataclass(frozen=True, slots=True)
class Work:
    """What a writing process shall do, and how it shall be hindered."""

    data: Path
    action: str
    model: str = "fake"
    seconds: float = 0.0
    die_at_step: int = 0
    largest_file: int | None = None


class Child:
    """A forked process; its result is in a file when it has ended by itself."""

    def __init__(self, report: Path, task: Callable[[], object]) -> None:
        self._report = report
        report.unlink(missing_ok=True)
        self.pid = os.fork()
        if not self.pid:
            _run(report, task)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def join(self) -> dict[str, object]:
        """What the process reported; a process that does not end is an outcome of its own."""
        until = time.monotonic() + _PATIENCE
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > until:
                self.kill()
                os.waitpid(self.pid, 0)
                return {"outcome": ESCAPED, "trace": "the process hung"}
            time.sleep(0.005)
        if os.WIFSIGNALED(ended[1]):
            fatal = os.WTERMSIG(ended[1])
            outcome = "killed" if fatal == signal.SIGKILL else ESCAPED
            return {"outcome": outcome, "trace": f"ended by {signal.Signals(fatal).name}"}
        return dict(json.loads(self._report.read_text()))


def _run(report: Path, task: Callable[[], object]) -> None:
    """The whole life of a child: the task, the report, the end; nothing of the parent's is cleaned up."""
    try:
        result: dict[str, object] = {"outcome": "done", "value": task()}
    except WikiholtError as error:
        result = {"outcome": error.code(), "message": f"{error.message} ({error.hint})"}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        result = {"outcome": ESCAPED, "trace": traceback.format_exc()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    report.write_text(json.dumps(result))
    os._exit(0)


def write(work: Work) -> int:
    """Do the work of a writer; the number of steps it took."""
    steps = _Steps(work.die_at_step)
    sys.addaudithook(steps.audit)
    sqlite3.connect = steps.connect  # type: ignore[assignment]
    if work.largest_file is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (work.largest_file, hard))
    service = open_farm(work.data, model=work.model, seconds=work.seconds)
    if work.action == "remove":
        service.remove("victim")
    else:
        service.wiki("victim").sync()
    service.close()
    return steps.count


class _Steps:
    """Counts what reaches the disk (files opened, renamed, removed; SQL statements) and dies at the chosen one."""

    _WATCHED = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.utime", "os.truncate")

    def __init__(self, die_at: int) -> None:
        self.count = 0
        self._die_at = die_at

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in self._WATCHED:
            self.step()

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """In the place of `sqlite3.connect`: every statement is a step."""
        connection = _CONNECT(*arguments, **options)
        connection.set_trace_callback(self.step)
        return connection

    def step(self, _: str = "") -> None:
        self.count += 1
        if self.count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def search_until(data: Path, stop: Path) -> dict[str, int]:
    """Search until told to stop, as a server does and as a new process does; count what came of it."""
    seen: Counter[str] = Counter()
    lasting = open_farm(data, background=True)
    while not stop.exists() or not seen:
        for mode in Mode:
            seen[_searched(lasting, mode)] += 1
        fresh = open_farm(data)
        seen[_searched(fresh, Mode.HYBRID)] += 1
        fresh.close()
    lasting.close()
    return seen


def _searched(service: object, mode: Mode) -> str:
    try:
        answer = service.wiki("victim").search(Request(EVERYWHERE, mode=mode))  # type: ignore[attr-defined]
    except WikiholtError as error:
        return error.code()
    if not answer.hits:
        raise AssertionError(f"a silently empty list: {answer}")
    return "degraded" if answer.degraded else "answered"
