"""A shared PostgreSQL table, `chunks(tenant_id, …)`: read in one snapshot, without a right to write."""

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from wikiholt.errors import InvalidImport, MissingExtra
from wikiholt.importing.shared import SharedRow, SharedRows
from wikiholt.model import Floats

_NAMES: Mapping[str, tuple[str, ...]] = {
    "tenant": ("tenant_id", "tenant", "wiki"),
    "page": ("page_path", "page", "path", "source"),
    "text": ("content", "text", "document", "chunk"),
    "vector": ("embedding", "vector"),
    "index": ("chunk_index", "index"),
    "model": ("model", "embedding_model"),
}
"""What a row has, and how its columns may be called."""
_NEEDED = ("tenant", "page", "text", "vector")
_AT_ONCE = 500
_BOUNDS = {"connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3}
"""How long it may take until a server that went away is missed, in seconds."""
_NUMBERS = re.compile(r"[\[{(\s]*([^\]})]*?)[\]})\s]*")


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """`address` is a connection string of libpq's; `columns` says how the table calls what a row has."""

    address: str = field(repr=False)
    table: str = "chunks"
    columns: Mapping[str, str] = field(default_factory=dict)
    patience: float = 120.0

    @property
    def name(self) -> str:
        return f"{self.table} of PostgreSQL at {urlsplit(self.address).hostname or 'its usual place'}"

    def rows(self) -> SharedRows:
        psycopg = _psycopg()
        try:
            with psycopg.connect(self.address, **_BOUNDS) as connection:
                connection.read_only = True
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                limit = str(round(self.patience * 1000))
                connection.execute("SELECT set_config('statement_timeout', %s, false)", (limit,))
                yield from self._read(connection, psycopg.sql)
        except psycopg.Error as error:
            raise InvalidImport(
                f"PostgreSQL says: {_first_line(error)}", hint="check the address, --table and that it may be read"
            ) from error

    def _read(self, connection: Any, sql: Any) -> Iterator[SharedRow]:
        table = sql.Identifier(*self.table.split("."))
        described = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table)).description
        columns = self._columns([column.name for column in described])
        chosen = [name for name in _NAMES if name in columns]
        # As text: then any type will do that writes its numbers down, pgvector's among them.
        fields = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(columns[name])) for name in chosen)
        with connection.cursor("wikiholt_import") as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(sql.SQL("SELECT {} FROM {}").format(fields, table))
            for values in cursor:
                yield _row(dict(zip(chosen, values, strict=True)))

    def _columns(self, there: list[str]) -> Mapping[str, str]:
        """What each thing is called in this table; raises where that cannot be told."""
        unknown = [name for name in self.columns if name not in _NAMES]
        missing = [name for name in self.columns.values() if name not in there]
        if unknown or missing:
            raise _columns_wrong(f"there is no {(unknown or missing)[0]!r}", there)
        found = dict(self.columns)
        for name, usual in _NAMES.items():
            fits = [column for column in usual if column in there]
            if name not in found and fits:
                found[name] = fits[0]
        lacking = [name for name in _NEEDED if name not in found]
        if lacking:
            raise _columns_wrong(f"which column is the {' and the '.join(lacking)}?", there)
        return found


def _columns_wrong(what: str, there: list[str]) -> InvalidImport:
    return InvalidImport(
        f"{what} The table has: {', '.join(there)}",
        hint=f"say --column NAME=COLUMN, where NAME is one of {', '.join(_NAMES)}",
    )


def _row(values: Mapping[str, str | None]) -> SharedRow:
    index = values.get("index") or ""
    return SharedRow(
        page=values["page"] or "",
        text=values["text"] or "",
        vector=_vector(values["vector"] or ""),
        tenant=values["tenant"] or "",
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 10 else None,
        model=values.get("model") or "",
    )


def _vector(text: str) -> Floats:
    """Numbers written as pgvector and arrays write them; anything else is a vector without numbers."""
    found = _NUMBERS.fullmatch(text)
    try:
        return np.array([float(number) for number in found[1].split(",")] if found else [], np.float32)
    except ValueError:
        return np.empty(0, np.float32)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _psycopg() -> Any:
    try:
        found: Any = importlib.import_module("psycopg")
        importlib.import_module("psycopg.sql")
    except ImportError as error:
        raise MissingExtra(
            f"reading a PostgreSQL table needs psycopg ({error})", hint="pip install 'wikiholt[postgres]'"
        ) from error
    return found
