"""A PostgreSQL server for the crash test: it can be crashed, stopped, and restored to a saved state."""

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
from tests.support.wait import TIMEOUT_S

_TERMINATE_SESSIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


class RestorableServer(PostgresServer):
    """One server for all rounds; every round starts from the same data files."""

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def has_crashed(self) -> bool:
        """Whether the server ended without a call of `stop`."""
        return self._child is not None and self._child.poll() is not None

    def save_state(self) -> None:
        """Save the data files. The server is stopped afterwards."""
        self.stop()
        self._copy_directory("data", "saved")

    def restore_state(self) -> None:
        """Restore the saved data files and start the server."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.place / "data")
        self._copy_directory("saved", "data")
        self.start()

    def restart_if_down(self) -> None:
        """Start the server again if it has crashed or is crashing."""
        until = time.monotonic() + TIMEOUT_S
        while not self.has_crashed and self._child is not None:
            try:
                psycopg.connect(self.get_dsn(), connect_timeout=30).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, "the server does not answer and does not end"
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
    """Terminate all sessions on the server except this one."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(_TERMINATE_SESSIONS)


@contextmanager
def run_restorable_server() -> Iterator[RestorableServer]:
    directory = Path(tempfile.mkdtemp(prefix="pg-gate-"))
    try:
        # A small WAL, and no background work that would make rounds differ.
        server = RestorableServer(directory, {"max_wal_size": "64MB", "autovacuum": "off", "shared_buffers": "32MB"})
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
