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

from tests.crash.random_edits import COMMON_WORD
from tests.support.services import build_test_service
from wikiholt.domain.search import SearchMode
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

UNEXPECTED_ERROR = "escaped"
"""The outcome of work that ended with an error that is not one of ours."""
OUT_OF_MEMORY = "out of memory"
TIMEOUT_S = 120.0
_PIPE_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1
_ENTERED_COUNT, _LEFT_COUNT, _STEP_COUNT = range(3)

Messages = list[list[str | None]]


class ChildChannel:
    """Between a child and its parent: what the child told has arrived, even if it is killed in the next moment."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._out, False)
        self._counts = memoryview(mmap.mmap(-1, 64)).cast("q")

    def send(self, *words: str | None) -> None:
        os.write(self._in, (json.dumps(words) + "\n").encode())

    def receive_all(self) -> Messages:
        """All that was told; for when the child has ended."""
        content = b""
        while True:
            try:
                part = os.read(self._out, _PIPE_BYTES)
            except BlockingIOError:
                break
            if not part:
                break
            content += part
        return [json.loads(line) for line in content.splitlines()]

    def mark_entered(self) -> None:
        self._counts[_ENTERED_COUNT] += 1

    def mark_left(self) -> None:
        self._counts[_LEFT_COUNT] += 1

    def count_step(self) -> int:
        self._counts[_STEP_COUNT] += 1
        return self._counts[_STEP_COUNT]

    @property
    def has_entered(self) -> bool:
        """Whether the work that a blow is meant for has begun."""
        return self._counts[_ENTERED_COUNT] > 0

    @property
    def is_inside(self) -> bool:
        """Whether it has begun and not ended."""
        return self._counts[_ENTERED_COUNT] > self._counts[_LEFT_COUNT]

    @property
    def steps(self) -> int:
        return self._counts[_STEP_COUNT]

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


class ChildProcess:
    """A forked process, first of its own group; its result is in a file when it has ended by itself."""

    def __init__(self, report: Path, task: Callable[[ChildChannel], object], timeout_s: float = TIMEOUT_S) -> None:
        self._report = report
        self._timeout_s = timeout_s
        self._ended: dict[str, object] | None = None
        report.unlink(missing_ok=True)
        self.channel = ChildChannel()
        faulthandler.cancel_dump_traceback_later()  # its thread would be missed on the far side of the fork
        self.pid = os.fork()
        if not self.pid:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _run_child(report, lambda: task(self.channel), timeout_s)
        with suppress(OSError):  # both sides see to it, whoever comes first
            os.setpgid(self.pid, self.pid)

    def send_signal(self, number: int = signal.SIGKILL, *, group: bool = False) -> None:
        """Send a signal to it, or to it and all the processes it has started."""
        if self._ended is None:
            (os.killpg if group else os.kill)(self.pid, number)

    def has_ended(self) -> bool:
        """Whether it has ended."""
        if self._ended is None:
            ended = os.waitpid(self.pid, os.WNOHANG)
            if ended[0]:
                self._ended = self._read_outcome(ended[1])
        return self._ended is not None

    def wait(self) -> dict[str, object]:
        """What the process reported; a process that does not end is an outcome of its own."""
        until = time.monotonic() + self._timeout_s
        while not self.has_ended():
            if time.monotonic() > until:
                self.send_signal(group=True)
                os.waitpid(self.pid, 0)
                stack = self._report.with_suffix(".stack").read_text()
                # Python waits for ever for a thread that had no memory to begin with; somebody has to end it.
                outcome = OUT_OF_MEMORY if "threading.py" in stack and "in start\n" in stack else UNEXPECTED_ERROR
                self._ended = {"outcome": outcome, "trace": f"the process hung\n{stack}"}
                break
            time.sleep(0.005)
        return self._ended or {}

    def _read_outcome(self, status: int) -> dict[str, object]:
        if os.WIFSIGNALED(status):
            fatal = os.WTERMSIG(status)
            outcome = "killed" if fatal == signal.SIGKILL else UNEXPECTED_ERROR
            return {"outcome": outcome, "trace": f"ended by {signal.Signals(fatal).name}"}
        told = self._report.read_text()
        if not told:
            return {"outcome": UNEXPECTED_ERROR, "trace": f"ended with {os.WEXITSTATUS(status)} and no report"}
        return dict(json.loads(told))


def _run_child(report: Path, task: Callable[[], object], timeout_s: float) -> None:
    """The whole life of a child: the task, the report, the end; nothing of the parent's is cleaned up."""
    held = report.open("w")
    logging.getLogger("wikiholt").addHandler(logging.NullHandler())
    stack = report.with_suffix(".stack").open("w")
    faulthandler.dump_traceback_later(timeout_s * 0.8, file=stack)
    try:
        result: dict[str, object] = {"outcome": "done", "value": task()}
    except WikiholtError as error:
        result = {"outcome": error.code, "message": f"{error.message} ({error.hint})", "at": traceback.format_exc()}
    except MemoryError:
        result = {"outcome": OUT_OF_MEMORY}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        trace = traceback.format_exc()
        no_thread = "can't start new thread" in trace
        result = {"outcome": OUT_OF_MEMORY if no_thread else UNEXPECTED_ERROR, "trace": trace}
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    # Opened before, for the child may have become a user who may open nothing here.
    held.write(json.dumps(result))
    held.flush()
    os._exit(0)


def search_until(data: Path, slug: str, stop: Path) -> dict[str, int]:
    """Search until told to stop, as a server does and as a new process does; count what came of it."""
    seen: Counter[str] = Counter()
    lasting = build_test_service(data)
    while not stop.exists() or not seen:
        for mode in SearchMode:
            seen[_search_once(lasting, slug, mode)] += 1
        fresh = build_test_service(data)
        seen[_search_once(fresh, slug, SearchMode.HYBRID)] += 1
        fresh.close()
        time.sleep(0.02)
    lasting.close()
    return seen


def _search_once(service: WikiService, slug: str, mode: SearchMode) -> str:
    try:
        answer = service.get_handle(slug).search(SearchRequest(COMMON_WORD, mode=mode))
    except WikiholtError as error:
        return error.code
    if not answer.hits:
        raise AssertionError(f"a silently empty list: {answer}")
    return "degraded" if answer.degraded else "answered"
