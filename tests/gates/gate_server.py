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

from farm import QUICK, REAL, stand_in
from history import EVERYWHERE, page
from processes import PATIENCE, Line

import wikiholt.surfaces.cli.serve  # noqa: F401 - the command loads it late; here once for all rounds
from wikiholt.keeper import backups as rounds
from wikiholt.surfaces.cli.main import main

_SAID = "listening"
_LONG = 4.0
"""Seconds that visitors stay, at most."""
_MOST_NOTES = 1 << 18


def serve(data: Path, model: str, seconds: float, said: Path, told: Path) -> None:
    """Be `wikiholt serve` until a signal; where it listens, and what it logs, is written to files."""
    stand_in(model, seconds)
    rounds._FIRST, rounds._ROUND = 0.3, 0.5
    sys.stdout, sys.stderr = said.open("w"), _Notes(told)
    chosen = QUICK if model == REAL else {**QUICK, "model": model}
    settings = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    code = main(["--data", str(data), *settings, "serve", "--json", "--port", "0"])
    assert code == 0, f"wikiholt serve ended with {code}"


class _Notes(io.TextIOBase):
    """A log that takes no room on the disk while it is written, lest a full one keep it from telling of that."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(b" " * _MOST_NOTES)
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _MOST_NOTES)

    def write(self, text: str) -> int:
        written = text.encode("utf-8", "replace")
        place = self._map.tell()
        self._map.write(written[: _MOST_NOTES - place])
        return len(text)


class Visitor:
    """Asks a server over HTTP with an operator's key."""

    def __init__(self, said: Path, token: str, stop: Callable[[], bool]) -> None:
        self._said = said
        self._token = token
        self._stop = stop
        self._place = ""

    def arrive(self) -> bool:
        """Wait until the server listens; False when it never will."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self._stop():
            text = self._said.read_text() if self._said.exists() else ""
            if text.endswith("\n"):
                self._place = urlsplit(json.loads(text)[_SAID]).netloc
                return True
            time.sleep(0.02)
        return False

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        """Status and document; status 0 when the server is gone."""
        connection = HTTPConnection(self._place, timeout=30)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()


def visit(visitor: Visitor, rng: Random, line: Line, own: str) -> dict[str, int]:
    """Search, write, reindex, back up, make and revoke keys, for as long as the server is there; count what came."""
    seen: dict[str, int] = {}
    if not visitor.arrive():
        return seen
    keys: list[tuple[str, str]] = []
    until = time.monotonic() + _LONG
    for number in range(30):
        deed = rng.choice((_search, _search, _put, _put, _key, _revoke, _other))
        status = deed(visitor, rng, line, f"own/{own}/page-{number}", keys)
        assert status < 500 or status == 503, f"{deed.__name__} was answered with {status}"
        seen[f"{deed.__name__} {status}"] = seen.get(f"{deed.__name__} {status}", 0) + 1
        if not status or visitor._stop() or time.monotonic() > until:
            break
    return seen


def _search(visitor: Visitor, rng: Random, line: Line, path: str, keys: list[tuple[str, str]]) -> int:
    status, answer = visitor.ask("GET", f"/w/victim/api/v1/search?q={EVERYWHERE}")
    assert status != 200 or answer["results"], "a silently empty list"
    return status


def _put(visitor: Visitor, rng: Random, line: Line, path: str, keys: list[tuple[str, str]]) -> int:
    text = page(rng, int(path.rsplit("-", 1)[1]))
    line.tell("begin", "page", path, None)
    status, _ = visitor.ask("PUT", f"/w/victim/api/v1/pages/{path}", {"content": text})
    if status in (200, 201):
        line.tell("done", "page", path, text)
    return status


def _key(visitor: Visitor, rng: Random, line: Line, path: str, keys: list[tuple[str, str]]) -> int:
    status, made = visitor.ask("POST", "/api/v1/keys", {"wiki": "bystander", "scope": "read"})
    if status == 201:
        token, key_id = str(made["token"]), str(made["id"])
        line.tell("done", "key", token, key_id)
        keys.append((key_id, token))
    return status


def _revoke(visitor: Visitor, rng: Random, line: Line, path: str, keys: list[tuple[str, str]]) -> int:
    if not keys:
        return _key(visitor, rng, line, path, keys)
    key_id, token = keys.pop()
    line.tell("begin", "revoked", token, None)
    status, _ = visitor.ask("DELETE", f"/api/v1/keys/{key_id}")
    if status == 200:
        line.tell("done", "revoked", token, None)
    return status


def _other(visitor: Visitor, rng: Random, line: Line, path: str, keys: list[tuple[str, str]]) -> int:
    what = rng.choice(("reindex", "backup", "wake", "restore"))
    return visitor.ask("POST", f"/w/victim/api/v1/{what}")[0]
