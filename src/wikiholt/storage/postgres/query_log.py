"""The query log of a wiki, a table in its own schema that only its role can read and write.

The table is created on first use, because most wikis do not log queries and tables cost space on a server with many
wikis. All nodes write to it. A move to another database does not copy it.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from psycopg import sql

from wikiholt.domain.search import QueryRecord, QueryRecords, QueryRetention
from wikiholt.errors import IndexMissing
from wikiholt.storage.postgres import locks
from wikiholt.storage.postgres.placements import PlacementCatalog
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.schema import MOVED_MARK
from wikiholt.storage.sqlite.query_log import QUERY_COLUMNS, from_query_row, to_query_row

_T = TypeVar("_T")

_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS {schema}.searches (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " at float8 NOT NULL, interface text NOT NULL, query text NOT NULL, mode text NOT NULL, filtered int2 NOT NULL,"
    " hits int4 NOT NULL, nothing_relevant int2 NOT NULL, degraded int2 NOT NULL, score float8 NOT NULL,"
    " ms float8 NOT NULL, did_you_mean text NOT NULL, pages text NOT NULL, lost int8 NOT NULL)"
)
_GRANT = "GRANT SELECT, INSERT, DELETE ON {schema}.searches TO {role}"
_INSERT = f"INSERT INTO searches ({QUERY_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_SELECT_SINCE = f"SELECT {QUERY_COLUMNS} FROM searches WHERE at >= %s ORDER BY at, id"
_OWNER = "COMMENT ON TABLE {schema}.searches IS {wiki}"
"""Stores the wiki id with the table, so that a table copied from another schema is detected."""
_SELECT_TABLE_STATE = (
    "SELECT text, coalesce(obj_description(to_regclass(quote_ident(current_schema()) || '.searches'), 'pg_class'), '')"
    " FROM state WHERE name = 'layout'"
)
"""Qualified by the schema, because another schema on the search path may have a table of this name."""
_COMMENT = "SELECT obj_description(to_regclass(%s), 'pg_class')"


class PostgresQueryLog:
    """A `QueryLog` in a wiki's schema."""

    def __init__(self, placements: PlacementCatalog, wiki_id: str) -> None:
        self._placements = placements
        self._wiki_id = wiki_id
        self._connections = placements.get_connections(wiki_id)

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        rows = [to_query_row(record) for record in records]

        def add(connection: Connection) -> bool:
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT, rows)
            _delete_expired(connection, retention)
            return True

        if self._run_transaction(add) is None and self._create_table():
            self._run_transaction(add)

    def read(self, since: float) -> QueryRecords | None:
        def select(connection: Connection) -> QueryRecords:
            return QueryRecords(tuple(map(from_query_row, connection.execute(_SELECT_SINCE, (since,)))))

        return self._run_transaction(select)

    def trim(self, retention: QueryRetention) -> None:
        self._run_transaction(lambda connection: _delete_expired(connection, retention))

    def clear(self) -> int:
        return self._run_transaction(lambda connection: connection.execute("DELETE FROM searches").rowcount) or 0

    def _run_transaction(self, action: Callable[[Connection], _T]) -> _T | None:
        """Run the action in one transaction at the wiki's current place. Returns None if there is no table."""
        try:
            for _ in range(2):
                with self._connections.write_transaction() as connection:
                    layout, owner = connection.execute(_SELECT_TABLE_STATE).fetchone() or (MOVED_MARK, "")
                    if layout != MOVED_MARK:
                        return action(connection) if owner == self._wiki_id else None
                self._placements.invalidate(self._wiki_id)
        except IndexMissing:  # the wiki was removed
            pass
        return None

    def _create_table(self) -> bool:
        """Create the table, replacing one of another wiki. Returns False if the wiki has no schema."""
        try:
            placement = self._placements.get(self._wiki_id, refresh=True)
        except IndexMissing:
            return False
        with self._placements.get_operator_connections(placement).write_transaction() as connection:
            locks.acquire_lock(connection, placement.schema)
            if connection.execute("SELECT to_regnamespace(%s)", (placement.schema,)).fetchone() == (None,):
                locks.delete_lock(connection, placement.schema)
                return False
            names = {"schema": sql.Identifier(placement.schema)}
            comment = connection.execute(_COMMENT, (f"{placement.schema}.searches",)).fetchone()
            if comment != (self._wiki_id,):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {schema}.searches").format(**names))
            connection.execute(sql.SQL(_CREATE_TABLE).format(**names))
            connection.execute(sql.SQL(_OWNER).format(wiki=sql.Literal(self._wiki_id), **names))
            connection.execute(sql.SQL(_GRANT).format(role=sql.Identifier(placement.role), **names))
        return True


def _delete_expired(connection: Connection, retention: QueryRetention) -> None:
    connection.execute("DELETE FROM searches WHERE at < %s", (time.time() - retention.max_days * 86_400,))
    connection.execute("DELETE FROM searches WHERE id <= (SELECT max(id) FROM searches) - %s", (retention.max_records,))
