"""The registry in PostgreSQL: the same tables, ledger and seal as in its file, in the home's schema.

    TABLES                                     the home's part that makes them
    PostgresRegistry(home, timeout=10.0, remains=None)    -> registry.RegistryDatabase
    name_schemas(home)                         says whether schemas of wikis are in the home's database

Writers of all nodes go one after another; readers wait for none. What is read is what was last committed: a key that
one node revokes is refused by the others from then on. Every write tells the nodes (`shifts.py`).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql

from wikiholt.errors import IndexCorrupt, InvalidSetting
from wikiholt.registry import RESTORE, Remains, schema
from wikiholt.registry.loss import BLANK, lost, outdated
from wikiholt.registry.mending import write
from wikiholt.registry.sessions import Found
from wikiholt.stores.postgres.home import Home, Part
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.telling import REGISTRY, tell

# Slugs and host names sort by their bytes, as they do in the file.
TABLES = Part(
    "registry",
    (
        'CREATE TABLE wikis (id text PRIMARY KEY, slug text COLLATE "C" NOT NULL UNIQUE, source text NOT NULL,'
        " settings text NOT NULL, created_at text NOT NULL)",
        "CREATE TABLE hosts (host text PRIMARY KEY, wiki_id text NOT NULL)",
        "CREATE INDEX hosts_of_a_wiki ON hosts (wiki_id)",
        'CREATE TABLE keys (id text COLLATE "C" PRIMARY KEY, wiki_id text, scope text NOT NULL, label text NOT NULL,'
        ' created_at text COLLATE "C" NOT NULL, expires_at text, digest text NOT NULL)',
        "CREATE INDEX keys_of_a_wiki ON keys (wiki_id)",
        "CREATE TABLE marks (name text PRIMARY KEY, value text NOT NULL)",
        "CREATE TABLE sealed (one int4 PRIMARY KEY CHECK (one = 1), digest text NOT NULL)",
        f"INSERT INTO sealed VALUES (1, '{schema.seal_of({table: [] for table in schema.COLUMNS})}')",
    ),
)


class PostgresRegistry:
    """Bound to a home. Its rows are verified once by every process, when it first reads them."""

    shared = True

    def __init__(self, home: Home, timeout: float = 10.0, remains: Remains | None = None) -> None:
        self._home = home
        self.remains = remains
        self._timeout = timeout
        self._verified: int | None = None

    @contextmanager
    def reading(self) -> Iterator["_Session"]:
        self._verify()
        with self._home.reading() as connection:
            yield _Session(connection)

    @contextmanager
    def writing(self) -> Iterator[schema.Ledger]:
        self._verify()
        with self._alone() as connection, _storable():
            ledger = schema.Ledger(_Session(connection))
            yield ledger
            ledger.seal()
            tell(connection, REGISTRY)

    def copy(self, to: Path) -> str | None:
        self._verify()
        with self._home.snapshot() as connection:
            session = _Session(connection)
            rows, seal = schema.read(session), schema.seal(session)
        write(to, rows)
        return seal

    def install(self, rows: schema.Rows) -> str | None:
        name = f"broken_{datetime.now(UTC):%Y%m%dt%H%M%S%fz}"
        with self._alone() as connection:
            aside = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(aside))
            for table in (*schema.COLUMNS, "sealed"):
                kept = sql.SQL("CREATE TABLE {}.{} AS TABLE {}").format(aside, *[sql.Identifier(table)] * 2)
                connection.execute(kept)
            ledger = schema.Ledger(_Session(connection))
            ledger.replace(rows)
            connection.execute("DELETE FROM sealed")
            connection.execute("INSERT INTO sealed VALUES (1, %s)", (schema.seal_of(rows),))
            tell(connection, REGISTRY)
        return name

    def close(self) -> None:
        self._verified = None

    @contextmanager
    def _alone(self) -> Iterator[Connection]:
        """One write transaction, while no other node writes the registry; raises Busy."""
        with self._home.writing() as connection:
            # Both are gone with the transaction.
            connection.execute(sql.SQL("SET LOCAL lock_timeout TO {}").format(f"{self._timeout:.3f}s"))
            connection.execute("LOCK TABLE sealed IN EXCLUSIVE MODE")
            yield connection

    def _verify(self) -> None:
        if self._verified == os.getpid():
            return
        with self._home.snapshot() as connection:
            session = _Session(connection)
            if not schema.sound(session):
                raise IndexCorrupt("The registry is damaged: its rows are not those that were written.", hint=RESTORE)
            blank, keyed = schema.seal(session) == BLANK, schema.marked(session, schema.KEYED)
        if self.remains is not None and not keyed:
            if blank and (found := self.remains.find()):
                raise lost("The registry in PostgreSQL", found)
            if self.remains.had_keys():
                raise outdated("The registry in PostgreSQL")
        self._verified = os.getpid()


def name_schemas(home: Home) -> str:
    """What remains of wikis in the home's database, in a few words; empty if nothing does."""
    with home.reading() as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' LIMIT 1").fetchone()
        return "schemas of wikis" if found else ""


class _Session:
    """Takes the registry's statements as SQLite would."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> Found:
        return self._connection.execute(_marked(statement), values)


@cache
def _marked(statement: str) -> sql.SQL:
    """The statement with PostgreSQL's marks for values; all statements are the registry's own, and few."""
    return sql.SQL(statement.replace("?", "%s"))


@contextmanager
def _storable() -> Iterator[None]:
    try:
        yield
    except (psycopg.DataError, UnicodeEncodeError) as error:
        raise InvalidSetting(
            "a name or setting holds what is no text", hint="leave out NUL and halves of characters"
        ) from error
