"""Child processes that run operations and can be killed at any step."""

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
from tests.support.tiers import choose
from wikiholt.domain.search import SearchMode
from wikiholt.errors import WikiholtError
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.service import WikiService

UNEXPECTED_ERROR = "escaped"
"""The outcome of an operation that ended with an error that is not a WikiholtError."""
TIMEOUT_S = 300.0
_SEARCH_PAUSE_S = choose(20, 60) / 1000
_PIPE_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1
_ENTERED_COUNT, _LEFT_COUNT, _STEP_COUNT = range(3)

Messages = list[list[str | None]]


class ChildChannel:
    """Messages from a child to its parent. A sent message has arrived, even if the child is killed immediately."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._out, False)
        self._counts = memoryview(mmap.mmap(-1, 64)).cast("q")

    def send(self, *words: str | None) -> None:
        os.write(self._in, (json.dumps(words) + "\n").encode())

    def receive_all(self) -> Messages:
        """All messages. Call it after the child has ended."""
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
        """Whether the operation that is to fail has started."""
        return self._counts[_ENTERED_COUNT] > 0

    @property
    def is_inside(self) -> bool:
        """Whether the operation has started and not ended."""
        return self._counts[_ENTERED_COUNT] > self._counts[_LEFT_COUNT]

    @property
    def steps(self) -> int:
        return self._counts[_STEP_COUNT]

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


class ChildProcess:
    """A forked process in its own process group. It writes its result to a file before it exits."""

    def __init__(self, report: Path, task: Callable[[ChildChannel], object], *, timeout_s: float = TIMEOUT_S) -> None:
        self._report = report
        self._timeout_s = timeout_s
        self._ended: dict[str, object] | None = None
        report.unlink(missing_ok=True)
        self._stack_file.write_text("")
        self.channel = ChildChannel()
        faulthandler.cancel_dump_traceback_later()  # its thread does not exist in the child
        self.pid = os.fork()
        if not self.pid:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _run_child(report, lambda: task(self.channel), timeout_s)
        with suppress(OSError):  # parent and child both set it; the second call may fail
            os.setpgid(self.pid, self.pid)

    def send_signal(self, number: int = signal.SIGKILL, *, group: bool = False) -> None:
        """Send a signal to the process, or to its process group."""
        if self._ended is None:
            (os.killpg if group else os.kill)(self.pid, number)

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        if self._ended is None:
            ended = os.waitpid(self.pid, os.WNOHANG)
            if ended[0]:
                self._ended = self._read_outcome(ended[1])
        return self._ended is not None

    def wait(self) -> dict[str, object]:
        """The result of the process. A process that does not end in time is killed and has the outcome of a timeout."""
        until = time.monotonic() + self._timeout_s
        while not self.has_ended():
            if time.monotonic() > until:
                self.send_signal(group=True)
                os.waitpid(self.pid, 0)
                stack = self._stack_file.read_text()
                self._ended = {"outcome": UNEXPECTED_ERROR, "trace": f"the process hung\n{stack}"}
                break
            time.sleep(0.005)
        return self._ended or {}

    @property
    def _stack_file(self) -> Path:
        return self._report.with_suffix(".stack")

    def _read_outcome(self, status: int) -> dict[str, object]:
        if os.WIFSIGNALED(status):
            fatal = os.WTERMSIG(status)
            outcome = "killed" if fatal == signal.SIGKILL else UNEXPECTED_ERROR
            return {"outcome": outcome, "trace": f"ended by {signal.Signals(fatal).name}"}
        report = self._report.read_text()
        if not report:
            return {"outcome": UNEXPECTED_ERROR, "trace": f"ended with {os.WEXITSTATUS(status)} and no report"}
        return dict(json.loads(report))


def _run_child(report: Path, task: Callable[[], object], timeout_s: float) -> None:
    """Run the task, write the report and exit, without the cleanup of the parent process."""
    report_file = report.open("w")
    logging.getLogger("wikiholt").addHandler(logging.NullHandler())
    stack = report.with_suffix(".stack").open("a")
    faulthandler.dump_traceback_later(timeout_s * 0.8, file=stack)
    try:
        result: dict[str, object] = {"outcome": "done", "value": task()}
    except WikiholtError as error:
        result = {"outcome": error.code, "message": f"{error.message} ({error.hint})", "at": traceback.format_exc()}
    except BaseException:  # noqa: BLE001 - the parent must receive every error
        result = {"outcome": UNEXPECTED_ERROR, "trace": traceback.format_exc()}
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    # Opened earlier, because the child may have changed to a user without permission to open files here.
    report_file.write(json.dumps(result))
    report_file.flush()
    os._exit(0)


def search_until(data: Path, slug: str, stop: Path) -> dict[str, int]:
    """Search until the file `stop` exists, with a long-lived service and with new ones. Counts the outcomes."""
    seen: Counter[str] = Counter()
    long_lived = build_test_service(data)
    while not stop.exists() or not seen:
        for mode in SearchMode:
            seen[_search_once(long_lived, slug, mode)] += 1
        fresh = build_test_service(data)
        seen[_search_once(fresh, slug, SearchMode.HYBRID)] += 1
        fresh.close()
        time.sleep(_SEARCH_PAUSE_S)
    long_lived.close()
    return seen


def _search_once(service: WikiService, slug: str, mode: SearchMode) -> str:
    try:
        answer = service.get_handle(slug).search(SearchRequest(COMMON_WORD, mode=mode))
    except WikiholtError as error:
        return error.code
    # A semantic search finds what is embedded, and says how much that is.
    if not answer.hits and not (mode is SearchMode.SEMANTIC and answer.meaning_ready < 1):
        raise AssertionError(f"an empty result without an error: {answer}")
    return "degraded" if answer.degraded else "answered"
