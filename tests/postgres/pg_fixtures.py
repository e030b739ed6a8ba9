"""One PostgreSQL for all tests of a process, and a database of its own for each test that asks for one."""

from collections.abc import Iterator

import pytest
from pg_server import PgServer, running


@pytest.fixture(scope="session")
def pg() -> Iterator[PgServer]:
    with running() as server:
        yield server


@pytest.fixture
def database(pg: PgServer) -> Iterator[str]:
    """The address of an empty database with the extension."""
    address = pg.new_database()
    yield address
    pg.drop_database(address)
