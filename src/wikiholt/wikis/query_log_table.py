"""The query log of a wiki in a small store of its own. A damaged log is replaced by an empty one: a quarantined copy
would outlive the retention limit."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any, TypeVar, cast

from wikiholt.domain.search import QueryRecord, QueryRecords, QueryRetention
from wikiholt.errors import IndexCorrupt
from wikiholt.wikis.small_store import StoreConnection

_T = TypeVar("_T")

_FIELDS = fields(QueryRecord)
_TYPES = {float: "double precision", int: "integer", bool: "integer", str: "text", tuple[str, ...]: "text"}
SEARCHES_COLUMNS = ", ".join(f"{field.name} {_TYPES[cast(type, field.type)]} NOT NULL" for field in _FIELDS)
"""The columns of the table `searches` in both stores, without the growing `id`."""
_COLUMNS = ", ".join(field.name for field in _FIELDS)
_INSERT = f"INSERT INTO searches ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))})"  # noqa: S608
_SELECT_SINCE = f"SELECT {_COLUMNS} FROM searches WHERE at >= ? ORDER BY at, id"  # noqa: S608
_DAMAGE_INTERFACE = "damage"
"""The interface of a row that says when the log was found damaged and replaced."""


class QueryLogTable:
    """The query log of one wiki, in a table `searches` with no access to another. Safe to use from many threads.

    A subclass says where the table is. All methods may raise Busy, StorageError, DatabaseUnavailable and other
    IndexUnavailable errors; committed records are kept.
    """

    def _open_for_reading(self) -> AbstractContextManager[StoreConnection | None]:
        """A connection for reading; None if nothing was ever written."""
        raise NotImplementedError

    def _begin_write(self, *, creates: bool = False) -> AbstractContextManager[StoreConnection | None]:
        """One write transaction; None if there is no table, and without data of the wiki none is created."""
        raise NotImplementedError

    def _discard(self, identity: object) -> bool:  # noqa: ARG002
        """Delete a damaged log, unless another process has replaced it. Returns False if that is impossible."""
        return False

    def _get_identity(self) -> object:
        return None

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        """Add records and delete those beyond the retention limits, in one transaction. Replaces a damaged log.

        Does nothing if the store has no data of this wiki: it was removed.
        """

        def add() -> None:
            with self._begin_write(creates=True) as connection:
                if connection is not None:
                    for record in records:
                        connection.execute(_INSERT, _to_row(record))
                    _delete_expired(connection, retention)

        self._run(add)

    def read(self, since: float) -> QueryRecords | None:
        """The records since that time; None if nothing was ever written."""

        def select() -> QueryRecords | None:
            with self._open_for_reading() as connection:
                if connection is None:
                    return None
                rows = [tuple(row) for row in connection.execute(_SELECT_SINCE, (since,))]
                statement = "SELECT max(at) FROM searches WHERE interface = ?"
                (damaged_at,) = connection.execute(statement, (_DAMAGE_INTERFACE,)).fetchone()
            records = tuple(_parse_row(row) for row in rows if row[1] != _DAMAGE_INTERFACE)
            return QueryRecords(records, damaged_at)

        return self._run(select)

    def trim(self, retention: QueryRetention) -> None:
        """Delete the records beyond the retention limits."""

        def delete() -> None:
            with self._begin_write() as connection:
                if connection is not None:
                    _delete_expired(connection, retention)

        self._run(delete)

    def clear(self) -> int:
        """Delete all records and return their number."""

        def delete() -> int:
            with self._begin_write() as connection:
                if connection is None:
                    return 0
                connection.execute("DELETE FROM searches WHERE interface = ?", (_DAMAGE_INTERFACE,))
                return connection.execute("DELETE FROM searches").rowcount

        return self._run(delete)

    def _run(self, action: Callable[[], _T]) -> _T:
        """Run the action; if the log is damaged, or of another wiki, run it on a new one instead."""
        identity = self._get_identity()
        try:
            return action()
        except IndexCorrupt:
            if not self._discard(identity):
                raise
        with self._begin_write(creates=True) as connection:
            if connection is not None:
                damage = QueryRecord(time.time(), _DAMAGE_INTERFACE, "", "", False, 0, False, False, 0.0, 0.0, "", ())
                connection.execute(_INSERT, _to_row(damage))
        return action()


def _to_row(record: QueryRecord) -> tuple[str | float, ...]:
    values = (getattr(record, field.name) for field in _FIELDS)
    return tuple(
        json.dumps(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
        for value in values
    )


def _parse_row(columns: tuple[Any, ...]) -> QueryRecord:
    try:
        values = [_parse_value(field.type, value) for field, value in zip(_FIELDS, columns, strict=True)]
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("the query log is damaged", hint="clear it: `wikiholt report SLUG --clear`") from error
    return QueryRecord(*values)


def _parse_value(kind: object, value: Any) -> Any:
    if kind is bool:
        return bool(value)
    return value if kind in (float, int, str) else tuple(json.loads(value))


def _delete_expired(connection: StoreConnection, retention: QueryRetention) -> None:
    connection.execute("DELETE FROM searches WHERE at < ?", (time.time() - retention.max_days * 86_400,))
    newest = "SELECT max(id) FROM searches"
    connection.execute(f"DELETE FROM searches WHERE id <= ({newest}) - ?", (retention.max_records,))  # noqa: S608
