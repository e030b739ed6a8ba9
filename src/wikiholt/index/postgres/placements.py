"""Placements: the database, schema and role of each wiki, stored in the home database and cached.

Schema and role are created in one transaction. If they are in another database than the placement row, the row is
written first, with condition CREATING, and deleted last, with condition REMOVING. The next caller finishes an operation
that was killed.
"""

import hashlib
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from typing import Any

from wikiholt.domain.wiki import HOME_DATABASE
from wikiholt.errors import Conflict, DatabaseUnavailable, IndexUnavailable
from wikiholt.index.postgres import locks, provision
from wikiholt.index.postgres.catalog import Catalog, CatalogDatabase
from wikiholt.index.postgres.errors import make_missing_error
from wikiholt.index.postgres.locks import retry_lock_timeouts
from wikiholt.index.postgres.pool import Connection, ConnectionPool, Login, RoleConnections
from wikiholt.index.postgres.provision import remove_placement, remove_schema
from wikiholt.index.sqlite.wiki_directory import validate_wiki_id

_MAX_CACHED_PLACEMENTS = 20_000
PLACEMENT_COLUMNS = "wiki_id, database, schema, role, secret, condition"
_MAX_SCHEMA_ID_CHARS = 40
_PLACEMENT_TTL_S = 30.0
"""Cache TTL of a placement. After a move the old schema redirects callers, unless the mover crashed too early."""


class PlacementCondition(StrEnum):
    """The life cycle of a wiki's schema. A wiki that is being moved has a second one, created or removed."""

    CREATING = "making"
    READY = "here"
    REMOVING = "going"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a wiki is stored. Statements take their names from here; none comes from user input."""

    wiki_id: str
    database: str
    schema: str
    role: str
    secret: str = field(repr=False)
    condition: PlacementCondition


class PlacementCatalog:
    """The placements of all wikis. Safe to use from many threads."""

    def __init__(self, catalog: Catalog, pool: ConnectionPool) -> None:
        self.catalog = catalog
        self._pool = pool
        self._cache: dict[str, tuple[float, Placement]] = {}

    def find(self, wiki_id: str, *, refresh: bool = False) -> Placement | None:
        """The placement of a wiki in any condition; None if there is none. `refresh` bypasses the cache."""
        validate_wiki_id(wiki_id)
        since, cached = self._cache.get(wiki_id, (0.0, None))
        if not refresh and cached is not None and time.monotonic() - since < _PLACEMENT_TTL_S:
            return cached
        try:
            with self.catalog.read_connection() as connection:
                placement = _read_placement(connection, wiki_id)
        except DatabaseUnavailable:
            if cached is None or refresh:
                raise
            placement = cached  # the wiki's own database may be reachable
        self._cache_placement(wiki_id, placement)
        return placement

    def get(self, wiki_id: str, *, refresh: bool = False) -> Placement:
        """The placement of a wiki that is ready. Raises IndexMissing."""
        placement = self.find(wiki_id, refresh=refresh)
        if placement is None or placement.condition is not PlacementCondition.READY:
            self._cache.pop(wiki_id, None)
            raise make_missing_error()
        return placement

    def provision(self, wiki_id: str, database: str | None = None) -> Placement:
        """Create schema, role and tables of a wiki and place it. Returns the placement of a wiki that is ready."""
        known = self.find(wiki_id, refresh=True)
        if known is not None and known.condition is PlacementCondition.READY:
            return known
        if known is not None and known.condition is PlacementCondition.REMOVING:
            self.remove(wiki_id)
        name = self.catalog.get_database(database or self._pick_database()).name
        placement = retry_lock_timeouts(lambda: self._create_schema(wiki_id, name))
        self._cache_placement(wiki_id, placement)
        return placement

    def _create_schema(self, wiki_id: str, database: str) -> Placement:
        with self.catalog.write_transaction() as connection:
            locks.acquire_lock(connection, _get_lock_name(wiki_id))
            placement = reserve_placement(connection, wiki_id, database)
            if placement.condition is not PlacementCondition.READY and placement.database == HOME_DATABASE:
                placement = self.provision_schema(connection, placement)
                write_condition(connection, placement)
        if placement.condition is not PlacementCondition.READY:
            with self.get_operator_connections(placement).write_transaction() as connection:
                placement = self.provision_schema(connection, placement)
            with self.catalog.write_transaction() as connection:
                write_condition(connection, placement)
        return placement

    def remove(self, wiki_id: str) -> list[str]:
        """Remove tables, schema and role of a wiki and return their names; empty if there is nothing to remove."""
        known = self.find(wiki_id, refresh=True)
        if known is not None:
            with self.get_operator_connections(known).read_connection() as connection:
                connection.execute("SELECT 1")  # fail before any change if the database is unreachable
        self._cache.pop(wiki_id, None)
        with self.catalog.write_transaction() as connection:
            locks.acquire_lock(connection, _get_lock_name(wiki_id))
            statement = f"UPDATE placements SET condition = 'going' WHERE wiki_id = %s RETURNING {PLACEMENT_COLUMNS}"
            rows = connection.execute(statement, (wiki_id,)).fetchall()
        removed = [name for row in rows for name in self.remove_placement(parse_placement(row))]
        if rows:
            return removed
        for database in self.catalog.list_databases():
            with database.connections.with_subject(make_schema_name(wiki_id)).write_transaction() as connection:
                removed += remove_schema(connection, make_schema_name(wiki_id))
        with self.catalog.write_transaction() as connection:
            locks.delete_lock(connection, _get_lock_name(wiki_id))
        return removed

    def list_wiki_ids(self) -> list[str]:
        """List the wikis with a placement, and those with an orphaned schema."""
        with self.catalog.read_connection() as connection:
            placed = {wiki_id for (wiki_id,) in connection.execute("SELECT wiki_id FROM placements")}
        return sorted(placed | {schema.removeprefix("w_") for _, schema in self.find_orphans()})

    def find_orphans(self) -> list[tuple[str, str]]:
        """List database and schema of wikis without a placement. Skips databases that are unreachable."""
        with self.catalog.read_connection() as connection:
            known = set(connection.execute("SELECT database, schema FROM placements").fetchall())
        schemas: list[tuple[str, str]] = []
        statement = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' ORDER BY nspname"
        for database in self.catalog.list_databases():
            with suppress(DatabaseUnavailable), database.connections.read_connection() as connection:
                schemas += [(database.name, schema) for (schema,) in connection.execute(statement)]
        return [schema for schema in schemas if schema not in known]

    def find_strays(self, wiki_id: str) -> list[str]:
        """The databases that have a schema of this wiki without a placement, as after a restore of one of them."""
        with self.catalog.read_connection() as connection:
            rows = connection.execute("SELECT database FROM placements WHERE wiki_id = %s", (wiki_id,))
            known = {name for (name,) in rows}
        strays, statement = [], "SELECT to_regnamespace(%s) IS NOT NULL"
        for database in self.catalog.list_databases():
            if database.name not in known:
                with suppress(DatabaseUnavailable), database.connections.read_connection() as connection:
                    if connection.execute(statement, (make_schema_name(wiki_id),)).fetchone() == (True,):
                        strays.append(database.name)
        return strays

    def get_connections(self, wiki_id: str) -> RoleConnections:
        """Connections to the wiki's schema as its role. They follow the wiki to another database."""
        validate_wiki_id(wiki_id)
        return RoleConnections(self._pool, lambda refresh: self.make_login(self.get(wiki_id, refresh=refresh)), wiki_id)

    def get_operator_connections(self, placement: Placement) -> RoleConnections:
        """Connections to the wiki's database as the operator. The search path is the types schema."""
        return self.get_database(placement).connections.with_subject(placement.schema)

    def get_database(self, placement: Placement) -> CatalogDatabase:
        return self.catalog.get_database(placement.database)

    def invalidate(self, wiki_id: str) -> None:
        """Remove a placement from the cache."""
        self._cache.pop(wiki_id, None)

    def make_login(self, placement: Placement) -> Login:
        """The login of the wiki's role."""
        database = self.get_database(placement)
        address = database.address.with_login(placement.role, placement.secret)
        return Login(address, placement.role, (placement.schema, database.types_schema))

    def _cache_placement(self, wiki_id: str, placement: Placement | None) -> None:
        if placement is None:
            self._cache.pop(wiki_id, None)
            return
        if len(self._cache) >= _MAX_CACHED_PLACEMENTS:
            self._cache.clear()
        self._cache[wiki_id] = (time.monotonic(), placement)

    def _pick_database(self) -> str:
        """Pick the open database with the fewest wikis for its weight, of those that answer and are not full."""
        counts = self.count_wikis()
        with_room = [
            database
            for database in self.catalog.list_databases()
            if database.accepts_new and counts.get(database.name, 0) < database.max_wikis
        ]
        for database in sorted(with_room, key=lambda each: counts.get(each.name, 0) / each.weight):
            with suppress(DatabaseUnavailable), database.connections.read_connection() as connection:
                connection.execute("SELECT 1")
                return database.name
        raise IndexUnavailable(
            "no database that answers has room for a new wiki",
            hint="`wikiholt database add` adds one, `wikiholt database list` shows those that are closed or full",
        )

    def require_room(self, name: str) -> None:
        """Raise Conflict if a database has as many wikis as it may have."""
        limit = self.catalog.get_database(name).max_wikis
        if self.count_wikis().get(name, 0) >= limit:
            hint = f"move them elsewhere, or raise its limit: `wikiholt database open {name} --max-wikis N`"
            raise Conflict(f"the database {name} is full (at most {limit})", hint=hint)

    def count_wikis(self) -> dict[str, int]:
        """The number of wikis in each database that has any."""
        with self.catalog.read_connection() as connection:
            return dict(connection.execute("SELECT database, count(*) FROM placements GROUP BY database").fetchall())

    def provision_schema(self, connection: Connection, placement: Placement) -> Placement:
        """Create what is missing of schema and role, in an open transaction of the operator."""
        group = self.get_database(placement).group
        provision.provision_wiki(connection, placement.schema, placement.role, placement.secret, group)
        return replace(placement, condition=PlacementCondition.READY)

    def repair(self, wiki_id: str) -> None:
        """Provision a wiki, or recreate what is missing of a placed one, e.g. after a dump was restored without roles.

        Closes idle connections: a session keeps its dropped role even if a new role has the same name.
        """
        known = self.find(wiki_id, refresh=True)
        if known is None or known.condition is not PlacementCondition.READY:
            self.provision(wiki_id)
            return
        retry_lock_timeouts(lambda: self._repair_placement(known))
        self._pool.close_idle(self.make_login(known))

    def _repair_placement(self, known: Placement) -> None:
        with self.get_operator_connections(known).write_transaction() as connection:
            self.provision_schema(connection, known)

    def remove_placement(self, placement: Placement) -> list[str]:
        """Remove the schema and role of a placement, then the placement. Returns the names of all objects."""
        connections = self.get_operator_connections(placement)
        removed = retry_lock_timeouts(lambda: remove_placement(connections, placement.schema, placement.role))
        with self.catalog.write_transaction() as connection:
            connection.execute("DELETE FROM placements WHERE role = %s", (placement.role,))
            locks.delete_lock(connection, _get_lock_name(placement.wiki_id))
        return removed


def make_schema_name(wiki_id: str) -> str:
    """The schema name of a wiki. PostgreSQL names have at most 63 bytes, so a long id is hashed."""
    digest = hashlib.sha256(wiki_id.encode()).hexdigest()[:_MAX_SCHEMA_ID_CHARS]
    return f"w_{wiki_id if len(wiki_id) <= _MAX_SCHEMA_ID_CHARS else digest}"


def make_placement(wiki_id: str, database: str) -> Placement:
    """A new placement. The role name is unique: roles belong to the server, schemas to one database of it."""
    schema = make_schema_name(wiki_id)
    role, secret = f"{schema}_{secrets.token_hex(4)}", secrets.token_urlsafe(24)
    return Placement(wiki_id, database, schema, role, secret, PlacementCondition.CREATING)


def _get_lock_name(wiki_id: str) -> str:
    """The name of the lock for creating or removing this wiki's placement."""
    return f"placement {wiki_id}"


def reserve_placement(connection: Connection, wiki_id: str, database: str) -> Placement:
    """The placement of a wiki, after inserting one if there is none. Requires the lock for creating it."""
    placement = _read_placement(connection, wiki_id)
    if placement is None:
        placement = make_placement(wiki_id, database)
        insert_placement(connection, placement)
    return placement


def insert_placement(connection: Connection, placement: Placement) -> None:
    statement = f"INSERT INTO placements ({PLACEMENT_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)"
    connection.execute(statement, astuple(placement))


def _read_placement(connection: Connection, wiki_id: str) -> Placement | None:
    statement = (
        f"SELECT {PLACEMENT_COLUMNS} FROM placements WHERE wiki_id = %s ORDER BY condition = 'here' DESC LIMIT 1"
    )
    row = connection.execute(statement, (wiki_id,)).fetchone()
    return None if row is None else parse_placement(row)


def parse_placement(row: Sequence[Any]) -> Placement:
    """Convert a row of `PLACEMENT_COLUMNS`."""
    wiki_id, database, schema, role, secret, condition = row
    return Placement(wiki_id, database, schema, role, secret, PlacementCondition(condition))


def write_condition(connection: Connection, placement: Placement) -> None:
    statement = "UPDATE placements SET condition = %s WHERE role = %s"
    connection.execute(statement, (placement.condition, placement.role))
