"""Which database a wiki is on, in which schema, under which role: asked of the home, and remembered.

    Placement: wiki_id, database, schema, role, secret, layout, condition; its names are the only ones there are
    Placements(home, doors)
        .find(wiki_id, again=False) -> Placement | None   from memory, unless it is to be looked up again
        .get(wiki_id) -> Placement                        one that is here; raises IndexMissing
        .make(wiki_id, database=None) -> Placement        on-board: schema, role, tables and row; what is there stays
        .mend(wiki_id)                                    the same, and what is missing of one that is here
        .remove(wiki_id) -> list[str]                     off-board, and name what went
        .ids() -> list[str]                               placed ones, and those of schemas that no row knows of
        .strays() -> list[tuple[str, str]]                database and schema of each of the latter
        .door(wiki_id) -> Door                            as the wiki's role; follows the wiki to another database
        .login(placement) -> Login                        the same for one placement
        .operator(placement) -> Door                      as the operator, into the wiki's database (search path: types)
        .database(placement) -> Database

Schema and role are made in one transaction. Where that is in another database than the row, the row comes first, as
`making`, and goes last, as `going`: what one who was killed began is finished by the next.
"""

import hashlib
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from threading import Lock

from wikiholt.errors import DatabaseUnavailable, IndexUnavailable, InvalidSlug
from wikiholt.storage.postgres import locks, provision
from wikiholt.storage.postgres import schema as postgres_schema
from wikiholt.storage.postgres.catalog import HOME_DATABASE, Catalog, CatalogDatabase
from wikiholt.storage.postgres.errors import make_missing_error
from wikiholt.storage.postgres.pool import Connection, ConnectionPool, Login, RoleConnections
from wikiholt.storage.postgres.provision import remove_placement, remove_schema
from wikiholt.storage.postgres.timeouts import retry_lock_timeouts

_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_MAX_CACHED_PLACEMENTS = 20_000
_COLUMNS = "wiki_id, database, schema, role, secret, layout, condition"
_MOVES_AS_PLACEMENTS = "(SELECT *, 0 AS layout, 'going' AS condition FROM moves) AS moves"
_MAX_SCHEMA_ID_CHARS = 40
_PLACEMENT_TTL_S = 30.0
"""Seconds for which a placement is believed: an old place tells who comes there, unless a crash kept it from that."""
_RECOUNT_AFTER_WIKIS = 200
"""After so many new wikis a process counts again how many each database has."""
_COUNTS_TTL_S = 20.0
"""Or after so many seconds: a database may have been opened, or closed, by another node."""


class PlacementCondition(StrEnum):
    """How far a wiki's schema has come, or gone."""

    CREATING = "making"
    READY = "here"
    REMOVING = "going"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a wiki is. Every name a statement uses comes from here, and none was typed by anybody."""

    wiki_id: str
    database: str
    schema: str
    role: str
    secret: str = field(repr=False)
    layout: int
    condition: PlacementCondition


class PlacementCatalog:
    """Where each wiki is. Safe to use from many threads."""

    def __init__(self, catalog: Catalog, pool: ConnectionPool) -> None:
        self.catalog = catalog
        self._pool = pool
        self._cache: dict[str, tuple[float, Placement]] = {}
        self._counts: dict[str, float] = {}
        self._placed_since_count = 0
        self._count_until = 0.0
        self._lock = Lock()

    def find(self, wiki_id: str, *, refresh: bool = False) -> Placement | None:
        """Where the wiki is, whatever its condition; None where no row knows it."""
        validate_wiki_id(wiki_id)
        since, known = self._cache.get(wiki_id, (0.0, None))
        if not refresh and known is not None and time.monotonic() - since < _PLACEMENT_TTL_S:
            return known
        try:
            with self.catalog.read_connection() as connection:
                found = _read_placement(connection, wiki_id)
        except DatabaseUnavailable:
            if known is None or refresh:
                raise
            found = known  # its own database may be well
        self._cache_placement(wiki_id, found)
        return found

    def get(self, wiki_id: str, *, refresh: bool = False) -> Placement:
        """Where a wiki is that is here; raises IndexMissing."""
        found = self.find(wiki_id, refresh=refresh)
        if found is None or found.condition is not PlacementCondition.READY:
            self._cache.pop(wiki_id, None)
            raise make_missing_error()
        return found

    def provision(self, wiki_id: str, database: str | None = None) -> Placement:
        """On-board a wiki; one that is here stays as and where it is."""
        found = self.find(wiki_id, refresh=True)
        if found is not None and found.condition is PlacementCondition.READY:
            return found
        if found is not None and found.condition is PlacementCondition.REMOVING:
            self.remove(wiki_id)
        chosen = self.catalog.get_database(database or self._pick_database()).name
        made = retry_lock_timeouts(lambda: self._create_schema(wiki_id, chosen))
        self._cache_placement(wiki_id, made)
        return made

    def _create_schema(self, wiki_id: str, database: str) -> Placement:
        with self.catalog.write_transaction() as connection:
            locks.acquire_lock(connection, _get_lock_name(wiki_id))
            made = _reserve(connection, wiki_id, database)
            if made.condition is not PlacementCondition.READY and made.database == HOME_DATABASE:
                made = self.provision_schema(connection, made)
                _write_condition(connection, made)
        if made.condition is not PlacementCondition.READY:
            with self.get_operator_connections(made).write_transaction() as connection:
                made = self.provision_schema(connection, made)
            with self.catalog.write_transaction() as connection:
                _write_condition(connection, made)
        return made

    def remove(self, wiki_id: str) -> list[str]:
        """Off-board a wiki and name what went: its tables, its schema, its role; nothing where there was nothing."""
        found = self.find(wiki_id, refresh=True)
        if found is not None:
            with self.get_operator_connections(found).read_connection() as connection:
                connection.execute("SELECT 1")  # nothing is begun that cannot be done now
        self._cache.pop(wiki_id, None)
        with self.catalog.write_transaction() as connection:
            locks.acquire_lock(connection, _get_lock_name(wiki_id))
            order = f"UPDATE placements SET condition = 'going' WHERE wiki_id = %s RETURNING {_COLUMNS}"
            row = connection.execute(order, (wiki_id,)).fetchone()
            left = connection.execute(
                f"SELECT {_COLUMNS} FROM {_MOVES_AS_PLACEMENTS} WHERE wiki_id = %s", (wiki_id,)
            ).fetchone()
        went = [] if left is None else self._remove_placement(_parse_placement(left), "moves")
        if row is not None:
            return went + self._remove_placement(_parse_placement(row), "placements")
        for database in self.catalog.list_databases():
            with database.connections.with_subject(make_schema_name(wiki_id)).write_transaction() as connection:
                went += remove_schema(connection, make_schema_name(wiki_id))
        with self.catalog.write_transaction() as connection:
            locks.delete_lock(connection, _get_lock_name(wiki_id))
        return went

    def list_wiki_ids(self) -> list[str]:
        """Every wiki that has a row, and every one that only has a schema, which nobody will ever ask for."""
        with self.catalog.read_connection() as connection:
            placed = {wiki_id for (wiki_id,) in connection.execute("SELECT wiki_id FROM placements")}
        return sorted(placed | {schema.removeprefix("w_") for _, schema in self.find_orphans()})

    def find_orphans(self) -> list[tuple[str, str]]:
        """Database and schema of wikis that no row knows of; a database that is away has none to tell of."""
        with self.catalog.read_connection() as connection:
            rows = connection.execute(
                "SELECT database, schema FROM placements UNION SELECT database, schema FROM moves"
            )
            known = set(rows.fetchall())
        there: list[tuple[str, str]] = []
        order = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' ORDER BY nspname"
        for database in self.catalog.list_databases():
            with suppress(DatabaseUnavailable), database.connections.read_connection() as connection:
                there += [(database.name, schema) for (schema,) in connection.execute(order)]
        return [stray for stray in there if stray not in known]

    def get_connections(self, wiki_id: str) -> RoleConnections:
        """The way into the wiki's schema as its role, wherever it is by then."""
        validate_wiki_id(wiki_id)
        return RoleConnections(self._pool, lambda again: self.make_login(self.get(wiki_id, refresh=again)), wiki_id)

    def get_operator_connections(self, placement: Placement) -> RoleConnections:
        return self.get_database(placement).connections.with_subject(placement.schema)

    def get_database(self, placement: Placement) -> CatalogDatabase:
        return self.catalog.get_database(placement.database)

    def invalidate_counts(self) -> None:
        """Look again, before the next wiki is placed, which databases there are and how many wikis they have."""
        self._count_until = 0.0

    def invalidate(self, wiki_id: str) -> None:
        """Look it up again before its next use."""
        self._cache.pop(wiki_id, None)

    def make_login(self, placement: Placement) -> Login:
        """As whom, and where, to log in for a wiki that is placed so."""
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
        """The open database with the fewest wikis for its weight; counted now and then, for counting takes a while."""
        with self._lock:
            if (
                not self._counts
                or self._placed_since_count >= _RECOUNT_AFTER_WIKIS
                or time.monotonic() > self._count_until
            ):
                self._counts, self._placed_since_count = self._count_wikis(), 0
                self._count_until = time.monotonic() + _COUNTS_TTL_S
            self._placed_since_count += 1
            name = min(sorted(self._counts), key=lambda each: self._counts[each])
            self._counts[name] += 1 / self.catalog.get_database(name).weight
            return name

    def _count_wikis(self) -> dict[str, float]:
        with self.catalog.read_connection() as connection:
            counted = dict(connection.execute("SELECT database, count(*) FROM placements GROUP BY database").fetchall())
        there = {
            each.name: counted.get(each.name, 0) / each.weight
            for each in self.catalog.list_databases()
            if each.accepts_new
        }
        if not there:
            raise IndexUnavailable("no database takes new wikis", hint="open one: `wikiholt database`")
        return there

    def provision_schema(self, connection: Connection, placement: Placement) -> Placement:
        """Make what is missing of schema and role, in an open transaction of the operator."""
        guests = self.get_database(placement).group
        provision.provision_wiki(connection, placement.schema, placement.role, placement.secret, guests)
        return replace(placement, condition=PlacementCondition.READY)

    def repair(self, wiki_id: str) -> None:
        """On-board a wiki, and make what is missing of one that is here: a dump may have been restored without roles.

        A session of a role that was dropped stays that one's, even when there is another of the same name.
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

    def _remove_placement(self, placement: Placement, table: str) -> list[str]:
        went = retry_lock_timeouts(
            lambda: remove_placement(self.get_operator_connections(placement), placement.schema, placement.role)
        )
        with self.catalog.write_transaction() as connection:
            order = f"DELETE FROM {table} WHERE wiki_id = %s AND role = %s"
            connection.execute(order, (placement.wiki_id, placement.role))
            locks.delete_lock(connection, _get_lock_name(placement.wiki_id))
        return went


def validate_wiki_id(wiki_id: str) -> None:
    if not _WIKI_ID.fullmatch(wiki_id):
        raise InvalidSlug("that is not the id of a wiki", hint="ids come from the registry, never from input")


def make_schema_name(wiki_id: str) -> str:
    """The name of a wiki's schema; a name of PostgreSQL has 63 bytes, and an id may have more."""
    short = hashlib.sha256(wiki_id.encode()).hexdigest()[:_MAX_SCHEMA_ID_CHARS]
    return f"w_{wiki_id if len(wiki_id) <= _MAX_SCHEMA_ID_CHARS else short}"


def make_role_name(schema: str) -> str:
    """A name for a role that no other has: roles belong to the whole server, schemas to one database of it."""
    return f"{schema}_{secrets.token_hex(4)}"


def _get_lock_name(wiki_id: str) -> str:
    """The lock of those who make or remove this wiki's place: what they have done so far cannot be seen yet."""
    return f"placement {wiki_id}"


def _reserve(connection: Connection, wiki_id: str, database: str) -> Placement:
    """The row of a wiki, made if there is none."""
    schema = make_schema_name(wiki_id)
    row = (
        wiki_id,
        database,
        schema,
        make_role_name(schema),
        secrets.token_urlsafe(24),
        postgres_schema.SCHEMA_LAYOUT,
        PlacementCondition.CREATING,
    )
    order = f"INSERT INTO placements ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
    connection.execute(order, row)
    found = _read_placement(connection, wiki_id)
    if found is None:
        raise make_missing_error()
    return found


def _read_placement(connection: Connection, wiki_id: str) -> Placement | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM placements WHERE wiki_id = %s", (wiki_id,)).fetchone()
    return None if row is None else _parse_placement(row)


def _parse_placement(row: tuple[str, str, str, str, str, int, str]) -> Placement:
    return Placement(*row[:-1], PlacementCondition(row[-1]))


def _write_condition(connection: Connection, placement: Placement) -> None:
    order = "UPDATE placements SET condition = %s WHERE wiki_id = %s AND role = %s"
    connection.execute(order, (placement.condition, placement.wiki_id, placement.role))
