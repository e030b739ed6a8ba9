"""Backups of the registry: what no git repository could give back.

A registry is never restored by itself, and restoring one brings no key back that is known to have been revoked: keys
that the present registry has not, or where that is damaged the newest backup, are left out. What was struck with a
removed wiki is struck from the backups too.
"""

import logging
import shutil
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
from wikiholt.wikis.registry_file import RegistryFile
from wikiholt.wikis.registry_files import delete_wikis, read_file_checksum
from wikiholt.wikis.registry_schema import RegistryDatabase

_LOG = logging.getLogger(__name__)

_SMALL_BACKUP_BYTES = 1 << 20
_PURGE_MARK_TTL = timedelta(days=30)
"""For so long it is remembered in a registry that machines share that a wiki was removed."""
PURGE_MARK_PREFIX = "struck-"
"""A mark of this name and a wiki's id: the wiki was removed, and may still be in backups."""


@dataclass(frozen=True, slots=True)
class RegistryRestore:
    """What restoring a registry did: from what, which keys it left out, and where a damaged registry lies now."""

    backup: RegistryBackup
    omitted_keys: tuple[Key, ...]
    quarantined_as: str | None
    revocations_known: bool
    """Whether it is known which keys were revoked; if not, some may open wikis again that were."""


class RegistryBackups:
    """Bound to one registry and one shelf. Safe to use from many threads and processes."""

    def __init__(self, database: RegistryDatabase, directory: Path, keep_count: int) -> None:
        self._database = database
        self._directory = BackupDirectory(directory)
        self._keep_count = keep_count
        self._purged: set[str] = set()
        self.remove_leftovers: Callable[[str], None] = lambda _: None
        """Removes what is left of a wiki outside the registry."""

    def create(self, reason: BackupReason = BackupReason.REQUESTED) -> RegistryBackup:
        """Copy the registry as it is now, verify the copy and keep it; raises IndexMissing while there is none."""
        self.finish_purges()
        with self._directory.lock(), self._directory.open_pending() as draft:
            seal = self._database.write_copy(draft.file)
            if seal is None:
                raise IndexMissing("there is no registry yet", hint="`wikiholt add` registers a first wiki")
            rows = self._read_backup_rows(draft.file)
            if registry_schema.compute_checksum(rows) != seal:
                raise IndexCorrupt("the copy of the registry is not what was copied", hint="check the disk, try again")
            kept = draft.commit(_make_label(rows), reason)
        self._directory.prune(self._keep_count, keep_files=(kept,))
        return _make_backup(kept, rows)

    def create_if_changed(self, min_interval_s: float = 0.0) -> RegistryBackup | None:
        """Take a backup if the registry has changed since the newest; a large one not within `patience` seconds."""
        self.finish_purges()
        self._directory.remove_abandoned()  # what a killed process left goes, though there may be nothing to take
        with self._database.read_connection() as connection:
            if connection is None:
                return None
            seal = registry_schema.read_checksum(connection)
        newest = next(iter(self._directory.list_files()), None)
        if newest is not None:
            recent = datetime.now(UTC) - newest.taken_at < timedelta(seconds=min_interval_s)
            if recent and _make_backup(newest, None).bytes > _SMALL_BACKUP_BYTES:
                return None
            if seal == read_file_checksum(newest.file) and not self._directory.find_fault(newest):
                return None
        return self.create(BackupReason.SCHEDULED)

    def is_outdated(self) -> bool:
        """Whether the registry holds what no good backup holds."""
        with self._database.read_connection() as connection:
            if connection is None:
                return False
            seal = registry_schema.read_checksum(connection)
        newest = next((kept for kept in self._directory.list_files() if not self._directory.find_fault(kept)), None)
        return newest is None or read_file_checksum(newest.file) != seal

    def list(self) -> Sequence[RegistryBackup]:
        """What there is, newest first, every byte of it verified."""
        return [self._verify_backup(kept)[0] for kept in self._directory.list_files()]

    def restore(self, at: datetime | None = None) -> RegistryRestore:
        """Put the newest good backup not taken after `at` in the registry's place; raises BackupNotFound."""
        good = [
            (backup, rows)
            for backup, rows in map(self._verify_backup, self._directory.list_files())
            if rows is not None
        ]
        chosen = next(((backup, rows) for backup, rows in good if at is None or backup.taken_at <= at), None)
        if chosen is None:
            raise BackupNotFound(
                "there is no good backup of the registry" + ("" if at is None else f" from before {at:%Y-%m-%d %H:%M}"),
                hint="`wikiholt restore --registry --list` shows what there is; where none can be used,"
                " `wikiholt restore --registry --empty` starts a new registry, closed to all",
            )
        backup, rows = chosen
        present = self._read_current_rows()
        known = present or good[0][1]
        rows, left_out = _remove_revoked(rows, known)
        # Whoever has once made a key relies on it that without one nothing opens.
        rows["marks"] = list({row[0]: row for each in (rows, known) for row in each["marks"]}.values())
        if present is None:
            return RegistryRestore(
                backup,
                left_out,
                self._database.replace_contents(rows),
                revocations_known=backup.name != good[0][0].name,
            )
        if registry_schema.compute_checksum(present) != registry_schema.compute_checksum(good[0][1]):
            self.create(BackupReason.BEFORE_RESTORING)
        with self._database.write_transaction() as ledger:
            if registry_schema.read_checksum(ledger.connection) != registry_schema.compute_checksum(present):
                raise Busy("the registry was changed meanwhile", hint="try again")
            ledger.replace_all(rows)
        return RegistryRestore(backup, left_out, None, revocations_known=True)

    def start_empty(self) -> str | None:
        """Put a registry without wikis and keys in the place of one that is lost; the name under which that lies now.

        Nothing is open without a key in it, and its wikis are private until they are said to be public. Raises
        Conflict while the registry can be read, or can be restored from a backup.
        """
        with suppress(IndexCorrupt), self._database.read_connection() as connection:
            raise Conflict(
                "the registry is not lost" if connection else "there is no registry yet",
                hint="`wikiholt add` registers a wiki in it",
            )
        if any(rows is not None for _, rows in map(self._verify_backup, self._directory.list_files())):
            raise Conflict("there is a good backup of the registry", hint="restore that: wikiholt restore --registry")
        now = datetime.now(UTC).isoformat()
        marks: list[registry_schema.RegistryRow] = [
            (registry_schema.KEYED_MARK, now),
            (registry_schema.REBUILT_MARK, now),
        ]
        return self._database.replace_contents(
            {**{table: [] for table in registry_schema.TABLE_COLUMNS}, "marks": marks}
        )

    def finish_purges(self) -> None:
        """Take removed wikis out of every backup: those too whose removal was killed before it came to that.

        What is left of them elsewhere is removed by `drop_rest`; should somebody be writing that, the next call does.
        """
        marked = self._read_purge_marks()
        gone = {wiki_id: when for wiki_id, when in marked.items() if when is not None and wiki_id not in self._purged}
        if gone:
            self.purge(gone)
        for wiki_id in gone:
            try:
                self.remove_leftovers(wiki_id)
            except (Busy, IndexUnavailable) as error:
                _LOG.warning("what is left of a removed wiki is removed later: %s", error.message)
                continue
            self._purged.add(wiki_id)
        self._purged &= marked.keys()
        lately = (datetime.now(UTC) - _PURGE_MARK_TTL).isoformat() if self._database.is_shared else ""
        over = [
            wiki_id
            for wiki_id, when in marked.items()
            # Other machines have backups of their own to take it out of, and may be away for a while.
            if when is None or (wiki_id in self._purged and (not lately or when < lately))
        ]
        if over:
            with self._database.write_transaction() as ledger:
                for wiki_id in over:
                    ledger.delete("marks", "name", PURGE_MARK_PREFIX + wiki_id)

    def _read_purge_marks(self) -> Mapping[str, str | None]:
        """The ids of wikis that bear the mark, and since when; None for one that is registered again."""
        with self._database.read_connection() as connection:
            if connection is None:
                return {}
            marks = connection.execute("SELECT name, value FROM marks").fetchall()
            struck = {
                name.removeprefix(PURGE_MARK_PREFIX): when for name, when in marks if name.startswith(PURGE_MARK_PREFIX)
            }
            known = {wiki_id for (wiki_id,) in connection.execute("SELECT id FROM wikis")} if struck else set()
        return {wiki_id: None if wiki_id in known else when for wiki_id, when in struck.items()}

    def purge(self, wiki_ids: Collection[str]) -> None:
        """Take removed wikis out of every backup; one that cannot be rewritten is removed."""
        if not self._directory.directory.exists():
            return
        # Alone, lest a copy that was begun before the removal be kept after this.
        with self._directory.lock():
            for kept in self._directory.list_files():
                try:
                    self._purge_backup(kept, wiki_ids)
                except (IndexUnavailable, OSError) as error:
                    _LOG.warning("a backup of the registry is removed, for a removed wiki may be in it: %s", error)
                    kept.file.unlink(missing_ok=True)

    def _purge_backup(self, backup_file: BackupFile, wiki_ids: Collection[str]) -> None:
        fault = self._directory.find_fault(backup_file)
        if fault:
            raise IndexCorrupt(fault, hint="it is of no use")
        with self._directory.open_pending() as draft:
            shutil.copyfile(backup_file.file, draft.file)
            if not delete_wikis(draft.file, wiki_ids):
                return
            rows = self._read_backup_rows(draft.file)
            # What is to be gone goes first: should this end here, one backup of several is lost, and nothing stays.
            backup_file.file.unlink(missing_ok=True)
            draft.commit(_make_label(rows), backup_file.reason, backup_file.taken_at)

    def _read_current_rows(self) -> registry_schema.RegistryRows | None:
        """What the registry holds; None when it is damaged or not there."""
        try:
            with self._database.read_connection() as connection:
                return registry_schema.read_rows(connection) if connection is not None else None
        except IndexCorrupt:
            return None

    def _verify_backup(self, backup_file: BackupFile) -> tuple[RegistryBackup, registry_schema.RegistryRows | None]:
        fault = self._directory.find_fault(backup_file)
        try:
            rows = None if fault else self._read_backup_rows(backup_file.file)
        except (IndexUnavailable, Busy) as error:
            rows, fault = None, error.message
        return _make_backup(backup_file, rows, fault), rows

    def _read_backup_rows(self, file: Path) -> registry_schema.RegistryRows:
        with RegistryFile(file, 1.0).read_immutable_copy() as connection:
            return registry_schema.read_rows(connection)


def _remove_revoked(
    rows: registry_schema.RegistryRows, known: registry_schema.RegistryRows
) -> tuple[registry_schema.RegistryRows, tuple[Key, ...]]:
    valid = {row[0] for row in known["keys"]}
    left_out = tuple(parse_key(cast(Sequence[str], row)) for row in rows["keys"] if row[0] not in valid)
    return {**rows, "keys": [row for row in rows["keys"] if row[0] in valid]}, left_out


def _make_label(rows: registry_schema.RegistryRows) -> str:
    return f"w{len(rows['wikis'])}-k{len(rows['keys'])}"


def _make_backup(backup_file: BackupFile, rows: registry_schema.RegistryRows | None, fault: str = "") -> RegistryBackup:
    try:
        size = backup_file.file.stat().st_size
    except OSError:
        size = 0
    wikis, keys = (len(rows["wikis"]), len(rows["keys"])) if rows is not None else (0, 0)
    return RegistryBackup(backup_file.name, backup_file.taken_at, backup_file.reason, size, wikis, keys, fault)
