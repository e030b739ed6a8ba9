"""The tables of one generation of a wiki's index, and the indexes it gets when it has grown.

A small wiki is read from end to end faster than an index is opened, and ten thousand wikis are ten thousand times every
relation: so there are few tables and, to begin with, no index but the primary keys. `tending` adds the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

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


def list_sized_indexes(number: int, dimensions: int, hnsw_min_chunks: int = HNSW_MIN_CHUNKS, chunks: int = 0) -> tuple[SizedIndex, ...]:
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
        found.append(SizedIndex(f"{g}_chunks_near", tables.chunks, how, min_chunks=hnsw_min_chunks, build_megabytes=megabytes))
    return tuple(found)
