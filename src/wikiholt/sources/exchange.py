"""One question to git and its whole answer, bounded in time and in size.

A repository of a few kilobytes can name the same small tree a thousand million times over: who may push to a wiki must
not be able to fill the memory of the service with the list of its files.
"""

import os
import resource
import selectors
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, cast

from wikiholt.errors import SourceCorrupt
from wikiholt.sources.conversation import make_timeout_error

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
