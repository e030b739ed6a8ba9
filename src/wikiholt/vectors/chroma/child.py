"""The process that hosts Chroma: `python -m wikiholt.vectors.chroma.child DIRECTORY [--renew]`.

One for each directory, by a lock, whichever process of ours started it; the others find its socket. It lives while
somebody is connected. Whatever Chroma does to it (a panic, a segmentation fault, a loop without end) happens here.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from wikiholt.vectors.chroma.bound import Bound
from wikiholt.vectors.chroma.premises import ASIDE, RENEW, SOCKET, Unfit, taken_up
from wikiholt.vectors.chroma.wire import INCARNATION

LINGER = 5.0
"""Seconds it stays when nobody is connected any more."""


@dataclass(slots=True)
class Life:
    """Who is connected, and whether it is time to end. Chroma is used under `work` only: it is never left half way."""

    bound: Bound
    directory: Path
    incarnation: str
    work: threading.Lock = field(default_factory=threading.Lock)
    counting: threading.Lock = field(default_factory=threading.Lock)
    connected: Counter[int] = field(default_factory=Counter)
    """How many connections each process has."""
    alone_since: float = 0.0
    ending: bool = False

    def came(self, process: int) -> None:
        with self.counting:
            self.connected[process] += 1

    def went(self, process: int) -> None:
        with self.counting:
            self.connected[process] -= 1
            self.connected += Counter()  # those who have none are forgotten
            self.alone_since = time.monotonic()

    def over(self) -> bool:
        return self.ending or (not self.connected and time.monotonic() - self.alone_since > LINGER)

    def renew(self) -> None:
        """End; the next one begins with an empty directory."""
        (self.directory / RENEW).touch()
        self.ending = True

    def tidy(self) -> None:
        shutil.rmtree(self.directory / ASIDE, ignore_errors=True)
        self.bound.tidy(fully=True)

    def leave(self, process: int) -> None:
        """This process needs it no more; does another?"""
        with self.counting:
            self.ending = set(self.connected) <= {process}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def handle(self) -> None:
        life, process = self.server.life, self._peer()
        life.came(process)
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # who asked has gone
        finally:
            life.went(process)

    def _peer(self) -> int:
        return peer(self.connection)[0]

    def parse_request(self) -> bool:
        if super().parse_request():
            self.answer()
        return False

    def answer(self) -> None:
        """Every method alike."""
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        path = [unquote(part) for part in address.path.split("/")[3:]]
        with self.server.life.work:
            status, document = self._done(path, dict(parse_qsl(address.query)), json.loads(sent) if sent else None)
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header(INCARNATION, self.server.life.incarnation)
        self.end_headers()
        self.wfile.write(content)

    def _done(self, path: list[str], query: dict[str, str], body: object) -> tuple[int, object]:
        life = self.server.life
        own: dict[str, Callable[[], None]] = {
            "renew": life.renew,
            "tidy": life.tidy,
            "leave": lambda: life.leave(self._peer()),
        }
        try:
            if path[:1] == ["wikiholt"]:
                own[path[1]]()
                return 200, {"ending": life.ending}
            return life.bound.answer(self.command, path, query, body)
        except Exception as error:  # noqa: BLE001 - told to who asked
            return 500, {"error": type(error).__name__}
        except BaseException:  # noqa: BLE001 - a panic of Rust: nothing in this process can be trusted any more
            os._exit(70)

    def log_message(self, *_: object) -> None:
        """What is asked is nobody's business."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    life: Life

    def verify_request(self, request: object, _: object) -> bool:
        """Only processes of the same user may ask, whatever the directory's permissions allow."""
        return isinstance(request, socket.socket) and peer(request)[1] == os.getuid()

    def handle_error(self, *_: object) -> None:
        """A connection that broke is closed; that is all."""


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a connection; this user, where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()
    process, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(process), int(user)


def main(directory: Path, *, renew: bool) -> int:
    """Serve until nobody is connected; the first line of output says how it went."""
    try:
        bound = taken_up(directory, renew=renew)
    except Unfit as error:
        return _say(error.state, error.about)
    except BaseException as error:  # noqa: BLE001 - panics are no Exceptions
        return _say("failed", getattr(error, "strerror", None) or type(error).__name__)
    _serve(Life(bound, directory, secrets.token_hex(8), alone_since=time.monotonic()))
    return 0


def _serve(life: Life) -> None:
    os.chdir(life.directory)  # the name of a socket must be short
    Path(SOCKET).unlink(missing_ok=True)
    os.umask(0o077)
    with _Server(SOCKET, _Handler) as server:
        server.life = life
        signal.signal(signal.SIGTERM, lambda *_: setattr(life, "ending", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a ^C on a terminal is meant for others
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        _say("ready", life.incarnation)
        while not life.over():
            time.sleep(0.05)
        Path(SOCKET).unlink(missing_ok=True)
        life.work.acquire()  # never in the middle of a write
        os._exit(0)


def _say(state: str, about: str = "") -> int:
    sys.stdout.write(json.dumps({"state": state, "about": about}) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), renew="--renew" in sys.argv[2:]))
