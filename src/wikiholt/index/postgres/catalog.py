"""The catalog of all databases that hold wikis.

It is stored in the schema `wikiholt` of the home database, the database of the setting `store`. Missing tables are
created on first use, under a lock that all nodes share.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from psycopg import sql

from wikiholt.domain.wiki import HOME_DATABASE, MAX_WIKIS
from wikiholt.errors import Conflict, DatabaseUnavailable, InvalidSetting
from wikiholt.index.postgres import locks
from wikiholt.index.postgres.address import DatabaseAddress
from wikiholt.index.postgres.pool import Connection, ConnectionPool, Login, RoleConnections
from wikiholt.index.postgres.provision import prepare_database, require_rights

CATALOG_SCHEMA = "wikiholt"
_MAX_CONNECTIONS = 8
_CATALOG_LOCK_ID = "home"
"""The lock under which nodes create and change the tables of the catalog."""


@dataclass(frozen=True, slots=True)
class TableSet:
    """The tables of one module: statements that each run once, in order. Append to `steps`, never change them."""

    name: str
    steps: tuple[str, ...]


_DATABASES_TABLES = TableSet(
    "databases",
    (
        "CREATE TABLE databases (name text PRIMARY KEY, dsn text NOT NULL, guests text NOT NULL, types text NOT NULL,"
        " open bool NOT NULL DEFAULT true, weight float8 NOT NULL DEFAULT 1 CHECK (weight > 0),"
        f" max_wikis int4 NOT NULL DEFAULT {MAX_WIKIS})",
    ),
)
PLACEMENTS_TABLES = TableSet(
    "placements",
    (
        "CREATE TABLE placements (wiki_id text PRIMARY KEY, database text NOT NULL REFERENCES databases (name),"
        " schema text NOT NULL, role text NOT NULL, secret text NOT NULL, condition text NOT NULL)",
        "CREATE INDEX placements_database ON placements (database, wiki_id)",
        "CREATE TABLE moves (wiki_id text PRIMARY KEY, database text NOT NULL REFERENCES databases (name),"
        " schema text NOT NULL, role text NOT NULL, secret text NOT NULL, switched bool NOT NULL DEFAULT false)",
        "ALTER TABLE placements DROP CONSTRAINT placements_pkey",
        "ALTER TABLE placements ADD PRIMARY KEY (role)",
        "CREATE INDEX placements_wiki ON placements (wiki_id)",
        "INSERT INTO placements SELECT wiki_id, database, schema, role, secret,"
        " CASE WHEN switched THEN 'going' ELSE 'making' END FROM moves",
        "DROP TABLE moves",
    ),
)


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database that holds wikis.

    `group` contains the roles of its wikis, `types_schema` is the schema of pgvector, `connections` are the operator's.
    """

    name: str
    address: DatabaseAddress
    group: str
    types_schema: str
    accepts_new: bool
    weight: float
    max_wikis: int
    connections: RoleConnections


def read_identity(connection: Connection) -> object:
    """Identifies the database that a connection is in, whatever its address."""
    statement = "SELECT oid, pg_postmaster_start_time() FROM pg_database WHERE datname = current_database()"
    return connection.execute(statement).fetchone()


def _find_same_database(connection: Connection, databases: Sequence[CatalogDatabase]) -> str | None:
    """The name of the database that a connection is in; None if unknown. Skips databases that are unreachable."""
    identity = read_identity(connection)
    for database in databases:
        with suppress(DatabaseUnavailable), database.connections.read_connection() as other:
            if read_identity(other) == identity:
                return database.name
    return None


class Catalog(RoleConnections):
    """The operator's connections to the home database. Safe to use from many threads and after a fork.

    Connects on first use, and then creates missing tables. Methods raise DatabaseUnavailable.
    """

    def __init__(self, dsn: str, table_sets: Sequence[TableSet] = (), *, lock_timeout_s: float | None = None) -> None:
        self._address = DatabaseAddress.parse(dsn)
        self._table_sets = (_DATABASES_TABLES, PLACEMENTS_TABLES, *table_sets)
        self.pool = ConnectionPool(_MAX_CONNECTIONS, lock_timeout_s=lock_timeout_s)
        super().__init__(self.pool, lambda _: self._get_login())
        self._lock = Lock()
        self._is_created = False
        self._databases: dict[str, CatalogDatabase] = {}

    def get_database(self, name: str) -> CatalogDatabase:
        """A database of the catalog, from the cache if possible. Raises InvalidSetting if it is unknown.

        A running node keeps the address it read first.
        """
        if name not in self._databases:
            self.list_databases()
        try:
            return self._databases[name]
        except KeyError:
            raise InvalidSetting(f"no database is called {name}", hint="see `wikiholt database list`") from None

    def list_databases(self) -> list[CatalogDatabase]:
        with self.read_connection() as connection:
            rows = connection.execute("SELECT name, dsn, guests, types, open, weight, max_wikis FROM databases")
            databases = [self._make_database(*row) for row in rows]
        self._databases = {database.name: database for database in sorted(databases, key=lambda each: each.name)}
        return list(self._databases.values())

    def add_database(self, name: str, dsn: str, weight: float = 1.0, max_wikis: int = MAX_WIKIS) -> CatalogDatabase:
        """Prepare a database for wikis and add it, or change the address of a known one. Raises InvalidSetting."""
        if not name.isidentifier() or not name.islower() or name == HOME_DATABASE or weight <= 0 or max_wikis < 0:
            raise InvalidSetting("invalid database name, weight or limit", hint="use lower-case letters and digits")
        address = DatabaseAddress.parse(dsn)
        connections = RoleConnections(self.pool, lambda _: _make_login(address, ("public",)))
        known = self.list_databases()
        with connections.write_transaction() as connection:
            same = _find_same_database(connection, known)
            if same not in (None, name):
                raise InvalidSetting(f"that is the database {same}", hint="add a database only once")
            self._require_same_wikis(connection, name)
            group, types_schema = prepare_database(connection, address.dbname)
        statement = (
            "INSERT INTO databases (name, dsn, guests, types, weight, max_wikis) VALUES (%s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (name) DO UPDATE SET dsn = excluded.dsn, weight = excluded.weight,"
            " max_wikis = excluded.max_wikis"
        )
        with self.write_transaction() as connection:
            connection.execute(statement, (name, dsn, group, types_schema, weight, max_wikis))
        self.list_databases()
        return self.get_database(name)

    def set_open(self, name: str, *, accept_new: bool, max_wikis: int | None = None) -> None:
        """Set whether new wikis may be placed on the database, and its limit."""
        self.get_database(name)
        with self.write_transaction() as connection:
            statement = "UPDATE databases SET open = %s, max_wikis = coalesce(%s, max_wikis) WHERE name = %s"
            connection.execute(statement, (accept_new, max_wikis, name))
        self.list_databases()

    def remove_database(self, name: str) -> None:
        """Remove a database from the catalog without changing it. Raises Conflict if wikis are placed there."""
        self.get_database(name)
        if name == HOME_DATABASE:
            raise InvalidSetting("the home database cannot be removed", hint="close it to new wikis instead")
        with self.write_transaction() as connection:
            if connection.execute("SELECT 1 FROM placements WHERE database = %s LIMIT 1", (name,)).fetchone():
                raise Conflict(
                    f"there are wikis on {name}",
                    hint=f"move them first: `wikiholt move --all --from {name} --to OTHER`",
                )
            connection.execute("DELETE FROM databases WHERE name = %s", (name,))
        self.list_databases()

    @property
    def availability(self) -> dict[str, tuple[str, bool]]:
        """The location of each known database, and whether it was reachable at its last use."""
        locations = {database.name: database.address.location for database in self._databases.values()} or {
            HOME_DATABASE: self._address.location
        }
        unreachable = self.pool.unreachable
        return {name: (location, location not in unreachable) for name, location in locations.items()}

    def close(self) -> None:
        self.pool.close()

    def _make_database(
        self, name: str, dsn: str, group: str, types_schema: str, is_open: bool, weight: float, max_wikis: int
    ) -> CatalogDatabase:
        address = self._address if name == HOME_DATABASE else DatabaseAddress.parse(dsn)
        login = _make_login(address, (types_schema,))
        return CatalogDatabase(
            name, address, group, types_schema, is_open, weight, max_wikis, RoleConnections(self.pool, lambda _: login)
        )

    def _require_same_wikis(self, connection: Connection, name: str) -> None:
        """Raise InvalidSetting if wikis are placed on the database of this name and missing behind the connection."""
        with self.read_connection() as home:
            placements = home.execute(
                "SELECT schema FROM placements WHERE database = %s AND condition = 'here'", (name,)
            )
            schemas = [schema for (schema,) in placements]
        statement = "SELECT count(*) FROM unnest(%s::text[]) AS wanted WHERE to_regnamespace(wanted) IS NULL"
        if schemas and connection.execute(statement, (schemas,)).fetchone() != (0,):
            raise InvalidSetting(f"the wikis of {name} are not in that database", hint="check the address")

    def _get_login(self) -> Login:
        """The operator's login, after creating missing tables, once per process."""
        login = _make_login(self._address, (CATALOG_SCHEMA, "public"))
        if self._is_created:
            return login
        with self._lock:
            if not self._is_created:
                connections = RoleConnections(self.pool, lambda _: login)
                with connections.read_connection() as connection:
                    is_outdated = self._is_outdated(connection)
                if is_outdated:
                    with connections.write_transaction() as connection:
                        self._create(connection)
                self._is_created = True
        return login

    def _is_outdated(self, connection: Connection) -> bool:
        if connection.execute("SELECT to_regclass(%s)", (f"{CATALOG_SCHEMA}.parts",)).fetchone() == (None,):
            return True
        known: dict[str, int] = dict(connection.execute(f"SELECT name, steps FROM {CATALOG_SCHEMA}.parts").fetchall())
        return any(known.get(table_set.name, 0) < len(table_set.steps) for table_set in self._table_sets)

    def _create(self, connection: Connection) -> None:
        require_rights(connection, self._address.dbname)
        locks.acquire_lock(connection, _CATALOG_LOCK_ID)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {CATALOG_SCHEMA}.parts (name text PRIMARY KEY, steps int4 NOT NULL)"
        )
        known: dict[str, int] = dict(connection.execute("SELECT name, steps FROM parts").fetchall())
        for table_set in self._table_sets:
            steps = table_set.steps[known.get(table_set.name, 0) :]
            for step in steps:
                connection.execute(sql.SQL(step))
            statement = "INSERT INTO parts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET steps = excluded.steps"
            if steps:
                connection.execute(statement, (table_set.name, len(table_set.steps)))
        if connection.execute("SELECT 1 FROM databases WHERE name = %s", (HOME_DATABASE,)).fetchone() is None:
            group, types_schema = prepare_database(connection, self._address.dbname)
            statement = "INSERT INTO databases (name, dsn, guests, types) VALUES (%s, '', %s, %s)"
            connection.execute(statement, (HOME_DATABASE, group, types_schema))
        _disable_statistics(connection)


def _disable_statistics(connection: Connection) -> None:
    """Keep row values out of the planner statistics, where they would outlive the deleted rows."""
    statement = (
        "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND attnum > 0 AND NOT attisdropped"
        " AND atttypid = 'text'::regtype AND coalesce(attstattarget, -1) <> 0"
    )
    for table, column in connection.execute(statement, (CATALOG_SCHEMA,)).fetchall():
        names = sql.Identifier(table), sql.Identifier(column)
        connection.execute(sql.SQL("ALTER TABLE {} ALTER {} SET STATISTICS 0").format(*names))


def _make_login(address: DatabaseAddress, search_path: tuple[str, ...]) -> Login:
    return Login(address, dict(address.parameters).get("user", ""), search_path, is_operator=True)
