"""A real `wikiholt serve` on a loopback port, over the demo wikis and the real model, for browsers to visit."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.fork_server import ForkedPopen, run_forked
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.interfaces.cli.demo_command import write_demo_wikis

_PROGRAM = "from wikiholt.interfaces.cli.main import main; raise SystemExit(main())"
_COMMAND = [sys.executable, "-c", _PROGRAM]
# The provider of a test may be slow on a busy machine.
_PATIENT_OIDC = f"from wikiholt.interfaces.web import oidc; oidc._TIMEOUT_S = {TIMEOUT_S}"
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class WebServer:
    """A running server: its URL, its data directory and the repositories it serves."""

    url: str
    data: Path
    repositories: Path

    def get_status(self, slug: str) -> dict[str, Any]:
        response = self._request_status(slug)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document

    def is_indexed(self, slug: str, key: str) -> bool:
        """Whether the index of the wiki is at HEAD; false while the wiki is not registered yet."""
        response = self._request_status(slug, key)
        return response.status_code == 200 and not response.json()["stale"]

    def _request_status(self, slug: str, key: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.get(f"{self.url}w/{slug}/api/v1/status", headers=headers, timeout=_TIMEOUT_S)

    def run_command(self, *arguments: str) -> Any:
        """Run a command on the data directory of this server and return its JSON output."""
        return json.loads(run_command(self.data, *arguments))


def run_command(data: Path, *arguments: str) -> str:
    command = [*_COMMAND, "--data", str(data), *arguments]
    output: str = run_forked(command, text=True, check=True, timeout=_TIMEOUT_S, env=_make_environment()).stdout
    return output


def _make_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}


@contextmanager
def run_web_server(place: Path, *, settings: Sequence[str] = (), key_for: str = "") -> Iterator[tuple[WebServer, str]]:
    """Serve the demo wikis with the first ones indexed; `key_for` names a wiki to create a read key for."""
    repositories, data = place / "repositories", place / "data"
    write_demo_wikis(repositories)
    chosen = [part for setting in settings for part in ("--set", setting)]
    token = ""
    if key_for:
        run_command(data, "add", key_for, str(repositories / key_for))
        token = json.loads(run_command(data, "key", "create", key_for, "--scope", "read", "--json"))["token"]
    program = f"{_PATIENT_OIDC}; {_PROGRAM}" if any("oidc_issuer" in setting for setting in settings) else _PROGRAM
    command = [sys.executable, "-c", program, "--data", str(data), *chosen, "serve", "--port", "0", "--json"]
    command.append(str(repositories))
    with ForkedPopen(command, stdout=subprocess.PIPE, text=True, env=_make_environment()) as process:
        try:
            assert process.stdout is not None
            server = WebServer(json.loads(process.stdout.readline())["listening"], data, repositories)
            for slug in (key_for,) if key_for else ("allotment", "runbook"):
                wait_until(lambda slug=slug: server.is_indexed(slug, token), f"{slug} is indexed")  # type: ignore[misc]
            yield server, token
        finally:
            process.terminate()
            assert process.wait(_TIMEOUT_S) == 0
