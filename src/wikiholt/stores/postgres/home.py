"""The database that knows of all others: schema `wikiholt`, reached by the operator's login, the setting `store`.

    Part(name, steps)                          tables of one module there: statements, never changed, only added to
    Home(dsn, parts=(), connections=8)         nothing is touched until it is used
        .reading() .snapshot() .writing()      as of a Door (pool.py), as the operator, search path = wikiholt
        .alone() -> Connection                 for LISTEN; close it
        .database(name) -> Database            one of those that hold wikis; HOME is this one; raises InvalidSetting
        .databases() -> list[Database]
        .add_database(name, dsn, weight=1.0)   made ready for wikis; raises InvalidSetting, DatabaseAway
        .set_open(name, open)                  whether new wikis go there
        .remove_database(name)                 raises Conflict while wikis are there
        .close()
    Database: name, address, guests, types, open, weight, door (the operator's way in; search path = types)

What is missing in the schema is made at the first use, under a lock that all nodes share.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from psycopg import sql

from wikiholt.errors import Conflict, InvalidSetting
from wikiholt.stores.postgres import locks
from wikiholt.stores.postgres.address import Address
from wikiholt.stores.postgres.pool import Connection, Door, Doors, Login
from wikiholt.stores.postgres.readying import ready, require_rights
from wikiholt.stores.postgres.timeouts import Timeouts
from wikiholt.stores.postgres.twins import twin_of

HOME = "home"
SCHEMA = "wikiholt"
_LOCK = "home"
"""The lock under which nodes make and change the home's tables."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tables of one module: statements that each run once, in order, in the schema of the home."""

    name: str
    steps: tuple[str, ...]


_DATABASES = Part(
    "databases",
    (
        "CREATE TABLE databases (name text PRIMARY KEY, dsn text NOT NULL, guests text NOT NULL, types text NOT NULL,"
        " open bool NOT NULL DEFAULT true, weight float8 NOT NULL DEFAULT 1 CHECK (weight > 0))",
    ),
)
PLACEMENTS = Part(
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
class Database:
    """A database that holds wikis: the group its wikis' roles are in, the schema of pgvector, the operator's way in."""

    name: str
    address: Address
    guests: str
    types: str
    open: bool
    weight: float
    door: Door


class Home:
    """Bound to the operator's address. Safe to use from many threads and after a fork."""

    def __init__(
        self, dsn: str, parts: Sequence[Part] = (), *, connections: int = 8, lock_timeout_s: float | None = None
    ) -> None:
        self._address = Address.parse(dsn)
        self._parts = (_DATABASES, PLACEMENTS, *parts)
        self._doors = Doors(connections, lock_timeout_s=lock_timeout_s)
        self._bare = Door(self._doors, lambda _: _login(self._address, (SCHEMA, "public")))
        self._lock = Lock()
        self._made = False
        self._known: dict[str, Database] = {}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        self._make()
        with self._bare.reading() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        self._make()
        with self._bare.snapshot() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        self._make()
        with self._bare.writing() as connection:
            yield connection

    def alone(self) -> Connection:
        self._make()
        return self._bare.alone()

    def database(self, name: str) -> Database:
        """One that is known, as it was when it was first asked for; addresses do not change under a running node."""
        if name not in self._known:
            self.databases()
        try:
            return self._known[name]
        except KeyError:
            raise InvalidSetting(f"no database is called {name}", hint="see `wikiholt database list`") from None

    def databases(self) -> list[Database]:
        with self.reading() as connection:
            rows = connection.execute("SELECT name, dsn, guests, types, open, weight FROM databases ORDER BY name")
            found = [self._database(*row) for row in rows]
        self._known = {each.name: each for each in found}
        return found

    def add_database(self, name: str, dsn: str, weight: float = 1.0) -> Database:
        """Make a database ready for wikis, and know it from then on; one that is known gets another address."""
        if not name.isidentifier() or not name.islower() or name == HOME or weight <= 0:
            raise InvalidSetting("that is no name, or no weight, for a database", hint="lower-case letters and digits")
        address = Address.parse(dsn)
        door = Door(self._doors, lambda _: _login(address, ("public",)))
        known = self.databases()
        with door.writing() as connection:
            twin = twin_of(connection, known)
            if twin not in (None, name):
                raise InvalidSetting(f"that is the database {twin}", hint="one database has one name")
            self._require_its_wikis(connection, name)
            guests, types = ready(connection, address.dbname)
        order = (
            "INSERT INTO databases (name, dsn, guests, types, weight) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (name) DO UPDATE SET dsn = excluded.dsn, weight = excluded.weight"
        )
        with self.writing() as connection:
            connection.execute(order, (name, dsn, guests, types, weight))
        self.databases()
        return self.database(name)

    def set_open(self, name: str, *, to_new: bool) -> None:
        """Whether new wikis may be placed there."""
        self.database(name)
        with self.writing() as connection:
            connection.execute("UPDATE databases SET open = %s WHERE name = %s", (to_new, name))
        self.databases()

    def remove_database(self, name: str) -> None:
        """Know it no more; nothing in it is touched."""
        self.database(name)
        if name == HOME:
            raise InvalidSetting("the home cannot be removed", hint="close it to new wikis instead")
        with self.writing() as connection:
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
        self.databases()

    @property
    def connections(self) -> int:
        """How many connections of the operator there are."""
        return self._doors.open

    @property
    def timeouts(self) -> Timeouts:
        """How many statements of the operator waited or ran for too long."""
        return self._doors.timeouts

    @property
    def up(self) -> dict[str, tuple[str, bool]]:
        """Of each database that is known here its place, and whether it answered when it was last needed."""
        places = {each.name: each.address.place for each in self._known.values()} or {HOME: self._address.place}
        return {name: (place, place not in self._doors.away) for name, place in places.items()}

    def close(self) -> None:
        self._doors.close()

    def _database(self, name: str, dsn: str, guests: str, types: str, is_open: bool, weight: float) -> Database:
        address = self._address if name == HOME else Address.parse(dsn)
        login = _login(address, (types,))
        return Database(name, address, guests, types, is_open, weight, Door(self._doors, lambda _: login))

    def _require_its_wikis(self, connection: Connection, name: str) -> None:
        """Raise if wikis are placed on the database of this name and are not in the one at the other end."""
        with self.reading() as home:
            placed = home.execute("SELECT schema FROM placements WHERE database = %s AND condition = 'here'", (name,))
            schemas = [schema for (schema,) in placed]
        order = "SELECT count(*) FROM unnest(%s::text[]) AS wanted WHERE to_regnamespace(wanted) IS NULL"
        if schemas and connection.execute(order, (schemas,)).fetchone() != (0,):
            raise InvalidSetting(f"the wikis of {name} are not in that database", hint="check the address")

    def _make(self) -> None:
        """Make what is missing, once a process."""
        if self._made:
            return
        with self._lock:
            if self._made:
                return
            with self._bare.reading() as connection:
                behind = self._behind(connection)
            if behind:
                with self._bare.writing() as connection:
                    self._found(connection)
            self._made = True

    def _behind(self, connection: Connection) -> bool:
        if connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.parts",)).fetchone() == (None,):
            return True
        known: dict[str, int] = dict(connection.execute(f"SELECT name, steps FROM {SCHEMA}.parts").fetchall())
        return any(known.get(part.name, 0) < len(part.steps) for part in self._parts)

    def _found(self, connection: Connection) -> None:
        require_rights(connection, self._address.dbname)
        locks.take(connection, _LOCK)
        connection.execute(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.parts (name text PRIMARY KEY, steps int4 NOT NULL)")
        known: dict[str, int] = dict(connection.execute("SELECT name, steps FROM parts").fetchall())
        for part in self._parts:
            for step in part.steps[known.get(part.name, 0) :]:
                connection.execute(sql.SQL(step))
            order = "INSERT INTO parts VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET steps = excluded.steps"
            if known.get(part.name, 0) < len(part.steps):
                connection.execute(order, (part.name, len(part.steps)))
        if connection.execute("SELECT 1 FROM databases WHERE name = %s", (HOME,)).fetchone() is None:
            guests, types = ready(connection, self._address.dbname)
            order = "INSERT INTO databases (name, dsn, guests, types) VALUES (%s, '', %s, %s)"
            connection.execute(order, (HOME, guests, types))
        _keep_no_samples(connection)


def _keep_no_samples(connection: Connection) -> None:
    """Have the planner keep no texts of rows: they would outlive the wiki, the key or the address they are of."""
    order = (
        "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND attnum > 0 AND NOT attisdropped"
        " AND atttypid = 'text'::regtype AND coalesce(attstattarget, -1) <> 0"
    )
    for table, column in connection.execute(order, (SCHEMA,)).fetchall():
        names = sql.Identifier(table), sql.Identifier(column)
        connection.execute(sql.SQL("ALTER TABLE {} ALTER {} SET STATISTICS 0").format(*names))


def _login(address: Address, path: tuple[str, ...]) -> Login:
    return Login(address, dict(address.parts).get("user", ""), path, operator=True)
