"""What a wiki was asked, as a table of its own schema: read and written by its role alone, and dropped with it.

The table is made when it is first needed: most wikis are never to have one, and a schema's tables are what a farm of
many wikis pays for. Every node writes to it, so a report tells of them all. A move to another database leaves it.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from psycopg import sql

from wikiholt.errors import IndexMissing
from wikiholt.model import QueryBounds, QueryEntries, Searched
from wikiholt.stores.postgres import locks
from wikiholt.stores.postgres.layout import MOVED
from wikiholt.stores.postgres.placing import Placements
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.sqlite.queries import row, searched_of

_T = TypeVar("_T")

_TABLE = (
    "CREATE TABLE IF NOT EXISTS {schema}.searches (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " at float8 NOT NULL, surface text NOT NULL, query text NOT NULL, mode text NOT NULL, filtered int2 NOT NULL,"
    " hits int4 NOT NULL, nothing_relevant int2 NOT NULL, degraded int2 NOT NULL, score float8 NOT NULL,"
    " ms float8 NOT NULL, did_you_mean text NOT NULL, pages text NOT NULL, lost int8 NOT NULL)"
)
_RIGHTS = "GRANT SELECT, INSERT, DELETE ON {schema}.searches TO {role}"
_COLUMNS = "at, surface, query, mode, filtered, hits, nothing_relevant, degraded, score, ms, did_you_mean, pages, lost"
_ADD = f"INSERT INTO searches ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_OF_PERIOD = f"SELECT {_COLUMNS} FROM searches WHERE at >= %s ORDER BY at, id"
_OWNER = "COMMENT ON TABLE {schema}.searches IS {wiki}"
"""Whose log it is: said by the table itself, which may be copied to another schema."""
_STANDING = (
    "SELECT text, coalesce(obj_description(to_regclass(quote_ident(current_schema()) || '.searches'), 'pg_class'), '')"
    " FROM notes WHERE name = 'layout'"
)
"""Of this schema: a table of that name elsewhere on the search path is somebody else's."""
_COMMENT = "SELECT obj_description(to_regclass(%s), 'pg_class')"


class PostgresQueryLog:
    """A `QueryLog` in a wiki's schema."""

    def __init__(self, placements: Placements, wiki_id: str) -> None:
        self._placements = placements
        self._wiki_id = wiki_id
        self._door = placements.door(wiki_id)

    def write(self, searches: Sequence[Searched], bounds: QueryBounds) -> None:
        rows = [row(searched) for searched in searches]

        def add(connection: Connection) -> bool:
            with connection.cursor() as cursor:
                cursor.executemany(_ADD, rows)
            _trim(connection, bounds)
            return True

        if self._written(add) is None and self._made():
            self._written(add)

    def read(self, since: float) -> QueryEntries | None:
        def all_of(connection: Connection) -> QueryEntries:
            return QueryEntries(tuple(map(searched_of, connection.execute(_OF_PERIOD, (since,)))))

        return self._written(all_of)

    def trim(self, bounds: QueryBounds) -> None:
        self._written(lambda connection: _trim(connection, bounds))

    def clear(self) -> int:
        return self._written(lambda connection: connection.execute("DELETE FROM searches").rowcount) or 0

    def _written(self, use: Callable[[Connection], _T]) -> _T | None:
        """Use the table in one transaction, where the wiki is now; None where there is none."""
        try:
            for _ in range(2):
                with self._door.writing() as connection:
                    place, owner = connection.execute(_STANDING).fetchone() or (MOVED, "")
                    if place != MOVED:
                        return use(connection) if owner == self._wiki_id else None
                self._placements.forget(self._wiki_id)
        except IndexMissing:  # it has been removed
            pass
        return None

    def _made(self) -> bool:
        """Have the table made, in the place of one that is another wiki's; whether there is a schema to make it in."""
        try:
            placement = self._placements.get(self._wiki_id, again=True)
        except IndexMissing:
            return False
        with self._placements.operator(placement).writing() as connection:
            locks.take(connection, placement.schema)
            if connection.execute("SELECT to_regnamespace(%s)", (placement.schema,)).fetchone() == (None,):
                locks.drop(connection, placement.schema)
                return False
            names = {"schema": sql.Identifier(placement.schema)}
            comment = connection.execute(_COMMENT, (f"{placement.schema}.searches",)).fetchone()
            if comment != (self._wiki_id,):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {schema}.searches").format(**names))
            connection.execute(sql.SQL(_TABLE).format(**names))
            connection.execute(sql.SQL(_OWNER).format(wiki=sql.Literal(self._wiki_id), **names))
            connection.execute(sql.SQL(_RIGHTS).format(role=sql.Identifier(placement.role), **names))
        return True


def _trim(connection: Connection, bounds: QueryBounds) -> None:
    connection.execute("DELETE FROM searches WHERE at < %s", (time.time() - bounds.days * 86_400,))
    connection.execute("DELETE FROM searches WHERE id <= (SELECT max(id) FROM searches) - %s", (bounds.entries,))
