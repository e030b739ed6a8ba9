"""A real `wikiholt serve` and its visitors, for rounds in which the whole service is struck."""

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

import wikiholt.interfaces.cli.http_server  # noqa: F401 - the command loads it late; here once for all rounds
from tests.crash.child_process import TIMEOUT_S, ChildChannel
from tests.crash.random_edits import COMMON_WORD, make_page
from tests.support.services import FAST_SERVE_SETTINGS, REAL_MODEL, install_fake_model
from wikiholt.interfaces.cli.main import main
from wikiholt.scheduler import periodic as rounds

_ADDRESS_KEY = "listening"
_MAX_VISIT_S = 4.0
"""Seconds that visitors stay, at most."""
_MAX_LOG_BYTES = 1 << 18


def run_server(data: Path, model: str, seconds: float, address_file: Path, log_file: Path) -> None:
    """Be `wikiholt serve` until a signal; where it listens, and what it logs, is written to files."""
    install_fake_model(model, seconds)
    rounds._BACKUP_START_DELAY_S, rounds._BACKUP_POLL_S = 0.3, 0.5
    sys.stdout, sys.stderr = address_file.open("w"), _MappedLog(log_file)
    chosen = FAST_SERVE_SETTINGS if model == REAL_MODEL else {**FAST_SERVE_SETTINGS, "model": model}
    settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    code = main(["--data", str(data), *settings, "serve", "--json", "--port", "0"])
    assert code == 0, f"wikiholt serve ended with {code}"


class _MappedLog(io.TextIOBase):
    """A log that takes no room on the disk while it is written, lest a full one keep it from telling of that."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(b" " * _MAX_LOG_BYTES)
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _MAX_LOG_BYTES)

    def write(self, text: str) -> int:
        written = text.encode("utf-8", "replace")
        place = self._map.tell()
        self._map.write(written[: _MAX_LOG_BYTES - place])
        return len(text)


class RandomClient:
    """Asks a server over HTTP with an operator's key."""

    def __init__(self, address_file: Path, token: str, stop: Callable[[], bool]) -> None:
        self._address_file = address_file
        self._token = token
        self._stop = stop
        self._address = ""

    def wait_until_listening(self) -> bool:
        """Wait until the server listens; False when it never will."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until and not self._stop():
            text = self._address_file.read_text() if self._address_file.exists() else ""
            if text.endswith("\n"):
                self._address = urlsplit(json.loads(text)[_ADDRESS_KEY]).netloc
                return True
            time.sleep(0.02)
        return False

    def send_request(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Status and document; status 0 when the server is gone."""
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


def run_random_client(visitor: RandomClient, rng: Random, channel: ChildChannel, page_prefix: str) -> dict[str, int]:
    """Search, write, reindex, back up, make and revoke keys, for as long as the server is there; count what came."""
    seen: dict[str, int] = {}
    if not visitor.wait_until_listening():
        return seen
    keys: list[tuple[str, str]] = []
    until = time.monotonic() + _MAX_VISIT_S
    for number in range(30):
        deed = rng.choice((_search, _search, _put, _put, _key, _revoke, _other))
        status = deed(visitor, rng, channel, f"own/{page_prefix}/page-{number}", keys)
        assert status < 500 or status == 503, f"{deed.__name__} was answered with {status}"
        seen[f"{deed.__name__} {status}"] = seen.get(f"{deed.__name__} {status}", 0) + 1
        if not status or visitor._stop() or time.monotonic() > until:
            break
    return seen


def _search(visitor: RandomClient, rng: Random, line: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    status, answer = visitor.send_request("GET", f"/w/victim/api/v1/search?q={COMMON_WORD}")
    assert status != 200 or answer["results"], "a silently empty list"
    return status


def _put(visitor: RandomClient, rng: Random, line: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    text = make_page(rng, int(path.rsplit("-", 1)[1]))
    line.send("begin", "page", path, None)
    status, _ = visitor.send_request("PUT", f"/w/victim/api/v1/pages/{path}", {"content": text})
    if status in (200, 201):
        line.send("done", "page", path, text)
    return status


def _key(visitor: RandomClient, rng: Random, line: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    status, made = visitor.send_request("POST", "/api/v1/keys", {"wiki": "bystander", "scope": "read"})
    if status == 201:
        token, key_id = str(made["token"]), str(made["id"])
        line.send("done", "key", token, key_id)
        keys.append((key_id, token))
    return status


def _revoke(visitor: RandomClient, rng: Random, line: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    if not keys:
        return _key(visitor, rng, line, path, keys)
    key_id, token = keys.pop()
    line.send("begin", "revoked", token, None)
    status, _ = visitor.send_request("DELETE", f"/api/v1/keys/{key_id}")
    if status == 200:
        line.send("done", "revoked", token, None)
    return status


def _other(visitor: RandomClient, rng: Random, line: ChildChannel, path: str, keys: list[tuple[str, str]]) -> int:
    what = rng.choice(("reindex", "backup", "wake", "restore"))
    return visitor.send_request("POST", f"/w/victim/api/v1/{what}")[0]
