"""`wikiholt sync`, `reindex` and `status`: the index of a wiki, and the work on it by other processes."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any

from wikiholt.api.documents.admin_documents import (
    ActivityDocument,
    ErrorDocument,
    ReindexEstimateDocument,
    build_status_document,
    build_sync_document,
)
from wikiholt.api.documents.common import build_document, format_date
from wikiholt.domain.index import SyncReport
from wikiholt.errors import NoPagesYet, WikiholtError
from wikiholt.index.batch import Pause, PauseCheck, SyncPaused
from wikiholt.index.reconciler import ProgressCallback, SyncProgress
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import (
    CommandContext,
    Subparsers,
    add_command,
    add_quiet,
    add_slug,
)
from wikiholt.interfaces.cli.output import TerminalStyle, show_sync_progress, to_safe_line
from wikiholt.interfaces.cli.parser import INTERRUPTED_EXIT_CODE
from wikiholt.sync.reindex_job import ReindexState, WikiWork, finish_reindex_job, read_wiki_work, report_activity
from wikiholt.wikis.handle import WikiHandle

_CACHE_TIMEOUT_S = 600.0
"""How long a command waits for the caches of a large wiki, so that the next search finds them."""


def add_arguments(commands: Subparsers) -> None:
    # An earlier command may have been killed before it backed up the registry.
    sync = add_command(commands, "sync", run_sync, changes_registry=True)
    add_slug(sync, optional=True)
    add_quiet(sync)
    reindex = add_command(commands, "reindex", run_reindex)
    add_slug(reindex)
    reindex.add_argument("--dry-run", action="store_true", help="only estimate chunks, time and disk space")
    add_quiet(reindex)
    status = add_command(commands, "status", run_status)
    add_slug(status, optional=True)


def run_sync(context: CommandContext) -> int:
    """Sync one wiki or all. If one of all wikis fails, the others are synced anyway."""
    arguments = context.arguments

    def sync(slug: str) -> Mapping[str, Any]:
        handle = context.service.get_handle(slug)
        try:
            handle.fetch()
            report = run_sync_work(context, handle, "sync", handle.sync)
            handle.wait_for_caches(_CACHE_TIMEOUT_S)
        except NoPagesYet as error:
            if not arguments.json:
                output.print_lines([f"{slug}: no pages yet"])
            return {"wiki": slug, "error": build_document(ErrorDocument, error)}
        if not arguments.json:
            skipped = handle.get_status().skipped
            output.print_lines(context.complete_quoted(output.format_sync(slug, report, skipped, context.style)))
        return build_sync_document(handle.wiki, report)

    documents, exit_code = context.run_for_each(context.get_slugs(), sync)
    context.print_result(documents[0] if arguments.slug else {"wikis": documents}, [])
    return exit_code


def run_reindex(context: CommandContext) -> int:
    slug = context.arguments.slug
    handle = context.service.get_handle(slug)
    if context.arguments.dry_run:
        estimate = handle.estimate_reindex()
        lines = output.format_estimate(slug, estimate, context.style)
        return context.print_result(build_document(ReindexEstimateDocument, estimate), lines)
    report = run_sync_work(context, handle, "reindex", partial(handle.sync, from_scratch=True))
    finish_reindex_job(context.service, handle.wiki.id, report)
    handle.wait_for_caches(_CACHE_TIMEOUT_S)
    lines = output.format_sync(slug, report, handle.get_status().skipped, context.style)
    return context.print_result(build_sync_document(handle.wiki, report), context.complete_quoted(lines))


def run_status(context: CommandContext) -> int:
    lines: list[str] = []

    def show(slug: str) -> Mapping[str, Any]:
        status = context.service.get_handle(slug).get_status()
        if status.error is not None:
            status.error.hint = context.complete(status.error.hint)
        work = read_wiki_work(context.service, status.wiki.id)
        text = [*output.format_status(status, context.style), *format_work(work, context.style)]
        lines.extend(context.complete_quoted(text))
        return {**build_status_document(status), **build_work_document(work)}

    documents, exit_code = context.run_for_each(context.get_slugs(), show)
    context.print_result(documents[0] if context.arguments.slug else {"wikis": documents}, lines)
    return exit_code


# Work on an index by any process.


def format_work(work: WikiWork, style: TerminalStyle) -> list[str]:
    """The work as text; empty if there is none."""
    job = work.job
    if work.activity is not None:
        activity = work.activity
        progress = f"{activity.pages_done} of {activity.pages_total} pages"
        return [f"  {activity.kind} running since {activity.since:%Y-%m-%d %H:%M} UTC: {progress}"]
    if work.is_reindex_unfinished:
        started = f"started {job.started_at:%Y-%m-%d %H:%M} UTC, " if job.started_at else ""
        progress = f"{job.pages_done} of {job.pages_total} pages" if job.pages_total else "nothing done yet"
        return [
            style.format_warning(f"  a reindex is unfinished ({started}{progress}); the current index stays in use"),
            "  hint: the service continues it, at the latest after a restart; `wikiholt reindex` does so too",
        ]
    if job.state is ReindexState.FAILED:
        return [style.format_warning(f"  the last reindex failed: {to_safe_line(job.error)}")]
    return []


def build_work_document(work: WikiWork) -> dict[str, Any]:
    """The running activity, and the reindex that is neither complete nor running, if any."""
    job = work.job
    unfinished = {
        "started_at": format_date(job.started_at),
        "pages_done": job.pages_done,
        "pages_total": job.pages_total,
    }
    return {
        "activity": build_document(ActivityDocument, work.activity) if work.activity else None,
        "unfinished_reindex": unfinished if work.is_reindex_unfinished else None,
    }


# A sync or reindex of one wiki: progress here and for other processes, and what Ctrl-C does.


SyncWork = Callable[[ProgressCallback, PauseCheck], SyncReport]


def run_sync_work(
    context: CommandContext, handle: WikiHandle, kind: str, work: SyncWork, *, keep_bar: bool = True
) -> SyncReport:
    """Run a sync or reindex. Raises KeyboardInterrupt after Ctrl-C; what was embedded until then is kept."""
    with ExitStack() as stack:
        interrupted = stack.enter_context(catch_interrupt())
        show = stack.enter_context(show_sync_progress(handle.wiki.slug, visible=context.show_progress, keep=keep_bar))
        report = stack.enter_context(report_activity(context.service, handle.wiki.id, kind))

        def on_progress(progress: SyncProgress) -> None:
            show(progress)
            report(progress)

        try:
            return work(on_progress, lambda: Pause.NOW if interrupted.is_set() else Pause.CONTINUE)
        except SyncPaused:
            raise KeyboardInterrupt from None
        except WikiholtError:
            if interrupted.is_set():  # the terminal sends Ctrl-C to git as well, which then fails
                raise KeyboardInterrupt from None
            raise


@contextmanager
def catch_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets instead of raising KeyboardInterrupt. The second time, the process ends at once.

    Does nothing outside the main thread.
    """
    interrupted = threading.Event()

    def handle_signal(_: int, __: FrameType | None) -> None:
        if interrupted.is_set():
            # Threads of the model cannot be stopped. Everything committed is safe, so there is nothing to wait for.
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\ninterrupted\n")
            os._exit(INTERRUPTED_EXIT_CODE)
        interrupted.set()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    previous = signal.signal(signal.SIGINT, handle_signal)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
