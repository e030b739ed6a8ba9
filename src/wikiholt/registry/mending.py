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

from wikiholt.plainfiles import is_irregular
from wikiholt.registry import schema
from wikiholt.registry.loss import ChecksumFile


def read_file_checksum(file: Path) -> str | None:
    """The seal a copy bears, without a look at whether it is whole; None where there is none to be read."""
    if is_irregular(file):
        return None
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
        ) as connection:
            return schema.read_checksum(connection)
    except (sqlite3.Error, TypeError, UnicodeDecodeError):  # damage may look like text that is none
        return None


def delete_wikis(file: Path, wiki_ids: Collection[str]) -> bool:
    """Delete every byte of these wikis from a copy; whether one was in there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        schema.migrate_schema(connection)
        connection.execute("BEGIN IMMEDIATE")
        ledger = schema.RegistryTransaction(connection)
        for wiki_id in wiki_ids:
            for table, column in (("wikis", "id"), ("hosts", "wiki_id"), ("keys", "wiki_id")):
                ledger.delete(table, column, wiki_id)
            ledger.delete("marks", "name", schema.REPOSITORY_MARK + wiki_id)
        ledger.write_checksum()
        connection.execute("COMMIT")
        if ledger.has_deletions:
            connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ledger.has_deletions


def replace_file(path: Path, rows: schema.RegistryRows) -> str | None:
    """Write these rows as the registry; returns the name under which the one that was there lies now."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.touch(0o600, exist_ok=False)
        write_file(draft, rows)
        aside = _quarantine_file(path)
        ChecksumFile(path).write(schema.compute_checksum(rows))
        draft.replace(path)
        _fsync(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    return aside


def write_file(file: Path, rows: schema.RegistryRows) -> None:
    """Make a registry of these rows in a file that is empty or not there."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        schema.create_tables(connection)
        connection.execute("BEGIN")
        ledger = schema.RegistryTransaction(connection)
        ledger.replace_all(rows)
        ledger.write_checksum()
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _fsync(file)


def _quarantine_file(path: Path) -> str | None:
    """Leave an empty file, which is refused as damaged, where the registry was; what was there is kept beside it."""
    name = f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{path.name}"
    if not os.path.lexists(path):
        return None
    if is_irregular(path):
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


def _fsync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
