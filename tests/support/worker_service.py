"""A real `wikiholt serve --workers 2` over two wikis with a tiny model, whose processes a test can stop and kill."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from tests.models.tiny_model import write_model
from tests.support.fork_server import ForkedPopen
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.wiki import Scope

WORKERS = 2
# Runs the command, and writes the process id and the role of each child to a file.
_PROGRAM = """
import os
from wikiholt.interfaces.cli import main, supervisor
spawn = supervisor.ChildSpawner.spawn
def spawn_and_record(spawner, role, name):
    child = spawn(spawner, role, name)
    with open(os.environ["TEST_ROLES"], "a") as roles:
        print(child.process.pid, role, file=roles)
    return child
supervisor.ChildSpawner.spawn = spawn_and_record
raise SystemExit(main.main())
"""
_SETTINGS = {
    "sync.interval": 3600,
    "limit.address_per_minute": 0,
    "backup.interval": 0,
    "check.interval": 0,
    "search.fresh_timeout": 60,
}


@dataclass
class WorkerService:
    """The data directory of a service of several processes, and the service while it runs."""

    data: Path
    settings: Mapping[str, object]
    tokens: dict[str, str] = field(default_factory=dict)
    url: str = ""
    log: Path = Path()
    process: "subprocess.Popen[str] | None" = None

    def start(self, port: str = "0", *, forks: bool = True) -> None:
        """Start the service and wait until all workers listen. Without `forks`, each process is a new interpreter."""
        command = [sys.executable, "-c", _PROGRAM, "--data", str(self.data)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        command += ["serve", "--port", port, "--workers", str(WORKERS)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
        environment["TEST_ROLES"] = str(self._roles)
        self.log = self.data.parent / "serve.log"
        with self.log.open("a") as log:
            popen = partial(ForkedPopen, forks_children=True) if forks else subprocess.Popen
            self.process = popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self.process.stdout is not None
        with self.process.stdout:
            line = self.process.stdout.readline()
        assert "listens on" in line, self.log.read_text()
        self.url = line.split()[-1].rstrip("/")

    def stop(self) -> int:
        """Stop the service with SIGTERM and return its exit code."""
        assert self.process is not None
        children = self.list_children()
        self.process.terminate()
        code = self.process.wait(TIMEOUT_S)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "the children end")
        return code

    def kill_all(self) -> None:
        """Kill every process of the service at once."""
        assert self.process is not None
        for pid in (self.process.pid, *self.list_children()):
            with suppress(ProcessLookupError):  # a child may end because its parent did
                os.kill(pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_S)

    def list_children(self) -> list[int]:
        """The process ids of the scheduler, which comes first, and of the workers, in the order of their start."""
        return [*self._list_roles()]

    def find_scheduler(self) -> int:
        return next(pid for pid, role in self._list_roles().items() if role == "scheduler")

    def list_workers(self) -> list[int]:
        return [pid for pid, role in self._list_roles().items() if role == "worker"]

    @property
    def _roles(self) -> Path:
        return self.data.parent / "roles"

    def _list_roles(self) -> dict[int, str]:
        """The roles of the children by process id. The process that forks them has none."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        roles = dict(line.split() for line in self._roles.read_text().splitlines())
        return {int(pid): roles[pid] for pid in children if pid in roles}

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """Stop the other workers, so that this one gets every new connection."""
        others = [pid for pid in self.list_workers() if pid != worker]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    def send(self, method: str, path: str, key: str = "", body: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[key]}"} if key else {}
        return httpx.request(method, f"{self.url}{path}", headers=headers, json=body, timeout=TIMEOUT_S)

    def find(self, slug: str, query: str, **params: str) -> list[str]:
        """The paths of the hits by keyword, unless the parameters say otherwise."""
        chosen = {"q": query, "mode": "keyword", **params}
        response = httpx.get(f"{self.url}/w/{slug}/api/v1/search", params=chosen, timeout=TIMEOUT_S)
        assert response.status_code == 200, response.text
        return [hit["path"] for hit in response.json()["results"]]

    def read_counter(self, name: str) -> float:
        """The sum of a counter over its labels."""
        lines = self.send("GET", "/metrics", "operator").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def wait_for_workers(self) -> None:
        """Wait until there are as many workers as there should be, and a scheduler."""
        wait_until(lambda: len(self.list_workers()) == WORKERS and len(self.list_children()) == WORKERS + 1)


@contextmanager
def make_worker_service(
    place: Path, pages: Mapping[str, Mapping[str, str]], **settings: object
) -> Iterator[WorkerService]:
    """Two wikis, indexed, readable without a key, with a key for writing each and one for the operator."""
    model = write_model(place / "model")
    service = WorkerService(place / "data", {**_SETTINGS, "model": model, "serve.public": "true", **settings})
    with closing(open_service(service.data, overrides={**settings, "model": str(model)})) as wikis:
        for slug, files in pages.items():
            repository = Repository(place / slug)
            repository.commit(dict(files))
            wiki = wikis.add(slug, str(repository.path), {})
            wikis.get_handle(slug).sync()
            _, service.tokens[slug] = wikis.registry.keys.create(wiki.id, Scope.WRITE, slug)
        _, service.tokens["operator"] = wikis.registry.keys.create(None, Scope.ADMIN, "operator")
    try:
        yield service
    finally:
        if service.process is not None and service.process.poll() is None:
            service.kill_all()
