"""The service as a process that is started, measured, stopped and killed."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measures import read_memory_mb, read_private_mb


class ServiceProcess:
    """`wikiholt serve` on one port through all its lives. Only one thread may restart it; all threads may read its state."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self._command = [*command, "--port", str(self.port)]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
        self._environment |= environment
        self._log = log
        self._lock = threading.Lock()
        self._away: list[tuple[float, float]] = []
        self.life = 0
        self.ends: list[tuple[str, float, float]] = []
        """The signal, the seconds until the process ended, and the seconds until it listened again."""

    def start(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, env=self._environment
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service did not start: {self._log.read_text(errors='replace')[-2000:]}")
        assert json.loads(line)["port"] == self.port

    def restart(self, number: signal.Signals) -> str:
        """Stop it by a signal and start it again; returns the fault of its exit, if any."""
        began = time.monotonic()
        with self._lock:
            self._away.append((began, float("inf")))
        self._process.send_signal(number)
        code = self._process.wait(60)
        gone = time.monotonic()
        self.start()
        now = time.monotonic()
        with self._lock:
            self._away[-1] = (began, now)
            self.life += 1
        self.ends.append((number.name, gone - began, now - gone))
        expected = 0 if number is signal.SIGTERM else -number
        return "" if code == expected else f"{number.name}: exit code {code}, not {expected}"

    def has_been_away(self, since: float) -> bool:
        """Whether it was restarting at any time since then."""
        with self._lock:
            return any(ended >= since for _, ended in self._away)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        """Stop it like an operator; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        finally:
            self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def read_resources(self) -> dict[str, float]:
        """Current resources of the process: the minimum of a few samples, so that single requests do not count."""
        seen = []
        for _ in range(3):
            time.sleep(0.2)
            seen.append(self._read_once())
        return {name: min(each[name] for each in seen) for name in seen[0]}

    def _read_once(self) -> dict[str, float]:
        place = Path(f"/proc/{self._process.pid}")
        children = [(task / "children").read_text().split() for task in _list(place / "task")]
        return {
            "memory MB": read_memory_mb(pid=self._process.pid),
            "own memory MB": read_private_mb(self._process.pid),
            "descriptors": float(len(_list(place / "fd"))),
            "threads": float(len(_list(place / "task"))),
            "child processes": float(sum(map(len, children))),
        }


def _list(directory: Path) -> list[Path]:
    return list(directory.iterdir())
