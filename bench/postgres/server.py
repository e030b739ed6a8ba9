"""The measured PostgreSQL: a real server with fsync, sized for a small machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.measures import count_disk_bytes
from tests.support.postgres_server import PostgresServer, run_postgres

_SETTINGS = {
    "fsync": "on",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "4GB",
    "max_connections": "300",
    "effective_io_concurrency": "16",
    "random_page_cost": "1.1",
    # After a crash every file is flushed, and ten thousand wikis have two hundred thousand.
    "recovery_init_sync_method": "syncfs",
}


@contextmanager
def run_server(**options: str) -> Iterator[PostgresServer]:
    """A new server, removed afterwards with its data."""
    with run_postgres(_SETTINGS | options) as server:
        yield server


def get_disk_bytes(server: PostgresServer) -> int:
    """Bytes of tables and catalogs on the file system, without the write-ahead log."""
    with psycopg.connect(server.get_dsn(), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    return count_disk_bytes(server.place / "data" / "base")


def get_pid(server: PostgresServer) -> int:
    """The main process of the server."""
    return int((server.place / "data" / "postmaster.pid").read_text().split()[0])
