"""Migrates the schemas of wikis to the layout that this program writes, each in one transaction.

Layouts only add, so nodes with an older program keep working until a layout declares itself too new for them. A newer
program migrates a wiki when it opens it; `upgrade_all` migrates the others. Migrations are idempotent.
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
    """How many wikis were migrated, and which failed, with the reason."""

    upgraded_count: int
    failed: tuple[tuple[str, str], ...]


def upgrade_all(placements: PlacementCatalog, progress: Callable[[int], None] = lambda _: None) -> UpgradeResult:
    """Migrate every wiki. Continues with the others if one fails."""
    failed: list[tuple[str, str]] = []
    done, last_id = 0, ""
    statement = (
        "SELECT wiki_id FROM placements WHERE layout < %s AND condition = 'here' AND wiki_id > %s"
        f" ORDER BY wiki_id LIMIT {_BATCH_WIKIS}"
    )
    while True:
        with placements.catalog.read_connection() as connection:
            batch = connection.execute(statement, (schema.SCHEMA_LAYOUT, last_id)).fetchall()
        if not batch:
            return UpgradeResult(done, tuple(failed))
        for (wiki_id,) in batch:
            last_id = wiki_id
            try:
                upgrade_one(placements, placements.get(wiki_id, refresh=True))
            except WikiholtError as error:
                _LOG.warning("%s: migration to layout %d failed: %s", wiki_id, schema.SCHEMA_LAYOUT, error)
                failed.append((wiki_id, error.message))
            else:
                done += 1
                progress(done)


def upgrade_one(placements: PlacementCatalog, placement: Placement) -> None:
    """Migrate one wiki, in one transaction of its database. Raises Busy if its tables stay locked.

    Polls with short lock timeouts, because a waiting lock request blocks all later ones.
    """
    connections = placements.get_operator_connections(placement)
    for left in reversed(range(_LOCK_TRIES)):
        try:
            with connections.write_transaction(
                lock_timeout_s=UPGRADE_LOCK_TIMEOUT_S, statement_timeout_s=UPGRADE_STATEMENT_TIMEOUT_S
            ) as connection:
                reached = _migrate_schema(connection, placement)
            break
        except Busy:
            if not left:
                connections.timeout_counter.record("lock", placement.schema)
                raise
            time.sleep(_RETRY_DELAY_S)
    if reached.number < schema.SCHEMA_LAYOUT:
        raise IndexUnavailable(
            f"no migration from layout {reached.number} to {schema.SCHEMA_LAYOUT}", hint="report this"
        )
    with placements.catalog.write_transaction() as connection:
        statement = "UPDATE placements SET layout = %s WHERE wiki_id = %s AND role = %s AND layout < %s"
        connection.execute(statement, (reached.number, placement.wiki_id, placement.role, reached.number))
    placements.invalidate(placement.wiki_id)


def _migrate_schema(connection: Connection, placement: Placement) -> SchemaLayout:
    """Apply the missing migrations to a schema and return its new layout."""
    names = {"schema": sql.Identifier(placement.schema)}
    locks.acquire_lock(connection, placement.schema)
    statement = sql.SQL("SELECT text FROM {schema}.state WHERE name = 'layout' FOR UPDATE").format(**names)
    (text,) = connection.execute(statement).fetchone() or (None,)
    if text == MOVED_MARK:
        raise IndexMissing("this wiki has been moved", hint="try again")
    layout = SchemaLayout.parse(text)
    statement = sql.SQL("SELECT number FROM {schema}.state WHERE number IS NOT NULL ORDER BY number").format(**names)
    numbers = [number for (number,) in connection.execute(statement)]
    for migration in schema.MIGRATIONS:
        if layout.number < migration.layout.number:
            for migration_statement in migration.statements(placement.schema, numbers, placement.role):
                connection.execute(migration_statement)
            layout = migration.layout
    statement = sql.SQL("UPDATE {schema}.state SET text = %s WHERE name = 'layout'").format(**names)
    connection.execute(statement, (layout.format(),))
    return layout
