"""Where Chroma runs: on an external server, or in a child process over one directory.

Only the background worker of a process starts or kills a child. Searches connect to it or fail at once.
"""

import contextlib
import fcntl
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from wikiholt.caches.chroma.child_server import get_peer_credentials
from wikiholt.caches.chroma.client import ChromaMetrics, ChromaUnavailable, ForeignCollection
from wikiholt.caches.chroma.embedded_chroma import LOCK_FILE, QUARANTINE_DIRECTORY, SOCKET_FILE
from wikiholt.errors import MissingDependency, make_extra_hint
from wikiholt.http_client import open_connection

_LOG = logging.getLogger(__name__)
_START_TIMEOUT_S = 60.0
"""Time for a child to open its directory; Chroma may have to replay a long log."""
_EXIT_TIMEOUT_S = 5.0
_RELEASE_TIMEOUT_S = 30.0
_MAX_SOCKET_PATH_BYTES = 100
"""The path of a socket may have 104 or 108 bytes, depending on the system."""


class ChromaHost:
    """A Chroma that can be connected to. What concerns a child process does nothing for a server."""

    is_own_child = False
    """Whether it is a child process that Wikiholt starts and kills."""

    def connect(self, timeout_s: float) -> socket.socket:
        """Open a connection. Raises OSError."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the child process if it is not running.

        Raises ChromaUnavailable, ForeignCollection or MissingDependency.
        """

    def kill(self) -> None:
        """Kill the child process because it hangs."""

    def terminate(self) -> None:
        """Let the child of this process end after its operation in progress, or after some seconds if that hangs."""

    def close(self, *, ending: bool) -> None:
        """Release it; `ending` if the child process is about to exit."""


class ChromaServerHost(ChromaHost):
    """An external Chroma server (`chroma run`)."""

    def __init__(self, url: str, default_port: int = 8000) -> None:
        """`default_port` is for an http URL without a port. Raises ValueError for an invalid port."""
        address = urlsplit(url)
        self._secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._port = address.port or (443 if self._secure else default_port)

    def connect(self, timeout_s: float) -> socket.socket:
        return open_connection(self._host, self._port, timeout_s, is_secure=self._secure)


class ChildProcess(ChromaHost):
    """A child process over one directory, shared by all Wikiholt processes that use the directory."""

    is_own_child = True

    def __init__(
        self,
        directory: Path,
        metrics: ChromaMetrics,
        *,
        as_is: bool = False,
        start_timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        """With `as_is`, the directory may be that of another program, and Chroma's files are never moved aside."""
        self._directory = directory.absolute()
        self._metrics = metrics
        self._as_is = as_is
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._failed_starts = 0
        self._start_lock = threading.Lock()

    def connect(self, timeout_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            self._connect_socket(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def start(self) -> None:
        """Use the running child or start one. After two failed starts in a row the directory is reset."""
        with self._start_lock:
            self._start_locked()

    def _start_locked(self) -> None:
        self._check_exit()
        if self._is_running():
            return
        self._wait_for_exit()
        quarantined = self._list_quarantined()
        state, detail = self._launch(reset=self._failed_starts >= 2)
        if state != "taken":
            self._report_quarantined(self._list_quarantined() - quarantined)
        if state == "ready":
            self._failed_starts = 0
            return
        if state == "uninstalled":
            raise MissingDependency("ChromaDB is not installed.", hint=make_extra_hint("chroma"))
        if state == "foreign":
            raise ForeignCollection(
                "The directory chroma.path contains a database that Wikiholt did not create; it is not used.",
                hint="choose an empty directory, or run a server over that one and set chroma.url",
            )
        if state != "taken":
            self._failed_starts += 1
            raise ChromaUnavailable(f"Chroma's child process did not start ({detail or 'it exited'}).")
        self._wait_for_other()

    def kill(self) -> None:
        """Kill the child, even if another process started it: it is the peer of a connection."""
        with contextlib.suppress(OSError), self.connect(1.0) as connection:
            _LOG.warning("killing Chroma's child process: it hangs")
            self._metrics.add("kills")
            # While the connection is open, the process id cannot be reused.
            if pid := get_peer_credentials(connection)[0]:
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
        self._check_exit(timeout_s=_EXIT_TIMEOUT_S)

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def close(self, *, ending: bool) -> None:
        """Release the child. It exits when no process is connected."""
        self._check_exit(timeout_s=_RELEASE_TIMEOUT_S if ending else 0.0)
        if self._process is not None:
            self._process.returncode = 0  # other processes still use it, so do not wait for it
            self._process = None

    def stop(self) -> None:
        """End the child of this process at once. Only for a directory that nothing else uses."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _list_quarantined(self) -> set[str]:
        try:
            return {entry.name for entry in (self._directory / QUARANTINE_DIRECTORY).iterdir()}
        except OSError:
            return set()

    def _report_quarantined(self, names: set[str]) -> None:
        """Log and count the files of Chroma that the child has moved aside; it cannot log by itself."""
        for name in sorted(names):
            self._metrics.add("renewals")
            place = self._directory / QUARANTINE_DIRECTORY / name
            _LOG.warning("Chroma's files were moved aside to %s; every collection is rebuilt", place)

    def _connect_socket(self, connection: socket.socket) -> None:
        path = str(self._directory / SOCKET_FILE)
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
            connection.connect(path)
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
            return True  # its queue is full, so it is running
        except OSError:
            return False
        return True

    def _wait_for_other(self) -> None:
        """Wait for a child that another process has just started. Raises ChromaUnavailable."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._is_running():
                return
            if not (self._directory / LOCK_FILE).exists():
                break
            time.sleep(0.05)
            if _is_unlocked(self._directory / LOCK_FILE):
                break
        raise ChromaUnavailable("Another process has locked Chroma's directory and does not respond.")

    def _launch(self, *, reset: bool) -> tuple[str, str]:
        """Start a child and return the state and the detail that it reports."""
        # In some servers sys.executable is not Python.
        python = next((str(p) for p in (Path(sys.prefix, "bin", "python3"),) if p.exists()), sys.executable)
        options = [*(["--renew"] * reset), *(["--as-is"] * self._as_is)]
        command = [python, "-m", "wikiholt.caches.chroma.child_server", str(self._directory), *options]
        # Chroma writes uninitialized memory to disk: overwrite freed memory first, as it may contain data of any wiki.
        overwrite_freed = {"MALLOC_PERTURB_": "85"}
        environment = os.environ | overwrite_freed | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return "failed", error.strerror or str(error)
        report = _read_report(process, self._start_timeout_s)
        state, detail = str(report.get("state", "")), str(report.get("about", ""))
        if process.stdout is not None:
            process.stdout.close()
        if state == "ready":
            self._metrics.add("starts")
            self._process = process
        else:
            process.kill()
            process.wait()
        return state, detail

    def _wait_for_exit(self) -> None:
        """Wait for a child of this process that no longer listens, and kill it if it does not exit."""
        self._check_exit(timeout_s=_EXIT_TIMEOUT_S)
        if self._process is not None:
            self._process.kill()
            self._check_exit(timeout_s=_EXIT_TIMEOUT_S)

    def _check_exit(self, timeout_s: float = 0.0) -> None:
        """Record whether the child of this process has exited, and how."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s) if timeout_s else self._process.poll()
            if code is not None:
                self._process = None
                if code != 0:
                    self._metrics.add("crashes")
                    _LOG.warning("Chroma's child process exited: %s", _describe_exit(code))


def _describe_exit(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _is_unlocked(lock: Path) -> bool:
    """Whether no process holds the lock."""
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


def _read_report(process: "subprocess.Popen[bytes]", timeout_s: float) -> dict[str, object]:
    """Parse the first line of output; only "about" or nothing if it does not arrive in time or is invalid."""
    output, deadline = b"", time.monotonic() + timeout_s
    if process.stdout is None:
        return {}
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in output:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not selector.select(remaining):
                return {"about": "it timed out"}
            part = os.read(process.stdout.fileno(), 4096)
            if not part:
                return {"about": _describe_exit(process.wait()) if process.wait() else "it exited"}
            output += part
    try:
        document = json.loads(output.split(b"\n")[0])
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
