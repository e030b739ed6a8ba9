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
from wikiholt.stores.postgres import generations, layout, tables
from wikiholt.stores.postgres.index import PostgresIndex
from wikiholt.stores.postgres.layout import MOVED
from wikiholt.stores.postgres.leases import hold
from wikiholt.stores.postgres.offboarding import remove_place
from wikiholt.stores.postgres.placing import Condition, Placement, Placements, new_role
from wikiholt.stores.postgres.pool import Connection, Door, Doors
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.stores.postgres.timeouts import MOVE_STATEMENT_TIMEOUT_S, retry_lock_timeouts

_LOG = logging.getLogger(__name__)
_PLACE = "database, schema, role, secret"
_LONG = sql.SQL("SET LOCAL statement_timeout TO {}").format(f"{MOVE_STATEMENT_TIMEOUT_S:.3f}s")
_QUIET = 1.0
"""Seconds without a statement after which nobody is in the old schema any more."""
_PATIENCE = 120.0
"""How long the old schema waits for its last readers."""


def move(store: PostgresStore, wiki_id: str, to: str, timeout: float = 30.0) -> bool:
    """Move a wiki to a database that the home knows; one that is there already stays."""
    placements = store.placements
    placements.home.database(to)
    finish(store, wiki_id, timeout)
    if placements.get(wiki_id, again=True).database == to:
        return False
    with store.writing(wiki_id, timeout):
        old = placements.get(wiki_id, again=True)
        if old.database != to:
            _moved(store, old, to)
    finish(store, wiki_id, timeout)
    return True


def finish(store: PostgresStore, wiki_id: str, timeout: float = 30.0) -> bool:
    """Remove the place that is not the wiki's, once nobody is in it, if a move left one."""
    found = _left(store.placements, wiki_id)
    if found is None:
        return False
    left, switched = found
    if switched:
        retry_lock_timeouts(lambda: _tell(store.placements, left))
        _await_quiet(store.placements, left)
        _remove(store.placements, left)
    else:
        with store.writing(wiki_id, timeout):  # or whoever moves it would lose what it is making
            _discard(store.placements, wiki_id)
    return True


def unfinished(placements: Placements) -> list[str]:
    with placements.home.reading() as connection:
        return [wiki_id for (wiki_id,) in connection.execute("SELECT wiki_id FROM moves ORDER BY wiki_id")]


def _moved(store: PostgresStore, old: Placement, to: str) -> None:
    """The move itself, for who holds the lease."""
    _discard(store.placements, old.wiki_id)
    store.open(old.wiki_id).close()  # brings it to today's layout
    new = _begun(store.placements, old, to)
    with _doorway(store.placements, new) as door:
        _copied(store, old, new, door)
        store.tend(new)
        _verified(store, old, door)
        _switched(store, old, new, door)


def _left(placements: Placements, wiki_id: str) -> tuple[Placement, bool] | None:
    """The place that is not the wiki's, and whether it once was."""
    with placements.home.reading() as connection:
        order = f"SELECT {_PLACE}, switched FROM moves WHERE wiki_id = %s"
        row = connection.execute(order, (wiki_id,)).fetchone()
    if row is None:
        return None
    database, schema, role, secret, switched = row
    return Placement(wiki_id, database, schema, role, secret, layout.LAYOUT, Condition.GOING), switched


def _discard(placements: Placements, wiki_id: str) -> None:
    """Remove what a move that came to no end has made, for who holds the lease."""
    found = _left(placements, wiki_id)
    if found is None:
        return
    left, switched = found
    if switched:
        raise Busy("another is just moving this wiki", hint="try again in a moment")
    _remove(placements, left)


def _remove(placements: Placements, left: Placement) -> None:
    retry_lock_timeouts(lambda: remove_place(placements.operator(left), left.schema, left.role))
    with placements.home.writing() as connection:
        connection.execute("DELETE FROM moves WHERE wiki_id = %s AND role = %s", (left.wiki_id, left.role))


def _begun(placements: Placements, old: Placement, to: str) -> Placement:
    """A schema and a role at the new place, and the row that says they are there; the row comes first."""
    secret = secrets.token_urlsafe(24)
    new = Placement(old.wiki_id, to, old.schema, new_role(old.schema), secret, layout.LAYOUT, Condition.MAKING)
    with placements.home.writing() as connection:
        order = f"INSERT INTO moves (wiki_id, {_PLACE}) VALUES (%s, %s, %s, %s, %s)"
        connection.execute(order, (new.wiki_id, new.database, new.schema, new.role, new.secret))
    return retry_lock_timeouts(lambda: _made(placements, new))


def _made(placements: Placements, new: Placement) -> Placement:
    with placements.operator(new).writing() as connection:
        return placements.found(connection, new)


@contextmanager
def _doorway(placements: Placements, new: Placement) -> Iterator[Door]:
    """The way to the new place, as the role that is made for it."""
    doors = Doors(2, patience=MOVE_STATEMENT_TIMEOUT_S)
    try:
        yield Door(doors, lambda _: placements.login(new), new.wiki_id)
    finally:
        doors.close()


def _copied(store: PostgresStore, old: Placement, new: Placement, door: Door) -> None:
    """All generations, those set aside too, as they are at one moment."""
    with store.door(old.wiki_id).snapshot() as source:
        source.execute(_LONG)
        known = generations.all_of(source)
        if generations.glance(source).layout != layout.Layout(layout.LAYOUT, layout.oldest()):
            raise IndexTooNew("the index has another layout than this Wikiholt writes", hint="upgrade Wikiholt first")
        with store.placements.operator(new).writing() as connection:
            for each in known:
                for statement in tables.creating(new.schema, each.number, each.recipe.dimensions, new.role):
                    connection.execute(statement)
        with door.writing(statement_timeout_s=MOVE_STATEMENT_TIMEOUT_S) as target:
            for table in ("state", *_tables(known)):
                _copy(source, target, table)


def _tables(known: list[generations.Generation]) -> list[str]:
    return [name for each in known for name in tables.Tables(each.number).all]


def _copy(source: Connection, target: Connection, table: str) -> None:
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


def _verified(store: PostgresStore, old: Placement, door: Door) -> None:
    """Raise unless the copy has as many rows in every table, and the one that answers is right in every byte."""
    with store.door(old.wiki_id).snapshot() as source, door.snapshot() as target:
        source.execute(_LONG)
        known = generations.all_of(source)
        published = generations.glance(source).published
        same = known == generations.all_of(target)
        for table in _tables(known):
            count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))
            same = same and source.execute(count).fetchone() == target.execute(count).fetchone()
    faults = [] if same else ["the counts differ"]
    if published is not None and not faults:
        index = PostgresIndex(door, published, lambda: None)
        faults = list(index.check())
        index.close()
    if faults:
        raise IndexCorrupt(f"what was copied is not the same: {faults[0]}", hint="run `wikiholt doctor`, then again")


def _switched(store: PostgresStore, old: Placement, new: Placement, door: Door) -> None:
    """Place the wiki anew, in one transaction of the home; nobody leaves a note at the old place meanwhile."""
    with store.door(old.wiki_id).writing() as source:
        hold(source, store.fence(old.wiki_id))
        source.execute("LOCK TABLE notes IN EXCLUSIVE MODE")
        with door.writing() as target:
            target.execute("DELETE FROM notes")
            _copy(source, target, "notes")
        with store.placements.home.writing() as connection:
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
        source.execute("UPDATE notes SET text = %s WHERE name = 'layout'", (MOVED,))
    store.placements.forget(old.wiki_id)


def _tell(placements: Placements, old: Placement) -> None:
    """Have the old schema say that the wiki is elsewhere, if whoever moved it could not."""
    known = "SELECT to_regclass(%s)"
    notes = sql.Identifier(old.schema, "notes")
    with placements.operator(old).writing() as connection:
        if connection.execute(known, (f"{old.schema}.notes",)).fetchone() != (None,):
            connection.execute(sql.SQL("UPDATE {} SET text = %s WHERE name = 'layout'").format(notes), (MOVED,))


def _await_quiet(placements: Placements, old: Placement) -> None:
    """Wait until nobody has been in the old schema for a while: whoever comes anew is told where the wiki is."""
    until = time.monotonic() + _PATIENCE
    order = (
        "SELECT count(*) FROM pg_stat_activity WHERE usename = %s"
        " AND (state <> 'idle' OR state_change > clock_timestamp() - %s * interval '1 second')"
    )
    with placements.operator(old).writing() as connection:
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (old.role,)).fetchone() is None:
            return
        # What others' sessions do is shown to members of their role alone.
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(old.role)))
    while time.monotonic() < until:
        with placements.operator(old).reading() as connection:
            if connection.execute(order, (old.role, _QUIET)).fetchone() == (0,):
                return
        time.sleep(0.05)
    _LOG.warning("a wiki that was moved had readers at its old place for %d s; they are ended", _PATIENCE)
