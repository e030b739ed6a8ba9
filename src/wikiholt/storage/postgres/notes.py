"""Small texts with a wiki's index, and what the wiki takes up."""

import re
from contextlib import suppress
from pathlib import Path

from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.schema import MOVED_MARK

_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_RESERVED_NOTES = {"writer", "desk", "layout", "mark"}


def read_note(connection: Connection, name: str) -> str | None:
    row = connection.execute("SELECT text FROM notes WHERE name = %s", (_validate_note_name(name),)).fetchone()
    return None if row is None else str(row[0])


def write_note(connection: Connection, name: str, text: str) -> bool:
    """Keep it; whether that is where the wiki is, and has not been moved away meanwhile."""
    order = "INSERT INTO notes (name, text) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET text = excluded.text"
    connection.execute(order, (_validate_note_name(name), text))
    return connection.execute("SELECT text FROM notes WHERE name = 'layout'").fetchone() != (MOVED_MARK,)


def read_lease_text(connection: Connection, name: str) -> str | None:
    """The note of whoever holds a lease; None when nobody does."""
    order = "SELECT text FROM notes WHERE name = %s AND holder IS NOT NULL AND until >= clock_timestamp()"
    row = connection.execute(order, (name,)).fetchone()
    return None if row is None else str(row[0])


def get_schema_bytes(connection: Connection) -> int:
    order = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::int8 FROM pg_class"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
    )
    (total,) = connection.execute(order).fetchone() or (0,)
    return int(total)


def get_directory_bytes(directory: Path) -> int:
    total = 0
    for file in directory.rglob("*"):
        with suppress(OSError):  # some come and go meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total


def list_files(directory: Path) -> list[str]:
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if not file.is_dir())


def list_wiki_directories(root: Path) -> list[str]:
    """The ids of the wikis that have mirrors or caches on this machine."""
    if not root.is_dir():
        return []
    return [entry.name for entry in root.iterdir() if entry.is_dir() and _WIKI_ID.fullmatch(entry.name)]


def _validate_note_name(name: str) -> str:
    """A name that is none of those the store itself uses."""
    if name in _RESERVED_NOTES:
        raise ValueError(f"{name} is no name for a note")
    return name
