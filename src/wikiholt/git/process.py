"""Runs the git binary, bounded in time, memory and output: single commands, and processes for request and answer."""

import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from typing import IO, cast

from wikiholt.errors import SourceCorrupt, SourceError, SourceMissing
from wikiholt.git.repository import RepositoryLocation

MAX_OUTPUT_BYTES = 128 * 1024 * 1024
"""Enough for a tree of a million files. A crafted repository of a few kilobytes can list one small tree a billion
times: without a limit, anybody who can push to a wiki could exhaust the service's memory."""
MAX_MEMORY_BYTES = 2 * 1024**3
_PIPE_BLOCK_BYTES = 1 << 16
_MAX_WAITING = 8
_MAX_QUEUE_S = 5.0
"""How long a command waits while that many others get no answer."""
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
    """Limits how many threads wait for git in one repository: one that does not answer must leave some for others."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(_MAX_WAITING)
        self._since: dict[int, float] = {}

    @contextmanager
    def wait(self, name: str) -> Iterator[None]:
        """Wait for an answer of git in this block. Raises SourceCorrupt if too many others do, for too long."""
        if not self._slots.acquire(timeout=max(0.0, _MAX_QUEUE_S - self._get_shortest_wait())):
            raise SourceCorrupt(
                f"`git {name}` was not started: {_MAX_WAITING} commands get no answer from this repository.",
                hint="A slow network disk is the usual cause; try again.",
            )
        thread = threading.get_ident()
        self._since[thread] = time.monotonic()
        try:
            yield
        finally:
            del self._since[thread]
            self._slots.release()

    def _get_shortest_wait(self) -> float:
        """For how many seconds all threads have waited; 0 if there is a free slot."""
        since = list(self._since.values())
        return time.monotonic() - max(since) if len(since) >= _MAX_WAITING else 0.0


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
        with self._wait_limit.wait(arguments[0]):
            process = self._spawn(arguments, subprocess.PIPE, environment)
            stdout, stderr = run_to_end(process, arguments[0], input_data, self._timeout_s)
        return GitResult(process.returncode, stdout, _get_first_line(stderr))

    @contextmanager
    def start(self, *arguments: str, timeout_factor: float = 1) -> Iterator["GitProcess"]:
        """Start a command for requests and answers; the process is ended when the block is left."""
        timeout_s, spawned = self._timeout_s * timeout_factor, self._spawn(arguments, subprocess.DEVNULL)
        process = GitProcess(spawned, arguments[0], timeout_s, self._wait_limit)
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
        self._waiting_since: float | None = None
        self._timed_out = False
        self._closed = threading.Event()
        self._stdin = cast(BufferedWriter, process.stdin)
        self._stdout = cast(BufferedReader, process.stdout)
        # A separate thread: only killing the process ends a blocked read on every platform.
        self._watchdog = threading.Thread(target=self._enforce_timeout, name=f"git-{name}", daemon=True)
        self._watchdog.start()

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
        line = self._read_with_timeout(self._stdout.readline)
        return line[:-1] if line.endswith(b"\n") else b""

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only if git has exited."""
        return self._read_with_timeout(lambda: self._stdout.read(size))

    def read_some(self) -> bytes:
        """The next available bytes, up to one block; empty at the end."""
        return self._read_with_timeout(lambda: self._stdout.read1(1 << 16))

    def wait(self) -> int:
        """Wait for git to exit and return its status."""
        self._stdin.close()
        try:
            return self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired as error:
            raise make_timeout_error(self._name, self._timeout_s) from error

    def close(self) -> None:
        """Kill the process if it still runs, and close its pipes."""
        self._closed.set()
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._stdin, self._stdout):
            try:
                pipe.close()
            except OSError:  # unsent requests are discarded
                continue
        self._process.wait()
        self._watchdog.join()

    def _read_with_timeout(self, read: Callable[[], bytes]) -> bytes:
        with self._wait_limit.wait(self._name):
            self._waiting_since = time.monotonic()
            data = read()
            self._waiting_since = None
        if self._timed_out:
            raise make_timeout_error(self._name, self._timeout_s)
        return data

    def _enforce_timeout(self) -> None:
        while not self._closed.wait(min(1.0, self._timeout_s)):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._timeout_s:
                self._timed_out = True
                self._process.kill()
                return


def build_environment() -> dict[str, str]:
    """The environment for git: that of this process, with every GIT_ variable replaced."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return inherited | _GIT_ENVIRONMENT


def limit_memory(pid: int) -> None:
    """Limit the memory of a git process that was just started: git collects a commit's changes in memory."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def run_to_end(
    process: "subprocess.Popen[bytes]", name: str, input_data: bytes, timeout_s: float
) -> tuple[bytes, bytes]:
    """Send `input_data` to the process and return its stdout and stderr. The process has ended when this returns."""
    try:
        output = _feed_and_read(process, name, memoryview(input_data), time.monotonic() + timeout_s, timeout_s)
        process.wait(timeout_s)
        return output
    except subprocess.TimeoutExpired as error:
        raise make_timeout_error(name, timeout_s) from error
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            cast(IO[bytes], pipe).close()
        process.wait()


def _feed_and_read(
    process: "subprocess.Popen[bytes]", name: str, rest: memoryview, deadline: float, timeout_s: float
) -> tuple[bytes, bytes]:
    stdin, stdout, stderr = (cast(IO[bytes], pipe) for pipe in (process.stdin, process.stdout, process.stderr))
    output = {stdout: bytearray(), stderr: bytearray()}
    os.set_blocking(stdin.fileno(), False)
    with selectors.PollSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ)
        selector.register(stderr, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                raise make_timeout_error(name, timeout_s)
            for key, _ in ready:
                pipe = cast(IO[bytes], key.fileobj)
                if pipe is stdin:
                    rest = _write_input(stdin, rest)
                    done = not rest
                else:
                    block = os.read(pipe.fileno(), _PIPE_BLOCK_BYTES)
                    output[pipe] += block
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
