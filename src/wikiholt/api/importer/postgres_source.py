"""A shared PostgreSQL table, `chunks(tenant_id, …)`, read in one read-only snapshot."""

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from wikiholt.api.importer.shared_index import SharedRow, SharedRows, parse_number
from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidImport, MissingDependency, make_extra_hint

_COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "tenant": ("tenant_id", "tenant", "wiki"),
    "page": ("page_path", "page", "path", "source"),
    "text": ("content", "text", "document", "chunk"),
    "vector": ("embedding", "vector"),
    "index": ("chunk_index", "index"),
    "model": ("model", "embedding_model"),
}
"""The fields of a row, and the usual names of their columns."""
_REQUIRED_COLUMNS = ("tenant", "page", "text", "vector")
_BATCH_ROWS = 500
_CONNECT_OPTIONS = {"connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3}
"""Timeouts in seconds until a lost server is noticed."""
_NUMBERS_PATTERN = re.compile(r"[\[{(\s]*([^\]})]*?)[\]})\s]*")


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table. `address` is a libpq connection string; `columns` maps fields to column names."""

    address: str = field(repr=False)
    table: str = "chunks"
    columns: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    needs_vectors: bool = True

    @property
    def name(self) -> str:
        return f"{self.table} of PostgreSQL at {urlsplit(self.address).hostname or 'the default host'}"

    def iter_rows(self) -> SharedRows:
        psycopg = _import_psycopg()
        try:
            with psycopg.connect(self.address, **_CONNECT_OPTIONS) as connection:
                connection.read_only = True
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                limit = str(round(self.timeout_s * 1000))
                connection.execute("SELECT set_config('statement_timeout', %s, false)", (limit,))
                yield from self._read_rows(connection, psycopg.sql)
        except psycopg.Error as error:
            raise InvalidImport(
                f"PostgreSQL error: {_get_first_line(error)}", hint="check the address, --table and its permissions"
            ) from error

    def _read_rows(self, connection: Any, sql: Any) -> Iterator[SharedRow]:
        table = sql.Identifier(*self.table.split("."))
        described = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table)).description
        columns = self._resolve_columns([column.name for column in described])
        names = [name for name in _COLUMN_NAMES if name in columns and (self.needs_vectors or name != "vector")]
        # As text, so that any type of vector works, such as those of pgvector and arrays.
        fields = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(columns[name])) for name in names)
        with connection.cursor("wikiholt_import") as cursor:
            cursor.itersize = _BATCH_ROWS
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(fields, table))
            for values in cursor:
                yield _to_row(dict(zip(names, values, strict=True)))

    def _resolve_columns(self, existing: list[str]) -> Mapping[str, str]:
        """The column of each field. Raises InvalidImport if a column is missing."""
        unknown = [name for name in self.columns if name not in _COLUMN_NAMES]
        missing = [name for name in self.columns.values() if name not in existing]
        if unknown or missing:
            raise _build_columns_error(f"there is no {(unknown or missing)[0]!r}.", existing)
        columns = dict(self.columns)
        for name, usual_names in _COLUMN_NAMES.items():
            candidates = [column for column in usual_names if column in existing]
            if name not in columns and candidates:
                columns[name] = candidates[0]
        required = _REQUIRED_COLUMNS if self.needs_vectors else _REQUIRED_COLUMNS[:-1]
        missing = [name for name in required if name not in columns]
        if missing:
            raise _build_columns_error(f"no column was found for {' and '.join(missing)}.", existing)
        return columns


def _build_columns_error(problem: str, existing: list[str]) -> InvalidImport:
    return InvalidImport(
        f"{problem} The table has: {', '.join(existing)}",
        hint=f"use --column NAME=COLUMN, where NAME is one of {', '.join(_COLUMN_NAMES)}",
    )


def _to_row(values: Mapping[str, str | None]) -> SharedRow:
    return SharedRow(
        page=values["page"] or "",
        text=values["text"] or "",
        vector=_parse_vector(values.get("vector") or ""),
        tenant=values["tenant"] or "",
        index=parse_number(values.get("index") or ""),
        model=values.get("model") or "",
    )


def _parse_vector(text: str) -> FloatArray:
    """Parse the text form of pgvector and arrays. An empty vector if it is malformed."""
    match = _NUMBERS_PATTERN.fullmatch(text)
    try:
        return np.array([float(number) for number in match[1].split(",")] if match else [], np.float32)
    except ValueError:
        return np.empty(0, np.float32)


def _get_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _import_psycopg() -> Any:
    try:
        psycopg: Any = importlib.import_module("psycopg")
        importlib.import_module("psycopg.sql")
    except ImportError as error:
        raise MissingDependency(
            f"reading a PostgreSQL table requires psycopg ({error})", hint=make_extra_hint("postgres")
        ) from error
    return psycopg
