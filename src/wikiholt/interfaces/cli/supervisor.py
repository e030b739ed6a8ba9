"""`wikiholt serve` with several processes: starts them, replaces those that end, and stops them.

One child syncs the wikis, the others answer requests at the same socket. The supervisor opens the sockets and loads
neither a model nor an index. Each child has a connection to it: the child reports its progress there, the supervisor
asks it to end, and each side learns from it that the other one has ended.
"""

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from wikiholt.interfaces.cli.background import stop_background
from wikiholt.interfaces.cli.listeners import offer_owner_link, open_listener, open_local_listener, print_address
from wikiholt.interfaces.http.local_owner import SOCKET_NAME
from wikiholt.wikis.rate_limit import create_table

if TYPE_CHECKING:
    from wikiholt.api.settings.definitions import Settings

_LOG = logging.getLogger("wikiholt.serve")

_CHILD_VARIABLE = "_WIKIHOLT_CHILD"
"""The environment variable that makes `serve` a child of a supervisor."""
BUCKETS_FILE, COUNTERS_FILE = "buckets", "counters.json"
"""Files that the processes of a service share."""
LISTENS, WARM, ALIVE, DRAIN = b"L", b"W", b"A", b"D"
"""What a child reports, and what the supervisor asks a worker for: end when all requests are answered."""
ALIVE_INTERVAL_S = 5
"""How often a child reports that it runs."""
_MAX_SILENT_CHECKS = 12
"""After this number of successive checks a silent child is killed. Time in which nothing runs, as in a paused virtual
machine, is one check."""
STOP_LIMIT_S = 45.0
"""How long children have to end after SIGTERM. Longer than requests and syncs get."""
DRAIN_LIMIT_S = 60.0
"""How long a replaced worker has to answer its requests."""
_TICK_S = 0.25
_STABLE_S = 60.0
"""A child that ends after this time is replaced at once."""
_MAX_DELAY_S = 30.0
_MODULE = "wikiholt.interfaces.cli.main"


class ChildRole(StrEnum):
    SCHEDULER = "scheduler"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What a child process gets from the supervisor: its role, its name, a directory and open files."""

    role: ChildRole
    name: str
    directory: str
    control: int
    pipe: int
    listeners: list[int]


def take_child_spec(environ: MutableMapping[str, str]) -> ChildSpec | None:
    """The description of this process if a supervisor started it. Processes that this one starts do not get it."""
    text = environ.pop(_CHILD_VARIABLE, None)
    return ChildSpec(**json.loads(text)) if text is not None else None


@dataclass(slots=True, eq=False)
class Child:
    """A running child process. Those of an earlier generation than the supervisor's are to be replaced."""

    role: ChildRole
    name: str
    process: "subprocess.Popen[bytes]"
    control: socket.socket
    started_at: float
    generation: int = 0
    listens: bool = False
    warm: bool = False
    stopping: bool = False
    kill_at: float = inf
    silent_checks: int = 0

    def __str__(self) -> str:
        return f"{self.role} {self.name} (process {self.process.pid})"

    def end_within(self, limit_s: float) -> None:
        """Expect this child to end, and set when it is killed."""
        self.stopping = True
        self.kill_at = min(self.kill_at, time.monotonic() + limit_s)


def supervise(settings: "Settings", arguments: Sequence[str], *, as_json: bool) -> int:
    """Run `serve` with these arguments in several processes until SIGTERM or SIGINT. Returns the exit code."""
    stop_background(settings.data)
    with (
        open_listener(settings.serve_host, settings.serve_port) as listener,
        open_local_listener(settings.data / SOCKET_NAME) as local_listeners,
        offer_owner_link(settings, listener) as owner_link,
        TemporaryDirectory(prefix="wikiholt-", ignore_cleanup_errors=True) as directory,
    ):
        create_table(Path(directory) / BUCKETS_FILE)
        command = [sys.executable, "-P", "-m", _MODULE, *arguments]
        spawner = ChildSpawner(command, directory, [listener, *local_listeners])
        announce = partial(print_address, listener, owner_link, as_json=as_json)
        return Supervisor(spawner, settings.serve_workers, announce).run()


class ChildSpawner:
    """Starts child processes with the sockets and the pipe of the service."""

    def __init__(self, command: Sequence[str], directory: str, listeners: Sequence[socket.socket]) -> None:
        self._command = command
        self._directory = directory
        self._listeners = [listener.fileno() for listener in listeners]
        self._pipe_out, self._pipe_in = os.pipe()

    def spawn(self, role: ChildRole, name: str) -> Child:
        ours, theirs = socket.socketpair()
        pipe = self._pipe_out if role == ChildRole.SCHEDULER else self._pipe_in
        with theirs:
            spec = ChildSpec(role, name, self._directory, theirs.fileno(), pipe, self._listeners)
            process = subprocess.Popen(
                [*self._command],
                stdin=subprocess.DEVNULL,
                env={**os.environ, _CHILD_VARIABLE: json.dumps(asdict(spec))},
                pass_fds=[spec.control, pipe, *self._listeners],
            )
        ours.setblocking(False)
        return Child(role, name, process, ours, time.monotonic())

    def forget(self, child: Child) -> None:
        """Remove the gauges of an ended child. Its counters stay, and a child of the same name goes on with them."""
        child.control.close()
        for file in Path(self._directory).glob(f"gauge_live*_{child.name}.db"):
            file.unlink(missing_ok=True)


class Supervisor:
    """Keeps one scheduler and a number of workers running.

    It compares what runs with what should run, again and again, and starts or ends one child after the other.
    """

    def __init__(self, spawner: ChildSpawner, workers: int, on_ready: Callable[[], None]) -> None:
        """`on_ready` is called once, when all workers listen."""
        self._spawner = spawner
        self._count = {ChildRole.SCHEDULER: 1, ChildRole.WORKER: workers}
        self._on_ready = on_ready
        self._children: list[Child] = []
        self._generation = 0
        self._failures: Counter[ChildRole] = Counter()
        self._start_at = dict.fromkeys(ChildRole, 0.0)
        self._signals: deque[int] = deque()
        self._is_ready = self._is_stopping = False
        self._next_check_at = 0.0
        self._exit_code = 0

    def run(self) -> int:
        """Run until a signal, or until a child cannot be started at all. Returns the exit code."""
        with ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                previous = signal.signal(number, lambda got, _: self._signals.append(got))
                stack.callback(signal.signal, number, previous)
            while self._children or not self._is_stopping:
                if not self._is_stopping:
                    self._start_missing()
                    self._replace_next()
                self._read_reports()
                self._handle_signals()
                self._kill_unresponsive()
        return self._exit_code

    def _list(self, role: ChildRole) -> list[Child]:
        """The children that run. There is one scheduler at a time, so one that ends still runs."""
        is_single = role == ChildRole.SCHEDULER
        return [child for child in self._children if child.role == role and (is_single or not child.stopping)]

    def _start_missing(self) -> None:
        """Start the scheduler, and when it runs the workers. The service is ready when all of them listen."""
        for role, wanted in self._count.items():
            for _ in range(wanted - len(self._list(role))):
                self._start(role)
            running = self._list(role)
            if not self._is_ready and (len(running) < wanted or not all(child.listens for child in running)):
                return
        if not self._is_ready:
            self._is_ready = True
            self._on_ready()

    def _replace_next(self) -> None:
        """Bring the next child to this generation: each worker when its successor is warm, then the scheduler."""
        workers = self._list(ChildRole.WORKER)
        outdated = [child for child in workers if child.generation < self._generation]
        surplus = len(workers) - self._count[ChildRole.WORKER]
        if outdated and surplus >= 0 and all(worker.warm for worker in workers):
            if surplus:
                self._drain(outdated[0])
            else:
                self._start(ChildRole.WORKER)
        for scheduler in self._list(ChildRole.SCHEDULER):
            if scheduler.generation < self._generation and not (outdated or surplus or scheduler.stopping):
                self._terminate(scheduler)

    def _start(self, role: ChildRole) -> None:
        """Start a child, unless the last one ended too soon: then later."""
        if time.monotonic() < self._start_at[role]:
            return
        used = {child.name for child in self._children}
        name = role.value if role == ChildRole.SCHEDULER else next(str(n) for n in count(1) if str(n) not in used)
        child = self._spawner.spawn(role, name)
        child.generation = self._generation
        self._children.append(child)

    def _read_reports(self) -> None:
        """Handle what children report, for a quarter of a second."""
        poll = select.poll()
        for child in self._children:
            poll.register(child.control, select.POLLIN)
        ready = {file for file, _ in poll.poll(_TICK_S * 1000)}
        for child in [child for child in self._children if child.control.fileno() in ready]:
            report = b""
            with suppress(OSError):
                report = child.control.recv(16)
            if not report:
                self._handle_end(child, child.process.wait())
            child.silent_checks = 0
            child.listens |= LISTENS in report
            child.warm |= WARM in report

    def _handle_end(self, child: Child, code: int) -> None:
        self._children.remove(child)
        self._spawner.forget(child)
        if self._is_stopping:
            self._exit_code = self._exit_code or max(0, code)
        elif child.stopping:
            return
        elif not self._is_ready and code > 0:
            self._exit_code = code  # it has printed why
            self._stop()
        else:
            self._delay_start(child, code)

    def _delay_start(self, child: Child, code: int) -> None:
        """Let a child that ended soon after its start have its successor later each time."""
        now, role = time.monotonic(), child.role
        if now - child.started_at > _STABLE_S:
            self._failures[role] = 0
        delay = min(_MAX_DELAY_S, 2.0 ** (self._failures[role] - 1)) if self._failures[role] else 0.0
        self._failures[role] += 1
        _LOG.error("%s ended with %s; another one starts in %.0f s", child, _describe_exit(code), delay)
        self._start_at[role] = now + delay

    def _handle_signals(self) -> None:
        while self._signals:
            # Without a terminal, SIGHUP is a request of the operator.
            if self._signals.popleft() == signal.SIGHUP and not (sys.stdin and sys.stdin.isatty()):
                _LOG.info("replacing all processes")
                self._generation += self._is_ready
            else:
                self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        for child in self._children:
            self._terminate(child)

    @staticmethod
    def _terminate(child: Child) -> None:
        child.end_within(STOP_LIMIT_S)
        child.process.terminate()

    @staticmethod
    def _drain(child: Child) -> None:
        child.end_within(DRAIN_LIMIT_S + STOP_LIMIT_S)
        with suppress(OSError):  # it has already ended
            child.control.send(DRAIN)

    def _kill_unresponsive(self) -> None:
        """Kill children that do not end in time, or that listen but no longer report, for example because they were
        stopped; others follow."""
        now = time.monotonic()
        is_check_due = now >= self._next_check_at
        if is_check_due:
            self._next_check_at = now + ALIVE_INTERVAL_S
        for child in self._children:
            child.silent_checks += is_check_due and child.listens and not child.stopping
            fault = "did not end in time" if child.kill_at <= now else ""
            if child.silent_checks >= _MAX_SILENT_CHECKS:
                fault = "no longer answers"
            if fault:
                _LOG.error("%s %s and is killed", child, fault)
                child.kill_at, child.silent_checks = inf, 0
                child.process.kill()


def _describe_exit(code: int) -> str:
    name = next((known.name for known in signal.Signals if known == -code), -code)
    return f"exit code {code}" if code >= 0 else f"signal {name}"
