"""A PostgreSQL of the crash gate's own: it can be crashed, sent away, and put back to what it was."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.postgres_server import PostgresServer

_TERMINATE_SESSIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


class RestorableServer(PostgresServer):
    """One server for all rounds; every round begins from the same bytes."""

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def has_crashed(self) -> bool:
        """Whether it has ended without having been told to by this object."""
        return self._child is not None and self._child.poll() is not None

    def save_state(self) -> None:
        """Remember all there is; the server is left stopped."""
        self.stop()
        self._copy_directory("data", "kept")

    def restore_state(self) -> None:
        """Have again what was remembered, whatever has happened since, and run."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.place / "data")
        self._copy_directory("kept", "data")
        self.start()

    def restart_if_down(self) -> None:
        """Run again after a crash, or after one that is under way; nothing happens where it runs."""
        until = time.monotonic() + 60
        while not self.has_crashed and self._child is not None:
            try:
                psycopg.connect(self.get_dsn(), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, "the server neither answers nor ends"
                time.sleep(0.01)
            else:
                return
        self._child = None
        self.start()

    def stop_for(self, seconds: float) -> None:
        self.stop()
        time.sleep(seconds)
        self.start()

    def terminate_sessions(self) -> None:
        terminate_sessions(self.get_dsn())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self.has_crashed:
            self._child = None
        super().stop(how)

    def _copy_directory(self, source: str, target: str) -> None:
        command = ["cp", "-a", "--reflink=auto", str(self.place / source), str(self.place / target)]
        subprocess.run(command, check=True)


def terminate_sessions(address: str) -> None:
    """End everybody's session on the server but one's own."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(_TERMINATE_SESSIONS)


@contextmanager
def run_restorable_server() -> Iterator[RestorableServer]:
    place = Path(tempfile.mkdtemp(prefix="pg-gate-"))
    try:
        # Small steps of the log, and no work of its own in the background that would make rounds differ.
        server = RestorableServer(place, {"max_wal_size": "64MB", "autovacuum": "off", "shared_buffers": "32MB"})
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
