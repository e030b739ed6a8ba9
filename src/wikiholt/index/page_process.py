"""Prepares large pages in a process of their own, which is ended when one takes too long.

A library that is busy with a page may hold the interpreter lock, and nothing in this process can interrupt it.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType

from wikiholt.domain.git import TreeEntry
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import PageTokenizer, Source
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline

_log = logging.getLogger(__name__)

LARGE_PAGE_BYTES = 65_536
"""Smaller pages are prepared in this process: there even quadratic time is short."""
LIMIT_S = 30.0
LIMIT_S_PER_MIB = 5.0
"""CPU time for one page. An ordinary page takes one second per MiB."""

_START = "import sys; sys.path[:] = sys.argv[2:]; from wikiholt.index import {0}; {0}.serve()"

Prepared = PreparedPage | PageProblem


class PageProcess:
    """Prepares the pages of one pipeline. The process starts with the first large page."""

    def __init__(self, pipeline: TextPipeline, tokenizer: PageTokenizer) -> None:
        self._pipeline = pipeline
        self._tokenizer = tokenizer
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._can_start = True

    def __enter__(self) -> "PageProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, task: PageTask) -> Prepared:
        """As `TextPipeline.prepare`. A page that takes too long, or ends the process, is a problem."""
        running = self._get_running() if is_large(task) else None
        if running is None:
            return self._pipeline.prepare(task, self._tokenizer)
        process, connection = running
        try:
            connection.send((task, compute_limit_s(task)))
            while isinstance(answer := connection.recv(), str):
                connection.send(list(self._tokenizer.get_token_spans(answer)))
        except Exception as error:  # noqa: BLE001 - an error of one page must not stop the others
            self.close()
            return _describe_failure(task, process.returncode, error)
        return answer  # type: ignore[no-any-return]

    def prepare_files(self, source: Source, entries: Mapping[str, TreeEntry]) -> list[Prepared]:
        """Read and prepare these files. Returns one result per entry, irregular files first."""
        tasks, problems = self._pipeline.read_batch(source, entries)
        return [*problems, *map(self.prepare, tasks)]

    def close(self) -> None:
        """End the process, whatever it does. A later large page starts it again."""
        running, self._running = self._running, None
        if running is not None:
            process, connection = running
            connection.close()
            process.kill()
            process.wait()

    def _get_running(self) -> tuple[subprocess.Popen[bytes], Connection] | None:
        """The process, started if necessary. None if it cannot be started."""
        if self._running is None and self._can_start:
            try:
                self._start()
            except (OSError, EOFError) as error:
                self.close()
                self._can_start = False
                _log.warning("Large pages are prepared without a limit of time: no process can be started: %s", error)
        return self._running

    def _start(self) -> None:
        """Start the process and wait until it has read the modules that it needs."""
        process, ours = start_process("page_process")
        self._running = process, ours
        ours.send((self._pipeline, self._tokenizer.max_tokens))
        ours.recv()


def start_process(module: str) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start a process that runs `serve` of this module of `wikiholt.index`, and return it with its connection."""
    # In some servers sys.executable is not Python. A fork would copy locks that other threads hold.
    python = next((str(p) for p in (Path(sys.prefix, "bin", "python3"),) if p.exists()), sys.executable)
    ours, theirs = Pipe()
    with theirs:
        command = [python, "-I", "-c", _START.format(module), str(theirs.fileno()), *filter(None, sys.path)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
    return process, ours


def is_large(task: PageTask) -> bool:
    """Whether a page is prepared in a process of its own."""
    return task.blob.data is not None and len(task.blob.data) >= LARGE_PAGE_BYTES


def compute_limit_s(task: PageTask) -> float:
    """The CPU time that this page may take."""
    return LIMIT_S + LIMIT_S_PER_MIB * task.blob.size / 1024**2


def _describe_failure(task: PageTask, code: int, error: Exception) -> PageProblem:
    file, blob = task.file, task.blob.id
    if code == -signal.SIGPROF:
        seconds = f"{compute_limit_s(task):.0f} seconds of CPU time"
        return PageProblem(
            file, blob, "too-costly", f"preparing this page takes more than {seconds}; split it into several pages"
        )
    if isinstance(error, EOFError | ConnectionError):
        return PageProblem(file, blob, "failed", f"the process that prepared this page ended with code {code}")
    return PageProblem(file, blob, "failed", f"{type(error).__name__}: {error}")


# The other side.


class _RemoteTokenizer:
    """The tokenizer of the parent: loading it here would take longer than asking."""

    def __init__(self, connection: Connection, max_tokens: int) -> None:
        self._connection = connection
        self.max_tokens = max_tokens

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        self._connection.send(text)
        spans: Sequence[tuple[int, int]] = self._connection.recv()
        return spans


def serve() -> None:
    """Prepare pages until the parent ends or closes the connection.

    The system ends this process when a page takes too long, even if the parent is gone.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    connection = Connection(int(sys.argv[1]))
    try:
        pipeline, max_tokens = connection.recv()
        connection.send(os.getpid())
        tokenizer = _RemoteTokenizer(connection, max_tokens)
        while True:
            task, limit_s = connection.recv()
            signal.setitimer(signal.ITIMER_PROF, limit_s)
            result = pipeline.prepare(task, tokenizer)
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send(result)
    except (EOFError, OSError):
        return
