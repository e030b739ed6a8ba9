"""Where Chroma runs: on a server that somebody else runs, or in a child process of ours (see `spawning`)."""

import contextlib
import fcntl
import json
import logging
import os
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from wikiholt.caches.chroma.child_server import get_peer_credentials
from wikiholt.caches.chroma.client import ChromaMetrics, ChromaUnavailable, ForeignCollection
from wikiholt.caches.chroma.embedded_chroma import LOCK_FILE, SOCKET_FILE
from wikiholt.errors import MissingDependency


class ChromaHost(Protocol):
    """Where a Chroma is found."""

    @property
    def is_own_child(self) -> bool:
        """Whether it is a child of ours, which may be started and ended."""

    def connect(self, timeout: float) -> socket.socket:
        """A new connection; raises OSError."""

    def start(self) -> None:
        """Have it run, where that is ours to do; raises ChromaAway, NotOurs or MissingExtra."""

    def kill(self) -> None:
        """End it at once if it is ours: it hangs."""

    def close(self, *, ending: bool) -> None:
        """Let it go; `ending` if it is just about to end."""


class ChromaServerHost:
    """A `chroma run` somewhere."""

    is_own_child = False

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._port = address.port or (443 if self._secure else 8000)

    def connect(self, timeout: float) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._secure:
            return connection
        return ssl.create_default_context().wrap_socket(connection, server_hostname=self._host)

    def start(self) -> None:
        """Nothing to do."""

    def kill(self) -> None:
        """It is somebody else's."""

    def close(self, *, ending: bool) -> None:
        """Nothing to do."""


# A child process that hosts Chroma over one directory: found or started, heard, ended when it hangs. Only the one
# background worker of a process starts or ends a child. Searches connect, or fail at once.


_LOG = logging.getLogger(__name__)
_START_TIMEOUT_S = 60.0
"""Seconds a child has to open its directory; Chroma may have a long log to read again."""
_MAX_SOCKET_PATH_BYTES = 100
"""The name of a socket may have 104 bytes, or 108."""


class ChildProcess:
    """A child process over one directory, shared by all processes of ours that use the directory."""

    is_own_child = True

    def __init__(self, directory: Path, metrics: ChromaMetrics) -> None:
        self._directory = directory.absolute()
        self._metrics = metrics
        self._process: subprocess.Popen[bytes] | None = None
        self._failed_starts = 0
        self._start_lock = threading.Lock()

    def connect(self, timeout: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            self._connect_socket(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def start(self) -> None:
        """Find the one that runs, or start one; two bad starts in a row have it begin with an empty directory."""
        with self._start_lock:
            self._start_locked()

    def _start_locked(self) -> None:
        self._check_exit()
        if self._is_running():
            return
        self._wait_for_exit()
        state, about = self._launch(reset=self._failed_starts >= 2)
        if state == "ready":
            self._failed_starts = 0
            return
        if state == "uninstalled":
            raise MissingDependency("ChromaDB is not installed.", hint='pip install "wikiholt[chroma]"')
        if state == "foreign":
            raise ForeignCollection(
                "The directory chroma.path holds a database that Wikiholt did not make; it is left alone.",
                hint="choose an empty directory, or run a server over that one and set chroma.url",
            )
        if state != "taken":
            self._failed_starts += 1
            raise ChromaUnavailable(f"Chroma's child process did not start ({about or 'it ended'}).")
        self._wait_for_other()

    def kill(self) -> None:
        """End the child, whoever started it: it is the process at the other end of a connection that is open."""
        with contextlib.suppress(OSError), self.connect(1.0) as connection:
            _LOG.warning("Chroma's child process hangs and is ended")
            self._metrics.add("kills")
            # While the connection stands the number is that process's and no other's.
            if pid := get_peer_credentials(connection)[0]:
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
        self._check_exit(wait=5.0)

    def close(self, *, ending: bool) -> None:
        """Let it go; it ends by itself when nobody is connected."""
        self._check_exit(wait=30.0 if ending else 0.0)
        if self._process is not None:
            self._process.returncode = 0  # others use it still: it is no longer ours to wait for
            self._process = None

    def _connect_socket(self, connection: socket.socket) -> None:
        name = str(self._directory / SOCKET_FILE)
        if len(os.fsencode(name)) <= _MAX_SOCKET_PATH_BYTES:
            connection.connect(name)
            return
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET_FILE}")
        finally:
            os.close(directory)

    def _is_running(self) -> bool:
        try:
            self.connect(2.0).close()
        except BlockingIOError:
            return True  # its queue is full, so it is there
        except OSError:
            return False
        return True

    def _wait_for_other(self) -> None:
        """Another process has just started one, or the one there is ending."""
        until = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < until:
            if self._is_running():
                return
            if not (self._directory / LOCK_FILE).exists():
                break
            time.sleep(0.05)
            if _is_unlocked(self._directory / LOCK_FILE):
                break
        raise ChromaUnavailable("Another process has Chroma's directory and does not answer.")

    def _launch(self, *, reset: bool) -> tuple[str, str]:
        """Start one and hear what it says first."""
        # Under some servers the program of this process is not Python.
        python = next((str(p) for p in (Path(sys.prefix, "bin", "python3"),) if p.exists()), sys.executable)
        command = [python, "-m", "wikiholt.caches.chroma.child_server", str(self._directory), *(["--renew"] * reset)]
        # Chroma writes memory to disk that it has not filled: what was freed there before, of any wiki, is wiped first.
        wiped = {"MALLOC_PERTURB_": "85"}
        surroundings = os.environ | wiped | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=surroundings,
                start_new_session=True,
            )
        except OSError as error:
            return "failed", error.strerror or str(error)
        said = _read_first_line(process, _START_TIMEOUT_S)
        state, about = str(said.get("state", "")), str(said.get("about", ""))
        if process.stdout is not None:
            process.stdout.close()
        if state == "ready":
            self._metrics.add("starts")
            self._process = process
        else:
            process.kill()
            process.wait()
        return state, about

    def _wait_for_exit(self) -> None:
        """The child we started listens no more: let it end, and end it if it does not."""
        self._check_exit(wait=5.0)
        if self._process is not None:
            self._process.kill()
            self._check_exit(wait=5.0)

    def _check_exit(self, wait: float = 0.0) -> None:
        """Notice that the child we started has ended, and how."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(wait) if wait else self._process.poll()
            if code is not None:
                self._process = None
                if code != 0:
                    self._metrics.add("crashes")
                    _LOG.warning("Chroma's child process ended by %s", _describe_exit(code))


def _describe_exit(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _is_unlocked(lock: Path) -> bool:
    """Whether nobody holds the lock."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read_first_line(process: "subprocess.Popen[bytes]", timeout: float) -> dict[str, object]:
    """What the process says first, as far as it says something sensible in time."""
    said, until = b"", time.monotonic() + timeout
    if process.stdout is None:
        return {}
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in said:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                return {"about": "it took too long"}
            part = os.read(process.stdout.fileno(), 4096)
            if not part:
                return {"about": _describe_exit(process.wait()) if process.wait() else "it ended"}
            said += part
    try:
        document = json.loads(said.split(b"\n")[0])
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
