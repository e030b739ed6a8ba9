"""The schema of a wiki: the tables of a generation, their indexes, and the layout.

A sequential scan of a small wiki is faster than an index scan, and every relation, column and constraint costs space
on a server with thousands of wikis. A generation therefore has two tables, which get indexes when they have grown,
and everything else is in rows of one table `state`, by name:

- `#g1`: the state of generation 1. At most one generation is published.
- `#p1 …`: a problem of generation 1, by the hash of its file.
- other names: notes and leases. The note `layout` is the layout of the schema, or `moved` after a move to another
  database.

A long text continues in rows with a point and a number after the name.
"""

from collections.abc import Iterable, Iterator, Mapping
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

_MIN_PAGES, _MIN_CHUNKS = 300, 500
"""The numbers of pages and of chunks from which their tables get indexes."""

_MAX_INLINE_DIMENSIONS = 1_500
"""The largest vector that fits into a row beside its text. Longer vectors are stored outside the row."""

_PAGES_TABLE = """
CREATE TABLE {pages} (
    {page_columns}, links text, tag_keys text[], link_keys text[], seal int8)
"""
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


_PAGE_INDEXES = {
    "id": "(id)",
    # Hash indexes, because a path can be longer than a B-tree entry.
    "file": "USING hash (file)",
    "path": "USING hash (path)",
    "key": "USING hash (key)",
    "last_key": "USING hash (last_key)",
    "links": "USING gin (link_keys)",
    "tags": "USING gin (tag_keys)",
    "alias": f"(id) WHERE {HAS_ALIAS}",
    "order": f"(id) WHERE {HAS_ORDER_OVERRIDE}",
    "warnings": f"(id) WHERE {HAS_WARNINGS}",
}
_CHUNK_INDEXES = {"id": "(id)", "page": "(page_id, number)", "hash": "(hash)"}
"""The indexes of a large table, by the part of their names after that of the table."""


def create_missing_indexes(connection: Connection, schema: str) -> list[str]:
    """Create the indexes that the tables of a wiki need by their size, in an open transaction of the operator.

    Returns their names. Readers go on meanwhile; a writer waits some seconds for those of a large wiki.
    """
    state = sql.Identifier(schema, "state")
    statement = sql.SQL("SELECT number, pages, chunks FROM {} WHERE condition <> 'aside'").format(state)
    created = []
    for number, pages, chunks in connection.execute(statement).fetchall():  # only generations have a condition
        tables = GenerationTables(number)
        created += _create_indexes(connection, schema, tables.pages, _PAGE_INDEXES if pages >= _MIN_PAGES else {})
        created += _create_indexes(connection, schema, tables.chunks, _CHUNK_INDEXES if chunks >= _MIN_CHUNKS else {})
    return created


def _create_indexes(connection: Connection, schema: str, table: str, definitions: Mapping[str, str]) -> list[str]:
    known = "SELECT relname::text FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = to_regclass(%s)"
    existing = {name for (name,) in connection.execute(known, (f"{schema}.{table}",))} if definitions else set()
    missing = {f"{table}_{part}": text for part, text in definitions.items() if f"{table}_{part}" not in existing}
    names = {"table": sql.Identifier(schema, table)}
    for name, definition in missing.items():
        kind = sql.SQL("UNIQUE INDEX" if definition == "(id)" else "INDEX")
        create = sql.SQL("CREATE {kind} {name} ON {table} ").format(kind=kind, name=sql.Identifier(name), **names)
        connection.execute(create + sql.SQL(definition))
    if missing:  # without statistics the planner may not use an index
        connection.execute(sql.SQL("ANALYZE {table}").format(**names))
    return list(missing)


def find_quarantined_schemas(connection: Connection, schema: str) -> list[str]:
    """List the quarantined schemas of a wiki, oldest first. Reads only their names from the catalog."""
    statement = "SELECT nspname::text FROM pg_namespace WHERE nspname >= %s::name AND nspname < %s::name ORDER BY 1"
    return [name for (name,) in connection.execute(statement, (f"{schema}_b", f"{schema}_c"))]


def make_quarantine_schema(schema: str) -> str:
    return f"{schema}_b{datetime.now(UTC):%Y%m%d%H%M%S}"


# ── layout ───────────────────────────────────────────────────────────────────────────────────────

SCHEMA_LAYOUT = 7
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
    " next_chunk int8, seal int8)",
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
