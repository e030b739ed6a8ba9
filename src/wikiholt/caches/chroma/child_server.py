"""The process that runs Chroma: `python -m wikiholt.caches.chroma.child_server DIRECTORY [--renew] [--as-is]`.

A lock allows one per directory; other Wikiholt processes connect to its socket. It exits when no process is connected.
A panic, a segmentation fault or an endless loop of Chroma affects only this process.
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
"""Seconds until the process exits after the last connection closed."""
_FINISH_TIMEOUT_S = 10.0
"""How long it then waits for an operation in progress."""


@dataclass(slots=True)
class ChildState:
    """Connections and shutdown state. `work_lock` guards every use of Chroma, so no operation is interrupted."""

    chroma: EmbeddedChroma
    directory: Path
    instance_id: str
    work_lock: threading.Lock = field(default_factory=threading.Lock)
    count_lock: threading.Lock = field(default_factory=threading.Lock)
    connections: Counter[int] = field(default_factory=Counter)
    """The number of connections per process id."""
    idle_since: float = 0.0
    ending: bool = False

    def add_connection(self, process_id: int) -> None:
        with self.count_lock:
            self.connections[process_id] += 1

    def remove_connection(self, process_id: int) -> None:
        with self.count_lock:
            self.connections[process_id] -= 1
            self.connections += Counter()  # drops zero counts
            self.idle_since = time.monotonic()

    def should_exit(self) -> bool:
        return self.ending or (not self.connections and time.monotonic() - self.idle_since > LINGER_S)

    def request_reset(self) -> None:
        """Exit; the next process starts with an empty directory."""
        (self.directory / RESET_FILE).touch()
        self.ending = True

    def remove_leftovers(self) -> None:
        shutil.rmtree(self.directory / QUARANTINE_DIRECTORY, ignore_errors=True)
        self.chroma.remove_orphaned_segments(vacuum=True)

    def release(self, process_id: int) -> None:
        """Exit unless another process is connected."""
        with self.count_lock:
            self.ending = set(self.connections) <= {process_id}


class _ChildRequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_ChildServer"

    def handle(self) -> None:
        state, process_id = self.server.state, self._get_peer_process_id()
        state.add_connection(process_id)
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # the client is gone
        finally:
            state.remove_connection(process_id)

    def _get_peer_process_id(self) -> int:
        return get_peer_credentials(self.connection)[0]

    def parse_request(self) -> bool:
        if super().parse_request():
            self._send_reply()
        return False

    def _send_reply(self) -> None:
        """Handle a request of any method."""
        self.close_connection = self.headers.get("Connection", "").lower() == "close"
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        path = [unquote(part) for part in address.path.split("/")[3:]]
        with self.server.state.work_lock:
            status, document = self._execute(path, dict(parse_qsl(address.query)), json.loads(body) if body else None)
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header(INSTANCE_HEADER, self.server.state.instance_id)
        self.end_headers()
        self.wfile.write(content)

    def _execute(self, path: list[str], query: dict[str, str], body: object) -> tuple[int, object]:
        state = self.server.state
        commands: dict[str, Callable[[], None]] = {
            "renew": state.request_reset,
            "tidy": state.remove_leftovers,
            "leave": lambda: state.release(self._get_peer_process_id()),
        }
        try:
            if path[:1] == ["wikiholt"]:
                commands[path[1]]()
                return 200, {"ending": state.ending}
            return state.chroma.handle(self.command, path, query, body)
        except Exception as error:  # noqa: BLE001 - reported to the client
            return 500, {"error": type(error).__name__}
        except BaseException:  # noqa: BLE001 - a Rust panic: the process is in an unknown state
            os._exit(70)

    def log_message(self, *_: object) -> None:
        """Log nothing: requests contain page data."""


class _ChildServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    state: ChildState

    def verify_request(self, request: object, _: object) -> bool:
        """Accept only processes of the same user, whatever the permissions of the directory."""
        return isinstance(request, socket.socket) and get_peer_credentials(request)[1] == os.getuid()

    def handle_error(self, *_: object) -> None:
        """Ignore broken connections."""


def get_peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and user id of the peer; 0 and the own user where the system does not provide them."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()
    process_id, user_id, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(process_id), int(user_id)


def main(directory: Path, *, reset: bool, as_is: bool) -> int:
    """Serve until no process is connected. The first line of output reports the result of the start."""
    try:
        chroma = open_directory(directory, reset=reset, as_is=as_is)
    except UnusableDirectory as error:
        return _print_state(error.state, error.detail)
    except BaseException as error:  # noqa: BLE001 - a Rust panic is not an Exception
        return _print_state("failed", getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"[:300])
    _serve(ChildState(chroma, directory, secrets.token_hex(8), idle_since=time.monotonic()))
    return 0


def _serve(state: ChildState) -> None:
    os.chdir(state.directory)  # the path of a socket must be short
    Path(SOCKET_FILE).unlink(missing_ok=True)
    os.umask(0o077)
    with _ChildServer(SOCKET_FILE, _ChildRequestHandler) as server:
        server.state = state
        signal.signal(signal.SIGTERM, lambda *_: setattr(state, "ending", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        _print_state("ready", state.instance_id)
        while not state.should_exit():
            time.sleep(0.05)
        Path(SOCKET_FILE).unlink(missing_ok=True)
        state.work_lock.acquire(timeout=_FINISH_TIMEOUT_S)  # do not interrupt a write, unless it hangs
        os._exit(0)


def _print_state(state: str, detail: str = "") -> int:
    sys.stdout.write(json.dumps({"state": state, "about": detail}) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), reset="--renew" in sys.argv[2:], as_is="--as-is" in sys.argv[2:]))
