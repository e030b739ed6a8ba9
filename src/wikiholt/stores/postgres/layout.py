"""What a wiki's schema holds beside its generations, its layout's number, and how one layout becomes the next.

    state   a row a generation; `published` in one of them at most; counters for ids, since there is one writer
    notes   small texts and leases by name: writer, desk, mark, layout, and what `Store.keep_note` keeps

The note `layout` says which layout the schema has and from which on a program can use it; where the wiki has been moved
to another database, it says `moved`. Layouts only add: programs that know an older one go on until `oldest` is past it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from wikiholt.errors import IndexCorrupt, IndexTooNew

SCHEMA_LAYOUT = 1
"""The layout this program writes."""

MOVED_MARK = "moved"

_WIKI_TABLES = (
    "CREATE SCHEMA {schema}",
    "CREATE TABLE {schema}.state (number int4 PRIMARY KEY, published bool NOT NULL DEFAULT false,"
    " origin text NOT NULL, condition text NOT NULL, why text NOT NULL DEFAULT '', ended timestamptz,"
    " fingerprint text NOT NULL, dimensions int4 NOT NULL, pipeline text NOT NULL,"
    " model text NOT NULL, precision text NOT NULL,"
    " version int8 NOT NULL DEFAULT 0, horizon int8 NOT NULL DEFAULT 0, revision text, synced_at float8,"
    " pages int8 NOT NULL DEFAULT 0, chunks int8 NOT NULL DEFAULT 0, problems int8 NOT NULL DEFAULT 0,"
    " next_page int8 NOT NULL DEFAULT 1, next_chunk int8 NOT NULL DEFAULT 1, terms int8 NOT NULL DEFAULT 0,"
    " seal int8 NOT NULL)",
    "CREATE TABLE {schema}.notes (name text PRIMARY KEY, text text NOT NULL DEFAULT '',"
    " holder text, until timestamptz, fence int8 NOT NULL DEFAULT 0)",
)
_GRANTS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
)


@dataclass(frozen=True, slots=True)
class SchemaLayout:
    """Which layout a schema has, and the oldest that a program may know to use it."""

    number: int
    oldest_compatible: int

    @classmethod
    def parse(cls, text: str | None) -> "SchemaLayout":
        parts = (text or "").split()
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            raise IndexCorrupt("the index has lost its layout", hint="run `wikiholt doctor`")
        return cls(int(parts[0]), int(parts[1]))

    def format(self) -> str:
        return f"{self.number} {self.oldest_compatible}"

    def require_supported(self) -> None:
        """Raise unless this program can use it."""
        if self.oldest_compatible > SCHEMA_LAYOUT:
            raise IndexTooNew(
                f"the index has a newer layout ({self.number}, this Wikiholt knows {SCHEMA_LAYOUT})", hint="upgrade Wikiholt"
            )


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """How the layout before becomes this one; `oldest` is the layout a program must know to use it.

    `statements` is given the schema, the numbers of its generations and the role. They only add.
    """

    layout: SchemaLayout
    statements: Callable[[str, Sequence[int], str], Iterator[sql.Composed]]


MIGRATIONS: tuple[SchemaMigration, ...] = ()
"""To layout 2, to layout 3, …; the last leads to LAYOUT."""


def get_oldest_compatible() -> int:
    """The oldest layout that programs may know to use what this one writes."""
    return MIGRATIONS[-1].layout.oldest_compatible if MIGRATIONS else 1


def build_schema_statements(schema: str, role: str) -> Iterator[sql.Composed]:
    """The statements, for the operator and in one transaction, that make a wiki's schema for its role."""
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    for statement in _WIKI_TABLES:
        yield sql.SQL(statement).format(**names)
    yield from build_grant_statements(schema, role)
    layout = sql.Literal(SchemaLayout(SCHEMA_LAYOUT, get_oldest_compatible()).format())
    yield sql.SQL("INSERT INTO {}.notes (name, text) VALUES ('layout', {})").format(names["schema"], layout)


def build_grant_statements(schema: str, role: str) -> Iterator[sql.Composed]:
    """The statements that let a role into its wiki's schema."""
    for statement in _GRANTS:
        yield sql.SQL(statement).format(schema=sql.Identifier(schema), role=sql.Identifier(role))
