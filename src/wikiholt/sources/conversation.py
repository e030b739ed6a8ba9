"""A running git that is talked with: requests in, answers out, and an end to all patience."""

import subprocess
import threading
import time
from collections.abc import Callable
from io import BufferedReader, BufferedWriter
from typing import cast

from wikiholt.errors import SourceBroken


def hung(name: str, timeout: float) -> SourceBroken:
    """The error for a git that does not answer."""
    return SourceBroken(
        f"`git {name}` did not answer within {timeout:g} seconds and was stopped.",
        hint="A slow network disk is the usual cause; try again, or give it more time.",
    )


class Conversation:
    """A running git: write requests, read answers. Waiting longer than the time-out for one answer is an error."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, timeout: float) -> None:
        self._process = process
        self._name = name
        self._timeout = timeout
        self._waiting_since: float | None = None
        self._hung = False
        self._closed = threading.Event()
        self._in = cast(BufferedWriter, process.stdin)
        self._out = cast(BufferedReader, process.stdout)
        # A thread of its own, because only killing the process ends a blocked read on every platform.
        self._watch = threading.Thread(target=self._watch_over, name=f"git-{name}", daemon=True)
        self._watch.start()

    def write(self, request: bytes) -> bool:
        """Send a request of at most one pipe buffer; False when git is gone."""
        try:
            self._in.write(request)
            self._in.flush()
        except OSError:
            return False
        return True

    def line(self) -> bytes:
        """The next line without its end; empty when git is gone."""
        line = self._wait(self._out.readline)
        return line[:-1] if line.endswith(b"\n") else b""

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only when git is gone."""
        return self._wait(lambda: self._out.read(size))

    def some(self) -> bytes:
        """Whatever bytes come next, up to a block; empty at the end."""
        return self._wait(lambda: self._out.read1(1 << 16))

    def end(self) -> int:
        """Wait for git to end and return its status."""
        self._in.close()
        try:
            return self._process.wait(self._timeout)
        except subprocess.TimeoutExpired as error:
            raise hung(self._name, self._timeout) from error

    def close(self) -> None:
        """End the process, if it still runs, and let go of everything."""
        self._closed.set()
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._in, self._out):
            try:
                pipe.close()
            except OSError:  # unsent requests have nowhere to go
                continue
        self._process.wait()
        self._watch.join()

    def _wait(self, read: Callable[[], bytes]) -> bytes:
        self._waiting_since = time.monotonic()
        data = read()
        self._waiting_since = None
        if self._hung:
            raise hung(self._name, self._timeout)
        return data

    def _watch_over(self) -> None:
        while not self._closed.wait(min(1.0, self._timeout)):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._timeout:
                self._hung = True
                self._process.kill()
                return
