"""`wikiholt serve` as a measured process: start time, memory, CPU and search latency."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.measures import read_cpu_s


def request_search(
    connection: http.client.HTTPConnection, slug: str, query: str, mode: str
) -> tuple[int, dict[str, Any], float]:
    """Search a wiki; returns the status, the document and the seconds until it was received."""
    began = time.perf_counter()
    connection.request("GET", f"/w/{slug}/api/v1/search?mode={mode}&n=5&q={quote(query)}")
    response = connection.getresponse()
    body = response.read()
    seconds = time.perf_counter() - began
    return response.status, json.loads(body), seconds


class WikiServer:
    """One running service with one connection to it."""

    def __init__(self, data: Path, roots: list[Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._began = time.perf_counter()
        command = [str(Path(sys.executable).with_name("wikiholt")), "--data", str(data), "serve", "--json", "--port=0"]
        unlimited = {"WIKIHOLT_LIMIT_ADDRESS_PER_MINUTE": "0"}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, *map(str, roots)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **unlimited, **(environment or {})},
            )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.port = int(json.loads(self._process.stdout.readline())["port"])
        self.listening = time.perf_counter() - self._began
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def wait_for_answer(self, slug: str, query: str) -> float:
        """Seconds from the start of the process to the first answer to a search."""
        self.search(slug, query)
        return time.perf_counter() - self._began

    def wait_until_idle(self, timeout: float) -> float:
        """Wait until it has checked every wiki once and is idle; seconds from the start, 0 after the timeout."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            before, then = read_cpu_s(self.pid), time.perf_counter()
            time.sleep(3)
            if (read_cpu_s(self.pid) - before) / (time.perf_counter() - then) < 0.05:
                return then - self._began
        return 0.0

    def search(self, slug: str, query: str, mode: str = "hybrid") -> float:
        """Seconds of a search over a persistent connection; the answer must be valid."""
        status, document, seconds = request_search(self._connection, slug, query, mode)
        assert status == 200, document
        assert document["results"], (slug, query)
        assert not document["degraded"], document
        return seconds

    def count_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def stop(self) -> float:
        """Stop it like an operator; seconds until it ended."""
        self._connection.close()
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0
        return time.perf_counter() - began
