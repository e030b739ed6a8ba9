"""The server that the other tests use."""

import signal

import psycopg

from tests.support.postgres_server import PostgresServer


def test_a_database_of_its_own_has_vectors_and_survives_a_crash(pg: PostgresServer, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (v vector(3))")
        connection.execute("INSERT INTO kept VALUES ('[1,2,3]')")
    pg.stop(signal.SIGQUIT)
    pg.start()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT v::text FROM kept").fetchall() == [("[1,2,3]",)]
