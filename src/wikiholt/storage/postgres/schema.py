"""The tables of one generation of a wiki's index, and the indexes it gets when it has grown.

A small wiki is read from end to end faster than an index is opened, and ten thousand wikis are ten thousand times every
relation: so there are few tables and, to begin with, no index but the primary keys. `tending` adds the others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from wikiholt.errors import IndexCorrupt, IndexTooNew

INDEXES_MIN_PAGES = 300
"""Pages from which on a wiki gets indexes."""
HNSW_MIN_CHUNKS = 10_000
"""Chunks from which on nearest neighbours are found by an HNSW index, unless set otherwise."""
_HNSW_M, _HNSW_EF_CONSTRUCTION = 24, 200
"""With pgvector's own 16 and 64 some questions about real text never reach the part of the graph they ask for."""

_MAX_INLINE_DIMENSIONS = 1_500
"""Dimensions of a vector that still fits into a row beside its text; longer ones lie beside the table."""
_MAX_HNSW_DIMENSIONS = 2_000
"""Dimensions pgvector can index."""

_PAGES_TABLE = """
CREATE TABLE {pages} (
    id int8 PRIMARY KEY, file text NOT NULL, path text COLLATE "C" NOT NULL, name text NOT NULL, blob text NOT NULL,
    category text, category_key text, description text, language text, last_updated float8, hidden int4 NOT NULL,
    tags text NOT NULL, warnings text NOT NULL, chunks int4 NOT NULL, words bytea NOT NULL, version int8 NOT NULL,
    key text NOT NULL, last_key text NOT NULL, word_count int4 NOT NULL, length int8 NOT NULL,
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
    # Words are compressed already, and terms hardly get smaller by it, but slower to read.
    "ALTER TABLE {pages} ALTER words SET STORAGE EXTERNAL, ALTER terms SET STORAGE EXTERNAL",
    "ALTER TABLE {chunks} ALTER vector SET STORAGE {storage}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON {pages}, {chunks}, {problems}, {dropped} TO {role}",
)


@dataclass(frozen=True, slots=True)
class GenerationTables:
    """The names of a generation's tables, as statements use them in the schema they belong to; whose they are."""

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
    """An index that a generation gets when it has so many pages, or chunks."""

    name: str
    table: str
    definition: str
    min_pages: int = 0
    min_chunks: int = 0
    build_megabytes: int = 0
    """What it takes to build it in memory."""


def build_create_statements(schema: str, number: int, dimensions: int, role: str) -> Iterator[sql.Composed]:
    """The statements, for the operator and in one transaction, that make an empty generation for a wiki's role."""
    tables = GenerationTables(number)
    names = {
        "pages": sql.Identifier(schema, tables.pages),
        "chunks": sql.Identifier(schema, tables.chunks),
        "problems": sql.Identifier(schema, tables.problems),
        "dropped": sql.Identifier(schema, tables.dropped),
        "dimensions": sql.Literal(int(dimensions)),
        "storage": sql.SQL("PLAIN" if dimensions <= _MAX_INLINE_DIMENSIONS else "EXTERNAL"),
        "role": sql.Identifier(role),
    }
    for statement in (_PAGES_TABLE, _CHUNKS_TABLE, *_OTHER_STATEMENTS):
        yield sql.SQL(statement).format(**names)


def build_drop_statement(schema: str, number: int) -> sql.Composed:
    """The statement that removes a generation; it fails for nothing that is not there."""
    names = (sql.Identifier(schema, name) for name in GenerationTables(number).all)
    return sql.SQL("DROP TABLE IF EXISTS {}").format(sql.SQL(", ").join(names))


def list_sized_indexes(
    number: int, dimensions: int, hnsw_min_chunks: int = HNSW_MIN_CHUNKS, chunks: int = 0
) -> tuple[SizedIndex, ...]:
    """The indexes of a generation that has grown to so many chunks; what `how` holds is a constant of this module."""
    tables, g = GenerationTables(number), f"g{number:d}"
    # Hash indexes, where others would be: a path may be longer than a B-tree's row.
    found = [
        SizedIndex(f"{g}_pages_file", tables.pages, "USING hash (file)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_path", tables.pages, "USING hash (path)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_key", tables.pages, "USING hash (key)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_last_key", tables.pages, "USING hash (last_key)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_version", tables.pages, "(version)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_terms", tables.pages, "USING gin (terms)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_links", tables.pages, "USING gin (link_keys)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_tags", tables.pages, "USING gin (tag_keys)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_chunks_page", tables.chunks, "(page_id, number)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_chunks_hash", tables.chunks, "(hash)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_dropped_version", tables.dropped, "(version)", min_pages=INDEXES_MIN_PAGES),
    ]
    if dimensions <= _MAX_HNSW_DIMENSIONS:
        how = f"USING hnsw (vector vector_ip_ops) WITH (m = {_HNSW_M}, ef_construction = {_HNSW_EF_CONSTRUCTION})"
        megabytes = chunks * (dimensions * 4 + 500) >> 20
        found.append(
            SizedIndex(f"{g}_chunks_near", tables.chunks, how, min_chunks=hnsw_min_chunks, build_megabytes=megabytes)
        )
    return tuple(found)


# What a wiki's schema holds beside its generations, its layout's number, and how one layout becomes the next. state a
# row a generation; `published` in one of them at most; counters for ids, since there is one writer notes small texts
# and leases by name: writer, desk, mark, layout, and what `Store.keep_note` keeps The note `layout` says which layout
# the schema has and from which on a program can use it; where the wiki has been moved to another database, it says
# `moved`. Layouts only add: programs that know an older one go on until `oldest` is past it.


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
                f"the index has a newer layout ({self.number}, this Wikiholt knows {SCHEMA_LAYOUT})",
                hint="upgrade Wikiholt",
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
