"""Real processes that do the product's work and can be killed at any step of it."""

import ctypes
import faulthandler
import fcntl
import json
import logging
import mmap
import os
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from farm import product
from history import EVERYWHERE

from wikiholt.errors import WikiholtError
from wikiholt.model import Mode
from wikiholt.search import Request
from wikiholt.service import Service

ESCAPED = "escaped"
"""The outcome of work that ended with an error that is not one of ours."""
OUT_OF_MEMORY = "out of memory"
PATIENCE = 120.0
_PIPE = 1 << 20
_DIE_WITH_PARENT = 1
_ENTERED, _LEFT, _STEPS = range(3)

Told = list[list[str | None]]


class Line:
    """Between a child and its parent: what the child told has arrived, even if it is killed in the next moment."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE)
        os.set_blocking(self._out, False)
        self._counts = memoryview(mmap.mmap(-1, 64)).cast("q")

    def tell(self, *words: str | None) -> None:
        os.write(self._in, (json.dumps(words) + "\n").encode())

    def heard(self) -> Told:
        """All that was told; for when the child has ended."""
        content = b""
        while True:
            try:
                part = os.read(self._out, _PIPE)
            except BlockingIOError:
                break
            if not part:
                break
            content += part
        return [json.loads(line) for line in content.splitlines()]

    def enter(self) -> None:
        self._counts[_ENTERED] += 1

    def leave(self) -> None:
        self._counts[_LEFT] += 1

    def step(self) -> int:
        self._counts[_STEPS] += 1
        return self._counts[_STEPS]

    @property
    def entered(self) -> bool:
        """Whether the work that a blow is meant for has begun."""
        return self._counts[_ENTERED] > 0

    @property
    def inside(self) -> bool:
        """Whether it has begun and not ended."""
        return self._counts[_ENTERED] > self._counts[_LEFT]

    @property
    def steps(self) -> int:
        return self._counts[_STEPS]

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


class Child:
    """A forked process, first of its own group; its result is in a file when it has ended by itself."""

    def __init__(self, report: Path, task: Callable[[Line], object], patience: float = PATIENCE) -> None:
        self._report = report
        self._patience = patience
        self._ended: dict[str, object] | None = None
        report.unlink(missing_ok=True)
        self.line = Line()
        faulthandler.cancel_dump_traceback_later()  # its thread would be missed on the far side of the fork
        self.pid = os.fork()
        if not self.pid:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            _run(report, lambda: task(self.line), patience)
        with suppress(OSError):  # both sides see to it, whoever comes first
            os.setpgid(self.pid, self.pid)

    def kill(self, number: int = signal.SIGKILL, *, group: bool = False) -> None:
        """Send a signal to it, or to it and all the processes it has started."""
        if self._ended is None:
            (os.killpg if group else os.kill)(self.pid, number)

    def poll(self) -> bool:
        """Whether it has ended."""
        if self._ended is None:
            ended = os.waitpid(self.pid, os.WNOHANG)
            if ended[0]:
                self._ended = self._outcome(ended[1])
        return self._ended is not None

    def join(self) -> dict[str, object]:
        """What the process reported; a process that does not end is an outcome of its own."""
        until = time.monotonic() + self._patience
        while not self.poll():
            if time.monotonic() > until:
                self.kill(group=True)
                os.waitpid(self.pid, 0)
                stack = self._report.with_suffix(".stack").read_text()
                # Python waits for ever for a thread that had no memory to begin with; somebody has to end it.
                outcome = OUT_OF_MEMORY if "threading.py" in stack and "in start\n" in stack else ESCAPED
                self._ended = {"outcome": outcome, "trace": f"the process hung\n{stack}"}
                break
            time.sleep(0.005)
        return self._ended or {}

    def _outcome(self, status: int) -> dict[str, object]:
        if os.WIFSIGNALED(status):
            fatal = os.WTERMSIG(status)
            outcome = "killed" if fatal == signal.SIGKILL else ESCAPED
            return {"outcome": outcome, "trace": f"ended by {signal.Signals(fatal).name}"}
        told = self._report.read_text()
        if not told:
            return {"outcome": ESCAPED, "trace": f"ended with {os.WEXITSTATUS(status)} and no report"}
        return dict(json.loads(told))


def _run(report: Path, task: Callable[[], object], patience: float) -> None:
    """The whole life of a child: the task, the report, the end; nothing of the parent's is cleaned up."""
    held = report.open("w")
    logging.getLogger("wikiholt").addHandler(logging.NullHandler())
    stack = report.with_suffix(".stack").open("w")
    faulthandler.dump_traceback_later(patience * 0.8, file=stack)
    try:
        result: dict[str, object] = {"outcome": "done", "value": task()}
    except WikiholtError as error:
        result = {"outcome": error.code, "message": f"{error.message} ({error.hint})", "at": traceback.format_exc()}
    except MemoryError:
        result = {"outcome": OUT_OF_MEMORY}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        trace = traceback.format_exc()
        no_thread = "can't start new thread" in trace
        result = {"outcome": OUT_OF_MEMORY if no_thread else ESCAPED, "trace": trace}
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    # Opened before, for the child may have become a user who may open nothing here.
    held.write(json.dumps(result))
    held.flush()
    os._exit(0)


def search_until(data: Path, slug: str, stop: Path) -> dict[str, int]:
    """Search until told to stop, as a server does and as a new process does; count what came of it."""
    seen: Counter[str] = Counter()
    lasting = product(data)
    while not stop.exists() or not seen:
        for mode in Mode:
            seen[_searched(lasting, slug, mode)] += 1
        fresh = product(data)
        seen[_searched(fresh, slug, Mode.HYBRID)] += 1
        fresh.close()
        time.sleep(0.02)
    lasting.close()
    return seen


def _searched(service: Service, slug: str, mode: Mode) -> str:
    try:
        answer = service.wiki(slug).search(Request(EVERYWHERE, mode=mode))
    except WikiholtError as error:
        return error.code
    if not answer.hits:
        raise AssertionError(f"a silently empty list: {answer}")
    return "degraded" if answer.degraded else "answered"
