"""The process that hosts Chroma: `python -m wikiholt.caches.chroma.child_server DIRECTORY [--renew]`.

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

from wikiholt.caches.chroma.client import INSTANCE_HEADER
from wikiholt.caches.chroma.embedded_chroma import (
    QUARANTINE_DIRECTORY,
    RESET_FILE,
    SOCKET_FILE,
    EmbeddedChroma,
    UnusableDirectory,
    open_directory,
)

LINGER_S = 5.0
"""Seconds it stays when nobody is connected any more."""


@dataclass(slots=True)
class ChildState:
    """Who is connected, and whether it is time to end. Chroma is used under `work` only: it is never left half way."""

    chroma: EmbeddedChroma
    directory: Path
    instance_id: str
    work_lock: threading.Lock = field(default_factory=threading.Lock)
    count_lock: threading.Lock = field(default_factory=threading.Lock)
    connections: Counter[int] = field(default_factory=Counter)
    """How many connections each process has."""
    idle_since: float = 0.0
    ending: bool = False

    def add_connection(self, process_id: int) -> None:
        with self.count_lock:
            self.connections[process_id] += 1

    def remove_connection(self, process_id: int) -> None:
        with self.count_lock:
            self.connections[process_id] -= 1
            self.connections += Counter()  # those who have none are forgotten
            self.idle_since = time.monotonic()

    def should_exit(self) -> bool:
        return self.ending or (not self.connections and time.monotonic() - self.idle_since > LINGER_S)

    def request_reset(self) -> None:
        """End; the next one begins with an empty directory."""
        (self.directory / RESET_FILE).touch()
        self.ending = True

    def remove_leftovers(self) -> None:
        shutil.rmtree(self.directory / QUARANTINE_DIRECTORY, ignore_errors=True)
        self.chroma.remove_orphaned_segments(vacuum=True)

    def release(self, process_id: int) -> None:
        """This process needs it no more; does another?"""
        with self.count_lock:
            self.ending = set(self.connections) <= {process_id}


class _ChildRequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_ChildServer"

    def handle(self) -> None:
        life, process = self.server.state, self._get_peer_process_id()
        life.add_connection(process)
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # who asked has gone
        finally:
            life.remove_connection(process)

    def _get_peer_process_id(self) -> int:
        return get_peer_credentials(self.connection)[0]

    def parse_request(self) -> bool:
        if super().parse_request():
            self.send_answer()
        return False

    def send_answer(self) -> None:
        """Every method alike."""
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        path = [unquote(part) for part in address.path.split("/")[3:]]
        with self.server.state.work_lock:
            status, document = self._execute(path, dict(parse_qsl(address.query)), json.loads(sent) if sent else None)
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header(INSTANCE_HEADER, self.server.state.instance_id)
        self.end_headers()
        self.wfile.write(content)

    def _execute(self, path: list[str], query: dict[str, str], body: object) -> tuple[int, object]:
        life = self.server.state
        own: dict[str, Callable[[], None]] = {
            "renew": life.request_reset,
            "tidy": life.remove_leftovers,
            "leave": lambda: life.release(self._get_peer_process_id()),
        }
        try:
            if path[:1] == ["wikiholt"]:
                own[path[1]]()
                return 200, {"ending": life.ending}
            return life.chroma.handle(self.command, path, query, body)
        except Exception as error:  # noqa: BLE001 - told to who asked
            return 500, {"error": type(error).__name__}
        except BaseException:  # noqa: BLE001 - a panic of Rust: nothing in this process can be trusted any more
            os._exit(70)

    def log_message(self, *_: object) -> None:
        """What is asked is nobody's business."""


class _ChildServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    state: ChildState

    def verify_request(self, request: object, _: object) -> bool:
        """Only processes of the same user may ask, whatever the directory's permissions allow."""
        return isinstance(request, socket.socket) and get_peer_credentials(request)[1] == os.getuid()

    def handle_error(self, *_: object) -> None:
        """A connection that broke is closed; that is all."""


def get_peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a connection; this user, where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()
    process, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(process), int(user)


def main(directory: Path, *, reset: bool) -> int:
    """Serve until nobody is connected; the first line of output says how it went."""
    try:
        bound = open_directory(directory, reset=reset)
    except UnusableDirectory as error:
        return _print_state(error.state, error.detail)
    except BaseException as error:  # noqa: BLE001 - panics are no Exceptions
        return _print_state("failed", getattr(error, "strerror", None) or type(error).__name__)
    _serve(ChildState(bound, directory, secrets.token_hex(8), idle_since=time.monotonic()))
    return 0


def _serve(state: ChildState) -> None:
    os.chdir(state.directory)  # the name of a socket must be short
    Path(SOCKET_FILE).unlink(missing_ok=True)
    os.umask(0o077)
    with _ChildServer(SOCKET_FILE, _ChildRequestHandler) as server:
        server.state = state
        signal.signal(signal.SIGTERM, lambda *_: setattr(state, "ending", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a ^C on a terminal is meant for others
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        _print_state("ready", state.instance_id)
        while not state.should_exit():
            time.sleep(0.05)
        Path(SOCKET_FILE).unlink(missing_ok=True)
        state.work_lock.acquire()  # never in the middle of a write
        os._exit(0)


def _print_state(state: str, detail: str = "") -> int:
    sys.stdout.write(json.dumps({"state": state, "about": detail}) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), reset="--renew" in sys.argv[2:]))
