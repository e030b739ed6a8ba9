"""Notes in the `state` table of a wiki's schema, and the size of the schema."""

from wikiholt.storage.postgres import rows
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.schema import MOVED_MARK

_RESERVED_NOTES = {"writer", "activity", "layout", "mark"}


def read_note(connection: Connection, name: str) -> str | None:
    """Read a note; None if there is none."""
    names = (_validate_note_name(name), *rows.get_part_names(name))
    statement = "SELECT text FROM state WHERE name = %s OR name >= %s AND name < %s ORDER BY name"
    parts = connection.execute(statement, names).fetchall()
    return None if not parts or parts[0] == (None,) else "".join(text for (text,) in parts)


def write_note(connection: Connection, name: str, text: str) -> bool:
    """Write a note. Returns False if the wiki has been moved to another database."""
    first, *others = rows.split_text(_validate_note_name(name), text)
    statement = "INSERT INTO state (name, text) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET text = excluded.text"
    connection.execute(statement, first)
    # A statement of its own: it sees the parts of a writer that the first statement waited for.
    statement = (
        "WITH removed AS (DELETE FROM state WHERE name >= %s AND name < %s)"
        " SELECT text FROM state WHERE name = 'layout'"
    )
    layout = connection.execute(statement, rows.get_part_names(name)).fetchone()
    for part in others:
        connection.execute("INSERT INTO state (name, text) VALUES (%s, %s)", part)
    return layout != (MOVED_MARK,)


def read_lease_text(connection: Connection, name: str) -> str | None:
    """Read the text of a lease; None if nobody holds it."""
    statement = "SELECT text FROM state WHERE name = %s AND holder IS NOT NULL AND until >= clock_timestamp()"
    (text,) = connection.execute(statement, (name,)).fetchone() or (None,)
    return None if text is None else str(text)


def get_schema_bytes(connection: Connection) -> int:
    statement = (
        "SELECT coalesce(sum(pg_total_relation_size(objid)), 0)::int8 FROM pg_depend"
        " WHERE refclassid = 'pg_namespace'::regclass AND refobjid = current_schema()::regnamespace"
        " AND classid = 'pg_class'::regclass"
    )
    (total,) = connection.execute(statement).fetchone() or (0,)
    return int(total)


def _validate_note_name(name: str) -> str:
    """Return the name. Raises ValueError if the store itself uses it."""
    if name in _RESERVED_NOTES or name.startswith("#") or "." in name:
        raise ValueError(f"the note name {name} is reserved")
    return name
