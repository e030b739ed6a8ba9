"""A session that is logged in as one wiki's role and holds every lock that such a role can get."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from wikiholt.index.postgres.placements import Placement

Connection = psycopg.Connection[tuple[object, ...]]

# Names that advisory locks were, or could be, taken by: all schemas, ids and roles that there are.
_ADVISORY = """
SELECT count(pg_try_advisory_lock(key)) FROM (
    SELECT hashtextextended(prefix || name, seed) AS key
    FROM (SELECT nspname::text AS name FROM pg_namespace UNION SELECT substr(nspname, 3) FROM pg_namespace
        UNION SELECT rolname FROM pg_roles) AS names,
        unnest(ARRAY['', 'tending ', 'indexes ', 'placement ']) AS prefix, generate_series(0, 1) AS seed
    UNION SELECT 7340033) AS keys
"""
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' ORDER BY relname"


@contextmanager
def holding_everything(address: str, wiki: Placement, others: Sequence[Placement] = ()) -> Iterator[Connection]:
    """As the wiki's role at that address: every advisory lock by name, all rows and all tables of its own, a snapshot,
    a listening session that is idle in a transaction, and rights of a large object that every other wiki's role has.
    """
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only TO off; SET lock_timeout TO '120s'")
        connection.execute("LISTEN wikiholt")
        connection.execute(_ADVISORY)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")
        tables = [name for (name,) in connection.execute(_TABLES, (wiki.schema,))]
        assert {"state", "g1_pages", "g1_chunks"} <= set(tables)
        for name in tables:
            table = sql.Identifier(wiki.schema, str(name))
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
            connection.execute(sql.SQL("SELECT 1 FROM {} FOR UPDATE").format(table))
        (number,) = connection.execute("SELECT lo_create(0)").fetchone() or (0,)
        for other in others:
            granting = sql.SQL("GRANT SELECT ON LARGE OBJECT {} TO {}")
            connection.execute(granting.format(sql.Literal(number), sql.Identifier(other.role)))
        try:
            yield connection
        finally:
            if not connection.closed and not connection.broken:
                connection.execute("ROLLBACK")


def refused(connection: Connection, statement: str) -> str | None:
    """The code with which a statement is refused; None where it is not."""
    try:
        with connection.transaction():
            connection.execute(statement)
    except psycopg.Error as error:
        return error.sqlstate
    return None
