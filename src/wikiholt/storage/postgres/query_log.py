"""What a wiki was asked, as a table of its own schema: read and written by its role alone, and dropped with it.

The table is made when it is first needed: most wikis are never to have one, and a schema's tables are what a farm of
many wikis pays for. Every node writes to it, so a report tells of them all. A move to another database leaves it.
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
from wikiholt.storage.sqlite.query_log import from_query_row, to_query_row

_T = TypeVar("_T")

_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS {schema}.searches (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " at float8 NOT NULL, surface text NOT NULL, query text NOT NULL, mode text NOT NULL, filtered int2 NOT NULL,"
    " hits int4 NOT NULL, nothing_relevant int2 NOT NULL, degraded int2 NOT NULL, score float8 NOT NULL,"
    " ms float8 NOT NULL, did_you_mean text NOT NULL, pages text NOT NULL, lost int8 NOT NULL)"
)
_GRANT = "GRANT SELECT, INSERT, DELETE ON {schema}.searches TO {role}"
_RECORD_COLUMNS = (
    "at, surface, query, mode, filtered, hits, nothing_relevant, degraded, score, ms, did_you_mean, pages, lost"
)
_INSERT = f"INSERT INTO searches ({_RECORD_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_SELECT_SINCE = f"SELECT {_RECORD_COLUMNS} FROM searches WHERE at >= %s ORDER BY at, id"
_OWNER = "COMMENT ON TABLE {schema}.searches IS {wiki}"
"""Whose log it is: said by the table itself, which may be copied to another schema."""
_SELECT_TABLE_STATE = (
    "SELECT text, coalesce(obj_description(to_regclass(quote_ident(current_schema()) || '.searches'), 'pg_class'), '')"
    " FROM notes WHERE name = 'layout'"
)
"""Of this schema: a table of that name elsewhere on the search path is somebody else's."""
_COMMENT = "SELECT obj_description(to_regclass(%s), 'pg_class')"


class PostgresQueryLog:
    """A `QueryLog` in a wiki's schema."""

    def __init__(self, placements: PlacementCatalog, wiki_id: str) -> None:
        self._placements = placements
        self._wiki_id = wiki_id
        self._connections = placements.get_connections(wiki_id)

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        rows = [to_query_row(searched) for searched in records]

        def add(connection: Connection) -> bool:
            with connection.cursor() as cursor:
                cursor.executemany(_INSERT, rows)
            _delete_expired(connection, retention)
            return True

        if self._run_transaction(add) is None and self._create_table():
            self._run_transaction(add)

    def read(self, since: float) -> QueryRecords | None:
        def all_of(connection: Connection) -> QueryRecords:
            return QueryRecords(tuple(map(from_query_row, connection.execute(_SELECT_SINCE, (since,)))))

        return self._run_transaction(all_of)

    def trim(self, retention: QueryRetention) -> None:
        self._run_transaction(lambda connection: _delete_expired(connection, retention))

    def clear(self) -> int:
        return self._run_transaction(lambda connection: connection.execute("DELETE FROM searches").rowcount) or 0

    def _run_transaction(self, action: Callable[[Connection], _T]) -> _T | None:
        """Use the table in one transaction, where the wiki is now; None where there is none."""
        try:
            for _ in range(2):
                with self._connections.write_transaction() as connection:
                    place, owner = connection.execute(_SELECT_TABLE_STATE).fetchone() or (MOVED_MARK, "")
                    if place != MOVED_MARK:
                        return action(connection) if owner == self._wiki_id else None
                self._placements.invalidate(self._wiki_id)
        except IndexMissing:  # it has been removed
            pass
        return None

    def _create_table(self) -> bool:
        """Have the table made, in the place of one that is another wiki's; whether there is a schema to make it in."""
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
