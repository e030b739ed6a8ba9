"""Backups of the registry, the only data that git cannot restore.

A registry is never restored automatically. Restoring does not bring back revoked keys: keys that are not in the current
registry, or if that is damaged in the newest backup, are left out. Removed wikis are purged from the backups too.
"""

import logging
import shutil
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from wikiholt.domain.wiki import BackupReason, Key, RegistryBackup
from wikiholt.errors import BackupNotFound, Busy, Conflict, IndexCorrupt, IndexMissing, IndexUnavailable
from wikiholt.indexing.backup_directory import BackupDirectory, BackupFile
from wikiholt.wikis import registry_schema
from wikiholt.wikis.keys import parse_key
from wikiholt.wikis.registry_file import RegistryFile, delete_wikis, read_file_checksum
from wikiholt.wikis.registry_schema import PURGE_MARK_PREFIX, RegistryDatabase, RegistryRow, RegistryRows, get_value

_LOG = logging.getLogger(__name__)

_SMALL_BACKUP_BYTES = 1 << 20
_PURGE_MARK_TTL = timedelta(days=30)
"""How long a shared registry keeps the mark of a removed wiki."""


@dataclass(frozen=True, slots=True)
class RegistryRestore:
    """The result of a restore: the backup, the keys it left out, and the name of the quarantined registry."""

    backup: RegistryBackup
    omitted_keys: tuple[Key, ...]
    quarantined_as: str | None
    revocations_known: bool
    """Whether revoked keys are known; if not, some restored keys may have been revoked."""


class RegistryBackups:
    """The backups of one registry. Safe to use from many threads and processes."""

    def __init__(self, database: RegistryDatabase, directory: Path, keep_count: int) -> None:
        self._database = database
        self._directory = BackupDirectory(directory)
        self._keep_count = keep_count
        self._purged: set[str] = set()
        self.remove_leftovers: Callable[[str], None] = lambda _: None
        """Callback that removes the data of a wiki outside the registry."""

    def create(self, reason: BackupReason = BackupReason.REQUESTED) -> RegistryBackup:
        """Create and verify a backup. Raises IndexMissing if there is no registry."""
        self.finish_purges()
        with self._directory.lock(), self._directory.open_pending() as draft:
            checksum = self._database.write_copy(draft.file)
            if checksum is None:
                raise IndexMissing("there is no registry yet", hint="`wikiholt add` registers a first wiki")
            rows = self._read_backup_rows(draft.file)
            if registry_schema.compute_checksum(rows) != checksum:
                raise IndexCorrupt("the copy of the registry differs from it", hint="check the disk, then try again")
            backup_file = draft.commit(_make_label(rows), reason)
        self._directory.prune(self._keep_count, keep_files=(backup_file,))
        return _make_backup(backup_file, rows)

    def create_if_changed(
        self, min_interval_s: float = 0.0, reason: BackupReason = BackupReason.SCHEDULED
    ) -> RegistryBackup | None:
        """Create a backup if the registry changed since the newest one; a large one at most every `min_interval_s`."""
        self.finish_purges()
        self._directory.remove_abandoned()  # drafts of killed processes
        checksum = self._read_checksum()
        if checksum is None:
            return None
        newest = next(iter(self._directory.list_files()), None)
        if newest is not None:
            recent = timedelta() <= datetime.now(UTC) - newest.taken_at < timedelta(seconds=min_interval_s)
            if recent and newest.size_bytes > _SMALL_BACKUP_BYTES:
                return None
            if checksum == read_file_checksum(newest.file) and not self._directory.find_fault(newest):
                return None
        return self.create(reason)

    def is_outdated(self) -> bool:
        """Whether the newest good backup differs from the registry, or there is none."""
        checksum = self._read_checksum()
        if checksum is None:
            return False
        newest = next((file for file in self._directory.list_files() if not self._directory.find_fault(file)), None)
        return newest is None or read_file_checksum(newest.file) != checksum

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
        (backup, rows), (newest, newest_rows) = chosen, good[0]
        current_rows = self._read_current_rows()
        known_rows = current_rows or newest_rows
        rows, omitted_keys = _remove_revoked(rows, known_rows)
        rows["marks"] = _merge_marks(rows["marks"], known_rows["marks"])
        if current_rows is None:
            quarantined_as = self._database.replace_contents(rows)
            return RegistryRestore(backup, omitted_keys, quarantined_as, revocations_known=backup.name != newest.name)
        current_checksum = registry_schema.compute_checksum(current_rows)
        if current_checksum != registry_schema.compute_checksum(newest_rows):
            self.create(BackupReason.BEFORE_RESTORING)
        with self._database.write_transaction() as transaction:
            if registry_schema.read_checksum(transaction.connection) != current_checksum:
                raise Busy("the registry was changed meanwhile", hint="try again")
            transaction.replace_all(rows)
        return RegistryRestore(backup, omitted_keys, None, revocations_known=True)

    def start_empty(self) -> str | None:
        """Replace a lost registry by an empty one; returns the name under which the old one is kept.

        It requires keys for everything, and its wikis are private unless set to public. Raises Conflict while the
        registry can be read, or can be restored from a backup.
        """
        with suppress(IndexCorrupt), self._database.read_connection() as connection:
            raise Conflict(
                "the registry is not lost" if connection else "there is no registry yet",
                hint="`wikiholt add` registers a wiki in it",
            )
        if self._list_good_backups():
            raise Conflict("there is a good backup of the registry", hint="restore that: wikiholt restore --registry")
        now = datetime.now(UTC).isoformat()
        marks: list[RegistryRow] = [
            (registry_schema.KEYED_MARK, now),
            (registry_schema.REBUILT_MARK, now),
        ]
        return self._database.replace_contents(
            {**{table: [] for table in registry_schema.TABLE_COLUMNS}, "marks": marks}
        )

    def finish_purges(self) -> None:
        """Purge removed wikis from every backup, including those whose removal was interrupted.

        `remove_leftovers` removes their other data; if that is busy, the next call retries.
        """
        marks = self._read_purge_marks()
        pending = [wiki_id for wiki_id, since in marks.items() if since is not None and wiki_id not in self._purged]
        if pending:
            self.purge(pending)
        for wiki_id in pending:
            try:
                self.remove_leftovers(wiki_id)
            except (Busy, IndexUnavailable) as error:
                _LOG.warning("data of a removed wiki will be removed later: %s", error.message)
                continue
            self._purged.add(wiki_id)
        self._purged &= marks.keys()
        # Other machines must purge their own backups, and may be offline for a while.
        cutoff = (datetime.now(UTC) - _PURGE_MARK_TTL).isoformat() if self._database.is_shared else ""
        finished = [
            wiki_id
            for wiki_id, since in marks.items()
            if since is None or (wiki_id in self._purged and (not cutoff or since < cutoff))
        ]
        if finished:
            with self._database.write_transaction() as transaction:
                for wiki_id in finished:
                    transaction.delete("marks", "name", PURGE_MARK_PREFIX + wiki_id)

    def _read_purge_marks(self) -> Mapping[str, str | None]:
        """The ids of marked wikis, with the time of removal; None for a wiki that is registered again."""
        with self._database.read_connection() as connection:
            if connection is None:
                return {}
            marks = connection.execute("SELECT name, value FROM marks").fetchall()
            removed = {
                name.removeprefix(PURGE_MARK_PREFIX): since
                for name, since in marks
                if name.startswith(PURGE_MARK_PREFIX)
            }
            known = {wiki_id for (wiki_id,) in connection.execute("SELECT id FROM wikis")} if removed else set()
            return {wiki_id: None if wiki_id in known else since for wiki_id, since in removed.items()}

    def purge(self, wiki_ids: Collection[str]) -> None:
        """Purge wikis from every backup; a backup that cannot be rewritten is deleted."""
        if not self._directory.directory.exists():
            return
        # Exclusive, so that a copy started before the removal is not kept afterwards.
        with self._directory.lock():
            for backup_file in self._directory.list_files():
                try:
                    self._purge_backup(backup_file, wiki_ids)
                except (IndexUnavailable, OSError, sqlite3.Error) as error:
                    _LOG.warning("a backup of the registry is deleted, it may contain a removed wiki: %s", error)
                    backup_file.file.unlink(missing_ok=True)

    def _purge_backup(self, backup_file: BackupFile, wiki_ids: Collection[str]) -> None:
        fault = self._directory.find_fault(backup_file)
        if fault:
            raise IndexCorrupt(fault, hint="it is unusable")
        with self._directory.open_pending() as draft:
            shutil.copyfile(backup_file.file, draft.file)
            if not delete_wikis(draft.file, wiki_ids):
                return
            rows = self._read_backup_rows(draft.file)
            # The old backup is deleted first: a crash here loses one backup, but never keeps the removed wiki.
            backup_file.file.unlink(missing_ok=True)
            draft.commit(_make_label(rows), backup_file.reason, backup_file.taken_at)

    def _list_good_backups(self) -> Sequence[tuple[RegistryBackup, RegistryRows]]:
        """The usable backups with their rows, newest first."""
        backups = map(self._verify_backup, self._directory.list_files())
        return [(backup, rows) for backup, rows in backups if rows is not None]

    def _read_checksum(self) -> str | None:
        """The checksum of the registry; None if there is no registry yet."""
        with self._database.read_connection() as connection:
            return registry_schema.read_checksum(connection) if connection is not None else None

    def _read_current_rows(self) -> RegistryRows | None:
        """The rows of the registry; None if it is damaged or missing."""
        try:
            with self._database.read_connection() as connection:
                return registry_schema.read_rows(connection) if connection is not None else None
        except IndexCorrupt:
            return None

    def _verify_backup(self, backup_file: BackupFile) -> tuple[RegistryBackup, RegistryRows | None]:
        fault = self._directory.find_fault(backup_file)
        try:
            rows = None if fault else self._read_backup_rows(backup_file.file)
        except (IndexUnavailable, Busy) as error:
            rows, fault = None, error.message
        return _make_backup(backup_file, rows, fault), rows

    def _read_backup_rows(self, file: Path) -> RegistryRows:
        with RegistryFile(file, 1.0).read_immutable_copy() as connection:
            return registry_schema.read_rows(connection)


def _remove_revoked(rows: RegistryRows, known_rows: RegistryRows) -> tuple[RegistryRows, tuple[Key, ...]]:
    """The rows without keys that are not in `known_rows`, and those keys."""
    valid_ids = {get_value("keys", row, "id") for row in known_rows["keys"]}
    valid = [row for row in rows["keys"] if get_value("keys", row, "id") in valid_ids]
    revoked = [row for row in rows["keys"] if get_value("keys", row, "id") not in valid_ids]
    return {**rows, "keys": valid}, tuple(parse_key(cast(Sequence[str], row)) for row in revoked)


def _merge_marks(restored: Sequence[RegistryRow], known: Sequence[RegistryRow]) -> list[RegistryRow]:
    """The marks of both. A mark is never lost: once there was a key, nothing may be open without one."""
    return list({get_value("marks", row, "name"): row for row in (*restored, *known)}.values())


def _make_label(rows: RegistryRows) -> str:
    return f"w{len(rows['wikis'])}-k{len(rows['keys'])}"


def _make_backup(backup_file: BackupFile, rows: RegistryRows | None, fault: str = "") -> RegistryBackup:
    wikis, keys = (len(rows["wikis"]), len(rows["keys"])) if rows is not None else (0, 0)
    return RegistryBackup(
        backup_file.name, backup_file.taken_at, backup_file.reason, backup_file.size_bytes, wikis, keys, fault
    )
