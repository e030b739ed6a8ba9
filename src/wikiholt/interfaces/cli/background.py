"""The process in the background that keeps model and indexes in memory for commands, and embeds what they left.

It is a `serve` without a port, at the Unix socket in the data directory, and ends when nobody has used it for a while.
The process that runs holds a lock, and the file of the lock says which process that is.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from wikiholt.interfaces.cli.command import CommandContext, Subparsers, add_command
from wikiholt.interfaces.http.local_owner import fingerprint_settings

if TYPE_CHECKING:
    from wikiholt.api.settings.definitions import Settings

_LOCK_NAME = "background.lock"
_LOCK_VARIABLE = "_WIKIHOLT_BACKGROUND_LOCK"
"""Names the file descriptor of the lock that a command has taken for the process that it starts."""
_STOP_TIMEOUT_S = 40.0
_POLL_S = 0.05


def add_arguments(commands: Subparsers) -> None:
    add_command(commands, "stop", run_stop)


def run_stop(context: CommandContext) -> int:
    """Stop the process in the background, and wait until it has ended."""
    stopped = stop_background(context.settings.data)
    line = "Stopped the background process." if stopped else "No background process is running."
    return context.print_result({"stopped": stopped}, [line])


def start_background(settings: "Settings", arguments: Namespace, *, replace: bool = True) -> None:
    """Start the process for a command with these arguments, unless it runs or is turned off.

    With `replace`, one of another version or with other settings is replaced. Never raises: commands do without it.
    """
    if not settings.search_keep_warm or settings.store:
        return
    with suppress(OSError, ValueError):
        running = _read_running(settings.data)
        if running is not None:
            if not replace or running.get("settings") == fingerprint_settings(settings):
                return
            stop_background(settings.data)
        options = [("--data", settings.data), *([("--config", arguments.config)] if arguments.config else [])]
        command = [word for option, path in options for word in (option, str(Path(path).absolute()))]
        command += [word for pair in arguments.set for word in ("--set", pair)]
        with _open_lock(settings.data, os.O_CREAT) as file:
            # The process inherits the lock, so that it can be stopped before it has started.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "wikiholt", *command, "serve", "--background"],
                cwd="/",
                env=os.environ | {_LOCK_VARIABLE: str(file.fileno())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[file.fileno()],
            )
            _write_running(file, settings, process.pid)


def stop_background(data: Path) -> bool:
    """Stop the process and wait until it has ended. Returns whether one was running."""
    running, signalled = _read_running(data), None
    if running is None:
        return False
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while running is not None and time.monotonic() < deadline:
        if running.get("pid", signalled) != signalled:
            signalled = running["pid"]
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(str(signalled)), signal.SIGTERM)
        time.sleep(_POLL_S)
        running = _read_running(data)
    return True


@contextmanager
def hold_lock(settings: "Settings") -> Iterator[bool]:
    """Be the only process in the background until this one ends. False if another one is."""
    inherited = os.environ.pop(_LOCK_VARIABLE, "")
    try:
        file = os.fdopen(int(inherited), "r+", encoding="utf-8") if inherited else _open_lock(settings.data, os.O_CREAT)
    except OSError:
        yield False
        return
    with file:
        try:
            os.set_inheritable(file.fileno(), False)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not inherited:
                file.truncate(0)
        except OSError:
            yield False
            return
        _write_running(file, settings, os.getpid())
        os.dup(file.fileno())  # the lock lasts until the process has ended: `stop` waits for that
        yield True


def _write_running(file: IO[str], settings: "Settings", process_id: int) -> None:
    """Say which process holds the lock. It may write the same at the same time, in the same open file."""
    os.pwrite(file.fileno(), json.dumps({"pid": process_id, "settings": fingerprint_settings(settings)}).encode(), 0)


def _read_running(data: Path) -> dict[str, object] | None:
    """What the file of the lock says about the process that holds it; None if none does."""
    try:
        file = _open_lock(data, 0)
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            try:
                running = json.loads(file.read())
            except ValueError:  # it has just started
                return {}
            return running if isinstance(running, dict) else {}
        return None


def _open_lock(data: Path, flags: int) -> IO[str]:
    return os.fdopen(os.open(data / _LOCK_NAME, os.O_RDWR | flags, 0o600), "r+", encoding="utf-8")
