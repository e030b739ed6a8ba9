"""A node: a real `wikiholt serve` over PostgreSQL in a separate process, optionally with a fake model.

As a script: `python -m tests.api.postgres.server_node DELAY_FILE ARGUMENT…`. While DELAY_FILE exists, texts that
contain its word are embedded slowly. While DELAY_FILE.block exists, texts that contain its word wait.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from tests.support.fork_server import ForkedPopen
from tests.support.paths import PYTHON_PATH
from tests.support.wait import TIMEOUT_S
from wikiholt import models
from wikiholt.domain.index import FloatArray
from wikiholt.interfaces.cli.main import main
from wikiholt.testing import FakeEmbedder

LOCK_TIMEOUT_S = 60
SLOW_TEXT_S = 0.08
"""Seconds for a text that is embedded slowly. A thousand of them take longer than the lock timeout."""
FAST_SETTINGS = {
    "discover.interval": "5",
    "sync.interval": "3600",
    "sync.slice": "1",
    # A node that is only slow keeps its wikis. A test that kills a node ends its leases.
    "postgres.lease": "60",
    "lock.timeout": f"{LOCK_TIMEOUT_S}",
    "search.fresh_timeout": f"{TIMEOUT_S:g}",
    # A test that waits sends many requests.
    "limit.key_per_minute": "0",
    "limit.address_per_minute": "0",
    "remote.schemes": "file",
    "remote.allow_private": "true",
}
REAL_MODEL = Path("/nowhere")
"""Instead of a delay file: use the real model."""


def get_block_file(delay_file: Path) -> Path:
    return delay_file.with_suffix(".block")


def _has_word_of(file: Path, text: str) -> bool:
    """Whether the file exists and the text contains its word."""
    try:
        word = file.read_text()
    except FileNotFoundError:
        return False
    return bool(word) and word in text


class DelayedEmbedder(FakeEmbedder):
    """Embeds texts slowly while the delay file exists, and not at all while the block file exists."""

    def __init__(self, delay_file: Path) -> None:
        super().__init__()
        self._delay_file = delay_file

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        for text in texts:
            if _has_word_of(self._delay_file, text):
                time.sleep(SLOW_TEXT_S)
            while _has_word_of(get_block_file(self._delay_file), text):
                time.sleep(SLOW_TEXT_S)
        return super().embed_passages(texts)


class ServerNode:
    """A running server and a client for it."""

    def __init__(self, process: "subprocess.Popen[str]", token: str) -> None:
        self.process = process
        self._token = token

    @cached_property
    def url(self) -> str:
        """The URL of the server; waits until it listens."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the node did not start"
        return str(json.loads(line)["listening"])

    def send_request(self, method: str, path: str, token: str = "", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self._token}"}
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=TIMEOUT_S, **more)

    def can_find(self, slug: str, query: str, path: str, more: str = "") -> bool:
        response = self.send_request("GET", f"w/{slug}/api/v1/search?q={query}{more}")
        return response.status_code == 200 and path in [hit["path"] for hit in response.json()["results"]]

    def get_status(self, slug: str) -> dict[str, Any]:
        response = self.send_request("GET", f"w/{slug}/api/v1/status")
        return dict(response.json()) if response.status_code == 200 else {}

    def read_page(self, slug: str, path: str) -> str:
        """The content of a page; empty if it cannot be read."""
        response = self.send_request("GET", f"w/{slug}/api/v1/pages/{path}")
        return str(response.json()["content"]) if response.status_code == 200 else ""

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT_S)


@contextmanager
def run_node(
    place: Path,
    store: str,
    token: str,
    *wikis: Path,
    delay_file: Path = REAL_MODEL,
    quick: dict[str, str] = FAST_SETTINGS,
) -> Iterator[ServerNode]:
    """Run a node with its own data directory until the end of the block."""
    place.mkdir(parents=True, exist_ok=True)
    settings = [word for name, value in {**quick, "store": store}.items() for word in ("--set", f"{name}={value}")]
    served = ["serve", "--json", "--port", "0", *map(str, wikis)]
    command = [
        sys.executable,
        "-m",
        "tests.api.postgres.server_node",
        str(delay_file),
        "--data",
        str(place / "data"),
        *settings,
        *served,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
    environment["PYTHONPATH"] = PYTHON_PATH
    with (
        (place / "log").open("w") as log,
        ForkedPopen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            yield ServerNode(process, token)
        finally:
            if process.poll() is None:
                process.terminate()
                assert process.wait(TIMEOUT_S) == 0, (place / "log").read_text()[-3000:]


if __name__ == "__main__":
    delay_file = Path(sys.argv[1])
    if delay_file != REAL_MODEL:
        models.load_embedder = lambda *_, **__: DelayedEmbedder(delay_file)  # type: ignore[assignment]
        models.identify_model = lambda *_: DelayedEmbedder(delay_file)  # type: ignore[assignment]
    raise SystemExit(main(sys.argv[2:]))
