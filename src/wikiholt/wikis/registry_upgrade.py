"""Registry files that have no writer: backups, and the registry of version 2, which is upgraded once.

Version 2 had one checksum over all rows, a file `registry.sqlite-seal` that named the last valid checksum, marks for
what has its own column or list now, and no list of revoked keys: which keys were revoked shows in its backups.
"""

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from wikiholt.errors import IndexCorrupt, IndexTooNew, StorageError
from wikiholt.regular_files import fsync_path, read_regular
from wikiholt.wikis.registry_schema import (
    RECOVERY_HINT,
    REGISTRY_TABLES,
    RESTORE_HINT,
    TABLE_COLUMNS,
    RegistryRows,
    get_value,
)
from wikiholt.wikis.registry_store import RegistryReader, make_outdated_registry_error, replace_rows
from wikiholt.wikis.revoked_list import FIRST_KEY, STARTED_EMPTY, RevokedEntry, RevokedList
from wikiholt.wikis.small_store import connect, write_file

_OLD_VERSION = 2
_OLD_COLUMNS = {
    "wikis": TABLE_COLUMNS["wikis"][:-1],
    "hosts": TABLE_COLUMNS["hosts"],
    "keys": TABLE_COLUMNS["keys"],
    "marks": ("name", "value"),
}
_REMOVED_MARK, _REPOSITORY_MARK = "struck-", "repository-"
_FACTS = {"keyed": FIRST_KEY, "rebuilt": STARTED_EMPTY}


def open_copy(file: Path) -> sqlite3.Connection:
    """Open a registry file that has no writer."""
    if not file.is_file() or file.is_symlink():
        raise IndexCorrupt("it is not a regular file", hint="move it away")
    return connect(file, "mode=ro&immutable=1")


def read_registry_file(file: Path) -> RegistryRows:
    """The rows of a copy of a registry, verified. Raises IndexCorrupt and IndexTooNew."""
    try:
        with closing(open_copy(file)) as connection:
            return _read_rows(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise IndexCorrupt(f"it is damaged ({type(error).__name__})", hint="use another backup") from error
    except OSError as error:
        raise StorageError(f"it cannot be read ({error.strerror or error})", hint="check the disk") from error


def _read_rows(connection: sqlite3.Connection) -> RegistryRows:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if application != REGISTRY_TABLES.application_id or version < _OLD_VERSION or result != "ok":
        raise IndexCorrupt("it is damaged, or not a registry of this version", hint=RESTORE_HINT)
    if version > REGISTRY_TABLES.version:
        raise IndexTooNew("it was written by a newer Wikiholt", hint="use that Wikiholt, or a newer one")
    return _read_old_rows(connection) if version == _OLD_VERSION else RegistryReader(connection, ()).read_rows()


def _read_old_rows(connection: sqlite3.Connection) -> RegistryRows:
    old: dict[str, list[tuple[str, ...]]] = {
        table: connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()  # noqa: S608
        for table, columns in _OLD_COLUMNS.items()
    }
    if connection.execute("SELECT digest FROM sealed").fetchone() != (_compute_old_checksum(old),):
        raise IndexCorrupt("its rows are not those that were written", hint=RESTORE_HINT)
    marks: dict[str, str] = dict(old["marks"])  # type: ignore[arg-type] # two columns
    entries = {fact for name, fact in _FACTS.items() if name in marks}
    entries |= {
        RevokedEntry.of_wiki(name.removeprefix(_REMOVED_MARK)) for name in marks if name.startswith(_REMOVED_MARK)
    }
    return {
        "wikis": sorted(((*row, marks.get(_REPOSITORY_MARK + row[0], "")) for row in old["wikis"]), key=repr),
        "hosts": sorted(old["hosts"], key=repr),
        "keys": sorted(old["keys"], key=repr),
        "revoked": sorted(entries, key=repr),
    }


def _compute_old_checksum(rows: dict[str, list[tuple[str, ...]]]) -> str:
    texts = (repr((table, *row)).encode("utf-8", "surrogatepass") for table in rows for row in rows[table])
    total = sum(int.from_bytes(hashlib.blake2b(text, digest_size=16).digest()) for text in texts)
    return f"{total % (1 << 128):032x}"


def upgrade_registry(path: Path, revoked_list: RevokedList, backups: Path) -> None:
    """Replace a registry of version 2, and list the keys and wikis that only its backups still have.

    Raises IndexCorrupt if it is damaged, or not the one that was last written here.
    """
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with closing(connect(path, "mode=rw")) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == REGISTRY_TABLES.version:  # another process was faster
                return
            if version != _OLD_VERSION:
                message = f"The registry {path} is damaged: its version {version} is too old."
                raise IndexCorrupt(message, hint=RECOVERY_HINT)
            rows = _read_rows(connection)
            _require_last_written(path, connection, has_list=revoked_list.load() is not None)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        entries = {RevokedEntry(*map(str, row)) for row in rows["revoked"]} | _find_revoked(rows, backups)
        draft.touch(0o600)
        write_file(draft, REGISTRY_TABLES, partial(replace_rows, rows={**rows, "revoked": [*sorted(entries)]}))
        revoked_list.append(entries)
        draft.replace(path)
        fsync_path(path.parent)
    finally:
        draft.unlink(missing_ok=True)
        os.close(lock)
    for name in (f"{path.name}-seal", "sign-ins.sqlite"):
        path.with_name(name).unlink(missing_ok=True)


def _require_last_written(path: Path, connection: sqlite3.Connection, *, has_list: bool) -> None:
    try:
        known = read_regular(path.with_name(f"{path.name}-seal")).decode().split()
    except (OSError, ValueError):
        known = []
    (checksum,) = connection.execute("SELECT digest FROM sealed").fetchone()
    if checksum not in known if known else has_list:
        raise make_outdated_registry_error(f"The registry {path}")


def _find_revoked(rows: RegistryRows, backups: Path) -> set[RevokedEntry]:
    """What the backups have and the registry has no more."""
    from wikiholt.index.backup_directory import BackupDirectory  # noqa: PLC0415 - needed once

    found: set[RevokedEntry] = set()
    for backup in BackupDirectory(backups).list_files():
        with suppress(IndexCorrupt, IndexTooNew, StorageError):
            older = read_registry_file(backup.file)
            found |= {RevokedEntry.of_wiki(wiki_id) for wiki_id in _get_ids(older["wikis"]) - _get_ids(rows["wikis"])}
            found |= {RevokedEntry.of_key(digest) for digest in _get_digests(older) - _get_digests(rows)}
    return found


def _get_ids(rows: Iterable[Sequence[str | None]]) -> set[str]:
    return {str(row[0]) for row in rows}


def _get_digests(rows: RegistryRows) -> set[str]:
    return {str(get_value("keys", row, "digest")) for row in rows["keys"]}
