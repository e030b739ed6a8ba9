"""Locks of the operator: rows of a table that only the operator can reach, in every database that holds wikis.

Any role of a database may take any advisory lock in it, and hold it for as long as it likes. So none is used: what
makes or removes a wiki's schema, role or tables locks a row of `wikiholt.locks`, where wikis' roles have no rights.

    ensure(connection)                make the table if it is missing; nodes may do so at the same time
    take(connection, name)            lock a row until the end of the open transaction; waits for the lock timeout
    drop(connection, name)            remove the row of what is gone, with the open transaction
    claim(connection, name) -> bool   for work that cannot be one transaction: False while another live session has it
    release(connection, name)
"""

from contextlib import suppress

from psycopg.errors import DuplicateSchema, DuplicateTable, UniqueViolation

from wikiholt.storage.postgres.pool import Connection

_CREATE = (
    "CREATE SCHEMA IF NOT EXISTS wikiholt",
    "CREATE TABLE IF NOT EXISTS wikiholt.locks (name text PRIMARY KEY, pid int4, since timestamptz)",
    # The planner would keep names as samples, which would outlive their wikis.
    "ALTER TABLE wikiholt.locks ALTER name SET STATISTICS 0",
)
_ACQUIRE = "SELECT 1 FROM wikiholt.locks WHERE name = %s FOR UPDATE"
# It also waits for another that has just inserted the row.
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
    if connection.execute("SELECT to_regclass('wikiholt.locks')").fetchone() != (None,):
        return
    for statement in _CREATE:
        # IF NOT EXISTS does not see what another has not committed yet: then it waits, and fails.
        with suppress(UniqueViolation, DuplicateSchema, DuplicateTable), connection.transaction():
            connection.execute(statement)


def acquire_lock(connection: Connection, name: str) -> None:
    ensure_lock_table(connection)
    if connection.execute(_ACQUIRE, (name,)).fetchone() is None:
        connection.execute(_INSERT, (name,))


def delete_lock(connection: Connection, name: str) -> None:
    connection.execute(_DROP, (name,))


def claim_build(connection: Connection, name: str) -> bool:
    """Claim a name for this session; the claim of a session that has ended counts for nothing."""
    ensure_lock_table(connection)
    return connection.execute(_CLAIM, (name,)).fetchone() is not None


def release_build(connection: Connection, name: str) -> None:
    connection.execute(_RELEASE, (name,))
