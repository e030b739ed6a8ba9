"""`wikiholt serve`: serves all wikis over HTTP and keeps their indexes at HEAD until a signal stops it."""

import logging
import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from wikiholt.errors import InvalidInput, InvalidSource
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.output import format_count
from wikiholt.sync.wiki_records import SchedulerProgress


def add_arguments(commands: Subparsers) -> None:
    parser = add_command(commands, "serve", run_serve)
    parser.add_argument(
        "directories",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="register the repositories in this directory, or the directory itself if it is a repository or contains"
        " pages and no repositories; repeatable",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: serve.host, 127.0.0.1)")
    parser.add_argument("--port", metavar="PORT", help="port (default: serve.port, 8765); 0 chooses a free one")
    parser.add_argument(
        "--background",
        action="store_true",
        help="what commands start themselves: answers them without a port, until unused",
    )
    parser.add_argument("--workers", metavar="N", help="processes that answer requests (default: serve.workers, 1)")


def run_serve(context: CommandContext) -> int:
    """Serve until SIGTERM or SIGINT, then shut down cleanly with exit code 0."""
    roots = [_check_root(path) for path in context.arguments.directories]
    settings, as_json = context.settings, context.arguments.json
    if context.arguments.background:
        _check_background(context.arguments)
        from wikiholt.interfaces.cli.http_server import serve_in_background

        serve_in_background(settings)
        return 0
    if not as_json:
        show_status(settings.log_level)
    from wikiholt.interfaces.cli.supervisor import supervise, take_child_spec

    child = take_child_spec(os.environ)
    if child is not None:
        from wikiholt.interfaces.cli.http_server import run_child

        run_child(settings, roots, child, as_json=as_json)
    elif settings.serve_workers > 1:
        return supervise(settings, context.arguments.given, as_json=as_json)
    else:
        from wikiholt.interfaces.cli.http_server import serve

        serve(settings, roots, as_json=as_json)
    return 0


def _check_background(arguments: Namespace) -> None:
    """Raise InvalidInput if the process in the background should listen at an address, or serve directories."""
    if arguments.directories or any(value is not None for value in (arguments.host, arguments.port, arguments.workers)):
        raise InvalidInput(
            "--background takes no directory, --host, --port or --workers: it answers commands only.",
            hint="To serve browsers and programs, leave out --background.",
        )


def _check_root(path: Path) -> Path:
    """Resolve a path to serve. Raises InvalidSource if there is no such directory."""
    root = path.resolve()
    if not root.is_dir():
        raise InvalidSource(
            f"There is no directory {path}.",
            hint="Name a directory of repositories, a repository, or a directory of pages.",
        )
    return root


# What it is doing: how many wikis it serves, the progress of syncs, and when all are ready.


_STATUS_LOG = logging.getLogger("wikiholt.serve")

_POLL_INTERVAL_S = 0.5
_REPORT_INTERVAL_S = 10.0
_MAX_NAMED_WIKIS = 3


def show_status(log_level: str) -> None:
    """Show these lines unless the log level is `error`, although they are only information."""
    if log_level == "warning":
        _STATUS_LOG.setLevel(logging.INFO)


@contextmanager
def report_progress(get_progress: Callable[[], SchedulerProgress]) -> Iterator[None]:
    """Log the progress of the scheduler until the block ends."""
    stop = Event()

    def run() -> None:
        reporter, interval, elapsed = ProgressReporter(_STATUS_LOG.info), _POLL_INTERVAL_S, 0.0
        while not stop.wait(interval):
            elapsed += interval
            interval = _REPORT_INTERVAL_S if reporter.report(get_progress(), elapsed) else _POLL_INTERVAL_S

    thread = Thread(target=run, name="serve-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def log_start(wikis: int, data: str, roots: Sequence[Path]) -> None:
    """Log how many wikis are served from which data directory, and where others are looked for."""
    if wikis:
        _STATUS_LOG.info("serving %s from %s", format_count(wikis, "wiki"), data)
    if roots:
        _STATUS_LOG.info("looking for wikis in %s", ", ".join(map(str, roots)))
    elif not wikis:
        _STATUS_LOG.info("no wikis yet in %s; add one with `wikiholt add SLUG PATH`", data)


class ProgressReporter:
    """Turns the states of the scheduler into lines: one when all wikis are ready, few while they are not."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._ready_wikis = 0
        self._reported_at = 0.0
        self._last_line = ""

    def report(self, progress: SchedulerProgress, now_s: float) -> bool:
        """Log what is new at this time. Returns whether all wikis are ready."""
        if progress.synced + progress.failed >= progress.wikis:
            if progress.wikis != self._ready_wikis:
                self._log(_format_ready(progress))
            self._ready_wikis = progress.wikis
            return True
        line = _format_progress(progress)
        if now_s - self._reported_at >= _REPORT_INTERVAL_S and line != self._last_line:
            self._log(line)
            self._reported_at, self._last_line = now_s, line
        return False


def _format_ready(progress: SchedulerProgress) -> str:
    synced = format_count(progress.synced, "wiki")
    failed = f"; {format_count(progress.failed, 'wiki')} could not be synced" if progress.failed else ""
    return f"ready: the index of {synced} is at HEAD{failed}"


def _format_progress(progress: SchedulerProgress) -> str:
    line = f"syncing: {progress.synced} of {format_count(progress.wikis, 'wiki')} at HEAD"
    for slug, work in progress.running[:_MAX_NAMED_WIKIS]:
        pages = f" {work.pages_done} of {format_count(work.pages_total, 'page')}" if work.pages_total else ""
        line += f"; {work.kind} of {slug}{pages}"
    return line
