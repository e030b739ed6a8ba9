"""The schema of a wiki: the tables of a generation, their indexes, and the layout with its migrations.

A sequential scan of a small wiki is faster than an index scan, and every relation costs space on a server with
thousands of wikis. A generation therefore has few tables and at first only primary keys; `maintenance` adds the other
indexes.

Beside its generations a schema has two tables. `state` has a row per generation, at most one of them published, and the
counters of ids. `notes` has small texts and leases by name. The note `layout` is the layout of the schema and the
oldest layout that a program must know to use it, or `moved` after a move to another database.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from psycopg import sql

from wikiholt.errors import IndexCorrupt, IndexTooNew
from wikiholt.storage.page_table import (
    ADDED_COLUMNS,
    HAS_ALIAS,
    HAS_ORDER_OVERRIDE,
    POSTGRES_LAYOUT,
    PageRow,
    format_postgres_column,
)

INDEXES_MIN_PAGES = 300
"""The number of pages from which a wiki gets indexes."""
HNSW_MIN_CHUNKS = 10_000
"""The default number of chunks from which vector search uses an HNSW index."""
_HNSW_M, _HNSW_EF_CONSTRUCTION = 24, 200
"""With pgvector's defaults of 16 and 64 some queries on real text never reach the relevant part of the graph."""

_MAX_INLINE_DIMENSIONS = 1_500
"""The largest vector that fits into a row beside its text. Longer vectors are stored outside the row."""
_MAX_HNSW_DIMENSIONS = 2_000
"""The largest vector that pgvector can index."""

_PAGES_TABLE = """
CREATE TABLE {pages} (
    {page_columns},
    links text NOT NULL, tag_keys text[] NOT NULL, link_keys text[] NOT NULL,
    size int8 NOT NULL, terms tsvector NOT NULL, seal int8 NOT NULL)
"""
_CHUNKS_TABLE = """
CREATE TABLE {chunks} (
    id int8 PRIMARY KEY, page_id int8 NOT NULL, number int4 NOT NULL, text text NOT NULL, heading_path text NOT NULL,
    anchor text NOT NULL, first_line int4 NOT NULL, last_line int4 NOT NULL, hash bytea NOT NULL,
    vector vector({dimensions}) NOT NULL)
"""
_OTHER_STATEMENTS = (
    "CREATE TABLE {problems} (file text NOT NULL, blob text NOT NULL, reason text NOT NULL, detail text NOT NULL,"
    " seal int8 NOT NULL)",
    "CREATE TABLE {dropped} (version int8 NOT NULL, chunk_id int8, page_id int8)",
    # Words are already compressed, and compression slows terms down without saving much.
    "ALTER TABLE {pages} ALTER words SET STORAGE EXTERNAL, ALTER terms SET STORAGE EXTERNAL",
    "ALTER TABLE {chunks} ALTER vector SET STORAGE {storage}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON {pages}, {chunks}, {problems}, {dropped} TO {role}",
)


@dataclass(frozen=True, slots=True)
class GenerationTables:
    """The table names of a generation of a wiki, without the schema."""

    number: int
    wiki_id: str = ""

    @property
    def pages(self) -> str:
        return f"g{self.number:d}_pages"

    @property
    def chunks(self) -> str:
        return f"g{self.number:d}_chunks"

    @property
    def problems(self) -> str:
        return f"g{self.number:d}_problems"

    @property
    def dropped(self) -> str:
        return f"g{self.number:d}_dropped"

    @property
    def all(self) -> tuple[str, ...]:
        return self.pages, self.chunks, self.problems, self.dropped


@dataclass(frozen=True, slots=True)
class SizedIndex:
    """An index that a generation gets from `min_pages` and `min_chunks` on."""

    name: str
    table: str
    definition: str
    min_pages: int = 0
    min_chunks: int = 0
    build_megabytes: int = 0
    """Memory needed to build the index in memory."""


def build_create_statements(schema: str, number: int, dimensions: int, role: str) -> Iterator[sql.Composed]:
    """Yield the statements that create an empty generation, for the operator, in one transaction."""
    tables = GenerationTables(number)
    names = {
        "pages": sql.Identifier(schema, tables.pages),
        "chunks": sql.Identifier(schema, tables.chunks),
        "problems": sql.Identifier(schema, tables.problems),
        "dropped": sql.Identifier(schema, tables.dropped),
        "page_columns": sql.SQL(", ").join(sql.SQL(format_postgres_column(name)) for name in PageRow._fields),
        "dimensions": sql.Literal(int(dimensions)),
        "storage": sql.SQL("PLAIN" if dimensions <= _MAX_INLINE_DIMENSIONS else "EXTERNAL"),
        "role": sql.Identifier(role),
    }
    for statement in (_PAGES_TABLE, _CHUNKS_TABLE, *_OTHER_STATEMENTS):
        yield sql.SQL(statement).format(**names)


def build_drop_statement(schema: str, number: int) -> sql.Composed:
    """Build the statement that drops the tables of a generation. Ignores missing tables."""
    names = (sql.Identifier(schema, name) for name in GenerationTables(number).all)
    return sql.SQL("DROP TABLE IF EXISTS {}").format(sql.SQL(", ").join(names))


def list_sized_indexes(
    number: int, dimensions: int, hnsw_min_chunks: int = HNSW_MIN_CHUNKS, chunks: int = 0
) -> tuple[SizedIndex, ...]:
    """List the indexes of a generation with this many chunks. Definitions are constants of this module."""
    tables, g = GenerationTables(number), f"g{number:d}"
    # Hash indexes, because a path can be longer than a B-tree entry.
    indexes = [
        SizedIndex(f"{g}_pages_file", tables.pages, "USING hash (file)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_path", tables.pages, "USING hash (path)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_key", tables.pages, "USING hash (key)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_last_key", tables.pages, "USING hash (last_key)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_version", tables.pages, "(version)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_terms", tables.pages, "USING gin (terms)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_links", tables.pages, "USING gin (link_keys)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_tags", tables.pages, "USING gin (tag_keys)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_alias", tables.pages, f"(id) WHERE {HAS_ALIAS}", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_order", tables.pages, f"(id) WHERE {HAS_ORDER_OVERRIDE}", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_chunks_page", tables.chunks, "(page_id, number)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_chunks_hash", tables.chunks, "(hash)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_dropped_version", tables.dropped, "(version)", min_pages=INDEXES_MIN_PAGES),
    ]
    if dimensions <= _MAX_HNSW_DIMENSIONS:
        definition = (
            f"USING hnsw (vector vector_ip_ops) WITH (m = {_HNSW_M}, ef_construction = {_HNSW_EF_CONSTRUCTION})"
        )
        megabytes = chunks * (dimensions * 4 + 500) >> 20
        name = f"{g}_chunks_near"
        indexes.append(
            SizedIndex(name, tables.chunks, definition, min_chunks=hnsw_min_chunks, build_megabytes=megabytes)
        )
    return tuple(indexes)


# ── layout ───────────────────────────────────────────────────────────────────────────────────────

SCHEMA_LAYOUT = POSTGRES_LAYOUT
"""The layout that this program writes."""

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
    """The layout of a schema, and the oldest layout a program must know to use it."""

    number: int
    oldest_compatible: int

    @classmethod
    def parse(cls, text: str | None) -> "SchemaLayout":
        parts = (text or "").split()
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            raise IndexCorrupt("the layout of the index is missing", hint="run `wikiholt doctor`")
        return cls(int(parts[0]), int(parts[1]))

    def format(self) -> str:
        return f"{self.number} {self.oldest_compatible}"

    def require_supported(self) -> None:
        """Raise IndexTooNew unless this program can use the schema."""
        if self.oldest_compatible > SCHEMA_LAYOUT:
            raise IndexTooNew(
                f"the index has a newer layout ({self.number}, this Wikiholt knows {SCHEMA_LAYOUT})",
                hint="upgrade Wikiholt",
            )


@dataclass(frozen=True, slots=True)
class SchemaMigration:
    """A migration from the previous layout to this one.

    `statements` takes the schema, the numbers of its generations and the role. The statements must only add.
    """

    layout: SchemaLayout
    statements: Callable[[str, Sequence[int], str], Iterator[sql.Composed]]


def _make_migration(layout: int) -> SchemaMigration:
    """Make the migration that adds the columns of a layout to the pages of every generation."""
    columns = [format_postgres_column(name) for name, added in ADDED_COLUMNS.items() if added.layout == layout]

    def build_statements(schema: str, numbers: Sequence[int], _role: str) -> Iterator[sql.Composed]:
        tables = [sql.Identifier(schema, GenerationTables(number).pages) for number in numbers]
        for table, column in product(tables, columns):
            yield sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}").format(table, sql.SQL(column))

    return SchemaMigration(SchemaLayout(layout, 1), build_statements)


MIGRATIONS: tuple[SchemaMigration, ...] = tuple(map(_make_migration, range(2, SCHEMA_LAYOUT + 1)))
"""Migrations to layout 2, 3, …, SCHEMA_LAYOUT."""


def get_oldest_compatible() -> int:
    """Return the oldest layout a program must know to use what this program writes."""
    return MIGRATIONS[-1].layout.oldest_compatible if MIGRATIONS else 1


def build_schema_statements(schema: str, role: str) -> Iterator[sql.Composed]:
    """Yield the statements that create a wiki's schema, for the operator, in one transaction."""
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    for statement in _WIKI_TABLES:
        yield sql.SQL(statement).format(**names)
    yield from build_grant_statements(schema, role)
    layout = sql.Literal(SchemaLayout(SCHEMA_LAYOUT, get_oldest_compatible()).format())
    yield sql.SQL("INSERT INTO {}.notes (name, text) VALUES ('layout', {})").format(names["schema"], layout)


def build_grant_statements(schema: str, role: str) -> Iterator[sql.Composed]:
    """Yield the statements that grant a role access to its wiki's schema."""
    for statement in _GRANTS:
        yield sql.SQL(statement).format(schema=sql.Identifier(schema), role=sql.Identifier(role))
