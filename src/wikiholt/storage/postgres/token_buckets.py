"""Token buckets for rate limits that all nodes share: one row per bucket, one statement per request.

All times are the database's. The table is unlogged, so every bucket is full after a crash of the server. If the home
database is unreachable, the operations raise DatabaseUnavailable, and the request is rejected.
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
"""How often a node deletes the buckets that have been unused long enough to be full."""
# `rest` is the number of tokens left, or negative if tokens are missing. The row lock serializes the nodes.
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
_CLEANUP_STATEMENT = "DELETE FROM buckets WHERE kind = %s AND at < statement_timestamp() - make_interval(secs => %s)"


class PostgresBuckets:
    """`Buckets` of one kind and size."""

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
            (rest,) = row
            if time.monotonic() - self._cleaned_at > _CLEANUP_INTERVAL_S:
                self._cleaned_at = time.monotonic()
                connection.execute(_CLEANUP_STATEMENT, (self._values["kind"], self._full_after_s))
        return float(rest)
