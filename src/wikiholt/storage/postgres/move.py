"""A wiki moves to another database while it answers.

Under the writer's lease all its tables are copied, byte for byte and under the same numbers, to a schema and a role
that are made for it there. The copy is counted and read against its seals; then one transaction of the home places the
wiki there, and the old schema says `moved`. Readers go on in that until they see it, or until it is gone. The row in
`moves` always names the place that is not the wiki's: the new one before that transaction, the old one after it. So the
move of one who was killed is finished by removing what the row names, and can be made again.

    move(store, wiki_id, to, timeout=30.0) -> bool   whether it had to be moved; raises Busy, DatabaseAway, IndexCorrupt
    finish(store, wiki_id) -> bool                   remove what a move left behind; whether there was something
    unfinished(placements) -> list[str]              the wikis for which there is something
"""

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from wikiholt.errors import Busy, IndexCorrupt, IndexTooNew
from wikiholt.storage.postgres import generations
from wikiholt.storage.postgres import schema as postgres_schema
from wikiholt.storage.postgres.index import PostgresIndex
from wikiholt.storage.postgres.leases import check_fence
from wikiholt.storage.postgres.placements import Placement, PlacementCatalog, PlacementCondition, make_role_name
from wikiholt.storage.postgres.pool import Connection, ConnectionPool, RoleConnections
from wikiholt.storage.postgres.provision import remove_placement
from wikiholt.storage.postgres.schema import MOVED_MARK
from wikiholt.storage.postgres.store import PostgresStore
from wikiholt.storage.postgres.timeouts import MOVE_STATEMENT_TIMEOUT_S, retry_lock_timeouts

_LOG = logging.getLogger(__name__)
_PLACEMENT_COLUMNS = "database, schema, role, secret"
_LONG_STATEMENT = sql.SQL("SET LOCAL statement_timeout TO {}").format(f"{MOVE_STATEMENT_TIMEOUT_S:.3f}s")
_QUIET_S = 1.0
"""Seconds without a statement after which nobody is in the old schema any more."""
_READER_TIMEOUT_S = 120.0
"""How long the old schema waits for its last readers."""


def move_wiki(store: PostgresStore, wiki_id: str, target: str, timeout: float = 30.0) -> bool:
    """Move a wiki to a database that the home knows; one that is there already stays."""
    placements = store.placements
    placements.catalog.get_database(target)
    finish_move(store, wiki_id, timeout)
    if placements.get(wiki_id, refresh=True).database == target:
        return False
    with store.write_lock(wiki_id, timeout):
        old = placements.get(wiki_id, refresh=True)
        if old.database != target:
            _move_locked(store, old, target)
    finish_move(store, wiki_id, timeout)
    return True


def finish_move(store: PostgresStore, wiki_id: str, timeout: float = 30.0) -> bool:
    """Remove the place that is not the wiki's, once nobody is in it, if a move left one."""
    found = _find_leftover(store.placements, wiki_id)
    if found is None:
        return False
    left, switched = found
    if switched:
        retry_lock_timeouts(lambda: _mark_moved(store.placements, left))
        _wait_until_quiet(store.placements, left)
        _remove_leftover(store.placements, left)
    else:
        with store.write_lock(wiki_id, timeout):  # or whoever moves it would lose what it is making
            _discard_unswitched(store.placements, wiki_id)
    return True


def find_unfinished_moves(placements: PlacementCatalog) -> list[str]:
    with placements.catalog.read_connection() as connection:
        return [wiki_id for (wiki_id,) in connection.execute("SELECT wiki_id FROM moves ORDER BY wiki_id")]


def _move_locked(store: PostgresStore, old: Placement, target: str) -> None:
    """The move itself, for who holds the lease."""
    _discard_unswitched(store.placements, old.wiki_id)
    store.open(old.wiki_id).close()  # brings it to today's layout
    new = _provision_target(store.placements, old, target)
    with _open_target_connections(store.placements, new) as door:
        _copy_generations(store, old, new, door)
        store.build_missing_indexes(new)
        _verify_copy(store, old, door)
        _switch_placement(store, old, new, door)


def _find_leftover(placements: PlacementCatalog, wiki_id: str) -> tuple[Placement, bool] | None:
    """The place that is not the wiki's, and whether it once was."""
    with placements.catalog.read_connection() as connection:
        order = f"SELECT {_PLACEMENT_COLUMNS}, switched FROM moves WHERE wiki_id = %s"
        row = connection.execute(order, (wiki_id,)).fetchone()
    if row is None:
        return None
    database, schema, role, secret, switched = row
    return Placement(
        wiki_id, database, schema, role, secret, postgres_schema.SCHEMA_LAYOUT, PlacementCondition.REMOVING
    ), switched


def _discard_unswitched(placements: PlacementCatalog, wiki_id: str) -> None:
    """Remove what a move that came to no end has made, for who holds the lease."""
    found = _find_leftover(placements, wiki_id)
    if found is None:
        return
    left, switched = found
    if switched:
        raise Busy("another is just moving this wiki", hint="try again in a moment")
    _remove_leftover(placements, left)


def _remove_leftover(placements: PlacementCatalog, leftover: Placement) -> None:
    retry_lock_timeouts(
        lambda: remove_placement(placements.get_operator_connections(leftover), leftover.schema, leftover.role)
    )
    with placements.catalog.write_transaction() as connection:
        connection.execute("DELETE FROM moves WHERE wiki_id = %s AND role = %s", (leftover.wiki_id, leftover.role))


def _provision_target(placements: PlacementCatalog, old: Placement, target: str) -> Placement:
    """A schema and a role at the new place, and the row that says they are there; the row comes first."""
    secret = secrets.token_urlsafe(24)
    new = Placement(
        old.wiki_id,
        target,
        old.schema,
        make_role_name(old.schema),
        secret,
        postgres_schema.SCHEMA_LAYOUT,
        PlacementCondition.CREATING,
    )
    with placements.catalog.write_transaction() as connection:
        order = f"INSERT INTO moves (wiki_id, {_PLACEMENT_COLUMNS}) VALUES (%s, %s, %s, %s, %s)"
        connection.execute(order, (new.wiki_id, new.database, new.schema, new.role, new.secret))
    return retry_lock_timeouts(lambda: _create_target(placements, new))


def _create_target(placements: PlacementCatalog, new: Placement) -> Placement:
    with placements.get_operator_connections(new).write_transaction() as connection:
        return placements.provision_schema(connection, new)


@contextmanager
def _open_target_connections(placements: PlacementCatalog, new: Placement) -> Iterator[RoleConnections]:
    """The way to the new place, as the role that is made for it."""
    doors = ConnectionPool(2, statement_timeout_s=MOVE_STATEMENT_TIMEOUT_S)
    try:
        yield RoleConnections(doors, lambda _: placements.make_login(new), new.wiki_id)
    finally:
        doors.close()


def _copy_generations(store: PostgresStore, old: Placement, new: Placement, connections: RoleConnections) -> None:
    """All generations, those set aside too, as they are at one moment."""
    with store.get_connections(old.wiki_id).read_snapshot() as source:
        source.execute(_LONG_STATEMENT)
        known = generations.list_generations(source)
        if generations.read_status(source).layout != postgres_schema.SchemaLayout(
            postgres_schema.SCHEMA_LAYOUT, postgres_schema.get_oldest_compatible()
        ):
            raise IndexTooNew("the index has another layout than this Wikiholt writes", hint="upgrade Wikiholt first")
        with store.placements.get_operator_connections(new).write_transaction() as connection:
            for each in known:
                for statement in postgres_schema.build_create_statements(
                    new.schema, each.number, each.recipe.dimensions, new.role
                ):
                    connection.execute(statement)
        with connections.write_transaction(statement_timeout_s=MOVE_STATEMENT_TIMEOUT_S) as target:
            for table in ("state", *_list_tables(known)):
                _copy_table(source, target, table)


def _list_tables(known_generations: list[generations.GenerationRow]) -> list[str]:
    return [name for each in known_generations for name in postgres_schema.GenerationTables(each.number).all]


def _copy_table(source: Connection, target: Connection, table: str) -> None:
    order = (
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum"
    )
    columns = sql.SQL(", ").join(sql.Identifier(name) for (name,) in target.execute(order, (table,)))
    names = {"table": sql.Identifier(table), "columns": columns}
    out = sql.SQL("COPY (SELECT {columns} FROM {table}) TO STDOUT (FORMAT BINARY)").format(**names)
    into = sql.SQL("COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)").format(**names)
    with source.cursor() as reading, target.cursor() as writing, reading.copy(out) as taken, writing.copy(into) as put:
        for block in taken:
            put.write(block)


def _verify_copy(store: PostgresStore, old: Placement, connections: RoleConnections) -> None:
    """Raise unless the copy has as many rows in every table, and the one that answers is right in every byte."""
    with store.get_connections(old.wiki_id).read_snapshot() as source, connections.read_snapshot() as target:
        source.execute(_LONG_STATEMENT)
        known = generations.list_generations(source)
        published = generations.read_status(source).published
        same = known == generations.list_generations(target)
        for table in _list_tables(known):
            count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))
            same = same and source.execute(count).fetchone() == target.execute(count).fetchone()
    faults = [] if same else ["the counts differ"]
    if published is not None and not faults:
        index = PostgresIndex(connections, published, lambda: None)
        faults = list(index.check())
        index.close()
    if faults:
        raise IndexCorrupt(f"what was copied is not the same: {faults[0]}", hint="run `wikiholt doctor`, then again")


def _switch_placement(store: PostgresStore, old: Placement, new: Placement, connections: RoleConnections) -> None:
    """Place the wiki anew, in one transaction of the home; nobody leaves a note at the old place meanwhile."""
    with store.get_connections(old.wiki_id).write_transaction() as source:
        check_fence(source, store.get_fence(old.wiki_id))
        source.execute("LOCK TABLE notes IN EXCLUSIVE MODE")
        with connections.write_transaction() as target:
            target.execute("DELETE FROM notes")
            _copy_table(source, target, "notes")
        with store.placements.catalog.write_transaction() as connection:
            order = (
                "UPDATE placements SET database = %s, schema = %s, role = %s, secret = %s, layout = %s"
                " WHERE wiki_id = %s AND role = %s"
            )
            place = (new.database, new.schema, new.role, new.secret, new.layout)
            if not connection.execute(order, (*place, old.wiki_id, old.role)).rowcount:
                raise IndexCorrupt("the wiki was placed anew by another meanwhile", hint="try again")
            order = "UPDATE moves SET database = %s, schema = %s, role = %s, secret = %s, switched = true"
            gone = (old.database, old.schema, old.role, old.secret)
            connection.execute(f"{order} WHERE wiki_id = %s AND role = %s", (*gone, old.wiki_id, new.role))
        source.execute("UPDATE notes SET text = %s WHERE name = 'layout'", (MOVED_MARK,))
    store.placements.invalidate(old.wiki_id)


def _mark_moved(placements: PlacementCatalog, old: Placement) -> None:
    """Have the old schema say that the wiki is elsewhere, if whoever moved it could not."""
    known = "SELECT to_regclass(%s)"
    notes = sql.Identifier(old.schema, "notes")
    with placements.get_operator_connections(old).write_transaction() as connection:
        if connection.execute(known, (f"{old.schema}.notes",)).fetchone() != (None,):
            connection.execute(sql.SQL("UPDATE {} SET text = %s WHERE name = 'layout'").format(notes), (MOVED_MARK,))


def _wait_until_quiet(placements: PlacementCatalog, old: Placement) -> None:
    """Wait until nobody has been in the old schema for a while: whoever comes anew is told where the wiki is."""
    until = time.monotonic() + _READER_TIMEOUT_S
    order = (
        "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        " AND (state <> 'idle' OR state_change > clock_timestamp() - %s * interval '1 second')"
    )
    with placements.get_operator_connections(old).write_transaction() as connection:
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (old.role,)).fetchone() is None:
            return
        # What others' sessions do is shown to members of their role alone.
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(old.role)))
    while time.monotonic() < until:
        with placements.get_operator_connections(old).read_connection() as connection:
            if connection.execute(order, (old.role, _QUIET_S)).fetchone() == (0,):
                return
        time.sleep(0.05)
    _LOG.warning("a wiki that was moved had readers at its old place for %d s; they are ended", _READER_TIMEOUT_S)
