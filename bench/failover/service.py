"""Nodes and HAProxy over the databases, with the configuration of deploy/failover, and what one asks of them."""

import http.client
import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.failover.database import DEPLOY
from bench.failover.programs import Program, find_free_ports
from bench.measures import wait_until

NODES = 3
_START_S = 120.0
_TIMEOUT_S = 80.0
_PRIORITY = 5
_SETTINGS = """\
store = "{address}"
[postgres]
lease = 15.0
connections = 20
[repositories]
directory = "{repositories}"
[sync]
interval = 10.0
[backup]
interval = 0
[check]
interval = 0
[limit]
address_per_minute = 0
key_per_minute = 0
"""


@dataclass(frozen=True)
class Answer:
    """An answer, or why there is none: `status` 0."""

    status: int
    document: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    node: str = ""


class Service:
    """Three nodes behind HAProxy."""

    def __init__(self, place: Path, programs: Mapping[str, Path], address: str) -> None:
        self._place = place
        self.ports = find_free_ports(NODES + 1)
        self.nodes = [self._make_node(number, address) for number in range(NODES)]
        shutil.copy(DEPLOY / "haproxy.cfg", place / "haproxy.cfg")
        names = {f"NODE{number + 1}": f"127.0.0.1:{port}" for number, port in enumerate(self.ports[1:])}
        names["BIND"] = f"127.0.0.1:{self.ports[0]}"
        command = [programs["haproxy"], "-db", "-f", place / "haproxy.cfg"]
        self.proxy = Program("haproxy", command, place / "haproxy.log", names)
        self.key = ""

    def start(self) -> None:
        data = self._place / "data1"
        command = [_find_wikiholt(), "--data", data, "key", "create", "--operator"]
        made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_START_S)
        self.key = next(word for word in made.stdout.split() if len(word) > 30)
        for node in self.nodes:
            node.start()
        self.proxy.start()
        for port in self.ports:
            wait_until(lambda port=port: self.ask("GET", "/healthz", port=port).status == 200, _START_S)

    def stop(self) -> None:
        for program in (self.proxy, *self.nodes):
            program.stop()

    def empty_data(self, node: Program) -> None:
        """Delete what a node has on disk, except its settings."""
        for path in (self._place / node.name.replace("node", "data")).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "wikiholt.toml":
                path.unlink()

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, key: str = "", port: int = 0
    ) -> Answer:
        """Ask through HAProxy, or one node by its port."""
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", port or self.ports[0], timeout=_TIMEOUT_S)
        with closing(connection):
            try:
                connection.request(method, path, json.dumps(body) if body is not None else None, headers)
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                return Answer(0, error=repr(error))
        document: dict[str, Any] = {}
        with suppress(ValueError):
            document = json.loads(text)
        return Answer(response.status, document, text[:300].decode(errors="replace"))

    def _make_node(self, number: int, address: str) -> Program:
        data = self._place / f"data{number + 1}"
        data.mkdir()
        settings = _SETTINGS.format(address=address, repositories=self._place / "repositories")
        (data / "wikiholt.toml").write_text(settings)
        command = [_find_wikiholt(), "--data", data, "serve", f"--port={self.ports[number + 1]}"]
        return Program(f"node{number + 1}", command, self._place / f"node{number + 1}.log", priority=_PRIORITY)


def make_word() -> str:
    """A word that occurs nowhere else."""
    return f"q{secrets.token_hex(6)}"


def _find_wikiholt() -> Path:
    return Path(sys.executable).with_name("wikiholt")
