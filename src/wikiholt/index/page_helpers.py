"""Processes that prepare pages beside this one, while no model needs the cores."""

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from subprocess import Popen
from threading import Thread

from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import PageTokenizer
from wikiholt.index.page_process import PageProcess, Prepared, is_large, start_process
from wikiholt.index.page_workers import register_reductions
from wikiholt.index.pipeline import PageTask, TextPipeline
from wikiholt.processor import count_available_cores

_log = logging.getLogger(__name__)

MIN_HELPED_PAGES = 300
"""With fewer pages, starting a process would take longer than it saves."""
_MAX_HELPERS = 3
"""This process writes what they prepare, and could not keep up with more."""
_PAGES_PER_CALL = 8
_CALLS_AHEAD = 3
_BATCHES_AHEAD = 6

TaskBatch = tuple[Sequence[PageTask], Sequence[PageProblem]]


@dataclass(eq=False, slots=True)
class _Slot:
    task: PageTask
    result: Prepared | None = None


@dataclass(eq=False, slots=True)
class _Helper:
    process: Popen[bytes]
    connection: Connection
    is_ready: bool = False
    calls: deque[list[_Slot]] = field(default_factory=deque)


class PageHelpers:
    """Prepares pages in this process and in others. If one of these ends, this process does its work."""

    def __init__(
        self, pages: PageProcess, pipeline: TextPipeline, make_tokenizer: Callable[[], PageTokenizer], count: int
    ) -> None:
        """`pages` prepares the pages of this process, and all large ones."""
        self._pages = pages
        self._helpers: list[_Helper] = []
        self._waiting = deque[_Slot]()
        try:
            for _ in range(count):
                process, connection = start_process("page_helpers")
                self._helpers.append(_Helper(process, connection))
                connection.send((pipeline, make_tokenizer))
        except OSError as error:
            _log.warning("Pages are prepared by fewer processes: no process can be started: %s", error)

    def iter_prepared(self, batches: Iterable[TaskBatch]) -> Iterator[list[Prepared]]:
        """One result per task and problem of each batch, in order."""
        remaining = iter(batches)
        ahead = deque[tuple[Sequence[PageProblem], list[_Slot]]]()
        while True:
            while len(ahead) < _BATCHES_AHEAD and (batch := next(remaining, None)):
                slots = [_Slot(task) for task in batch[0]]
                ahead.append((batch[1], slots))
                self._waiting += slots
            if not ahead:
                return
            self._exchange()
            problems, slots = ahead[0]
            results = [slot.result for slot in slots if slot.result is not None]
            if len(results) == len(slots):
                ahead.popleft()
                yield [*problems, *results]
            elif self._waiting:
                slot = self._waiting.popleft()
                slot.result = self._pages.prepare(slot.task)
            else:
                wait([helper.connection for helper in self._helpers])

    def close(self) -> None:
        """End the processes, whatever they do."""
        for helper in self._helpers:
            helper.connection.close()
            helper.process.kill()
            helper.process.wait()
        self._helpers = []

    def _exchange(self) -> None:
        """Take what the processes have prepared, and give them the next pages."""
        for helper in list(self._helpers):
            try:
                while helper.connection.poll():
                    answer = helper.connection.recv()
                    if helper.is_ready:
                        for slot, result in zip(helper.calls.popleft(), answer, strict=True):
                            slot.result = result
                    helper.is_ready = True
                while helper.is_ready and len(helper.calls) < _CALLS_AHEAD and (slots := self._take_small_pages()):
                    helper.calls.append(slots)
                    helper.connection.send([slot.task for slot in slots])
            except (OSError, EOFError) as error:
                self._give_up(helper, error)

    def _take_small_pages(self) -> list[_Slot]:
        slots = list(islice((slot for slot in self._waiting if not is_large(slot.task)), _PAGES_PER_CALL))
        for slot in slots:
            self._waiting.remove(slot)
        return slots

    def _give_up(self, helper: _Helper, error: Exception) -> None:
        """Take the work of a process back that has ended."""
        _log.warning("A process that prepares pages ended; the sync continues without: %s", error)
        self._helpers.remove(helper)
        helper.connection.close()
        helper.process.kill()
        helper.process.wait()
        self._waiting.extendleft(slot for slots in helper.calls for slot in slots if slot.result is None)


def count_page_helpers() -> int:
    """One core is left for this process."""
    return min(_MAX_HELPERS, count_available_cores() - 1)


# The other side.


def serve() -> None:
    """Prepare pages until the parent ends or closes the connection."""
    connection = Connection(int(sys.argv[1]))
    calls = SimpleQueue[list[PageTask] | None]()
    with suppress(EOFError, OSError):
        pipeline, make_tokenizer = connection.recv()
        register_reductions()
        tokenizer = make_tokenizer()
        connection.send(None)
        Thread(target=_receive, args=(connection, calls), daemon=True).start()
        while (tasks := calls.get()) is not None:
            connection.send([pipeline.prepare(task, tokenizer) for task in tasks])


def _receive(connection: Connection, calls: SimpleQueue[list[PageTask] | None]) -> None:
    """Read what the parent sends at once: it must never wait for a page."""
    with suppress(EOFError, OSError):
        while True:
            calls.put(connection.recv())
    calls.put(None)
