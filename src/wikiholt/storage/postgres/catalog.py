"""Whether two addresses lead to one database, whatever they look like: a session of one is seen by the other."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from psycopg import sql

from wikiholt.errors import Conflict, DatabaseUnavailable, InvalidSetting
from wikiholt.storage.postgres import locks
from wikiholt.storage.postgres.address import DatabaseAddress
from wikiholt.storage.postgres.pool import Connection, ConnectionPool, Login, RoleConnections
from wikiholt.storage.postgres.provision import prepare_database, require_rights
from wikiholt.storage.postgres.timeouts import TimeoutCounter

# Every login of the server may see which name a session has given itself, and in which database it is.
_MARK = "SELECT set_config('application_name', %s, true)"
_SELECT_LOCK = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"


class NamedDatabase(Protocol):
    """A database by its name."""

    @property
    def name(self) -> str: ...

    @property
    def connections(self) -> RoleConnections: ...


def find_same_database(connection: Connection, databases: Sequence[NamedDatabase]) -> str | None:
    """The name of the known database that an open transaction is in; one that is away cannot be asked."""
    mark = (f"wikiholt-{secrets.token_hex(16)}",)
    connection.execute(_MARK, mark)
    for each in databases:
        try:
            with each.connections.read_connection() as other:
                if other.execute(_SELECT_LOCK, mark).fetchone() is not None:
                    return each.name
        except DatabaseUnavailable:
            continue
    return None


# The database that knows of all others: schema `wikiholt`, reached by the operator's login, the setting `store`.
# Part(name, steps) tables of one module there: statements, never changed, only added to Home(dsn, parts=(),
# connections=8) nothing is touched until it is used .reading() .snapshot() .writing() as of a Door (pool.py), as the
# operator, search path = wikiholt .alone() -> Connection for LISTEN; close it .database(name) -> Database one of
# those that hold wikis; HOME is this one; raises InvalidSetting .databases() -> list[Database] .add_database(name,
# dsn, weight=1.0) made ready for wikis; raises InvalidSetting, DatabaseAway .set_open(name, open) whether new wikis
# go there .remove_database(name) raises Conflict while wikis are there .close() Database: name, address, guests,
# types, open, weight, door (the operator's way in; search path = types) What is missing in the schema is made at the
# first use, under a lock that all nodes share.


HOME_DATABASE = "home"
CATALOG_SCHEMA = "wikiholt"
_CATALOG_LOCK_ID = "home"
"""The lock under which nodes make and change the home's tables."""


@dataclass(frozen=True, slots=True)
class TableSet:
    """The tables of one module: statements that each run once, in order, in the schema of the home."""

    name: str
    steps: tuple[str, ...]


_DATABASES_TABLES = TableSet(
    "databases",
    (
        "CREATE TABLE databases (name text PRIMARY KEY, dsn text NOT NULL, guests text NOT NULL, types text NOT NULL,"
        " open bool NOT NULL DEFAULT true, weight float8 NOT NULL DEFAULT 1 CHECK (weight > 0))",
    ),
)
PLACEMENTS_TABLES = TableSet(
    "placements",
    (
        "CREATE TABLE placements (wiki_id text PRIMARY KEY, database text NOT NULL REFERENCES databases (name),"
        " schema text NOT NULL, role text NOT NULL, secret text NOT NULL, layout int4 NOT NULL,"
        " condition text NOT NULL)",
        "CREATE INDEX placements_database ON placements (database, wiki_id)",
        "CREATE INDEX placements_layout ON placements (layout, wiki_id)",
        "CREATE TABLE moves (wiki_id text PRIMARY KEY, database text NOT NULL REFERENCES databases (name),"
        " schema text NOT NULL, role text NOT NULL, secret text NOT NULL, switched bool NOT NULL DEFAULT false)",
    ),
)


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database that holds wikis: the group its wikis' roles are in, the schema of pgvector, the operator's way in."""

    name: str
    address: DatabaseAddress
    group: str
    types_schema: str
    accepts_new: bool
    weight: float
    connections: RoleConnections


class Catalog:
    """Bound to the operator's address. Safe to use from many threads and after a fork."""

    def __init__(
        self,
        dsn: str,
        table_sets: Sequence[TableSet] = (),
        *,
        max_connections: int = 8,
        lock_timeout_s: float | None = None,
    ) -> None:
        self._address = DatabaseAddress.parse(dsn)
        self._table_sets = (_DATABASES_TABLES, PLACEMENTS_TABLES, *table_sets)
        self._pool = ConnectionPool(max_connections, lock_timeout_s=lock_timeout_s)
        self._connections = RoleConnections(
            self._pool, lambda _: _make_login(self._address, (CATALOG_SCHEMA, "public"))
        )
        self._lock = Lock()
        self._is_created = False
        self._databases: dict[str, CatalogDatabase] = {}

    @contextmanager
    def read_connection(self) -> Iterator[Connection]:
        self._ensure_created()
        with self._connections.read_connection() as connection:
            yield connection

    @contextmanager
    def read_snapshot(self) -> Iterator[Connection]:
        self._ensure_created()
        with self._connections.read_snapshot() as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        self._ensure_created()
        with self._connections.write_transaction() as connection:
            yield connection

    def open_dedicated(self) -> Connection:
        self._ensure_created()
        return self._connections.open_dedicated()

    def get_database(self, name: str) -> CatalogDatabase:
        """One that is known, as it was when it was first asked for; addresses do not change under a running node."""
        if name not in self._databases:
            self.list_databases()
        try:
            return self._databases[name]
        except KeyError:
            raise InvalidSetting(f"no database is called {name}", hint="see `wikiholt database list`") from None

    def list_databases(self) -> list[CatalogDatabase]:
        with self.read_connection() as connection:
            rows = connection.execute("SELECT name, dsn, guests, types, open, weight FROM databases ORDER BY name")
            found = [self._make_database(*row) for row in rows]
        self._databases = {each.name: each for each in found}
        return found

    def add_database(self, name: str, dsn: str, weight: float = 1.0) -> CatalogDatabase:
        """Make a database ready for wikis, and know it from then on; one that is known gets another address."""
        if not name.isidentifier() or not name.islower() or name == HOME_DATABASE or weight <= 0:
            raise InvalidSetting("that is no name, or no weight, for a database", hint="lower-case letters and digits")
        address = DatabaseAddress.parse(dsn)
        door = RoleConnections(self._pool, lambda _: _make_login(address, ("public",)))
        known = self.list_databases()
        with door.write_transaction() as connection:
            twin = find_same_database(connection, known)
            if twin not in (None, name):
                raise InvalidSetting(f"that is the database {twin}", hint="one database has one name")
            self._require_same_wikis(connection, name)
            guests, types = prepare_database(connection, address.dbname)
        order = (
            "INSERT INTO databases (name, dsn, guests, types, weight) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (name) DO UPDATE SET dsn = excluded.dsn, weight = excluded.weight"
        )
        with self.write_transaction() as connection:
            connection.execute(order, (name, dsn, guests, types, weight))
        self.list_databases()
        return self.get_database(name)

    def set_open(self, name: str, *, accept_new: bool) -> None:
        """Whether new wikis may be placed there."""
        self.get_database(name)
        with self.write_transaction() as connection:
            connection.execute("UPDATE databases SET open = %s WHERE name = %s", (accept_new, name))
        self.list_databases()

    def remove_database(self, name: str) -> None:
        """Know it no more; nothing in it is touched."""
        self.get_database(name)
        if name == HOME_DATABASE:
            raise InvalidSetting("the home cannot be removed", hint="close it to new wikis instead")
        with self.write_transaction() as connection:
            order = (
                "SELECT (SELECT count(*) FROM placements WHERE database = %s), count(*) FROM moves WHERE database = %s"
            )
            row = connection.execute(order, (name, name)).fetchone()
            if row is None or any(row):
                raise Conflict(
                    f"there are wikis on {name}",
                    hint=f"move them first: `wikiholt move --all --from {name} --to OTHER`",
                )
            connection.execute("DELETE FROM databases WHERE name = %s", (name,))
        self.list_databases()

    @property
    def connection_count(self) -> int:
        """How many connections of the operator there are."""
        return self._pool.open_count

    @property
    def timeout_counter(self) -> TimeoutCounter:
        """How many statements of the operator waited or ran for too long."""
        return self._pool.timeout_counter

    @property
    def availability(self) -> dict[str, tuple[str, bool]]:
        """Of each database that is known here its place, and whether it answered when it was last needed."""
        places = {each.name: each.address.location for each in self._databases.values()} or {
            HOME_DATABASE: self._address.location
        }
        return {name: (place, place not in self._pool.unreachable) for name, place in places.items()}

    def close(self) -> None:
        self._pool.close()

    def _make_database(
        self, name: str, dsn: str, group: str, types_schema: str, is_open: bool, weight: float
    ) -> CatalogDatabase:
        address = self._address if name == HOME_DATABASE else DatabaseAddress.parse(dsn)
        login = _make_login(address, (types_schema,))
        return CatalogDatabase(
            name, address, group, types_schema, is_open, weight, RoleConnections(self._pool, lambda _: login)
        )

    def _require_same_wikis(self, connection: Connection, name: str) -> None:
        """Raise if wikis are placed on the database of this name and are not in the one at the other end."""
        with self.read_connection() as home:
            placed = home.execute("SELECT schema FROM placements WHERE database = %s AND condition = 'here'", (name,))
            schemas = [schema for (schema,) in placed]
        order = "SELECT count(*) FROM unnest(%s::text[]) AS wanted WHERE to_regnamespace(wanted) IS NULL"
        if schemas and connection.execute(order, (schemas,)).fetchone() != (0,):
            raise InvalidSetting(f"the wikis of {name} are not in that database", hint="check the address")

    def _ensure_created(self) -> None:
        """Make what is missing, once a process."""
        if self._is_created:
            return
        with self._lock:
            if self._is_created:
                return
            with self._connections.read_connection() as connection:
                behind = self._is_outdated(connection)
            if behind:
                with self._connections.write_transaction() as connection:
                    self._create(connection)
            self._is_created = True

    def _is_outdated(self, connection: Connection) -> bool:
        if connection.execute("SELECT to_regclass(%s)", (f"{CATALOG_SCHEMA}.parts",)).fetchone() == (None,):
            return True
        known: dict[str, int] = dict(connection.execute(f"SELECT name, steps FROM {CATALOG_SCHEMA}.parts").fetchall())
        return any(known.get(part.name, 0) < len(part.steps) for part in self._table_sets)

    def _create(self, connection: Connection) -> None:
        require_rights(connection, self._address.dbname)
        locks.acquire_lock(connection, _CATALOG_LOCK_ID)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {CATALOG_SCHEMA}.parts (name text PRIMARY KEY, steps int4 NOT NULL)"
        )
        known: dict[str, int] = dict(connection.execute("SELECT name, steps FROM parts").fetchall())
        for part in self._table_sets:
            for step in part.steps[known.get(part.name, 0) :]:
                connection.execute(sql.SQL(step))
            order = "INSERT INTO parts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET steps = excluded.steps"
            if known.get(part.name, 0) < len(part.steps):
                connection.execute(order, (part.name, len(part.steps)))
        if connection.execute("SELECT 1 FROM databases WHERE name = %s", (HOME_DATABASE,)).fetchone() is None:
            guests, types = prepare_database(connection, self._address.dbname)
            order = "INSERT INTO databases (name, dsn, guests, types) VALUES (%s, '', %s, %s)"
            connection.execute(order, (HOME_DATABASE, guests, types))
        _disable_statistics(connection)


def _disable_statistics(connection: Connection) -> None:
    """Have the planner keep no texts of rows: they would outlive the wiki, the key or the address they are of."""
    order = (
        "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND attnum > 0 AND NOT attisdropped"
        " AND atttypid = 'text'::regtype AND coalesce(attstattarget, -1) <> 0"
    )
    for table, column in connection.execute(order, (CATALOG_SCHEMA,)).fetchall():
        names = sql.Identifier(table), sql.Identifier(column)
        connection.execute(sql.SQL("ALTER TABLE {} ALTER {} SET STATISTICS 0").format(*names))


def _make_login(address: DatabaseAddress, search_path: tuple[str, ...]) -> Login:
    return Login(address, dict(address.parts).get("user", ""), search_path, is_operator=True)
