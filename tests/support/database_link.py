"""A way to a database of the test server that can be cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import conninfo

from tests.support.postgres_server import PostgresServer


class DatabaseLink:
    """A connection path to a database of the test server through its own socket, which can be cut."""

    def __init__(self, pg: PostgresServer, place: Path, address: str = "") -> None:
        """To a new database, or to the one with this address."""
        self._pg = pg
        self._database = str(conninfo.conninfo_to_dict(address or pg.create_database())["dbname"])
        self._socket, self._link = pg.place / ".s.PGSQL.5432", place / ".s.PGSQL.5432"
        place.mkdir()
        self._link.symlink_to(self._socket)
        self.address = conninfo.make_conninfo(pg.get_dsn(self._database), host=str(place))

    @contextmanager
    def disconnected(self) -> Iterator[None]:
        """Block new connections to the database and close existing ones, which may be of other paths too."""
        self._link.unlink()
        ending = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s"
        with psycopg.connect(self._pg.get_dsn(), autocommit=True) as connection:
            connection.execute(ending, (self._database,))
        try:
            yield
        finally:
            self._link.symlink_to(self._socket)

    def drop_database(self) -> None:
        self._pg.drop_database(self.address)
