"""The backups of one wiki's index.

Creating one needs no lock: readers and the writer continue, and two backups may be created at the same time. Restoring
takes the wiki's write lock: the backup is imported as a new generation, checked, and published in one step. The index
it replaces is backed up first, or quarantined if it is damaged.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from wikiholt.domain.index import IndexState
from wikiholt.domain.protocols import never_stop
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.domain.wiki import Backup, BackupReason
from wikiholt.errors import (
    BackupNotFound,
    IndexCorrupt,
    IndexForeign,
    IndexMissing,
    IndexTooNew,
    IndexUnavailable,
    WikiNotFound,
)
from wikiholt.index.backup_directory import BackupDirectory, BackupFile, BackupPolicy

_LOG = logging.getLogger(__name__)

_FOREIGN = "it belongs to another wiki"
_KEPT_BACKUPS = 2
"""An index can be rebuilt from git, so that its backups take at most twice its space."""


class IndexBackups:
    """Bound to one wiki. Safe to use from many threads."""

    def __init__(
        self,
        wiki_id: str,
        store: IndexStore,
        policy: BackupPolicy,
        lock_timeout_s: float,
        is_registered: Callable[[], bool] = lambda: True,
        is_being_removed: Callable[[], bool] = never_stop,
        save_pages: Callable[[Path], None] | None = None,
    ) -> None:
        """`save_pages` adds a copy of the pages to the directory of the backups."""
        self._wiki_id = wiki_id
        self._store = store
        self._policy = policy
        self._lock_timeout_s = lock_timeout_s
        self._is_registered = is_registered
        self._is_being_removed = is_being_removed
        self._save_pages = save_pages
        index_directory = store.get_directory(wiki_id)
        self._directory = BackupDirectory(
            index_directory / "backups" if policy.directory is None else policy.directory / index_directory.name
        )

    def create(self, reason: BackupReason = BackupReason.REQUESTED, keep_files: Sequence[BackupFile] = ()) -> Backup:
        """Copy the published index, verify the copy, and keep it besides the one before it and `keep_files`.

        Raises IndexMissing, IndexCorrupt, StorageError, and Busy if the wiki is being removed.
        """
        index = self._store.open(self._wiki_id)
        try:
            with self._directory.open_pending() as pending:
                self._require_registered()
                state = index.write_backup(pending.file, self._is_being_removed)
                self._verify_copy(pending.file, state)
                self._require_registered()
                backup_file = pending.commit(f"g{state.generation}-v{state.version}", reason)
        except IndexUnavailable:
            self._require_registered()  # removing a wiki deletes its files during the copy
            raise
        finally:
            index.close()
        self.update()
        # Keep the new backup explicitly: if the clock was set back, it may look like the oldest.
        self._directory.prune(_KEPT_BACKUPS, keep_files=(backup_file, *keep_files), keep_days=False)
        return _to_backup(backup_file, state)

    def update(self) -> None:
        """Remove what killed processes left, and back up the pages of a wiki that has no other repository."""
        self._directory.remove_abandoned()
        if self._save_pages is not None:
            self._directory.create()
            self._save_pages(self._directory.directory)

    def create_before_publish(self) -> None:
        """Back up the generation that is about to be replaced. A failure is logged and does not stop the publishing."""
        if self._policy.directory is None:
            return
        try:
            state = self._get_state()
            if state.pages and not self._has_backup_of(state):
                self.create(BackupReason.BEFORE_PUBLISHING)
        except IndexMissing:
            return
        except IndexUnavailable as error:
            _LOG.warning("no backup was made before another index was published: %s", error.message)

    def _has_backup_of(self, state: IndexState) -> bool:
        newest = self.find_newest_intact()
        return newest is not None and newest.state == state

    def list(self) -> Sequence[Backup]:
        """All backups, newest first. Checksums are not verified."""
        return [self._describe(backup_file) for backup_file in self._directory.list_files()]

    def list_verified(self) -> Sequence[Backup]:
        """All backups, newest first, with verified checksums."""
        return [self._describe_verified(backup_file) for backup_file in self._directory.list_files()]

    def find_newest_intact(self, at: datetime | None = None) -> Backup | None:
        """The newest intact backup taken at or before `at`. Damaged backups are skipped and logged."""
        for backup_file in self._directory.list_files():
            if at is not None and backup_file.taken_at > at:
                continue
            backup = self._describe_verified(backup_file)
            if not backup.fault:
                return backup
            _LOG.warning("the backup %s is skipped: %s", backup.name, backup.fault)
        return None

    def open_newest(self) -> WikiIndex | None:
        """The newest intact backup, opened read-only; None if there is none."""
        newest = self.find_newest_intact()
        return self._store.open_backup(self._find_file(newest).file) if newest is not None else None

    def restore(self, at: datetime | None = None) -> Backup:
        """Publish the newest intact backup taken at or before `at`. Raises BackupNotFound and Busy.

        The next sync brings it to HEAD and embeds only what is missing.
        """
        with self._store.write_lock(self._wiki_id, self._lock_timeout_s):
            if not self._is_registered():
                self._store.delete(self._wiki_id)  # taking the lock created its directory again
            return self.restore_locked(at)

    def restore_locked(self, at: datetime | None = None) -> Backup:
        """Like `restore`, for a caller that holds the write lock."""
        self._require_registered()
        chosen = self.find_newest_intact(at)
        if chosen is None and any(backup.fault == _FOREIGN for backup in self.list()):
            raise IndexForeign(
                "the backups in this directory belong to another wiki; none was restored",
                hint="move them out of this wiki's backup directory; `wikiholt sync` builds the index from git",
            )
        if chosen is None:
            raise BackupNotFound(
                "there is no intact backup of this wiki"
                + ("" if at is None else f" from before {at:%Y-%m-%d %H:%M:%S %Z}"),
                hint="`wikiholt restore --list` shows all backups; `wikiholt sync` builds the index from git",
            )
        backup_file = self._find_file(chosen)
        self._save_current(backup_file)
        generation = self._store.import_backup(self._wiki_id, backup_file.file)
        self._store.publish(self._wiki_id, generation)
        return chosen

    def delete_all(self) -> Sequence[str]:
        """Delete all backups and return the names of the deleted files."""
        return [f"backups/{name}" for name in self._directory.delete_all()]

    def _save_current(self, chosen: BackupFile) -> None:
        """Back up the index that is about to be replaced, or quarantine it if it cannot be read."""
        try:
            if not self._has_backup_of(self._get_state()):
                self.create(BackupReason.BEFORE_RESTORING, keep_files=(chosen,))
        except (IndexCorrupt, IndexTooNew) as error:
            self._store.quarantine(self._wiki_id, error.message)
        except IndexMissing:
            if self._store.get_published(self._wiki_id) is not None:
                self._store.quarantine(self._wiki_id, "its file is missing")

    def _verify_copy(self, file: Path, expected: IndexState) -> None:
        """Read the entire copy back, check it, and compare its state with the original."""
        with closing(self._store.open_backup(file)) as copy:
            faults = copy.check(self._is_being_removed)
            if faults:
                raise IndexCorrupt(f"the index is damaged: {faults[0]}", hint="run `wikiholt sync` to rebuild it")
            if copy.get_state() != expected or copy.wiki_id != self._wiki_id:
                raise IndexCorrupt("the copy differs from the original", hint="check the disk, then try again")

    def _get_state(self) -> IndexState:
        with closing(self._store.open(self._wiki_id)) as index:
            return index.get_state()

    def _describe(self, backup_file: BackupFile) -> Backup:
        try:
            with closing(self._store.open_backup(backup_file.file)) as copy:
                if copy.wiki_id != self._wiki_id:
                    return _to_backup(backup_file, None, _FOREIGN)
                return _to_backup(backup_file, copy.get_state())
        except IndexUnavailable as error:
            return _to_backup(backup_file, None, error.message)

    def _describe_verified(self, backup_file: BackupFile) -> Backup:
        fault = self._directory.find_fault(backup_file)
        return _to_backup(backup_file, None, fault) if fault else self._describe(backup_file)

    def _find_file(self, backup: Backup) -> BackupFile:
        for backup_file in self._directory.list_files():
            if backup_file.name == backup.name:
                return backup_file
        raise BackupNotFound("the backup no longer exists", hint="`wikiholt restore --list` shows all backups")

    def _require_registered(self) -> None:
        if not self._is_registered():
            self._directory.delete_all()
            raise WikiNotFound("this wiki has been removed", hint="`wikiholt list` shows all wikis")


def _to_backup(backup_file: BackupFile, state: IndexState | None, fault: str = "") -> Backup:
    return Backup(backup_file.name, backup_file.taken_at, backup_file.reason, backup_file.size_bytes, state, fault)
