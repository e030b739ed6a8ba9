"""`wikiholt serve`: serves all wikis over HTTP and keeps their indexes at HEAD until a signal stops it."""

import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from wikiholt.errors import Busy, InvalidSetting, InvalidSource
from wikiholt.interfaces.cli import output
from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.cli.local_client import connect
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
    parser.add_argument("--workers", metavar="N", help="processes that answer requests (default: serve.workers, 1)")


def run_serve(context: CommandContext) -> int:
    """Serve until SIGTERM or SIGINT, then shut down cleanly with exit code 0."""
    roots = [_check_root(path) for path in context.arguments.directories]
    settings, as_json = context.settings, context.arguments.json
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


# The sockets on which it answers.


_log = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that wait to be accepted."""


def open_listener(host: str, port: int) -> socket.socket:
    """Open the socket for HTTP. Raises Busy if the port is in use."""
    address = host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
        # asyncio sets this only for sockets with an explicit protocol. Without it, the body of a response waits 40 ms
        # for the acknowledgement of its headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        in_use = getattr(error, "errno", 0) == errno.EADDRINUSE
        error_class = Busy if in_use else InvalidSetting
        raise error_class(
            f"Cannot listen on {host} port {port}: {reason}.",
            hint="Stop the other program, or choose another port with --port."
            if in_use
            else "Check --host and --port.",
        ) from error


def print_address(listener: socket.socket, *, as_json: bool) -> None:
    """Print where the service listens."""
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    if as_json:
        sys.stdout.write(json.dumps({"listening": address, "host": host, "port": port}) + "\n")
    else:
        output.print_lines([f"Wikiholt listens on {address}"])
    sys.stdout.flush()


@contextmanager
def open_local_listener(path: Path) -> Iterator[socket.socket | None]:
    """The Unix socket for commands on this machine, removed at the end; None if it is not possible: another service
    answers there, or the path is too long."""
    listener = _bind_local(path)
    inode = _find_inode(path)
    try:
        yield listener
    finally:
        if listener is not None:
            if inode is not None and inode == _find_inode(path):  # else another service listens there now
                path.unlink(missing_ok=True)
            listener.close()


def _find_inode(path: Path) -> int | None:
    with suppress(OSError):
        return path.lstat().st_ino
    return None


def _bind_local(path: Path) -> socket.socket | None:
    with suppress(OSError):
        connect(path).close()
        return None  # another service answers there
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)  # nobody can connect before it listens
        listener.listen(BACKLOG)
        listener.setblocking(False)  # several processes may accept, and one gets the connection
    except OSError as error:
        _log.info("commands on this machine cannot search through this service: %s", error)
        listener.close()
        return None
    return listener
