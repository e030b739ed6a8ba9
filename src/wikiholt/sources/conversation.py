"""A running git that is talked with: requests in, answers out, and an end to all patience."""

import subprocess
import threading
import time
from collections.abc import Callable
from io import BufferedReader, BufferedWriter
from typing import cast

from wikiholt.errors import SourceCorrupt


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
