"""The table of pages in both stores: its columns and versions, page ↔ row, and the WHERE clause of a filter.

A new attribute of a page is a field of `PageRow`, its value in `to_page_columns` and, for a filter, a condition in
`build_where_clause`. Raise both version numbers with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple, get_args

from wikiholt.domain.index import PageEntry
from wikiholt.domain.page import PageMetadata
from wikiholt.domain.search import PageFilter, StoredPage
from wikiholt.storage.sqlite.rows import (
    Row,
    decode_strings,
    encode_strings,
    encode_terms,
    to_datetime,
    translate_damage,
)
from wikiholt.text.links import fold_path, get_last_part

SQLITE_SCHEMA_VERSION = 3
"""An index file of an older schema is refused; the next sync quarantines it and builds a new one."""
POSTGRES_LAYOUT = 1
"""The layout of a wiki's schema in PostgreSQL. A schema of an older layout gets the columns that it lacks."""


class PageRow(NamedTuple):
    """The columns of a page that both stores have, in the order the checksum covers them."""

    id: int
    file: str
    path: str
    name: str
    blob: str
    category: str | None
    category_key: str | None
    description: str | None
    language: str | None
    last_updated: float | None
    hidden: int
    tags: str
    warnings: str
    chunks: int
    words: bytes
    version: int
    key: str
    last_key: str
    word_count: int
    length: int


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that older indexes in PostgreSQL lack: the layout that added it, and its value in older rows."""

    layout: int
    default: str | float | None


ADDED_COLUMNS: Mapping[str, AddedColumn] = {}
"""Added columns by name. They are the last fields of `PageRow`."""


# ── columns ──────────────────────────────────────────────────────────────────────────────────────

_SQLITE_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
_POSTGRES_TYPES = {int: "int8", float: "float8", str: "text", bytes: "bytea"}
_SMALL_COLUMNS = frozenset({"hidden", "chunks", "word_count"})
"""Columns with four bytes in PostgreSQL."""
_SQLITE_CONSTRAINTS = {"id": "PRIMARY KEY AUTOINCREMENT", "file": "NOT NULL UNIQUE"}
_POSTGRES_CONSTRAINTS = {"id": "PRIMARY KEY", "path": 'COLLATE "C" NOT NULL'}


def get_postgres_type(column: str) -> str:
    """The PostgreSQL type of a column of `PageRow`."""
    return "int4" if column in _SMALL_COLUMNS else _POSTGRES_TYPES[_get_value_type(column)]


def format_sqlite_columns() -> str:
    """The column definitions of the table in SQLite."""
    return ", ".join(
        f"{name} {_SQLITE_TYPES[_get_value_type(name)]} {_SQLITE_CONSTRAINTS.get(name, _format_null(name))}"
        for name in PageRow._fields
    )


def format_postgres_column(column: str) -> str:
    """The definition of a column in PostgreSQL. Added columns have a default, because older programs omit them."""
    definition = f"{column} {get_postgres_type(column)} {_POSTGRES_CONSTRAINTS.get(column, _format_null(column))}"
    added = ADDED_COLUMNS.get(column)
    return definition if added is None else f"{definition} DEFAULT {_format_literal(added.default)}"


def get_checksum_values(row: Row) -> tuple[Any, ...]:
    """The values of a page row that its checksum covers: all but added columns with the value of older rows."""
    values = list(row)
    for name in reversed(PageRow._fields):
        if name not in ADDED_COLUMNS or values[-1] != ADDED_COLUMNS[name].default:
            break
        values.pop()
    return tuple(values)


def _get_value_type(column: str) -> type:
    declared: type = PageRow.__annotations__[column]
    return next((part for part in get_args(declared) if part is not NoneType), declared)


def _format_null(column: str) -> str:
    return "" if NoneType in get_args(PageRow.__annotations__[column]) else "NOT NULL"


def _format_literal(value: str | float | None) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


# ── values ───────────────────────────────────────────────────────────────────────────────────────

STORED_PAGE_COLUMNS = "id, file, path, name, category, tags, last_updated, chunks, warnings, word_count, length"
"""The columns of `to_stored_page`."""


@translate_damage
def to_stored_page(row: Row) -> StoredPage:
    page_id, file, path, name, category, tags, last_updated, chunks, warnings, words, length = row
    return StoredPage(
        page_id=page_id,
        file=file,
        path=path,
        name=name,
        category=category,
        tags=decode_strings(tags),
        last_updated=to_datetime(last_updated),
        chunks=chunks,
        warnings=decode_strings(warnings),
        words=words,
        length=length,
    )


def to_page_columns(entry: PageEntry) -> dict[str, object]:
    """The values of a page by column, without its id and version."""
    page, meta = entry.page, entry.page.metadata
    return {
        "file": page.file,
        "path": page.path,
        "name": page.name,
        "blob": entry.blob,
        "category": meta.category,
        "category_key": meta.category.casefold() if meta.category is not None else None,
        "description": meta.description,
        "language": meta.language,
        "last_updated": meta.last_updated.timestamp() if meta.last_updated else None,
        "hidden": int(meta.hidden),
        "tags": encode_strings(meta.tags),
        "warnings": encode_strings(page.warnings),
        "chunks": len(entry.chunks),
        "words": encode_terms(entry.terms),
        "key": fold_path(page.path),
        "last_key": fold_path(get_last_part(page.path)),
        "word_count": page.words,
        "length": page.length,
    }


def fold_tags(metadata: PageMetadata) -> set[str]:
    """Tags in the case-insensitive form that filters compare."""
    return {tag.casefold() for tag in metadata.tags}


# ── filters ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """What differs between the stores in the condition of a filter. Conditions are written with ? for a value."""

    placeholder: str
    has_tag: str
    """The condition that a page has a tag."""
    encode_text: Callable[[str], str] = str
    encode_key: Callable[[str], str] = str
    """Encode a value for a text column, and for an indexed column."""


SQLITE = SqlDialect("?", "id IN (SELECT page_id FROM tags WHERE tag = ?)")


def build_where_clause(where: PageFilter, dialect: SqlDialect) -> tuple[str, list[object]]:
    """The SQL condition of a filter and its values; empty if the filter matches every page."""
    conditions: list[str] = []
    values: list[object] = []
    if where.categories:
        conditions.append(f"category_key IN ({', '.join('?' * len(where.categories))})")
        values += [dialect.encode_text(category.casefold()) for category in where.categories]
    for tag in where.tags:
        conditions.append(dialect.has_tag)
        values.append(dialect.encode_key(tag.casefold()))
    prefix = dialect.encode_text(where.path_prefix.strip("/"))
    if prefix:
        # A path prefix matches complete components: "ops" is ops and ops/backup, never opsec.
        conditions.append("(path = ? OR substr(path, 1, ?) = ?)")
        values += [prefix, len(prefix) + 1, prefix + "/"]
    if where.updated_since is not None:
        conditions.append("last_updated >= ?")
        values.append(where.updated_since.timestamp())
    return " AND ".join(conditions).replace("?", dialect.placeholder), values
