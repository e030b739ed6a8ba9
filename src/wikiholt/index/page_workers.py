"""Prepares pages in several processes, for a model on a GPU: there the text work takes longer than the embedding."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields, is_dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.reduction import ForkingPickler
from operator import attrgetter
from typing import Any

from wikiholt.domain import page as page_types
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import PageTokenizer
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.processor import count_available_cores

_log = logging.getLogger(__name__)

MIN_PAGES = 1_000
"""With fewer pages, starting the processes would take longer than it saves."""
_MAX_WORKERS = 16
_PAGES_PER_CALL = 12

Prepared = PreparedPage | PageProblem


class PageWorkers:
    """Worker processes for one pipeline. If one of them dies, this process does the work instead."""

    def __init__(
        self, pipeline: TextPipeline, tokenizer: PageTokenizer, make_tokenizer: Callable[[], PageTokenizer], count: int
    ) -> None:
        self._pipeline = pipeline
        self._tokenizer = tokenizer
        # Threads of the model would not survive a fork, so the processes are started from nothing.
        self._pool = ProcessPoolExecutor(
            count, get_context("spawn"), initializer=_start_worker, initargs=(pipeline, make_tokenizer)
        )
        self._is_broken = False

    def submit(self, tasks: Sequence[PageTask]) -> Callable[[], list[Prepared]]:
        """Start to prepare these pages. The returned function waits for the results, in order."""
        calls = [tasks[start : start + _PAGES_PER_CALL] for start in range(0, len(tasks), _PAGES_PER_CALL)]
        futures = [self._submit_call(call) for call in calls]
        return lambda: [
            page for call, future in zip(calls, futures, strict=True) for page in self._collect(call, future)
        ]

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _submit_call(self, call: Sequence[PageTask]) -> "Future[list[Prepared]] | None":
        try:
            return None if self._is_broken else self._pool.submit(_prepare_pages, call)
        except BrokenProcessPool as error:
            self._report(error)
            return None

    def _collect(self, call: Sequence[PageTask], future: "Future[list[Prepared]] | None") -> list[Prepared]:
        if future is not None:
            try:
                return future.result()
            except BrokenProcessPool as error:
                self._report(error)
        return [self._pipeline.prepare(task, self._tokenizer) for task in call]

    def _report(self, error: Exception) -> None:
        if not self._is_broken:
            _log.warning("A process that prepares pages died; the sync continues without: %s", error)
        self._is_broken = True


def count_page_workers() -> int:
    """Two cores are left for this process and for the model."""
    return min(_MAX_WORKERS, count_available_cores()) - 2


_worker: tuple[TextPipeline, PageTokenizer] | None = None


def _start_worker(pipeline: TextPipeline, make_tokenizer: Callable[[], PageTokenizer]) -> None:
    global _worker  # noqa: PLW0603 - the state of a worker process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    register_reductions()
    _worker = (pipeline, make_tokenizer())


def register_reductions() -> None:
    """Have this process send pages in a form that the parent reads almost twice as fast."""
    for kind in (*vars(page_types).values(), PreparedPage):
        if isinstance(kind, type) and is_dataclass(kind):
            _register_reduction(kind)


def _register_reduction(kind: type[Any]) -> None:
    """Send objects of this dataclass as calls of its constructor."""
    names = [field.name for field in fields(kind)]
    get_values = attrgetter(*names) if len(names) > 1 else lambda each: (getattr(each, names[0]),)
    ForkingPickler.register(kind, lambda each: (kind, get_values(each)))


def _exit_with_parent() -> None:
    """End this process if its parent was killed: otherwise it would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _prepare_pages(tasks: Sequence[PageTask]) -> list[Prepared]:
    assert _worker is not None
    pipeline, tokenizer = _worker
    return [pipeline.prepare(task, tokenizer) for task in tasks]
