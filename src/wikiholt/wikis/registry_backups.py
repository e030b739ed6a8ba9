"""Backups of the registry, the only data that git cannot restore.

A registry is never restored automatically. A restore brings back no key or wiki of the list of revoked keys, and no key
at all if that list is lost.
"""

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from wikiholt.domain.wiki import BackupReason, Key, RegistryBackup
from wikiholt.errors import (
    BackupNotFound,
    Busy,
    Conflict,
    IndexCorrupt,
    IndexMissing,
    IndexTooNew,
    StorageError,
    WikiholtError,
)
from wikiholt.index.backup_directory import BackupDirectory, BackupFile, PendingBackup
from wikiholt.wikis.keys import parse_key
from wikiholt.wikis.registry_schema import REGISTRY_TABLES, RESTORE_HINT, TABLE_COLUMNS, RegistryRows
from wikiholt.wikis.registry_store import RegistryReader, RegistryStore, is_revoked, read_version, replace_rows
from wikiholt.wikis.revoked_list import FIRST_KEY, STARTED_EMPTY, RevokedEntry
from wikiholt.wikis.small_store import connect, write_file

_LOG = logging.getLogger(__name__)

_SMALL_BACKUP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RegistryRestore:
    """The result of a restore: the backup, the keys it left out, and the name of the quarantined registry."""

    backup: RegistryBackup
    omitted_keys: tuple[Key, ...]
    quarantined_as: str | None
    revocations_known: bool
    """Whether the list of revoked keys was there; if not, no key was restored."""


@dataclass(frozen=True, slots=True)
class _RegistryCopy:
    rows: RegistryRows
    version: str


class RegistryBackups:
    """The backups of one registry. Safe to use from many threads and processes."""

    def __init__(self, store: RegistryStore, directory: Path, keep_count: int) -> None:
        self._store = store
        self._directory = BackupDirectory(directory)
        self._keep_count = keep_count
        self._purged: set[RevokedEntry] = set()

    def create(self, reason: BackupReason = BackupReason.REQUESTED) -> RegistryBackup:
        """Create and verify a backup. Raises IndexMissing if there is no registry."""
        # Exclusive, so that a copy started before a wiki was removed is purged afterwards.
        with self._directory.lock(), self._directory.open_pending() as draft:
            copied = self._copy()
            if copied is None:
                raise IndexMissing("there is no registry yet", hint="`wikiholt add` registers a first wiki")
            backup_file = _commit(draft, copied, reason)
        self._directory.prune(self._keep_count, keep_files=(backup_file,))
        return _make_backup(backup_file, copied.rows)

    def create_if_changed(
        self, min_interval_s: float = 0.0, reason: BackupReason = BackupReason.SCHEDULED
    ) -> RegistryBackup | None:
        """Create a backup if the registry changed since the newest one; a large one at most every `min_interval_s`."""
        self._directory.remove_abandoned()  # drafts of killed processes
        version = self._store.get_version()
        if version is None:
            return None
        newest = next(iter(self._directory.list_files()), None)
        if newest is not None:
            recent = timedelta() <= datetime.now(UTC) - newest.taken_at < timedelta(seconds=min_interval_s)
            if recent and newest.size_bytes > _SMALL_BACKUP_BYTES:
                return None
            if version == _read_file_version(newest.file) and not self._directory.find_fault(newest):
                return None
        return self.create(reason)

    def purge(self) -> None:
        """Remove the rows of removed wikis from every backup; one that cannot be rewritten is deleted."""
        removed = {entry for entry in self._load_list() or () if entry.kind == "wiki"}
        if removed == self._purged or not self._directory.directory.exists():
            return
        with self._directory.lock():
            for backup_file in self._directory.list_files():
                backup, rows = self._verify_backup(backup_file)
                kept = _leave_out_revoked(rows, removed, keeps_keys=True)[0] if rows else None
                if kept is not None and rows is not None and {**kept, "revoked": rows["revoked"]} == rows:
                    continue
                # The old backup is deleted first: a crash here loses one backup, but never keeps the removed wiki.
                version = _read_file_version(backup_file.file)
                backup_file.file.unlink(missing_ok=True)
                if kept is None:
                    _LOG.warning("a backup of the registry is deleted, it may contain a removed wiki: %s", backup.fault)
                    continue
                with self._directory.open_pending() as draft:
                    _commit(draft, _RegistryCopy(kept, version or ""), backup_file.reason, backup_file.taken_at)
        self._purged = removed

    def is_outdated(self) -> bool:
        """Whether the newest good backup differs from the registry, or there is none."""
        version = self._store.get_version()
        if version is None:
            return False
        newest = next((file for file in self._directory.list_files() if not self._directory.find_fault(file)), None)
        return newest is None or _read_file_version(newest.file) != version

    def list(self) -> Sequence[RegistryBackup]:
        """All backups, newest first, with every byte verified."""
        return [backup for backup, _ in map(self._verify_backup, self._directory.list_files())]

    def restore(self, at: datetime | None = None) -> RegistryRestore:
        """Restore the newest good backup not taken after `at`. Raises BackupNotFound."""
        good = self._list_good_backups()
        chosen = next(((backup, rows) for backup, rows in good if at is None or backup.taken_at <= at), None)
        if chosen is None:
            raise BackupNotFound(
                "there is no good backup of the registry" + ("" if at is None else f" from before {at:%Y-%m-%d %H:%M}"),
                hint="`wikiholt restore --registry --list` shows all backups; if none is usable,"
                " `wikiholt restore --registry --empty` starts a new one, in which no wiki can be read without a key",
            )
        backup, rows = chosen
        current, listed = self._read_current(), self._load_list()
        unchecked = self._store.read_unchecked()
        sources = [rows, *(other for _, other in good), *((unchecked,) if unchecked else ())]
        entries = {*(listed or ()), *(RevokedEntry(*map(str, row)) for source in sources for row in source["revoked"])}
        is_known = listed is not None or FIRST_KEY not in entries
        restored, omitted_keys = _leave_out_revoked(rows, entries, keeps_keys=is_known)
        quarantined_as = None
        if current is None:
            self._store.revoked_list.replace(entries)
            quarantined_as = self._store.store.replace(partial(replace_rows, rows=restored))
        else:
            if all(other != current.rows for _, other in good):
                self.create(BackupReason.BEFORE_RESTORING)
            with self._store.store.write() as connection:
                if read_version(connection) != current.version:
                    raise Busy("the registry was changed meanwhile", hint="try again")
                replace_rows(connection, restored)
        self._store.forget_checks()
        return RegistryRestore(backup, omitted_keys, quarantined_as, is_known)

    def start_empty(self) -> str | None:
        """Replace a lost registry by an empty one; returns the name under which the old one is kept.

        It requires keys for everything, and its wikis are private unless set to public. Raises Conflict while the
        registry can be read, or can be restored from a backup.
        """
        with suppress(IndexCorrupt), self._store.read() as reader:
            raise Conflict(
                "the registry is not lost" if reader else "there is no registry yet",
                hint="`wikiholt add` registers a wiki in it",
            )
        if self._list_good_backups():
            raise Conflict("there is a good backup of the registry", hint="restore it: `wikiholt restore --registry`")
        entries = {*(self._load_list() or ()), FIRST_KEY, STARTED_EMPTY}
        self._store.revoked_list.replace(entries)
        rows: RegistryRows = {**{table: [] for table in TABLE_COLUMNS}, "revoked": [*sorted(entries)]}
        quarantined_as = self._store.store.replace(partial(replace_rows, rows=rows))
        self._store.forget_checks()
        return quarantined_as

    def _copy(self) -> _RegistryCopy | None:
        with self._store.read_snapshot() as reader:
            return _RegistryCopy(reader.read_rows(), reader.read_version()) if reader is not None else None

    def _read_current(self) -> _RegistryCopy | None:
        """The registry; None if it is damaged, outdated, missing or without its list of revoked keys."""
        try:
            return self._copy()
        except IndexCorrupt:
            return None

    def _load_list(self) -> frozenset[RevokedEntry] | None:
        """The list of revoked keys; None if it is missing or damaged."""
        try:
            return self._store.revoked_list.load()
        except IndexCorrupt:
            return None

    def _list_good_backups(self) -> Sequence[tuple[RegistryBackup, RegistryRows]]:
        """The usable backups with their rows, newest first."""
        backups = map(self._verify_backup, self._directory.list_files())
        return [(backup, rows) for backup, rows in backups if rows is not None]

    def _verify_backup(self, backup_file: BackupFile) -> tuple[RegistryBackup, RegistryRows | None]:
        fault = self._directory.find_fault(backup_file)
        try:
            rows = None if fault else _read_registry_file(backup_file.file)
        except WikiholtError as error:
            rows, fault = None, error.message
        return _make_backup(backup_file, rows, fault), rows


def _open_copy(file: Path) -> sqlite3.Connection:
    """Open a backup, which has no writer."""
    if not file.is_file() or file.is_symlink():
        raise IndexCorrupt("it is not a regular file", hint="move it away")
    return connect(file, "mode=ro&immutable=1")


def _read_registry_file(file: Path) -> RegistryRows:
    """The rows of a backup, verified. Raises IndexCorrupt, IndexTooNew and StorageError."""
    try:
        with closing(_open_copy(file)) as connection:
            return _read_rows(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise IndexCorrupt(f"it is damaged ({type(error).__name__})", hint="use another backup") from error
    except OSError as error:
        raise StorageError(f"it cannot be read ({error.strerror or error})", hint="check the disk") from error


def _read_rows(connection: sqlite3.Connection) -> RegistryRows:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if application != REGISTRY_TABLES.application_id or version < REGISTRY_TABLES.version or result != "ok":
        raise IndexCorrupt("it is damaged, or not a registry of this version", hint=RESTORE_HINT)
    if version > REGISTRY_TABLES.version:
        raise IndexTooNew("it was written by a newer Wikiholt", hint="use that Wikiholt, or a newer one")
    return RegistryReader(connection, ()).read_rows()


def _commit(draft: PendingBackup, copied: _RegistryCopy, reason: str, taken_at: datetime | None = None) -> BackupFile:
    """Write and verify a backup. Raises IndexCorrupt."""
    rows = copied.rows
    write_file(draft.file, REGISTRY_TABLES, partial(replace_rows, rows=rows, version=copied.version))
    if _read_registry_file(draft.file) != rows:
        raise IndexCorrupt("the copy of the registry differs from it", hint="check the disk, then try again")
    return draft.commit(f"w{len(rows['wikis'])}-k{len(rows['keys'])}", reason, taken_at)


def _leave_out_revoked(
    rows: RegistryRows, entries: set[RevokedEntry], *, keeps_keys: bool
) -> tuple[RegistryRows, tuple[Key, ...]]:
    """The rows to restore, with all entries of the list, and the keys that were left out."""
    kept: RegistryRows = {
        table: [row for row in rows[table] if not is_revoked(table, row, entries)] for table in TABLE_COLUMNS
    }
    kept["revoked"] = [*sorted(entries)]
    if not keeps_keys:
        kept["keys"] = []
    return kept, tuple(parse_key(row) for row in rows["keys"] if row not in kept["keys"])


def _make_backup(backup_file: BackupFile, rows: RegistryRows | None, fault: str = "") -> RegistryBackup:
    wikis, keys = (len(rows["wikis"]), len(rows["keys"])) if rows is not None else (0, 0)
    return RegistryBackup(
        backup_file.name, backup_file.taken_at, backup_file.reason, backup_file.size_bytes, wikis, keys, fault
    )


def _read_file_version(file: Path) -> str | None:
    """The version of the registry in a backup; None if it cannot be read."""
    try:
        with closing(_open_copy(file)) as connection:
            return read_version(connection)
    except (sqlite3.Error, UnicodeDecodeError, WikiholtError):  # a damaged file may yield any value
        return None
