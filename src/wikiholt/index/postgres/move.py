"""Moves a wiki to another database while it keeps answering searches.

Under the writer's lease all tables are copied to a new schema and role on the target, with the same generation numbers.
The copy is verified by row counts and checksums. Then one transaction of the home database switches the placement, and
the old schema is marked as `moved`. Readers use the old schema until they see the mark or it is removed. Until the move
is finished, the wiki has a second placement: the new one, which is created, before the switch, and the old one, which
is removed, after it. A move that was killed is finished by removing the second placement, and can be repeated.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from wikiholt.errors import Busy, IndexCorrupt, InvalidSetting
from wikiholt.index.postgres import generations
from wikiholt.index.postgres import schema as postgres_schema
from wikiholt.index.postgres.catalog import read_identity
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.postgres.leases import check_fence
from wikiholt.index.postgres.locks import MOVE_STATEMENT_TIMEOUT_S, retry_lock_timeouts
from wikiholt.index.postgres.placements import (
    PLACEMENT_COLUMNS,
    Placement,
    PlacementCatalog,
    PlacementCondition,
    insert_placement,
    make_placement,
    parse_placement,
)
from wikiholt.index.postgres.pool import Connection, ConnectionPool, RoleConnections
from wikiholt.index.postgres.provision import join_role, remove_schema
from wikiholt.index.postgres.schema import MOVED_MARK
from wikiholt.index.postgres.store import PostgresStore

_LOG = logging.getLogger(__name__)
_LONG_STATEMENT = sql.SQL("SET LOCAL statement_timeout TO {}").format(f"{MOVE_STATEMENT_TIMEOUT_S:.3f}s")
_CONTENT_ROWS = "name >= '#' AND name < '$'"
"""The rows of `state` that belong to generations. The others are notes and leases, which are copied at the switch."""
_QUIET_S = 1.0
"""Seconds without a statement after which the old schema counts as unused."""
_READER_TIMEOUT_S = 120.0
"""How long to wait for the last readers of the old schema."""


def move_wiki(
    store: PostgresStore, wiki_id: str, target: str, timeout_s: float = 30.0, *, max_mb_per_s: float = math.inf
) -> bool:
    """Move a wiki to a database of the catalog. Returns False if it is already there.

    Raises Busy, Conflict, DatabaseUnavailable, IndexCorrupt.
    """
    placements = store.placements
    placements.catalog.get_database(target)
    finish_move(store, wiki_id, timeout_s)
    if placements.get(wiki_id, refresh=True).database == target:
        return False
    placements.require_room(target)
    with store.write_lock(wiki_id, timeout_s):
        old = placements.get(wiki_id, refresh=True)
        if old.database != target:
            _move_locked(store, old, target, max_mb_per_s)
    finish_move(store, wiki_id, timeout_s)
    return True


def finish_move(store: PostgresStore, wiki_id: str, timeout_s: float = 30.0) -> bool:
    """Remove the schema that a move left behind, once nobody uses it. Returns whether there was one."""
    leftover = _find_leftover(store.placements, wiki_id)
    if leftover is None:
        return False
    if leftover.condition is PlacementCondition.REMOVING:
        retry_lock_timeouts(lambda: _mark_moved(store.placements, leftover))
        _wait_until_quiet(store.placements, leftover)
        _remove_leftover(store.placements, leftover)
    else:
        with store.write_lock(wiki_id, timeout_s):  # a move in progress holds the lock
            _discard_unswitched(store.placements, wiki_id)
    return True


def find_unfinished_moves(placements: PlacementCatalog) -> list[str]:
    """List the wikis whose move left a schema behind."""
    with placements.catalog.read_connection() as connection:
        statement = "SELECT wiki_id FROM placements GROUP BY wiki_id HAVING count(*) > 1 ORDER BY wiki_id"
        return [wiki_id for (wiki_id,) in connection.execute(statement)]


def _move_locked(store: PostgresStore, old: Placement, target: str, max_mb_per_s: float) -> None:
    """Move a wiki. Requires the write lock."""
    _discard_unswitched(store.placements, old.wiki_id)
    store.open(old.wiki_id).close()  # refuses a newer layout
    new = _provision_target(store.placements, old, target)
    with _open_target_connections(store.placements, new) as connections:
        _copy_generations(store, old, new, connections, max_mb_per_s)
        store.create_missing_indexes(new)
        _verify_copy(store, old, connections)
        _switch_placement(store, old, new, connections)


def _find_leftover(placements: PlacementCatalog, wiki_id: str) -> Placement | None:
    """The second placement of a wiki: the old one after the switch, the new one before it."""
    with placements.catalog.read_connection() as connection:
        statement = f"SELECT {PLACEMENT_COLUMNS} FROM placements WHERE wiki_id = %s"
        found = [parse_placement(row) for row in connection.execute(statement, (wiki_id,))]
    return next((each for each in found if each.condition is not PlacementCondition.READY and len(found) > 1), None)


def _discard_unswitched(placements: PlacementCatalog, wiki_id: str) -> None:
    """Remove the target of an unfinished move. Requires the write lock. Raises Busy."""
    leftover = _find_leftover(placements, wiki_id)
    if leftover is None:
        return
    if leftover.condition is PlacementCondition.REMOVING:
        raise Busy("another process is moving this wiki", hint="try again in a moment")
    _remove_leftover(placements, leftover)


def _remove_leftover(placements: PlacementCatalog, leftover: Placement) -> None:
    placements.remove_placement(leftover)


def _provision_target(placements: PlacementCatalog, old: Placement, target: str) -> Placement:
    """Create a schema and a role on the target. Writes the placement first, so a crash leaves no orphans."""
    _require_other_database(placements, old, target)
    new = make_placement(old.wiki_id, target)
    with placements.catalog.write_transaction() as connection:
        insert_placement(connection, new)
    return retry_lock_timeouts(lambda: _create_target(placements, new))


def _require_other_database(placements: PlacementCatalog, old: Placement, target: str) -> None:
    """Raise InvalidSetting if both names lead to the same database, where the target is emptied first."""
    with (
        placements.get_operator_connections(old).read_connection() as source,
        placements.catalog.get_database(target).connections.read_connection() as connection,
    ):
        if read_identity(source) == read_identity(connection):
            raise InvalidSetting(f"{old.database} and {target} are the same database", hint="see `database list`")


def _create_target(placements: PlacementCatalog, new: Placement) -> Placement:
    with placements.get_operator_connections(new).write_transaction() as connection:
        remove_schema(connection, new.schema)  # a restored database may have what was moved away since its backup
        return placements.provision_schema(connection, new)


@contextmanager
def _open_target_connections(placements: PlacementCatalog, new: Placement) -> Iterator[RoleConnections]:
    """Open connections to the target as the new role."""
    pool = ConnectionPool(2, statement_timeout_s=MOVE_STATEMENT_TIMEOUT_S)
    try:
        yield RoleConnections(pool, lambda _: placements.make_login(new), new.wiki_id)
    finally:
        pool.close()


def _copy_generations(
    store: PostgresStore, old: Placement, new: Placement, connections: RoleConnections, max_mb_per_s: float
) -> None:
    """Copy all generations, including quarantined ones, from one snapshot."""
    with store.get_connections(old.wiki_id).read_snapshot() as source:
        source.execute(_LONG_STATEMENT)
        known = generations.list_generations(source)
        with store.placements.get_operator_connections(new).write_transaction() as connection:
            for generation in known:
                for statement in postgres_schema.build_create_statements(
                    new.schema, generation.number, generation.recipe.dimensions, new.role
                ):
                    connection.execute(statement)
        with connections.write_transaction(statement_timeout_s=MOVE_STATEMENT_TIMEOUT_S) as target:
            _copy_table(source, target, "state", _CONTENT_ROWS)
            for table in _list_tables(known):
                _copy_table(source, target, table, max_mb_per_s=max_mb_per_s)


def _list_tables(known_generations: list[generations.GenerationRow]) -> list[str]:
    return [
        name for generation in known_generations for name in postgres_schema.GenerationTables(generation.number).all
    ]


def _copy_table(
    source: Connection, target: Connection, table: str, where: str = "true", *, max_mb_per_s: float = math.inf
) -> None:
    statement = (
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum"
    )
    columns = sql.SQL(", ").join(sql.Identifier(name) for (name,) in target.execute(statement, (table,)))
    names = {"table": sql.Identifier(table), "columns": columns, "where": sql.SQL(where)}
    export_statement = sql.SQL("COPY (SELECT {columns} FROM {table} WHERE {where}) TO STDOUT (FORMAT BINARY)").format(
        **names
    )
    import_statement = sql.SQL("COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)").format(**names)
    with (
        source.cursor().copy(export_statement) as source_copy,
        target.cursor().copy(import_statement) as target_copy,
    ):
        for block in source_copy:
            target_copy.write(block)
            time.sleep(len(block) / (max_mb_per_s * 1_000_000))


def _verify_copy(store: PostgresStore, old: Placement, connections: RoleConnections) -> None:
    """Compare the row counts of all tables and check the published generation. Raises IndexCorrupt."""
    with store.get_connections(old.wiki_id).read_snapshot() as source, connections.read_snapshot() as target:
        source.execute(_LONG_STATEMENT)
        known = generations.list_generations(source)
        published = generations.read_status(source).published
        is_equal = known == generations.list_generations(target)
        for table, where in (("state", _CONTENT_ROWS), *((table, "true") for table in _list_tables(known))):
            count = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(sql.Identifier(table), sql.SQL(where))
            is_equal = is_equal and source.execute(count).fetchone() == target.execute(count).fetchone()
    faults = [] if is_equal else ["the row counts differ"]
    if published is not None and not faults:
        index = PostgresIndex(connections, published, lambda: None)
        faults = list(index.check())
        index.close()
    if faults:
        raise IndexCorrupt(
            f"the copy differs from the original: {faults[0]}", hint="run `wikiholt doctor`, then try again"
        )


def _switch_placement(store: PostgresStore, old: Placement, new: Placement, connections: RoleConnections) -> None:
    """Switch the placement in one transaction of the home database. Notes cannot be written meanwhile."""
    with store.get_connections(old.wiki_id).write_transaction() as source:
        check_fence(source, store.get_write_lease(old.wiki_id))
        source.execute("LOCK TABLE state IN EXCLUSIVE MODE")
        with connections.write_transaction() as target:
            target.execute(sql.SQL("DELETE FROM state WHERE NOT ({})").format(sql.SQL(_CONTENT_ROWS)))
            _copy_table(source, target, "state", f"NOT ({_CONTENT_ROWS})")
        with store.placements.catalog.write_transaction() as connection:
            statement = "UPDATE placements SET condition = %s WHERE role = %s AND condition = %s"
            for role, before, after in ((old.role, "here", "going"), (new.role, "making", "here")):
                if not connection.execute(statement, (after, role, before)).rowcount:
                    raise IndexCorrupt("another process has changed the placement of the wiki", hint="try again")
        source.execute("UPDATE state SET text = %s WHERE name = 'layout'", (MOVED_MARK,))
    store.placements.invalidate(old.wiki_id)


def _mark_moved(placements: PlacementCatalog, old: Placement) -> None:
    """Mark the old schema as moved, in case the mover crashed before it did."""
    state = sql.Identifier(old.schema, "state")
    with placements.get_operator_connections(old).write_transaction() as connection:
        if connection.execute("SELECT to_regclass(%s)", (f"{old.schema}.state",)).fetchone() != (None,):
            connection.execute(sql.SQL("UPDATE {} SET text = %s WHERE name = 'layout'").format(state), (MOVED_MARK,))


def _wait_until_quiet(placements: PlacementCatalog, old: Placement) -> None:
    """Wait until nobody has used the old schema for a while. New readers are redirected by its mark."""
    deadline = time.monotonic() + _READER_TIMEOUT_S
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        " AND (state <> 'idle' OR state_change > clock_timestamp() - %s * interval '1 second')"
    )
    with placements.get_operator_connections(old).write_transaction() as connection:
        # Only members of a role can see the activity of its sessions.
        if not join_role(connection, old.role):
            return
    while time.monotonic() < deadline:
        with placements.get_operator_connections(old).read_connection() as connection:
            if connection.execute(statement, (old.role, _QUIET_S)).fetchone() == (0,):
                return
        time.sleep(0.05)
    _LOG.warning("%s: ending readers that used the old schema for %d s after a move", old.wiki_id, _READER_TIMEOUT_S)
