"""The schema of a wiki: the tables of a generation, their indexes, and the layout.

A sequential scan of a small wiki is faster than an index scan, and every relation, column and constraint costs space
on a server with thousands of wikis. A generation therefore has two tables without indexes, which `maintenance` adds,
and everything else is in rows of one table `state`, by name:

- `#g1`: the state of generation 1. At most one generation is published.
- `#p1 …`: a problem of generation 1, by the hash of its file.
- other names: notes and leases. The note `layout` is the layout of the schema, or `moved` after a move to another
  database.

A long text continues in rows with a point and a number after the name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from psycopg import sql

from wikiholt.index.page_table import (
    HAS_ALIAS,
    HAS_ORDER_OVERRIDE,
    HAS_WARNINGS,
    PageRow,
    format_postgres_column,
)
from wikiholt.index.postgres.pool import Connection

INDEXES_MIN_PAGES = 300
"""The number of pages from which the table of pages gets indexes."""
INDEXES_MIN_CHUNKS = 500
"""The number of chunks from which the table of chunks gets indexes."""
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
    {page_columns}, links text, tag_keys text[], link_keys text[], size int8, terms tsvector STORAGE EXTERNAL,
    seal int8)
"""
"""Compression slows terms down without saving much."""
_CHUNKS_TABLE = """
CREATE TABLE {chunks} (
    id int8, page_id int8, number int4, text text, heading_path text, anchor text, first_line int4, last_line int4,
    hash bytea, vector vector({dimensions}) STORAGE {storage})
"""
_GRANT_TABLES = "GRANT SELECT, INSERT, UPDATE, DELETE ON {pages}, {chunks} TO {role}"


@dataclass(frozen=True, slots=True)
class GenerationTables:
    """The table names of a generation of a wiki, without the schema, and the names of its rows in `state`."""

    number: int
    wiki_id: str = ""

    @property
    def pages(self) -> str:
        return f"g{self.number:d}_pages"

    @property
    def chunks(self) -> str:
        return f"g{self.number:d}_chunks"

    @property
    def all(self) -> tuple[str, ...]:
        return self.pages, self.chunks

    @property
    def state_name(self) -> str:
        return f"#g{self.number:d}"

    @property
    def problem_names(self) -> tuple[str, str]:
        """The first possible name of a problem row, and the first name after all of them."""
        return f"#p{self.number:d} ", f"#p{self.number:d}!"

    def get_problem_name(self, file: str) -> str:
        return self.problem_names[0] + blake2b(file.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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
    unique: bool = False


def build_create_statements(schema: str, number: int, dimensions: int, role: str) -> Iterator[sql.Composed]:
    """Yield the statements that create an empty generation, for the operator, in one transaction."""
    tables = GenerationTables(number)
    names = {
        "pages": sql.Identifier(schema, tables.pages),
        "chunks": sql.Identifier(schema, tables.chunks),
        "page_columns": sql.SQL(", ").join(sql.SQL(format_postgres_column(name)) for name in PageRow._fields),
        "dimensions": sql.Literal(int(dimensions)),
        "storage": sql.SQL("PLAIN" if dimensions <= _MAX_INLINE_DIMENSIONS else "EXTERNAL"),
        "role": sql.Identifier(role),
    }
    for statement in (_PAGES_TABLE, _CHUNKS_TABLE, _GRANT_TABLES):
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
        SizedIndex(f"{g}_pages_id", tables.pages, "(id)", min_pages=INDEXES_MIN_PAGES, unique=True),
        SizedIndex(f"{g}_pages_file", tables.pages, "USING hash (file)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_path", tables.pages, "USING hash (path)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_key", tables.pages, "USING hash (key)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_last_key", tables.pages, "USING hash (last_key)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_terms", tables.pages, "USING gin (terms)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_links", tables.pages, "USING gin (link_keys)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_tags", tables.pages, "USING gin (tag_keys)", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_alias", tables.pages, f"(id) WHERE {HAS_ALIAS}", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_order", tables.pages, f"(id) WHERE {HAS_ORDER_OVERRIDE}", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_pages_warnings", tables.pages, f"(id) WHERE {HAS_WARNINGS}", min_pages=INDEXES_MIN_PAGES),
        SizedIndex(f"{g}_chunks_id", tables.chunks, "(id)", min_chunks=INDEXES_MIN_CHUNKS, unique=True),
        SizedIndex(f"{g}_chunks_page", tables.chunks, "(page_id, number)", min_chunks=INDEXES_MIN_CHUNKS),
        SizedIndex(f"{g}_chunks_hash", tables.chunks, "(hash)", min_chunks=INDEXES_MIN_CHUNKS),
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


def find_quarantined_schemas(connection: Connection, schema: str) -> list[str]:
    """List the quarantined schemas of a wiki, oldest first. Reads only their names from the catalog."""
    statement = "SELECT nspname::text FROM pg_namespace WHERE nspname >= %s::name AND nspname < %s::name ORDER BY 1"
    return [name for (name,) in connection.execute(statement, (f"{schema}_b", f"{schema}_c"))]


def make_quarantine_schema(schema: str) -> str:
    return f"{schema}_b{datetime.now(UTC):%Y%m%d%H%M%S}"


# ── layout ───────────────────────────────────────────────────────────────────────────────────────

SCHEMA_LAYOUT = 6
"""The layout that this program reads and writes. The next sync builds an index of an older one again."""
MOVED_MARK = "moved"
"""In place of the layout of a schema that a move has left."""

_WIKI_TABLES = (
    "CREATE SCHEMA {schema}",
    # `text`, `holder`, `until` and `fence` are for notes and leases. A replaced generation has the time in `until`, a
    # quarantined one its name in `text`. The other columns are only for generations.
    # No column can be moved out of a row, so there is no TOAST table. `rows.split_text` keeps rows short.
    'CREATE TABLE {schema}.state (name text STORAGE PLAIN COLLATE "C", text text STORAGE PLAIN,'
    " holder text STORAGE PLAIN, until timestamptz, fence int8, number int4, published bool,"
    " origin text STORAGE PLAIN, condition text STORAGE PLAIN, fingerprint text STORAGE PLAIN, dimensions int4,"
    " pipeline text STORAGE PLAIN, model text STORAGE PLAIN, precision text STORAGE PLAIN, version int8,"
    " revision text STORAGE PLAIN, synced_at float8, pages int8, chunks int8, problems int8, next_page int8,"
    " next_chunk int8, terms int8, seal int8)",
    "CREATE UNIQUE INDEX state_name ON {schema}.state (name)",
)
_GRANT_SCHEMA = "GRANT USAGE ON SCHEMA {schema} TO {role}"


def parse_layout(text: str | None) -> int | None:
    """The layout of a schema, from its note; 0 if it is lost, None if the wiki has been moved to another database."""
    if text == MOVED_MARK:
        return None
    return int(text) if text is not None and text.isdecimal() else 0


def build_schema_statements(schema: str, role: str) -> Iterator[sql.Composed]:
    """Yield the statements that create a wiki's schema, for the operator, in one transaction."""
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    for statement in _WIKI_TABLES:
        yield sql.SQL(statement).format(**names)
    yield from build_grant_statements(schema, role, ["state"])
    layout = sql.Literal(str(SCHEMA_LAYOUT))
    yield sql.SQL("INSERT INTO {}.state (name, text) VALUES ('layout', {})").format(names["schema"], layout)


def build_grant_statements(schema: str, role: str, tables: Iterable[str]) -> Iterator[sql.Composed]:
    """Yield the statements that grant a role access to its wiki's schema and tables.

    Names the tables: GRANT … ON ALL TABLES IN SCHEMA reads the relations of all wikis.
    """
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    yield sql.SQL(_GRANT_SCHEMA).format(**names)
    tables_list = sql.SQL(", ").join(sql.Identifier(schema, table) for table in tables)
    yield sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}").format(tables=tables_list, **names)
