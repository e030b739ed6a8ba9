"""A running Otterwiki that is measured, with or without the plugin."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.measures import wait_until
from bench.otterwiki.request_costs import CPU_HEADER, HOOKS_HEADER, TOTAL_HEADER

WITH, WITHOUT = "bench.otterwiki.with_plugin", "bench.otterwiki.without_plugin"


@dataclass(frozen=True, slots=True)
class SaveCost:
    """What a save took, in milliseconds: for the browser, of the processor, and in hooks of plugins."""

    clock: float
    cpu: float
    hooks: float


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """The memory of a worker in MB: its own, and its share of mapped files (programs, caches, the model)."""

    own: float
    mapped: float


class OtterwikiServer:
    """One gunicorn worker with four threads over a place."""

    def __init__(self, place: Path, app: str) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = int(taken.getsockname()[1])
        settings = place / f"{app}.cfg"
        lines = {
            "REPOSITORY": str(place / "repository"),
            "SQLALCHEMY_DATABASE_URI": f"sqlite:///{place / app}.sqlite",
            "SECRET_KEY": "a-secret-of-at-least-16-characters",
            "WIKIHOLT_LIMIT_ADDRESS_PER_MINUTE": "0",
        }
        settings.write_text("".join(f"{name} = {value!r}\n" for name, value in lines.items()))
        command = [sys.executable, "-m", "gunicorn", "-w", "1", "-k", "gthread", "--threads", "4", "--timeout", "600"]
        self.has_plugin = app == WITH
        with (place / f"{app}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--bind", f"127.0.0.1:{port}", f"{app}:app"],
                env=os.environ | {"OTTERWIKI_SETTINGS": str(settings), "PYTHONPATH": str(Path.cwd())},
                stdout=log,
                stderr=log,
            )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600)
        wait_until(self._is_ready, 300)
        found = re.search(r'name="?csrf-token"? content="?([^">\s]+)', self.client.get("/-/about").text)
        assert found is not None
        self._token = found[1]

    def use_cores(self, cores: set[int]) -> None:
        """Limit the server to these cores. Cores of a shared machine may differ by more than a save costs."""
        pids = (self._process.pid, *map(int, self._list_children()))
        for task in (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()):
            os.sched_setaffinity(int(task.name), cores)

    def _list_children(self) -> list[str]:
        return Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/-/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def save(self, page: str, text: str) -> SaveCost:
        fields = {"content": text, "commit": "bench", "csrf_token": self._token}
        began = time.perf_counter()
        answer = self.client.post(f"/{page}/save", data=fields)
        took = time.perf_counter() - began
        assert answer.status_code == 302, answer.text[:300]
        return SaveCost(took * 1e3, float(answer.headers[CPU_HEADER]), float(answer.headers[HOOKS_HEADER]))

    def read_cpu(self) -> float:
        """Milliseconds of processor time that the worker and its child processes have used."""
        return float(self.client.get("/-/healthz").headers[TOTAL_HEADER])

    def search_by_regex(self, query: str) -> float:
        """Milliseconds the wiki's own search takes."""
        began = time.perf_counter()
        answer = self.client.post("/-/search", data={"query": query, "csrf_token": self._token})
        took = time.perf_counter() - began
        assert answer.status_code == 200
        return took * 1e3

    def search(self, query: str, mode: str) -> float:
        """Milliseconds of a search with the plugin; the answer must not be degraded."""
        began = time.perf_counter()
        answer = self.client.get("/api/v1/search", params={"q": query, "n": 10, "mode": mode})
        took = time.perf_counter() - began
        assert answer.status_code == 200, answer.text[:500]
        document = answer.json()
        assert document["results"], document
        assert not document["degraded"], document["notes"]
        return took * 1e3

    def wait_until_fresh(self) -> None:
        """Wait until the index and its caches have followed what was saved."""

        def is_fresh() -> bool:
            answer = self.client.get("/api/v1/search", params={"q": "otters", "n": 1, "fresh": "true"})
            return answer.status_code == 200 and not answer.json()["degraded"]

        if self.has_plugin:
            wait_until(is_fresh, 600, 0.2)

    def measure_memory(self) -> WorkerMemory:
        lines = Path(f"/proc/{self._list_children()[0]}/smaps_rollup").read_text().splitlines()
        fields = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith(" kB")}
        return WorkerMemory(fields["Pss_Anon"] + fields["SwapPss"], fields["Pss_File"] + fields["Pss_Shmem"])

    def count_threads(self) -> int:
        return len(list(Path(f"/proc/{self._list_children()[0]}/task").iterdir()))

    def stop(self) -> None:
        self.client.close()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
