"""Buckets of tokens that all nodes share (limits.py): a row each, one statement a request, by the database's clock.

    TABLES                                  the home's part that makes them
    PostgresBuckets(home, kind, size)       -> limits.Buckets

The table is not logged: after a crash of the server every bucket is full. A home that cannot be reached is
DatabaseAway: whoever cannot be counted is not let in.
"""

import time

from wikiholt.storage.postgres.catalog import Catalog, TableSet
from wikiholt.wikis.rate_limit import BucketSize

BUCKET_TABLES = TableSet(
    "buckets",
    (
        "CREATE UNLOGGED TABLE buckets (kind text, name text, level float8 NOT NULL, rest float8 NOT NULL,"
        " at timestamptz NOT NULL, PRIMARY KEY (kind, name)) WITH (fillfactor = 50)",
    ),
)

_CLEANUP_INTERVAL_S = 600.0
"""Seconds between two times that a node removes buckets that nobody has used for long, which are full."""
# `rest` says what is left after one, or below zero what is wanting; the row's own lock makes nodes go one by one.
_LEVEL_EXPRESSION = (
    "least(%(capacity)s, b.level + greatest(0, extract(epoch FROM statement_timestamp() - b.at)) * %(per_second)s)"
)
_TAKE_STATEMENT = f"""
INSERT INTO buckets AS b VALUES (%(kind)s, %(name)s, %(capacity)s - 1, %(capacity)s - 1, statement_timestamp())
ON CONFLICT (kind, name) DO UPDATE SET at = greatest(b.at, statement_timestamp()), rest = {_LEVEL_EXPRESSION} - 1,
level = CASE WHEN {_LEVEL_EXPRESSION} < 1 THEN {_LEVEL_EXPRESSION} ELSE {_LEVEL_EXPRESSION} - 1 END
RETURNING rest
"""
_SPEND_STATEMENT = f"""
INSERT INTO buckets AS b VALUES (%(kind)s, %(name)s, %(capacity)s - 1, %(capacity)s - 1, statement_timestamp())
ON CONFLICT (kind, name) DO UPDATE SET at = greatest(b.at, statement_timestamp()),
rest = greatest(0, {_LEVEL_EXPRESSION} - 1), level = greatest(0, {_LEVEL_EXPRESSION} - 1)
RETURNING rest
"""


class PostgresBuckets:
    """Buckets of one kind and size."""

    def __init__(self, catalog: Catalog, kind: str, size: BucketSize) -> None:
        self._catalog = catalog
        self._values = {"kind": kind, "capacity": size.capacity, "per_second": size.per_second}
        self._full_after_s = size.capacity / size.per_second if size.per_minute else 0.0
        self._cleaned_at = time.monotonic()

    def take(self, name: str) -> float:
        return self._execute(_TAKE_STATEMENT, name)

    def consume(self, name: str) -> float:
        return self._execute(_SPEND_STATEMENT, name)

    def _execute(self, statement: str, name: str) -> float:
        with self._catalog.read_connection() as connection:
            row = connection.execute(statement, {**self._values, "name": name}).fetchone()
            assert row is not None
            if time.monotonic() - self._cleaned_at > _CLEANUP_INTERVAL_S:
                self._cleaned_at = time.monotonic()
                full = "DELETE FROM buckets WHERE kind = %s AND at < statement_timestamp() - make_interval(secs => %s)"
                connection.execute(full, (self._values["kind"], self._full_after_s))
        return float(row[0])
