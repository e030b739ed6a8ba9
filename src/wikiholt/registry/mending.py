"""What is done to registry files by hand: copies looked at and changed, one put in the place of another.

While a registry is replaced there is at every moment a file under its name, and until the last step it is one that
opens nothing: a registry without its log might be an older one, in which a revoked key still opens a wiki.
"""

import os
import secrets
import sqlite3
from collections.abc import Collection
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from wikiholt.plainfiles import is_odd
from wikiholt.registry import schema
from wikiholt.registry.loss import SealFile


def seal_at(file: Path) -> str | None:
    """The seal a copy bears, without a look at whether it is whole; None where there is none to be read."""
    if is_odd(file):
        return None
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
        ) as connection:
            return schema.seal(connection)
    except (sqlite3.Error, TypeError, UnicodeDecodeError):  # damage may look like text that is none
        return None


def strike(file: Path, wiki_ids: Collection[str]) -> bool:
    """Delete every byte of these wikis from a copy; whether one was in there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        schema.migrate(connection)
        connection.execute("BEGIN IMMEDIATE")
        ledger = schema.Ledger(connection)
        for wiki_id in wiki_ids:
            for table, column in (("wikis", "id"), ("hosts", "wiki_id"), ("keys", "wiki_id")):
                ledger.delete(table, column, wiki_id)
            ledger.delete("marks", "name", schema.REPOSITORY + wiki_id)
        ledger.seal()
        connection.execute("COMMIT")
        if ledger.deleted:
            connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ledger.deleted


def install(path: Path, rows: schema.Rows) -> str | None:
    """Write these rows as the registry; returns the name under which the one that was there lies now."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.touch(0o600, exist_ok=False)
        write(draft, rows)
        aside = _set_aside(path)
        SealFile(path).write(schema.seal_of(rows))
        draft.replace(path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    return aside


def write(file: Path, rows: schema.Rows) -> None:
    """Make a registry of these rows in a file that is empty or not there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        schema.create(connection)
        connection.execute("BEGIN")
        ledger = schema.Ledger(connection)
        ledger.replace(rows)
        ledger.seal()
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _sync(file)


def _set_aside(path: Path) -> str | None:
    """Leave an empty file, which is refused as damaged, where the registry was; what was there is kept beside it."""
    name = f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{path.name}"
    if not os.path.lexists(path):
        return None
    if is_odd(path):
        path.rename(path.with_name(name))
    else:
        os.link(path, path.with_name(name))
    empty = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    empty.touch(0o600)
    empty.replace(path)
    # The log of one file must never be taken for that of another.
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(path.with_name(name + ending))
    return name


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
