"""The supervisor with children that are small scripts: failed starts, failed reloads, back-off, children that hang."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.interfaces.cli import http_server
from wikiholt.interfaces.cli import supervisor as supervisor_module
from wikiholt.interfaces.cli.http_server import _SHUTDOWN_TIMEOUT_S, STOP_TIMEOUT_S
from wikiholt.interfaces.cli.supervisor import STOP_LIMIT_S, Child, ChildRole, Supervisor

_SCRIPT = """
import os, signal, socket, sys
mode, control = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
if mode.isdigit():
    sys.exit(int(mode))
if mode == "hang":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
control.send(b"LW")
if mode == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
control.settimeout(0.05)
while True:
    try:
        if control.recv(16) and mode != "hang":
            break
    except TimeoutError:
        control.send(b"A")
"""


class ScriptSpawner:
    """Starts scripts instead of services: `next_modes` says what the next workers do, else they wait for their end."""

    def __init__(self) -> None:
        self.next_modes: list[str] = []
        self.started: list[Child] = []

    def spawn(self, role: ChildRole, name: str) -> Child:
        mode = self.next_modes.pop(0) if role is ChildRole.WORKER and self.next_modes else "run"
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-S", "-c", _SCRIPT, mode, str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        ours.setblocking(False)
        child = Child(role, name, process, ours, time.monotonic())
        self.started.append(child)
        return child

    def forget(self, child: Child) -> None:
        child.control.close()

    def count_running(self) -> int:
        return sum(child.process.returncode is None for child in self.started)


def run(spawner: ScriptSpawner, drive: Callable[[Supervisor], None], workers: int = 2) -> int:
    """Run the supervisor in this thread, and `drive` in another one, which finally sends SIGTERM."""
    supervised = Supervisor(spawner, workers, lambda: None)  # type: ignore[arg-type]
    faults: list[BaseException] = []

    def drive_and_stop() -> None:
        try:
            drive(supervised)
        except BaseException as error:  # noqa: BLE001 - raised below
            faults.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    driver = Thread(target=drive_and_stop)
    # The supervisor may have ended before the signal came.
    previous = signal.signal(signal.SIGTERM, lambda _, __: None)
    driver.start()
    try:
        code = supervised.run()
        driver.join(120)
    finally:
        signal.signal(signal.SIGTERM, previous)
    if faults:
        raise faults[0]
    return code


def test_a_worker_that_cannot_start_ends_the_service_with_its_exit_code() -> None:
    spawner = ScriptSpawner()
    spawner.next_modes = ["run", "7"]
    assert run(spawner, lambda _: wait_until(lambda: spawner.started and spawner.count_running() == 0)) == 7


def test_the_old_workers_go_on_until_a_reload_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    spawner = ScriptSpawner()

    def drive(supervised: Supervisor) -> None:
        wait_until(lambda: supervised._is_ready)
        spawner.next_modes = ["2", "2"]
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: "starts in 1 s" in caplog.text)
        assert [child.process.returncode for child in spawner.started] == [None, None, None, 2, 2]
        wait_until(lambda: len(spawner.started) == 8 and spawner.count_running() == 3)

    assert run(spawner, drive) == 0
    assert spawner.count_running() == 0
    # Both workers are replaced, one after the other, and then the scheduler. The second worker may get the number of
    # the first, if that has ended by then.
    assert [child.name for child in spawner.started[5:]] in (["3", "4", "scheduler"], ["3", "1", "scheduler"])


def test_workers_that_crash_again_and_again_are_started_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    spawner = ScriptSpawner()

    def drive(supervised: Supervisor) -> None:
        wait_until(lambda: supervised._is_ready)
        spawner.next_modes = ["crash", "crash"]
        os.kill(spawner.started[-1].process.pid, signal.SIGKILL)
        wait_until(lambda: "starts in 2 s" in caplog.text)

    with caplog.at_level(logging.ERROR):
        assert run(spawner, drive) == 0
    messages = [record.getMessage() for record in caplog.records]
    delays = [message.split("starts in ")[1] for message in messages if "starts in " in message]
    assert delays == ["0 s", "1 s", "2 s"]
    assert "ended with signal SIGKILL" in caplog.text


def test_a_child_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_LIMIT_S", 0.2)
    spawner = ScriptSpawner()
    spawner.next_modes = ["hang"]
    run(spawner, lambda supervised: wait_until(lambda: supervised._is_ready), workers=1)
    assert spawner.started[-1].process.returncode == -signal.SIGKILL
    assert "did not end in time and is killed" in caplog.text


def test_a_worker_that_was_stopped_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "ALIVE_INTERVAL_S", 0.5)
    monkeypatch.setattr(supervisor_module, "_MAX_SILENT_CHECKS", 8)
    spawner = ScriptSpawner()
    spawner.next_modes = ["stop"]

    def drive(_: Supervisor) -> None:
        wait_until(lambda: len(spawner.started) == 4 and spawner.started[3].listens)

    assert run(spawner, drive) == 0
    assert [child.process.returncode for child in spawner.started][1] == -signal.SIGKILL
    assert caplog.text.count("no longer answers and is killed") == 1


def test_a_child_ends_with_its_supervisor_that_had_not_read_every_report(tmp_path: Path) -> None:
    control, supervisors_end = socket.socketpair()
    ended = Event()
    with control:
        control.send(supervisor_module.ALIVE)
        http_server._watch_supervisor(control, tmp_path / "shared", lambda: None, ended.set)
        supervisors_end.close()
        assert ended.wait(TIMEOUT_S)


def test_children_have_longer_to_end_than_requests_and_syncs_get() -> None:
    assert _SHUTDOWN_TIMEOUT_S + STOP_TIMEOUT_S < STOP_LIMIT_S


def test_the_gauges_of_an_ended_child_are_removed_and_its_counters_stay(tmp_path: Path) -> None:
    for name in ("gauge_livesum_1.db", "gauge_livemin_1.db", "gauge_livesum_2.db", "counter_1.db"):
        (tmp_path / name).touch()
    one, other = socket.socketpair()
    with one, other:
        spawner = supervisor_module.ChildSpawner([sys.executable, "-c", ""], str(tmp_path), [one, other])
        child = spawner.spawn(ChildRole.WORKER, "1")
    child.process.wait()
    spawner.forget(child)
    assert {file.name for file in tmp_path.iterdir()} == {"gauge_livesum_2.db", "counter_1.db"}
