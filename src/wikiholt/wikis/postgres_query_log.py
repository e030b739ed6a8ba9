"""The query log of a wiki, a table in its own schema that only its role can read and write.

The table is created on first use, because most wikis do not log queries and tables cost space on a server with many
wikis. All nodes write to it. A move to another database does not copy it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from psycopg import sql

from wikiholt.errors import IndexMissing
from wikiholt.index.postgres import locks
from wikiholt.index.postgres.placements import PlacementCatalog
from wikiholt.index.postgres.schema import MOVED_MARK
from wikiholt.wikis.home_tables import PlaceholderConnection
from wikiholt.wikis.query_log_table import SEARCHES_COLUMNS, QueryLogTable
from wikiholt.wikis.small_store import StoreConnection

_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS {schema}.searches"
    f" (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {SEARCHES_COLUMNS})"
)
_GRANT = "GRANT SELECT, INSERT, DELETE ON {schema}.searches TO {role}"
_OWNER = "COMMENT ON TABLE {schema}.searches IS {wiki}"
"""Stores the wiki id with the table, so that a table copied from another schema is detected."""
_SELECT_TABLE_STATE = (
    "SELECT text, coalesce(obj_description(to_regclass(quote_ident(current_schema()) || '.searches'), 'pg_class'), '')"
    " FROM state WHERE name = 'layout'"
)
"""Qualified by the schema, because another schema on the search path may have a table of this name."""
_COMMENT = "SELECT obj_description(to_regclass(%s), 'pg_class')"


class PostgresQueryLog(QueryLogTable):
    """The query log in a wiki's schema, at its current place."""

    def __init__(self, placements: PlacementCatalog, wiki_id: str) -> None:
        self._placements = placements
        self._wiki_id = wiki_id
        self._connections = placements.get_connections(wiki_id)

    def _open_for_reading(self) -> AbstractContextManager[StoreConnection | None]:
        return self._begin_write()

    @contextmanager
    def _begin_write(self, *, creates: bool = False) -> Iterator[StoreConnection | None]:
        with ExitStack() as stack:
            connection = None
            with suppress(IndexMissing):  # the wiki was removed
                connection = self._begin(stack)
                if connection is None and creates and self._create_table():
                    connection = self._begin(stack)
            yield connection

    def _begin(self, stack: ExitStack) -> StoreConnection | None:
        """Begin a transaction at the wiki's current place, which ends with the stack; None if there is no table."""
        for _ in range(2):
            with ExitStack() as opened:
                connection = opened.enter_context(self._connections.write_transaction())
                layout, owner = connection.execute(_SELECT_TABLE_STATE).fetchone() or (MOVED_MARK, "")
                if layout != MOVED_MARK:
                    if owner == self._wiki_id:
                        stack.enter_context(opened.pop_all())
                        return PlaceholderConnection(connection)
                    return None
            self._placements.invalidate(self._wiki_id)
        return None

    def _create_table(self) -> bool:
        """Create the table, replacing one of another wiki. Returns False if the wiki has no schema."""
        placement = self._placements.get(self._wiki_id, refresh=True)
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
