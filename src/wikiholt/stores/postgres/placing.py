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

from wikiholt.errors import DatabaseAway, IndexFault, InvalidSlug
from wikiholt.stores.postgres import founding, layout, locks
from wikiholt.stores.postgres.faults import missing
from wikiholt.stores.postgres.home import HOME, Database, Home
from wikiholt.stores.postgres.offboarding import remove_place, remove_schema
from wikiholt.stores.postgres.pool import Connection, Door, Doors, Login
from wikiholt.stores.postgres.timeouts import retry_lock_timeouts

_ID = re.compile(r"[a-z0-9]{8,64}")
_REMEMBERED = 20_000
_COLUMNS = "wiki_id, database, schema, role, secret, layout, condition"
_MOVES = "(SELECT *, 0 AS layout, 'going' AS condition FROM moves) AS moves"
_LONGEST = 40
_FRESH = 30.0
"""Seconds for which a placement is believed: an old place tells who comes there, unless a crash kept it from that."""
_KEEP_COUNTS = 200
"""After so many new wikis a process counts again how many each database has."""
_KEEP_COUNTS_FOR = 20.0
"""Or after so many seconds: a database may have been opened, or closed, by another node."""


class Condition(StrEnum):
    """How far a wiki's schema has come, or gone."""

    MAKING = "making"
    HERE = "here"
    GOING = "going"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a wiki is. Every name a statement uses comes from here, and none was typed by anybody."""

    wiki_id: str
    database: str
    schema: str
    role: str
    secret: str = field(repr=False)
    layout: int
    condition: Condition


class Placements:
    """Where each wiki is. Safe to use from many threads."""

    def __init__(self, home: Home, doors: Doors) -> None:
        self.home = home
        self._doors = doors
        self._known: dict[str, tuple[float, Placement]] = {}
        self._counts: dict[str, float] = {}
        self._counted = 0
        self._count_until = 0.0
        self._lock = Lock()

    def find(self, wiki_id: str, *, again: bool = False) -> Placement | None:
        """Where the wiki is, whatever its condition; None where no row knows it."""
        require_id(wiki_id)
        since, known = self._known.get(wiki_id, (0.0, None))
        if not again and known is not None and time.monotonic() - since < _FRESH:
            return known
        try:
            with self.home.reading() as connection:
                found = _read(connection, wiki_id)
        except DatabaseAway:
            if known is None or again:
                raise
            found = known  # its own database may be well
        self._remember(wiki_id, found)
        return found

    def get(self, wiki_id: str, *, again: bool = False) -> Placement:
        """Where a wiki is that is here; raises IndexMissing."""
        found = self.find(wiki_id, again=again)
        if found is None or found.condition is not Condition.HERE:
            self._known.pop(wiki_id, None)
            raise missing()
        return found

    def make(self, wiki_id: str, database: str | None = None) -> Placement:
        """On-board a wiki; one that is here stays as and where it is."""
        found = self.find(wiki_id, again=True)
        if found is not None and found.condition is Condition.HERE:
            return found
        if found is not None and found.condition is Condition.GOING:
            self.remove(wiki_id)
        chosen = self.home.database(database or self._fewest()).name
        made = retry_lock_timeouts(lambda: self._make(wiki_id, chosen))
        self._remember(wiki_id, made)
        return made

    def _make(self, wiki_id: str, database: str) -> Placement:
        with self.home.writing() as connection:
            locks.take(connection, _lock_of(wiki_id))
            made = _reserved(connection, wiki_id, database)
            if made.condition is not Condition.HERE and made.database == HOME:
                made = self.found(connection, made)
                _set_condition(connection, made)
        if made.condition is not Condition.HERE:
            with self.operator(made).writing() as connection:
                made = self.found(connection, made)
            with self.home.writing() as connection:
                _set_condition(connection, made)
        return made

    def remove(self, wiki_id: str) -> list[str]:
        """Off-board a wiki and name what went: its tables, its schema, its role; nothing where there was nothing."""
        found = self.find(wiki_id, again=True)
        if found is not None:
            with self.operator(found).reading() as connection:
                connection.execute("SELECT 1")  # nothing is begun that cannot be done now
        self._known.pop(wiki_id, None)
        with self.home.writing() as connection:
            locks.take(connection, _lock_of(wiki_id))
            order = f"UPDATE placements SET condition = 'going' WHERE wiki_id = %s RETURNING {_COLUMNS}"
            row = connection.execute(order, (wiki_id,)).fetchone()
            left = connection.execute(f"SELECT {_COLUMNS} FROM {_MOVES} WHERE wiki_id = %s", (wiki_id,)).fetchone()
        went = [] if left is None else self._removed(_placement(left), "moves")
        if row is not None:
            return went + self._removed(_placement(row), "placements")
        for database in self.home.databases():
            with database.door.about(schema_of(wiki_id)).writing() as connection:
                went += remove_schema(connection, schema_of(wiki_id))
        with self.home.writing() as connection:
            locks.drop(connection, _lock_of(wiki_id))
        return went

    def ids(self) -> list[str]:
        """Every wiki that has a row, and every one that only has a schema, which nobody will ever ask for."""
        with self.home.reading() as connection:
            placed = {wiki_id for (wiki_id,) in connection.execute("SELECT wiki_id FROM placements")}
        return sorted(placed | {schema.removeprefix("w_") for _, schema in self.strays()})

    def strays(self) -> list[tuple[str, str]]:
        """Database and schema of wikis that no row knows of; a database that is away has none to tell of."""
        with self.home.reading() as connection:
            rows = connection.execute(
                "SELECT database, schema FROM placements UNION SELECT database, schema FROM moves"
            )
            known = set(rows.fetchall())
        there: list[tuple[str, str]] = []
        order = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' ORDER BY nspname"
        for database in self.home.databases():
            with suppress(DatabaseAway), database.door.reading() as connection:
                there += [(database.name, schema) for (schema,) in connection.execute(order)]
        return [stray for stray in there if stray not in known]

    def door(self, wiki_id: str) -> Door:
        """The way into the wiki's schema as its role, wherever it is by then."""
        require_id(wiki_id)
        return Door(self._doors, lambda again: self.login(self.get(wiki_id, again=again)), wiki_id)

    def operator(self, placement: Placement) -> Door:
        return self.database(placement).door.about(placement.schema)

    def database(self, placement: Placement) -> Database:
        return self.home.database(placement.database)

    def recount(self) -> None:
        """Look again, before the next wiki is placed, which databases there are and how many wikis they have."""
        self._count_until = 0.0

    def forget(self, wiki_id: str) -> None:
        """Look it up again before its next use."""
        self._known.pop(wiki_id, None)

    def login(self, placement: Placement) -> Login:
        """As whom, and where, to log in for a wiki that is placed so."""
        database = self.database(placement)
        address = database.address.of(placement.role, placement.secret)
        return Login(address, placement.role, (placement.schema, database.types))

    def _remember(self, wiki_id: str, found: Placement | None) -> None:
        if found is None:
            self._known.pop(wiki_id, None)
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[wiki_id] = (time.monotonic(), found)

    def _fewest(self) -> str:
        """The open database with the fewest wikis for its weight; counted now and then, for counting takes a while."""
        with self._lock:
            if not self._counts or self._counted >= _KEEP_COUNTS or time.monotonic() > self._count_until:
                self._counts, self._counted = self._counts_now(), 0
                self._count_until = time.monotonic() + _KEEP_COUNTS_FOR
            self._counted += 1
            name = min(sorted(self._counts), key=lambda each: self._counts[each])
            self._counts[name] += 1 / self.home.database(name).weight
            return name

    def _counts_now(self) -> dict[str, float]:
        with self.home.reading() as connection:
            counted = dict(connection.execute("SELECT database, count(*) FROM placements GROUP BY database").fetchall())
        there = {each.name: counted.get(each.name, 0) / each.weight for each in self.home.databases() if each.open}
        if not there:
            raise IndexFault("no database takes new wikis", hint="open one: `wikiholt database`")
        return there

    def found(self, connection: Connection, placement: Placement) -> Placement:
        """Make what is missing of schema and role, in an open transaction of the operator."""
        guests = self.database(placement).guests
        founding.found(connection, placement.schema, placement.role, placement.secret, guests)
        return replace(placement, condition=Condition.HERE)

    def mend(self, wiki_id: str) -> None:
        """On-board a wiki, and make what is missing of one that is here: a dump may have been restored without roles.

        A session of a role that was dropped stays that one's, even when there is another of the same name.
        """
        known = self.find(wiki_id, again=True)
        if known is None or known.condition is not Condition.HERE:
            self.make(wiki_id)
            return
        retry_lock_timeouts(lambda: self._mend(known))
        self._doors.forget(self.login(known))

    def _mend(self, known: Placement) -> None:
        with self.operator(known).writing() as connection:
            self.found(connection, known)

    def _removed(self, placement: Placement, table: str) -> list[str]:
        went = retry_lock_timeouts(lambda: remove_place(self.operator(placement), placement.schema, placement.role))
        with self.home.writing() as connection:
            order = f"DELETE FROM {table} WHERE wiki_id = %s AND role = %s"
            connection.execute(order, (placement.wiki_id, placement.role))
            locks.drop(connection, _lock_of(placement.wiki_id))
        return went


def require_id(wiki_id: str) -> None:
    if not _ID.fullmatch(wiki_id):
        raise InvalidSlug("that is not the id of a wiki", hint="ids come from the registry, never from input")


def schema_of(wiki_id: str) -> str:
    """The name of a wiki's schema; a name of PostgreSQL has 63 bytes, and an id may have more."""
    short = hashlib.sha256(wiki_id.encode()).hexdigest()[:_LONGEST]
    return f"w_{wiki_id if len(wiki_id) <= _LONGEST else short}"


def new_role(schema: str) -> str:
    """A name for a role that no other has: roles belong to the whole server, schemas to one database of it."""
    return f"{schema}_{secrets.token_hex(4)}"


def _lock_of(wiki_id: str) -> str:
    """The lock of those who make or remove this wiki's place: what they have done so far cannot be seen yet."""
    return f"placement {wiki_id}"


def _reserved(connection: Connection, wiki_id: str, database: str) -> Placement:
    """The row of a wiki, made if there is none."""
    schema = schema_of(wiki_id)
    row = (wiki_id, database, schema, new_role(schema), secrets.token_urlsafe(24), layout.LAYOUT, Condition.MAKING)
    order = f"INSERT INTO placements ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
    connection.execute(order, row)
    found = _read(connection, wiki_id)
    if found is None:
        raise missing()
    return found


def _read(connection: Connection, wiki_id: str) -> Placement | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM placements WHERE wiki_id = %s", (wiki_id,)).fetchone()
    return None if row is None else _placement(row)


def _placement(row: tuple[str, str, str, str, str, int, str]) -> Placement:
    return Placement(*row[:-1], Condition(row[-1]))


def _set_condition(connection: Connection, placement: Placement) -> None:
    order = "UPDATE placements SET condition = %s WHERE wiki_id = %s AND role = %s"
    connection.execute(order, (placement.condition, placement.wiki_id, placement.role))
