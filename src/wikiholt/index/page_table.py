"""The table of pages in both stores: its columns and versions, page ↔ row, and the WHERE clause of a filter.

A new attribute of a page is a field of `PageRow`, its value in `to_page_columns` and, for a filter, a condition in
`build_where_clause`. Raise `SQLITE_SCHEMA_VERSION` and the layout of PostgreSQL with it.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, get_args

from wikiholt.domain.index import IndexedPageMove, PageContents, PageEntry
from wikiholt.domain.page import Link, PageMetadata, PageProperty, PageTerms, PageWarnings
from wikiholt.domain.search import OrderOverride, PageFilter, PropertyCondition, StoredPage
from wikiholt.errors import IndexCorrupt
from wikiholt.index.rows import (
    Row,
    compute_row_checksum,
    decode_strings,
    encode_row,
    encode_strings,
    encode_terms,
    to_datetime,
    translate_damage,
)
from wikiholt.text.links import fold_path, get_last_part, get_other_names
from wikiholt.text.properties import fold_pinned_query, fold_property_name, fold_tag, fold_title, iter_property_values

SQLITE_SCHEMA_VERSION = 6
"""An index file of an older schema is refused; the next sync quarantines it and builds a new one."""


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
    properties: str
    aliases: str
    alias_keys: str
    titles: str
    boost: float
    pins: str


_LAST_DEFAULTS = ("[]", 1.0, "", "[]", "[]", "{}")
"""The defaults of the last fields of `PageRow`, that of the last one first."""


# ── columns ──────────────────────────────────────────────────────────────────────────────────────

SQLITE_COLUMNS = tuple(name for name in PageRow._fields if name != "words")
_SQLITE_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}
_POSTGRES_TYPES = {int: "int8", float: "float8", str: "text", bytes: "bytea"}
_SMALL_COLUMNS = frozenset({"hidden", "chunks", "word_count"})
"""Columns with four bytes in PostgreSQL."""
_SQLITE_CONSTRAINTS = {"id": "PRIMARY KEY AUTOINCREMENT", "file": "NOT NULL UNIQUE"}
_POSTGRES_OPTIONS = {"path": 'COLLATE "C"', "words": "STORAGE EXTERNAL"}
"""Words are already compressed. No constraint: since PostgreSQL 18 each NOT NULL takes 400 bytes of the catalogs."""


def get_postgres_type(column: str) -> str:
    """The PostgreSQL type of a column of `PageRow`."""
    return "int4" if column in _SMALL_COLUMNS else _POSTGRES_TYPES[_get_value_type(column)]


def format_sqlite_columns() -> str:
    """The column definitions of the table in SQLite, where words have a table of their own."""
    return ", ".join(
        f"{name} {_SQLITE_TYPES[_get_value_type(name)]} {_SQLITE_CONSTRAINTS.get(name, _format_null(name))}"
        for name in SQLITE_COLUMNS
    )


def format_postgres_column(column: str) -> str:
    """The definition of a column in PostgreSQL."""
    return f"{column} {get_postgres_type(column)} {_POSTGRES_OPTIONS.get(column, '')}".rstrip()


def get_checksum_values(row: Row) -> tuple[Any, ...]:
    """The values of a page row that its checksum covers: all but defaults at the end.

    So a later column changes no checksum of a page that has its default.
    """
    count = len(row)
    for default in _LAST_DEFAULTS:
        if row[count - 1] != default:
            break
        count -= 1
    return tuple(row[:count])


def _get_value_type(column: str) -> type:
    declared: type = PageRow.__annotations__[column]
    return next((part for part in get_args(declared) if part is not NoneType), declared)


def _format_null(column: str) -> str:
    return "" if NoneType in get_args(PageRow.__annotations__[column]) else "NOT NULL"


# ── values ───────────────────────────────────────────────────────────────────────────────────────

STORED_PAGE_COLUMNS = (
    "id, file, path, name, category, tags, last_updated, chunks, warnings, word_count, length, aliases"
)
"""The columns of `to_stored_page`."""
ANSWER_COLUMNS = f"{STORED_PAGE_COLUMNS}, hidden"
"""The columns of a page that an answer shows or depends on."""
get_answer_values = attrgetter(*ANSWER_COLUMNS.split(", "))
CHECKED_PAGES = f"SELECT {ANSWER_COLUMNS}, page_row FROM pages LEFT JOIN checksums ON page_id = pages.id"
"""The rows of `to_checked_page`."""


@translate_damage
def to_stored_page(row: Row) -> StoredPage:
    page_id, file, path, name, category, tags, last_updated, chunks, warnings, words, length, aliases = row
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
        aliases=decode_strings(aliases),
    )


LANGUAGE_COUNTS = """SELECT language, count(*) FROM {} WHERE hidden = 0 AND language IS NOT NULL
GROUP BY language ORDER BY 2 DESC, 1"""
PAGE_PROPERTIES = "SELECT path, properties FROM {} WHERE properties <> '{{}}'"
ORDER_COLUMNS = "id, boost, pins"
"""The columns of `to_order_override`."""
HAS_ALIAS = "alias_keys <> '[]'"
"""The condition of pages with an alias."""
HAS_WARNINGS = "warnings <> '[]'"
"""The condition of pages with warnings."""
HAS_ORDER_OVERRIDE = "hidden = 0 AND (boost <> 1 OR pins <> '[]')"
"""The condition of pages with an override. Searches never return hidden pages."""


@translate_damage
def to_order_override(row: Row) -> OrderOverride:
    page_id, boost, pins = row
    return OrderOverride(page_id, boost, decode_strings(pins))


@translate_damage
def to_page_warnings(row: Row) -> PageWarnings:
    file, warnings = row
    return PageWarnings(file, decode_strings(warnings))


def to_page_columns(entry: PageEntry) -> dict[str, object]:
    """The values of a page by column, without its id and version."""
    page, meta = entry.page, entry.page.metadata
    return {
        **_to_path_columns(page.file, page.path, page.name, meta.aliases, meta.last_updated),
        "blob": entry.blob,
        "category": meta.category,
        "category_key": meta.category.casefold() if meta.category is not None else None,
        "description": meta.description,
        "language": meta.language,
        "hidden": int(meta.hidden),
        "tags": encode_strings(meta.tags),
        "warnings": encode_strings(page.warnings),
        "chunks": len(entry.chunks),
        "words": encode_terms(entry.terms),
        "word_count": page.words,
        "length": page.length,
        "properties": _encode_properties(meta.properties),
        "boost": float(meta.boost),
        "pins": encode_strings(sorted({fold_pinned_query(pin) for pin in meta.pins})),
    }


@translate_damage
def to_numbers(rows: Iterable[Row], names: Sequence[str]) -> dict[str, float]:
    """The first number in one of these properties of each page, by path, from rows of `PAGE_PROPERTIES`."""
    numbers: dict[str, float] = {}
    for path, encoded in rows:
        properties = json.loads(encoded)
        found = (
            kinds["n"][0] for name in names if (kinds := properties.get(fold_property_name(name))) and "n" in kinds
        )
        if (number := next(found, None)) is not None:
            numbers[path] = number
    return numbers


CONTENTS_COLUMNS = "file, name, hidden, tags, aliases, warnings, properties, chunks"
"""The columns of `to_page_contents`."""


@translate_damage
def to_page_contents(row: Row, links: Iterable[Link]) -> PageContents:
    _, name, hidden, tags, aliases, warnings, properties, chunks = row
    return PageContents(
        name,
        bool(hidden),
        decode_strings(tags),
        decode_strings(aliases),
        decode_strings(warnings),
        frozenset(json.loads(properties)),
        chunks,
        tuple(links),
    )


def move_page_row(row: PageRow, move: IndexedPageMove, terms: PageTerms, version: int) -> PageRow:
    """The row of a page after a move that leads to these terms."""
    columns = _to_path_columns(move.file, move.path, move.name, move.aliases, move.last_updated)
    return row._replace(**columns, words=encode_terms(terms), version=version)


def make_move_error(page: PageRow) -> IndexCorrupt:
    """The error of a page to move that does not match its checksum."""
    return IndexCorrupt(f"page {page.id} is not as it was written", hint="run `wikiholt sync` to build it again")


def _to_path_columns(
    file: str, path: str, name: str, aliases: Sequence[str], last_updated: datetime | None
) -> dict[str, Any]:
    """The columns that may change when a page moves, without its terms."""
    return {
        "file": file,
        "path": path,
        "name": name,
        "last_updated": last_updated.timestamp() if last_updated else None,
        "key": fold_path(path),
        "last_key": fold_path(get_last_part(path)),
        "aliases": encode_strings(aliases),
        "alias_keys": encode_strings(sorted(set(map(fold_path, get_other_names(path, aliases))))),
        "titles": "\n".join(map(fold_title, (name, *aliases))),
    }


MOVED_COLUMNS = (*_to_path_columns("", "", "", (), None), "version")
"""The columns of the table in SQLite that `move_page_row` changes."""


def _encode_properties(properties: Sequence[PageProperty]) -> str:
    """Encode properties as name → kind → values. The kinds are text (`t`), number, date, and text as spelled."""
    encoded: dict[str, dict[str, list[object]]] = {}
    for value in (value for page_property in properties for value in iter_property_values(page_property)):
        kinds = encoded.setdefault(value.name, {"t": [], "s": []})
        kinds["t"].append(value.key)
        kinds["s"].append(value.spelling)
        if value.number is not None:
            kinds.setdefault("n", []).append(value.number)
        if value.date is not None:
            kinds.setdefault("d", []).append(value.date)
    return json.dumps(encoded, ensure_ascii=False, separators=(",", ":"))


def fold_tags(metadata: PageMetadata) -> set[str]:
    """Tags in the form that filters compare."""
    return {fold_tag(tag) for tag in metadata.tags}


def compute_page_checksum(page: Row, parts: bytes) -> int:
    """The checksum of a page row and of what `encode_page_parts` made of the rest."""
    return zlib.crc32(parts, zlib.crc32(encode_row(get_checksum_values(page))))


@translate_damage
@lru_cache(maxsize=2048)
def to_checked_page(row: Row) -> StoredPage:
    """Decode a row of `CHECKED_PAGES`. Raises IndexCorrupt if it does not match its checksum."""
    *values, checksum = row
    if compute_row_checksum(values) != checksum:
        raise ValueError(f"page {values[0]} is not as it was written")
    return to_stored_page(values[:-1])


# ── filters ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """What differs between the stores in the condition of a filter. Conditions are written with ? for a value."""

    placeholder: str
    has_tag: str
    """The condition that a page has a tag."""
    has_title: str
    has_properties: str
    """The condition that the properties of a page pass a test (`{0}`)."""
    property_values: str
    """The values of a property and a kind (`{0}`) as rows with a column `value`, for FROM."""
    number: str
    """A number among these values."""
    encode_property: Callable[[str, str], str]
    """Encode the name of a property, for values of a kind."""
    encode_text: Callable[[str], str] = str
    encode_key: Callable[[str], str] = str
    """Encode a value for a text column, and for an indexed column."""


HAS_PROPERTIES = "properties <> '{}'"
"""The condition of pages with properties. In SQLite they have an index."""

SQLITE = SqlDialect(
    "?",
    has_tag="id IN (SELECT page_id FROM tags WHERE tag = ?)",
    has_title="instr(titles, ?) > 0",
    has_properties=f"id IN (SELECT id FROM pages INDEXED BY pages_properties WHERE {HAS_PROPERTIES} AND {{0}})",
    property_values="json_each(properties, ?)",
    number="value",
    encode_property='$."{}".{}'.format,
)


def build_where_clause(where: PageFilter, dialect: SqlDialect) -> tuple[str, list[object]]:
    """The SQL condition of a filter and its values; empty if the filter matches every page."""
    clause = _ClauseBuilder(dialect)
    clause.add_filter(where)
    return " AND ".join(clause.conditions).replace("?", dialect.placeholder), clause.values


class _ClauseBuilder:
    """Collects conditions, all of which must be true, and their values."""

    def __init__(self, dialect: SqlDialect) -> None:
        self._dialect = dialect
        self.conditions: list[str] = []
        self.values: list[object] = []

    def add_filter(self, where: PageFilter) -> None:
        dialect = self._dialect
        if where.categories:
            categories = [dialect.encode_text(category.casefold()) for category in where.categories]
            self._add(f"category_key IN ({', '.join('?' * len(categories))})", *categories)
        for tag in where.tags:
            self._add(dialect.has_tag, dialect.encode_key(fold_tag(tag)))
        for column, text in (("path", where.path_prefix), ("key", where.path_key)):
            prefix = dialect.encode_text(text.strip("/"))
            if prefix:
                # A path prefix matches complete components: "ops" is ops and ops/backup, never opsec.
                self._add(f"({column} = ? OR substr({column}, 1, ?) = ?)", prefix, len(prefix) + 1, prefix + "/")
        if where.updated_since is not None:
            self._add("last_updated >= ?", where.updated_since.timestamp())
        if where.languages:
            self._add(f"language IN ({', '.join('?' * len(where.languages))})", *where.languages)
        for condition in where.properties:
            self._add_property(condition)
        for title in where.titles:
            self._add(dialect.has_title, dialect.encode_text(fold_title(title)))
        for group in where.any_of:
            self.conditions.append(f"({' OR '.join(self._nest(part) for part in group)})")
        for part in where.none_of:
            self.conditions.append(f"NOT coalesce({self._nest(part)}, false)")

    def _add(self, condition: str, *values: object) -> None:
        self.conditions.append(condition)
        self.values += values

    def _nest(self, where: PageFilter) -> str:
        """The condition of another filter; its values are added."""
        nested = _ClauseBuilder(self._dialect)
        nested.add_filter(where)
        self.values += nested.values
        return f"({' AND '.join(nested.conditions) or 'true'})"

    def _add_property(self, condition: PropertyCondition) -> None:
        build = self._build_range if condition.operator[0] in "<>" else self._build_equality
        test, *values = build(condition)
        if condition.operator == "!=":
            has_property, *names = self._build_test(condition, "t", "true")
            test, values = f"{has_property} AND NOT {test}", names + values
        self._add(self._dialect.has_properties.replace("{0}", test), *values)

    def _build_test(self, condition: PropertyCondition, kind: str, test: str, *values: object) -> tuple[Any, ...]:
        """The condition that one of the property's values passes the test, followed by its values."""
        sql = f"EXISTS (SELECT 1 FROM {self._dialect.property_values.format(kind)} WHERE {test})"
        return sql, self._dialect.encode_property(condition.name, kind), *values

    def _build_equality(self, condition: PropertyCondition) -> tuple[Any, ...]:
        text, number = self._dialect.encode_text(condition.text), self._dialect.number
        tests = [self._build_test(condition, "t", "value = ?", text)]
        if condition.number is not None:
            tests.append(self._build_test(condition, "n", f"{number} = ?", condition.number))
        if condition.start is not None:
            period = f"{number} >= ? AND {number} < ?"
            tests.append(self._build_test(condition, "d", period, condition.start, condition.end))
        return f"({' OR '.join(sql for sql, *_ in tests)})", *(value for _, *values in tests for value in values)

    def _build_range(self, condition: PropertyCondition) -> tuple[Any, ...]:
        number, operator = self._dialect.number, condition.operator
        if condition.number is not None:
            return self._build_test(condition, "n", f"{number} {operator} ?", condition.number)
        # A date is a period: <= includes the whole day, and > begins after it.
        bound = condition.end if operator in ("<=", ">") else condition.start
        return self._build_test(condition, "d", f"{number} {'<' if operator[0] == '<' else '>='} ?", bound)
