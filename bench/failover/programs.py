"""The programs of the bench: where they are, and processes that can be killed and frozen with their children."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("etcd", "patroni", "haproxy")
_STOP_S = 20.0


def find_programs(directory: Path | None) -> dict[str, Path]:
    """The paths of the programs, from the directory or PATH. Raises LookupError with what is missing."""
    path = os.pathsep.join([str(directory)] if directory else []) + os.pathsep + os.environ.get("PATH", "")
    found = {name: shutil.which(name, path=f"{path}{os.pathsep}/usr/sbin") for name in NAMES}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        raise LookupError(f"not installed: {', '.join(missing)}; see bench/README.md")
    return {name: Path(place) for name, place in found.items() if place}


def find_free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class Program:
    """A process that is started again with the same command."""

    name: str
    command: Sequence[str | Path]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    """Above 0 it gives way to the others, below 0 the others do."""
    is_unprivileged: bool = False
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        user = pwd.getpwnam("nobody").pw_uid if self.is_unprivileged and os.getuid() == 0 else None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command)),
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                user=user,
                cwd=self.log.parent,
                start_new_session=True,
            )
        with suppress(PermissionError):  # only root may take precedence
            os.setpriority(os.PRIO_PROCESS, self.process.pid, self.priority)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def list_pids(self) -> list[int]:
        """The process and all its descendants that run now, parents first."""
        return list_tree(self.process.pid) if self.is_running and self.process else []

    def kill(self) -> None:
        kill_all(self.list_pids())
        if self.process is not None:
            self.process.wait(_STOP_S)

    def send(self, number: signal.Signals) -> None:
        for pid in self.list_pids():
            send_signal(pid, number)

    def stop(self) -> None:
        """End it as an operator does; kill what does not end."""
        if not self.is_running or self.process is None:
            return
        self.send(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


def list_tree(pid: int) -> list[int]:
    """A process and its descendants, parents first."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def send_signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_all(pids: Sequence[int]) -> None:
    """Kill processes; a parent cannot react, because all are stopped first."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            send_signal(pid, number)
