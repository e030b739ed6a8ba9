"""Runs the git binary, bounded in time, memory and output: single commands, and processes for request and answer."""

import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, cast

from wikiholt.errors import SourceCorrupt, SourceError, SourceMissing
from wikiholt.git.repository import RepositoryLocation

MAX_OUTPUT_BYTES = 128 * 1024 * 1024
"""Enough for a tree of a million files. A crafted repository of a few kilobytes can list one small tree a billion
times: without a limit, anybody who can push to a wiki could exhaust the service's memory."""
MAX_MEMORY_BYTES = 2 * 1024**3
_PIPE_BLOCK_BYTES = 1 << 16
_MAX_WAITING = 8
_MAX_LONG_WAITS = 3
"""As many threads wait until the timeout of their command; a sync and two requests, for example."""
_MAX_QUEUE_S = 5.0
"""How long others wait."""
_POLL_S = 1.0
_KILL_TIMEOUT_S = 5.0
"""A killed process ends at once, unless it waits for a disk that does not answer."""
# Variables and settings of the user or of a hook (GIT_DIR, aliases) must not change what git does here: the result
# depends on the repository alone. Git may not use the network: in a partial clone an object that was not fetched is
# a missing object.
_GIT_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # A replace ref would give one id two contents; the index relies on ids.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_GIT_CONFIG = (
    "core.fsmonitor=false",
    # Otherwise a repository could make its readers and writers run programs.
    f"core.hooksPath={os.devnull}",
    "core.quotePath=false",
    # Commits must survive a power failure, and the branch must never name a commit that did not.
    "core.fsync=objects,reference",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.showRoot=true",
    "log.showSignature=false",
)


@dataclass(frozen=True, slots=True)
class GitResult:
    """The exit status and output of a finished git command."""

    status: int
    stdout: bytes
    stderr: str

    def to_error(self, action: str) -> SourceError:
        """The error for a failed command, with git's own message."""
        return SourceCorrupt(
            f"Git could not {action}: {self.stderr or f'it ended with status {self.status}'}",
            hint="Check the repository with `git fsck`.",
        )


class WaitLimit:
    """Limits how many threads wait for git in one repository: one that does not answer must leave some for others.

    `_MAX_LONG_WAITS` threads may wait longer than `_MAX_QUEUE_S` seconds for an answer. While nobody gets one, no
    others wait at all.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Waiting, float] = {}
        """Since when each thread has no answer, in the order in which they began to wait."""
        self._unanswered_since: float | None = None
        self._stuck: list[subprocess.Popen[bytes]] = []
        """Processes that were killed and have not ended: their disk does not answer."""

    @contextmanager
    def wait(self, name: str) -> Iterator["Waiting"]:
        """Wait for answers of git in this block. Raises SourceCorrupt if too many others do, for too long."""
        waiting, began = Waiting(self), time.monotonic()
        with self._changed:
            while self._count() >= self._get_limit():
                newest = max(self._waiting.values(), default=0.0)
                remaining = min(began, newest) + _MAX_QUEUE_S - time.monotonic()
                if remaining <= 0:
                    raise make_unanswered_error(name)
                self._changed.wait(remaining)
            self._waiting[waiting] = time.monotonic()
            if self._unanswered_since is None:
                self._unanswered_since = self._waiting[waiting]
        try:
            yield waiting
        finally:
            with self._changed:
                del self._waiting[waiting]
                self._changed.notify_all()

    def note_answer(self, waiting: "Waiting") -> None:
        """Record that git has answered this thread."""
        with self._changed:
            self._waiting[waiting] = time.monotonic()
            self._unanswered_since = self._waiting[waiting] if len(self._waiting) > 1 else None

    def must_give_up(self, waiting: "Waiting") -> bool:
        """Whether this thread has waited too long, while enough others began before it."""
        with self._changed:
            is_late = waiting in list(self._waiting)[_MAX_LONG_WAITS:]
            return is_late and time.monotonic() - self._waiting[waiting] > _MAX_QUEUE_S

    def add_stuck(self, process: "subprocess.Popen[bytes]") -> None:
        """Let a process that does not end take the place of the thread that has waited for it."""
        with self._changed:
            self._stuck.append(process)

    def _count(self) -> int:
        self._stuck = [process for process in self._stuck if process.poll() is None]
        return len(self._waiting) + len(self._stuck)

    def _get_limit(self) -> int:
        since = self._unanswered_since
        is_silent = since is not None and time.monotonic() - since > _MAX_QUEUE_S
        return _MAX_LONG_WAITS if is_silent or self._stuck else _MAX_WAITING


class Waiting:
    """One thread that waits for git."""

    def __init__(self, limit: WaitLimit) -> None:
        self._limit = limit

    def note_answer(self) -> None:
        """Record that git has answered."""
        self._limit.note_answer(self)

    def wait_for_output(
        self, selector: selectors.BaseSelector, name: str, deadline: float, timeout_s: float
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until a pipe is ready. Raises SourceCorrupt at the deadline, or if this thread must give up."""
        while not (ready := selector.select(max(0.0, min(_POLL_S, deadline - time.monotonic())))):
            if time.monotonic() >= deadline:
                raise make_timeout_error(name, timeout_s)
            if self._limit.must_give_up(self):
                raise make_unanswered_error(name)
        return ready


class GitRunner:
    """Runs git commands in one repository, without a shell, in a clean environment. Safe to use from many threads."""

    def __init__(self, location: RepositoryLocation, timeout_s: float, wait_limit: WaitLimit | None = None) -> None:
        # An explicit git directory keeps git from searching parent directories,
        # and from refusing a repository that belongs to another user.
        self._location = location
        self._prefix = ["git", f"--git-dir={location.git_dir}", "--no-pager"]
        for setting in (f"safe.directory={location.git_dir}", *_GIT_CONFIG):
            self._prefix += ["-c", setting]
        self._timeout_s = timeout_s
        self._wait_limit = wait_limit or WaitLimit()

    def run(self, *arguments: str, input_data: bytes = b"", environment: Mapping[str, str] | None = None) -> GitResult:
        """Run one command with `input_data` on its standard input. Raises SourceCorrupt on timeout."""
        with self._wait_limit.wait(arguments[0]) as waiting:
            process = self._spawn(arguments, subprocess.PIPE, environment)
            try:
                stdout, stderr = run_to_end(process, arguments[0], input_data, self._timeout_s, waiting)
            finally:
                end_process(process, self._wait_limit)
        return GitResult(process.returncode, stdout, _get_first_line(stderr))

    @contextmanager
    def start(self, *arguments: str, timeout_factor: float = 1) -> Iterator["GitProcess"]:
        """Start a command for requests and answers; the process is ended when the block is left."""
        with self._wait_limit.wait(arguments[0]):
            spawned = self._spawn(arguments, subprocess.DEVNULL)
        process = GitProcess(spawned, arguments[0], self._timeout_s * timeout_factor, self._wait_limit)
        try:
            yield process
        finally:
            process.close()

    def _spawn(
        self, arguments: tuple[str, ...], stderr: int, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self._location.git_dir,
                env=build_environment() | dict(environment or {}),
            )
        except OSError as error:
            raise self._make_start_error(error) from error
        limit_memory(process.pid)
        return process

    def _make_start_error(self, error: OSError) -> SourceError:
        if isinstance(error, FileNotFoundError):
            if self._location.git_dir.exists():
                return SourceCorrupt("Git is not installed.", hint="Install git and make sure that it is on the PATH.")
            return SourceMissing(
                "The repository no longer exists.", hint="Check its path, and that its disk is mounted."
            )
        return SourceCorrupt(
            f"Git could not be started: {error.strerror or error}.", hint="Check that the repository exists."
        )


class GitProcess:
    """A running git process: write requests, read answers. Raises SourceCorrupt when an answer times out."""

    def __init__(self, process: "subprocess.Popen[bytes]", name: str, timeout_s: float, wait_limit: WaitLimit) -> None:
        self._process = process
        self._wait_limit = wait_limit
        self._name = name
        self._timeout_s = timeout_s
        self._stdin = cast(IO[bytes], process.stdin)
        self._stdout = cast(IO[bytes], process.stdout)
        self._unread = bytearray()
        self._selector = selectors.PollSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)

    def write(self, request: bytes) -> bool:
        """Send a request of at most one pipe buffer; False if git has exited."""
        try:
            self._stdin.write(request)
            self._stdin.flush()
        except OSError:
            return False
        return True

    def read_line(self) -> bytes:
        """The next line without its newline; empty if git has exited."""
        while (end := self._unread.find(b"\n")) < 0:
            if not self._read_more():
                return b""
        return self._take(end + 1)[:-1]

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only if git has exited."""
        while len(self._unread) < size and self._read_more():
            pass
        return self._take(size)

    def read_some(self) -> bytes:
        """The next available bytes; empty at the end."""
        if not self._unread:
            self._read_more()
        return self._take(len(self._unread))

    def wait(self) -> int:
        """Wait for git to exit and return its status."""
        self._stdin.close()
        try:
            return self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired as error:
            raise make_timeout_error(self._name, self._timeout_s) from error

    def close(self) -> None:
        """Kill the process if it still runs, and close its pipes."""
        self._selector.close()
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._stdin, self._stdout):
            try:
                pipe.close()
            except OSError:  # unsent requests are discarded
                continue
        end_process(self._process, self._wait_limit)

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def _read_more(self) -> bool:
        """Wait for more output; False at its end."""
        with self._wait_limit.wait(self._name) as waiting:
            waiting.wait_for_output(self._selector, self._name, time.monotonic() + self._timeout_s, self._timeout_s)
            block = os.read(self._stdout.fileno(), _PIPE_BLOCK_BYTES)
            waiting.note_answer()
        self._unread += block
        return bool(block)


def build_environment() -> dict[str, str]:
    """The environment for git: that of this process, with every GIT_ variable replaced."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return inherited | _GIT_ENVIRONMENT


def limit_memory(pid: int) -> None:
    """Limit the memory of a git process that was just started: git collects a commit's changes in memory."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def end_process(process: "subprocess.Popen[bytes]", limit: WaitLimit) -> None:
    """Wait until a process that was killed, or closed its output, has ended. One that does not end is left alone."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    if process.poll() is None:
        with suppress(OSError, AttributeError):  # not on every system; `wait` alone sleeps in between
            _wait_for_exit(process.pid)
    try:
        process.wait(max(0.01, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        limit.add_stuck(process)


def _wait_for_exit(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        with selectors.PollSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            selector.select(_KILL_TIMEOUT_S)
    finally:
        os.close(descriptor)


def run_to_end(
    process: "subprocess.Popen[bytes]", name: str, input_data: bytes, timeout_s: float, waiting: Waiting
) -> tuple[bytes, bytes]:
    """Send `input_data` to the process and return its stdout and stderr. The process has ended or was killed then."""
    try:
        output = _feed_and_read(process, name, memoryview(input_data), timeout_s, waiting)
        process.wait(timeout_s)
        waiting.note_answer()
        return output
    except subprocess.TimeoutExpired as error:
        raise make_timeout_error(name, timeout_s) from error
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            cast(IO[bytes], pipe).close()


def _feed_and_read(
    process: "subprocess.Popen[bytes]", name: str, rest: memoryview, timeout_s: float, waiting: Waiting
) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + timeout_s
    stdin, stdout, stderr = (cast(IO[bytes], pipe) for pipe in (process.stdin, process.stdout, process.stderr))
    output = {stdout: bytearray(), stderr: bytearray()}
    os.set_blocking(stdin.fileno(), False)
    with selectors.PollSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ)
        selector.register(stderr, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in waiting.wait_for_output(selector, name, deadline, timeout_s):
                pipe = cast(IO[bytes], key.fileobj)
                if pipe is stdin:
                    rest = _write_input(stdin, rest)
                    done = not rest
                else:
                    block = os.read(pipe.fileno(), _PIPE_BLOCK_BYTES)
                    output[pipe] += block
                    waiting.note_answer()
                    done = not block
                if done:
                    selector.unregister(pipe)
                    pipe.close()
            if len(output[stdout]) + len(output[stderr]) > MAX_OUTPUT_BYTES:
                raise make_output_error(name)
    return bytes(output[stdout]), bytes(output[stderr])


def _write_input(stdin: IO[bytes], rest: memoryview) -> memoryview:
    try:
        return rest[os.write(stdin.fileno(), rest[:_PIPE_BLOCK_BYTES]) :] if rest else rest
    except BlockingIOError:
        return rest
    except BrokenPipeError:  # git needs no more input; its exit status tells the result
        return rest[:0]


def make_timeout_error(name: str, timeout_s: float) -> SourceCorrupt:
    """The error for a git command that does not answer in time."""
    return SourceCorrupt(
        f"`git {name}` timed out after {timeout_s:g} seconds and was stopped.",
        hint="A slow network disk is the usual cause; try again.",
    )


def make_unanswered_error(name: str) -> SourceCorrupt:
    """The error for a git command that does not wait, because others get no answer either."""
    return SourceCorrupt(
        f"`git {name}` was not run: other commands get no answer from this repository.",
        hint="A slow network disk is the usual cause; try again.",
    )


def make_output_error(name: str) -> SourceCorrupt:
    """The error for a git command that exceeds the output limit."""
    return SourceCorrupt(
        f"`git {name}` exceeded the output limit and was stopped.",
        hint="A commit may contain millions of files, by mistake or on purpose; check the latest commits.",
    )


def _get_first_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return (fatal or lines or [""])[0].removeprefix("fatal: ").removeprefix("error: ")
