"""Locks of the operator, as rows of `wikiholt.locks` in every database that holds wikis.

Advisory locks are not used, because any role of a database can take and keep any advisory lock. Creating or removing a
wiki's schema, role or tables locks a row of `wikiholt.locks`, which wiki roles cannot access.
"""

from contextlib import suppress

from psycopg.errors import DuplicateSchema, DuplicateTable, UniqueViolation

from wikiholt.storage.postgres.pool import Connection

_CREATE = (
    "CREATE SCHEMA IF NOT EXISTS wikiholt",
    "CREATE TABLE IF NOT EXISTS wikiholt.locks (name text PRIMARY KEY, pid int4, since timestamptz)",
    # Keep names out of the planner statistics, where they would outlive their wikis.
    "ALTER TABLE wikiholt.locks ALTER name SET STATISTICS 0",
)
_ACQUIRE = "SELECT 1 FROM wikiholt.locks WHERE name = %s FOR UPDATE"
# Also waits for another transaction that has inserted the row and not committed.
_INSERT = "INSERT INTO wikiholt.locks (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET name = excluded.name"
_DROP = "DELETE FROM wikiholt.locks WHERE name = %s"
_CLAIM = """
INSERT INTO wikiholt.locks AS known (name, pid, since)
SELECT %s, pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
ON CONFLICT (name) DO UPDATE SET pid = excluded.pid, since = excluded.since
WHERE known.pid = pg_backend_pid() OR NOT EXISTS (
    SELECT 1 FROM pg_stat_activity AS session WHERE session.pid = known.pid AND session.backend_start = known.since)
RETURNING 1
"""
_RELEASE = "DELETE FROM wikiholt.locks WHERE name = %s AND pid = pg_backend_pid()"


def ensure_lock_table(connection: Connection) -> None:
    """Create the table if it is missing. Several nodes may do so at the same time."""
    if connection.execute("SELECT to_regclass('wikiholt.locks')").fetchone() != (None,):
        return
    for statement in _CREATE:
        # IF NOT EXISTS does not see an uncommitted table of another node: it waits, then fails.
        with suppress(UniqueViolation, DuplicateSchema, DuplicateTable), connection.transaction():
            connection.execute(statement)


def acquire_lock(connection: Connection, name: str) -> None:
    """Lock a name until the end of the open transaction. Waits for the lock timeout."""
    ensure_lock_table(connection)
    if connection.execute(_ACQUIRE, (name,)).fetchone() is None:
        connection.execute(_INSERT, (name,))


def delete_lock(connection: Connection, name: str) -> None:
    """Delete the row of a removed object, in the open transaction."""
    connection.execute(_DROP, (name,))


def claim_build(connection: Connection, name: str) -> bool:
    """Claim a name for this session, for work that spans transactions. Returns False if a live session has it."""
    ensure_lock_table(connection)
    return connection.execute(_CLAIM, (name,)).fetchone() is not None


def release_build(connection: Connection, name: str) -> None:
    connection.execute(_RELEASE, (name,))
