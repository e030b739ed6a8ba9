"""Bringing wikis to the layout this program writes: each in one transaction, any number of times, from where it stands.

Layouts only add, so nodes with an older program go on reading and writing until a layout says it is too new for them.
A wiki that is opened by a newer program is brought along at once; `upgrade_all` does those that nobody opens.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from psycopg import sql

from wikiholt.errors import Busy, IndexMissing, IndexUnavailable, WikiholtError
from wikiholt.storage.postgres import locks, schema
from wikiholt.storage.postgres.placements import Placement, PlacementCatalog
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.schema import MOVED_MARK, SchemaLayout
from wikiholt.storage.postgres.timeouts import UPGRADE_LOCK_TIMEOUT_S, UPGRADE_STATEMENT_TIMEOUT_S

_LOG = logging.getLogger(__name__)
_BATCH_WIKIS = 200
_LOCK_TRIES, _RETRY_DELAY_S = 100, 0.05


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """What came of it: how many were brought along, and which could not be, with the reason."""

    upgraded_count: int
    failed: tuple[tuple[str, str], ...]


def upgrade_all(placements: PlacementCatalog, progress: Callable[[int], None] = lambda _: None) -> UpgradeResult:
    """Bring every wiki to the layout of this program; one that cannot be brought along holds up no other."""
    failed: list[tuple[str, str]] = []
    done, last = 0, ""
    while True:
        order = "SELECT wiki_id FROM placements WHERE layout < %s AND condition = 'here' AND wiki_id > %s"
        with placements.catalog.read_connection() as connection:
            rows = connection.execute(
                f"{order} ORDER BY wiki_id LIMIT {_BATCH_WIKIS}", (schema.SCHEMA_LAYOUT, last)
            ).fetchall()
        if not rows:
            return UpgradeResult(done, tuple(failed))
        for (wiki_id,) in rows:
            last = wiki_id
            try:
                upgrade_one(placements, placements.get(wiki_id, refresh=True))
            except WikiholtError as error:
                _LOG.warning(
                    "%s: its schema could not be brought to layout %d: %s", wiki_id, schema.SCHEMA_LAYOUT, error
                )
                failed.append((wiki_id, error.message))
            else:
                done += 1
                progress(done)


def upgrade_one(placements: PlacementCatalog, placement: Placement) -> None:
    """Bring one wiki to the layout of this program, in one transaction of its database; raises Busy if that cannot be.

    Who waits for a lock has all who come after wait too: so it is asked for often, and never for long.
    """
    door = placements.get_operator_connections(placement)
    for left in reversed(range(_LOCK_TRIES)):
        try:
            with door.write_transaction(
                lock_timeout_s=UPGRADE_LOCK_TIMEOUT_S, statement_timeout_s=UPGRADE_STATEMENT_TIMEOUT_S
            ) as connection:
                reached = _migrate_schema(connection, placement)
            break
        except Busy:
            if not left:
                door.timeout_counter.record("lock", placement.schema)
                raise
            time.sleep(_RETRY_DELAY_S)
    if reached.number < schema.SCHEMA_LAYOUT:
        raise IndexUnavailable(
            f"there is no way from layout {reached.number} to {schema.SCHEMA_LAYOUT}", hint="report this"
        )
    with placements.catalog.write_transaction() as connection:
        order = "UPDATE placements SET layout = %s WHERE wiki_id = %s AND role = %s AND layout < %s"
        connection.execute(order, (reached.number, placement.wiki_id, placement.role, reached.number))
    placements.invalidate(placement.wiki_id)


def _migrate_schema(connection: Connection, placement: Placement) -> SchemaLayout:
    """Make of the layout that the schema has the one this program writes, and say which it has then."""
    names = {"schema": sql.Identifier(placement.schema)}
    locks.acquire_lock(connection, placement.schema)
    order = sql.SQL("SELECT text FROM {schema}.notes WHERE name = 'layout' FOR UPDATE").format(**names)
    row = connection.execute(order).fetchone()
    if row == (MOVED_MARK,):
        raise IndexMissing("this wiki has been moved meanwhile", hint="try again")
    known = SchemaLayout.parse(row[0] if row else None)
    order = sql.SQL("SELECT number FROM {schema}.state ORDER BY number").format(**names)
    numbers = [number for (number,) in connection.execute(order)]
    for migration in schema.MIGRATIONS:
        if known.number < migration.layout.number:
            for statement in migration.statements(placement.schema, numbers, placement.role):
                connection.execute(statement)
            known = migration.layout
    order = sql.SQL("UPDATE {schema}.notes SET text = %s WHERE name = 'layout'").format(**names)
    connection.execute(order, (known.format(),))
    return known
