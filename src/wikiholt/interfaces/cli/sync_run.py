"""Runs the sync of one wiki for a command: progress here and for other processes, and what Ctrl-C does."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from wikiholt.domain.index import SyncReport
from wikiholt.errors import WikiholtError
from wikiholt.indexing.batch import Pause, PauseCheck, SyncPaused
from wikiholt.indexing.reconciler import ProgressCallback, SyncProgress
from wikiholt.interfaces.cli.command import CommandContext
from wikiholt.interfaces.cli.output import show_sync_progress
from wikiholt.interfaces.cli.parser import INTERRUPTED_EXIT_CODE
from wikiholt.scheduler.reindex_job import report_activity
from wikiholt.wikis.handle import WikiHandle

SyncWork = Callable[[ProgressCallback, PauseCheck], SyncReport]


def run_sync_work(
    context: CommandContext, handle: WikiHandle, kind: str, work: SyncWork, *, keep_bar: bool = True
) -> SyncReport:
    """Run a sync or reindex. Raises KeyboardInterrupt after Ctrl-C; what was embedded until then is kept."""
    with ExitStack() as stack:
        interrupt = stack.enter_context(catch_interrupt())
        show = stack.enter_context(show_sync_progress(handle.wiki.slug, visible=context.show_progress, keep=keep_bar))
        report = stack.enter_context(report_activity(context.service, handle.wiki.id, kind))

        def on_progress(progress: SyncProgress) -> None:
            show(progress)
            report(progress)

        try:
            return work(on_progress, interrupt.get_pause)
        except SyncPaused:
            raise KeyboardInterrupt from None
        except WikiholtError:
            if interrupt.is_requested:  # the terminal sends Ctrl-C to git as well, which then fails
                raise KeyboardInterrupt from None
            raise


class InterruptRequest:
    """Whether Ctrl-C was pressed. The second time, the process ends at once."""

    def __init__(self) -> None:
        self.is_requested = False

    def handle_signal(self, _: int, __: FrameType | None) -> None:
        if self.is_requested:
            # Threads of the model cannot be stopped. Everything committed is safe, so there is nothing to wait for.
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\ninterrupted\n")
            os._exit(INTERRUPTED_EXIT_CODE)
        self.is_requested = True

    def get_pause(self) -> Pause:
        return Pause.NOW if self.is_requested else Pause.CONTINUE


@contextmanager
def catch_interrupt() -> Iterator[InterruptRequest]:
    """Record Ctrl-C instead of raising KeyboardInterrupt. Does nothing outside the main thread."""
    request = InterruptRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = signal.signal(signal.SIGINT, request.handle_signal)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, previous)
