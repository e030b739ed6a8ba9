"""Chroma's own server in a child process over one directory, and the care for that directory.

The server listens on a Unix socket, because it has no authentication: only the user of the service may connect. A lock
that the server holds allows one per directory; other Wikiholt processes use the same server.
"""

import contextlib
import fcntl
import http.client
import logging
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from wikiholt.errors import MissingDependency, make_extra_hint
from wikiholt.http_client import HttpClient
from wikiholt.index.chroma.client import ChromaMetrics, ChromaUnavailable, ForeignCollection

_LOG = logging.getLogger(__name__)

DATABASE_FILE, QUARANTINE_DIRECTORY = "chroma.sqlite3", "wikiholt-aside"
SOCKET_FILE, VERSION_FILE = "wikiholt.sock", "wikiholt.version"
"""The version file names the version of Chroma that created the other files, and says that Wikiholt owns them."""
_LOCK_FILE, _LOG_FILE = "wikiholt.lock", "wikiholt.log"
_EXIT_TIMEOUT_S = 5.0
_MAX_SOCKET_PATH_BYTES = 100
"""The path of a socket may have 104 or 108 bytes, depending on the system."""


class OwnServer:
    """A Chroma server that ends with the process that started it. Only that process kills it."""

    def __init__(self, directory: Path, metrics: ChromaMetrics, start_timeout_s: float = 60.0) -> None:
        """The timeout is long, because Chroma may have to replay a long log."""
        self._directory = directory.absolute()
        self._metrics = metrics
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._failed_starts = 0
        self._must_reset = False
        self._start_lock = threading.Lock()

    def connect(self, timeout_s: float) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout_s)
            with self._open_socket_path() as path:
                connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection

    def start(self) -> None:
        """Use the running server or start one. After two failed starts in a row the directory is reset.

        Raises ChromaUnavailable, ForeignCollection, MissingDependency and OSError.
        """
        with self._start_lock:
            self._note_exit()
            if self._process is not None:
                return
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._prepare_directory()
                self._launch(lock)
            except BlockingIOError:
                return  # another process runs the server
            finally:
                os.close(lock)

    def kill(self, *, reset: bool = False) -> None:
        """Kill the server if this process started it. With `reset` the next one begins with an empty directory."""
        self._must_reset = self._must_reset or reset
        process = self._process
        if process is not None:
            _LOG.warning("killing Chroma's child process: %s", "its files are damaged" if reset else "it hangs")
            self._metrics.add("kills")
            process.kill()
            process.wait()

    def close(self) -> None:
        """Let the server end, if this process started it. Other processes then start their own."""
        process = self._process
        if process is not None:
            if process.poll() is None:  # else another process may have started a server at this path
                (self._directory / SOCKET_FILE).unlink(missing_ok=True)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_TIMEOUT_S)
            self._end_process(process)

    def remove_leftovers(self) -> None:
        """Remove the files of deleted collections and free pages of the database. Chroma does neither."""
        address = f"{(self._directory / DATABASE_FILE).as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
            segment_ids = {segment_id for (segment_id,) in database.execute("SELECT id FROM segments")}
            for path in filter(_is_segment_directory, self._directory.iterdir()):
                if path.name not in segment_ids:
                    shutil.rmtree(path, ignore_errors=True)
            database.execute("VACUUM")
        shutil.rmtree(self._directory / QUARANTINE_DIRECTORY, ignore_errors=True)

    @contextlib.contextmanager
    def _open_socket_path(self) -> Iterator[str]:
        path = str(self._directory / SOCKET_FILE)
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
            yield path
            return
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{SOCKET_FILE}"
        finally:
            os.close(directory)

    def _launch(self, lock: int) -> None:
        """Start a server that inherits the lock, and wait until it answers. Raises ChromaUnavailable."""
        (self._directory / SOCKET_FILE).unlink(missing_ok=True)
        # In some servers sys.executable is not Python.
        python = next((str(p) for p in (Path(sys.prefix, "bin", "python3"),) if p.exists()), sys.executable)
        # Variables of this name would configure Chroma.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CHROMA")}
        # Chroma writes uninitialized memory to disk: overwrite freed memory first, as it may contain data of any wiki.
        environment |= {"MALLOC_PERTURB_": "85", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with socket.socket(socket.AF_UNIX) as listener, (self._directory / _LOG_FILE).open("wb") as log:
            with self._open_socket_path() as path:
                listener.bind(path)
            (self._directory / SOCKET_FILE).chmod(0o600)  # before `listen`, so that no other user can connect
            listener.listen(128)
            arguments = [str(self._directory), str(listener.fileno()), secrets.token_hex(8)]
            self._process = process = subprocess.Popen(
                [python, "-m", "wikiholt.index.chroma.server_process", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                cwd="/",  # Chroma would read a file .env
                pass_fds=(lock, listener.fileno()),
                start_new_session=True,
            )
        if problem := self._wait_for_answer(process):
            self._end_process(process)
            self._failed_starts += 1
            raise ChromaUnavailable(f"Chroma's child process did not start ({problem}).")
        self._failed_starts = 0
        self._metrics.add("starts")

    def _wait_for_answer(self, process: "subprocess.Popen[bytes]") -> str:
        """Return why there is no reply, or an empty string. The request fails when the process ends."""
        with contextlib.closing(HttpClient(self.connect, "localhost", 1 << 16)) as client:
            try:
                reply = client.send("GET", "/api/v2/heartbeat", None, {}, timeout_s=self._start_timeout_s)
                return "" if reply.status == 200 else f"status {reply.status}"
            except TimeoutError:
                return "it timed out"
            except (OSError, http.client.HTTPException):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_EXIT_TIMEOUT_S)
                lines = (self._directory / _LOG_FILE).read_text("utf-8", "replace").split("\n")
                return next(filter(str.strip, reversed(lines)), f"exit code {process.returncode}")[:300]

    def _note_exit(self) -> None:
        """Record whether the server of this process has exited, and how."""
        process = self._process
        if process is not None and (code := process.poll()) is not None:
            self._end_process(process)
            if code != 0:
                self._metrics.add("crashes")
                _LOG.warning("Chroma's child process exited with code %d", code)

    def _end_process(self, process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None

    def _prepare_directory(self) -> None:
        """Move files aside that cannot be used, or that another version of Chroma wrote. Raises ForeignCollection."""
        try:
            version = metadata.version("chromadb")
        except metadata.PackageNotFoundError as error:
            raise MissingDependency("ChromaDB is not installed.", hint=make_extra_hint("chroma")) from error
        has_database, file = (self._directory / DATABASE_FILE).exists(), self._directory / VERSION_FILE
        if has_database and not file.exists():
            raise ForeignCollection(
                "The directory chroma.path contains a database that Wikiholt did not create; it is not used.",
                hint="choose an empty directory, or run a server over that one and set chroma.url",
            )
        written_by = file.read_text("utf-8", "replace") if file.exists() else version
        if has_database and (self._must_reset or self._failed_starts >= 2 or written_by != version):
            self._quarantine_files("damaged" if written_by == version else f"written-by-{Path(written_by).name}")
        self._must_reset = False
        file.write_text(version, "utf-8")

    def _quarantine_files(self, reason: str) -> None:
        """Move the files of Chroma aside. Only the latest ones are kept."""
        shutil.rmtree(self._directory / QUARANTINE_DIRECTORY, ignore_errors=True)
        target = self._directory / QUARANTINE_DIRECTORY / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{reason}"
        target.mkdir(parents=True, mode=0o700)
        for entry in list(self._directory.iterdir()):
            if entry.name.startswith(DATABASE_FILE) or _is_segment_directory(entry):
                entry.rename(target / entry.name)
        self._metrics.add("renewals")
        _LOG.warning("Chroma's files were moved aside to %s; every collection is rebuilt", target)


def _is_segment_directory(directory: Path) -> bool:
    try:
        return directory.is_dir() and str(uuid.UUID(directory.name)) == directory.name
    except ValueError:
        return False
