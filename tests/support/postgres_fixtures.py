"""One PostgreSQL server for all tests of a process, and a separate database for every test that uses `database`."""

from collections.abc import Iterator

import pytest

from tests.support.postgres_server import PostgresServer, run_postgres


@pytest.fixture(scope="session")
def pg() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture
def database(pg: PostgresServer) -> Iterator[str]:
    """The address of an empty database with the extension."""
    address = pg.create_database()
    yield address
    pg.drop_database(address)
