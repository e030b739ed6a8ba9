"""A running git that is talked with: requests in, answers out, and an end to all patience."""

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

from wikiholt.errors import SourceCorrupt, SourceError
from wikiholt.git.repository import RepositoryLocation


def make_timeout_error(name: str, timeout: float) -> SourceCorrupt:
    """The error for a git that does not answer."""
    return SourceCorrupt(
        f"`git {name}` did not answer within {timeout:g} seconds and was stopped.",
        hint="A slow network disk is the usual cause; try again, or give it more time.",
    )


class GitProcess:
    """A running git: write requests, read answers. Waiting longer than the time-out for one answer is an error."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, timeout: float) -> None:
        self._process = process
        self._name = name
        self._timeout = timeout
        self._waiting_since: float | None = None
        self._timed_out = False
        self._closed = threading.Event()
        self._stdin = cast(BufferedWriter, process.stdin)
        self._stdout = cast(BufferedReader, process.stdout)
        # A thread of its own, because only killing the process ends a blocked read on every platform.
        self._watchdog = threading.Thread(target=self._enforce_timeout, name=f"git-{name}", daemon=True)
        self._watchdog.start()

    def write(self, request: bytes) -> bool:
        """Send a request of at most one pipe buffer; False when git is gone."""
        try:
            self._stdin.write(request)
            self._stdin.flush()
        except OSError:
            return False
        return True

    def read_line(self) -> bytes:
        """The next line without its end; empty when git is gone."""
        line = self._read_with_timeout(self._stdout.readline)
        return line[:-1] if line.endswith(b"\n") else b""

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only when git is gone."""
        return self._read_with_timeout(lambda: self._stdout.read(size))

    def read_some(self) -> bytes:
        """Whatever bytes come next, up to a block; empty at the end."""
        return self._read_with_timeout(lambda: self._stdout.read1(1 << 16))

    def wait(self) -> int:
        """Wait for git to end and return its status."""
        self._stdin.close()
        try:
            return self._process.wait(self._timeout)
        except subprocess.TimeoutExpired as error:
            raise make_timeout_error(self._name, self._timeout) from error

    def close(self) -> None:
        """End the process, if it still runs, and let go of everything."""
        self._closed.set()
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._stdin, self._stdout):
            try:
                pipe.close()
            except OSError:  # unsent requests have nowhere to go
                continue
        self._process.wait()
        self._watchdog.join()

    def _read_with_timeout(self, read: Callable[[], bytes]) -> bytes:
        self._waiting_since = time.monotonic()
        data = read()
        self._waiting_since = None
        if self._timed_out:
            raise make_timeout_error(self._name, self._timeout)
        return data

    def _enforce_timeout(self) -> None:
        while not self._closed.wait(min(1.0, self._timeout)):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._timeout:
                self._timed_out = True
                self._process.kill()
                return


# One question to git and its whole answer, bounded in time and in size. A repository of a few kilobytes can name the
# same small tree a thousand million times over: who may push to a wiki must not be able to fill the memory of the
# service with the list of its files.


MAX_OUTPUT_BYTES = 128 * 1024 * 1024
"""A million files in a tree."""
MAX_MEMORY_BYTES = 2 * 1024**3
_PIPE_BLOCK_BYTES = 1 << 16


def run_to_end(process: "subprocess.Popen[bytes]", name: str, input_data: bytes, timeout: float) -> tuple[bytes, bytes]:
    """Hand `given` to the process and return what it says; it has ended when this returns or raises."""
    try:
        out, err = _feed_and_read(process, name, memoryview(input_data), time.monotonic() + timeout, timeout)
        process.wait(timeout)
        return out, err
    except subprocess.TimeoutExpired as error:
        raise make_timeout_error(name, timeout) from error
    finally:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            cast(IO[bytes], pipe).close()
        process.wait()


def limit_memory(pid: int) -> None:
    """Let a git that was just started take no more than this much memory: it lists a commit's changes in it first."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def make_output_error(name: str) -> SourceCorrupt:
    """The error for a git that goes on and on."""
    return SourceCorrupt(
        f"`git {name}` said more than any wiki should, and was stopped.",
        hint="A commit may hold millions of files, by mistake or ill will; look at what was committed last.",
    )


def _feed_and_read(
    process: "subprocess.Popen[bytes]", name: str, rest: memoryview, deadline: float, timeout: float
) -> tuple[bytes, bytes]:
    stdin, stdout, stderr = (cast(IO[bytes], pipe) for pipe in (process.stdin, process.stdout, process.stderr))
    said = {stdout: bytearray(), stderr: bytearray()}
    os.set_blocking(stdin.fileno(), False)
    with selectors.PollSelector() as selector:
        for pipe, event in (
            (stdin, selectors.EVENT_WRITE),
            (stdout, selectors.EVENT_READ),
            (stderr, selectors.EVENT_READ),
        ):
            selector.register(pipe, event)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                raise make_timeout_error(name, timeout)
            for key, _ in ready:
                pipe = cast(IO[bytes], key.fileobj)
                if pipe is stdin:
                    rest = _write_input(stdin, rest)
                    done = not rest
                else:
                    block = os.read(pipe.fileno(), _PIPE_BLOCK_BYTES)
                    said[pipe] += block
                    done = not block
                if done:
                    selector.unregister(pipe)
                    pipe.close()
            if len(said[stdout]) + len(said[stderr]) > MAX_OUTPUT_BYTES:
                raise make_output_error(name)
    return bytes(said[stdout]), bytes(said[stderr])


def _write_input(stdin: IO[bytes], rest: memoryview) -> memoryview:
    try:
        return rest[os.write(stdin.fileno(), rest[:_PIPE_BLOCK_BYTES]) :] if rest else rest
    except BlockingIOError:
        return rest
    except BrokenPipeError:  # it has heard enough; its status says the rest
        return rest[:0]


# The git binary: run without a shell, in a clean environment, never for ever. Nothing that git could be told by its
# surroundings is let in: hooks export GIT_DIR and the like, users have aliases and settings of their own. What is
# asked of git depends on the repository alone. Git is never allowed to use the network: in a partial clone an object
# that was not fetched is a missing object.


_GIT_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # A replaced object would let one id mean two contents; the index holds on to ids.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_GIT_CONFIG = (
    "core.fsmonitor=false",
    # Who can write into a repository could otherwise have programs run by whoever reads or writes it.
    f"core.hooksPath={os.devnull}",
    "core.quotePath=false",
    # What is committed must outlive a power cut, and the branch must never name what did not.
    "core.fsync=objects,reference",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.showRoot=true",
    "log.showSignature=false",
)


@dataclass(frozen=True, slots=True)
class GitResult:
    """What a finished git said."""

    status: int
    stdout: bytes
    stderr: str

    def to_error(self, action: str) -> SourceError:
        """The error that says what git would not do, in git's own words."""
        return SourceCorrupt(
            f"Git could not {action}: {self.stderr or f'it ended with status {self.status}'}",
            hint="Look at the repository with `git fsck`.",
        )


class GitRunner:
    """One repository as the git binary sees it. Safe to use from many threads."""

    def __init__(self, location: RepositoryLocation, timeout: float) -> None:
        # Naming the git directory keeps git from looking for another one further up,
        # and from refusing a repository that belongs to somebody else.
        self._location = location
        self._prefix = ["git", f"--git-dir={location.git_dir}", "--no-pager"]
        for setting in (f"safe.directory={location.git_dir}", *_GIT_CONFIG):
            self._prefix += ["-c", setting]
        self._timeout = timeout

    def run(self, *arguments: str, input_data: bytes = b"", environment: Mapping[str, str] | None = None) -> GitResult:
        """Run one command to its end, with `given` on its standard input; a git that never ends is an error."""
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._location.git_dir,
                env=build_environment() | dict(environment or {}),
            )
        except OSError as error:
            raise self._make_start_error(error) from error
        limit_memory(process.pid)
        out, err = run_to_end(process, arguments[0], input_data, self._timeout)
        return GitResult(process.returncode, out, _get_first_line(err))

    @contextmanager
    def start(self, *arguments: str, timeout_factor: float = 1) -> Iterator[GitProcess]:
        """Start a command to talk with; it is gone when the block is left, however that happens."""
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._location.git_dir,
                env=build_environment(),
            )
        except OSError as error:
            raise self._make_start_error(error) from error
        limit_memory(process.pid)
        conversation = GitProcess(process, arguments[0], self._timeout * timeout_factor)
        try:
            yield conversation
        finally:
            conversation.close()

    def _make_start_error(self, error: OSError) -> SourceError:
        if isinstance(error, FileNotFoundError) and self._location.git_dir.exists():
            return SourceCorrupt("Git is not installed.", hint="Install git and make sure that it is on the PATH.")
        return SourceCorrupt(f"Git could not be started: {error.strerror or error}.", hint="Is the repository there?")


def build_environment() -> dict[str, str]:
    """The environment git runs in: what this process has, without anything that is meant for git."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return inherited | _GIT_ENVIRONMENT


def _get_first_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return (fatal or lines or [""])[0].removeprefix("fatal: ").removeprefix("error: ")
