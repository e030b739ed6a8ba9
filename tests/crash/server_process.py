"""A real `wikiholt serve` and its clients, for rounds in which the service fails."""

import io
import json
import mmap
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import wikiholt.interfaces.cli.http_server  # noqa: F401 - the command imports it lazily; import it once for all rounds
from tests.crash.child_process import TIMEOUT_S, ChildChannel, ChildProcess
from tests.crash.random_edits import COMMON_WORD, make_page
from tests.support.services import FAST_SERVE_SETTINGS, install_fake_model
from wikiholt.interfaces.cli.main import main
from wikiholt.sync import periodic

_ADDRESS_KEY = "listening"
_MAX_VISIT_S = 4.0
"""Maximum seconds that a client sends requests."""
_MAX_LOG_BYTES = 1 << 18


def run_server(data: Path, model: str, seconds: float, address_file: Path, log_file: Path) -> None:
    """Run `wikiholt serve` until a signal. Its address and its log are written to files."""
    install_fake_model(model, seconds)
    periodic.ScheduledBackups.start_delay_s, periodic.ScheduledBackups.poll_s = 0.3, 0.5
    sys.stdout, sys.stderr = address_file.open("w"), _MappedLog(log_file)
    chosen = {**FAST_SERVE_SETTINGS, "model": model}
    settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    code = main(["--data", str(data), *settings, "serve", "--json", "--port", "0"])
    assert code == 0, f"wikiholt serve ended with {code}"


class _MappedLog(io.TextIOBase):
    """A log in a preallocated file, so that a full disk does not prevent log messages."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(b" " * _MAX_LOG_BYTES)
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _MAX_LOG_BYTES)

    def write(self, text: str) -> int:
        written = text.encode("utf-8", "replace")
        position = self._map.tell()
        self._map.write(written[: _MAX_LOG_BYTES - position])
        return len(text)


class RandomClient:
    """Sends requests over HTTP with the operator's key."""

    def __init__(self, address_file: Path, token: str, stop: Callable[[], bool]) -> None:
        self._address_file = address_file
        self._token = token
        self._stop = stop
        self._address = ""

    def wait_until_listening(self) -> bool:
        """Wait until the server listens; False if it did not start."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until and not self._stop():
            text = self._address_file.read_text() if self._address_file.exists() else ""
            if text.endswith("\n"):
                self._address = urlsplit(json.loads(text)[_ADDRESS_KEY]).netloc
                return True
            time.sleep(0.02)
        return False

    def send_request(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Status and JSON document; status 0 if the server does not answer."""
        connection = HTTPConnection(self._address, timeout=30)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()


def start_clients(scratch: Path, operator: str, stop: Path, rng: Random, page_prefix: str) -> ChildProcess:
    """Start a process that sends requests to the service that is about to start, until the file `stop` exists."""
    (scratch / "address").unlink(missing_ok=True)
    client = RandomClient(scratch / "address", operator, stop.exists)
    return ChildProcess(scratch / "concurrent", lambda channel: run_random_client(client, rng, channel, page_prefix))


def run_random_client(client: RandomClient, rng: Random, channel: ChildChannel, page_prefix: str) -> dict[str, int]:
    """Search, write, reindex, back up, create and revoke keys while the server runs. Counts the answers."""
    seen: dict[str, int] = {}
    if not client.wait_until_listening():
        return seen
    keys: list[tuple[str, str]] = []
    until = time.monotonic() + _MAX_VISIT_S
    for number in range(30):
        action = rng.choice((_search, _search, _put, _put, _key, _revoke, _other))
        status = action(client, rng, channel, f"own/{page_prefix}/page-{number}", keys)
        assert status < 500 or status == 503, f"{action.__name__} was answered with {status}"
        seen[f"{action.__name__} {status}"] = seen.get(f"{action.__name__} {status}", 0) + 1
        if not status or client._stop() or time.monotonic() > until:
            break
    return seen


def _search(client: RandomClient, rng: Random, channel: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    status, answer = client.send_request("GET", f"/w/victim/api/v1/search?q={COMMON_WORD}")
    assert status != 200 or answer["results"], "an empty result without an error"
    return status


def _put(client: RandomClient, rng: Random, channel: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    text = make_page(rng, int(path.rsplit("-", 1)[1]))
    channel.send("begin", "page", path, None)
    status, _ = client.send_request("PUT", f"/w/victim/api/v1/pages/{path}", {"content": text})
    if status in (200, 201):
        channel.send("done", "page", path, text)
    return status


def _key(client: RandomClient, rng: Random, channel: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    status, made = client.send_request("POST", "/api/v1/keys", {"wiki": "bystander", "scope": "read"})
    if status == 201:
        token, key_id = str(made["token"]), str(made["id"])
        channel.send("done", "key", token, key_id)
        keys.append((key_id, token))
    return status


def _revoke(client: RandomClient, rng: Random, channel: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    if not keys:
        return _key(client, rng, channel, path, keys)
    key_id, token = keys.pop()
    channel.send("begin", "revoked", token, None)
    status, _ = client.send_request("DELETE", f"/api/v1/keys/{key_id}")
    if status == 200:
        channel.send("done", "revoked", token, None)
    return status


def _other(client: RandomClient, rng: Random, channel: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    what = rng.choice(("reindex", "backup", "wake", "restore"))
    return client.send_request("POST", f"/w/victim/api/v1/{what}")[0]
