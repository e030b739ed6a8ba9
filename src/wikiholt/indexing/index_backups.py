"""The backups of one wiki's index.

Taking one needs no lock: readers and the writer go on meanwhile, and two may be taken at once. Restoring is writing,
under the wiki's writer lock: the backup comes in as a generation of its own, is checked, and is published in one step.
What it replaces is backed up first, or set aside if it is damaged.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from wikiholt.domain.index import IndexState
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
from wikiholt.indexing.backup_directory import BackupDirectory, BackupFile

_LOG = logging.getLogger(__name__)

_FOREIGN = "it belongs to another wiki"


def _never_stop() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class BackupPolicy:
    """Where backups are kept and how many. Without a place they lie with the index, and none is made unasked."""

    directory: Path | None = None
    keep_count: int = 7
    """How many of the latest are kept, and of how many days the newest."""


class IndexBackups:
    """Bound to one wiki; it can reach no other's. Safe to use from many threads."""

    def __init__(
        self,
        wiki_id: str,
        store: IndexStore,
        policy: BackupPolicy,
        lock_timeout: float,
        is_registered: Callable[[], bool] = lambda: True,
        is_being_removed: Callable[[], bool] = _never_stop,
    ) -> None:
        self._wiki_id = wiki_id
        self._store = store
        self._policy = policy
        self._lock_timeout = lock_timeout
        self._is_registered = is_registered
        self._is_being_removed = is_being_removed
        own = store.get_directory(wiki_id)
        self._directory = BackupDirectory(own / "backups" if policy.directory is None else policy.directory / own.name)

    def create(self, reason: BackupReason = BackupReason.REQUESTED, stop: Callable[[], bool] = _never_stop) -> Backup:
        """Copy the published index as it is now, verify the copy, and keep it.

        Raises IndexMissing, IndexCorrupt, StorageRefused, and Busy once `stop` says so.
        """
        return self._create(reason, stop)

    def _create(
        self, reason: BackupReason, stop: Callable[[], bool] = _never_stop, keep_files: Sequence[BackupFile] = ()
    ) -> Backup:
        index = self._store.open(self._wiki_id)
        try:
            with self._directory.open_pending() as draft:
                self._require_registered()
                copied = index.write_backup(draft.file, lambda: stop() or self._is_being_removed())
                self._verify_copy(draft.file, copied, stop)
                self._require_registered()
                kept = draft.commit(f"g{copied.generation}-v{copied.version}", reason)
        except IndexUnavailable:
            self._require_registered()  # who removes a wiki takes the files away from under a copy of it
            raise
        finally:
            index.close()
        # The new one too: by a clock that was set back it may look like the oldest.
        self._directory.prune(self._policy.keep_count, keep_files=(kept, *keep_files))
        return _to_backup(kept, copied)

    def ensure_current(self, reason: BackupReason, stop: Callable[[], bool] = _never_stop) -> Backup:
        """The newest backup if it holds what the index holds and is whole, else one that is taken now."""
        self._directory.remove_abandoned()  # what a killed process left goes, though there may be nothing to take
        return self._find_current() or self._create(reason, stop)

    def _find_current(self) -> Backup | None:
        newest = self.find_newest()
        if (
            newest is not None
            and newest.state == self._get_state()
            and not self._directory.find_fault(self._find_file(newest))
        ):
            return newest
        return None

    def create_before_publish(self) -> None:
        """Keep what another generation is about to replace. That it cannot be is no reason to go without the new."""
        if self._policy.directory is None:
            return
        try:
            if self._get_state().pages:
                self.ensure_current(BackupReason.BEFORE_PUBLISHING)
        except IndexMissing:
            return
        except IndexUnavailable as error:
            _LOG.warning("no backup was made before another index took its place: %s", error.message)

    def list(self) -> Sequence[Backup]:
        """What there is, newest first, as far as it can be told without reading all of it."""
        return [self._describe(kept) for kept in self._directory.list_files()]

    def find_newest(self) -> Backup | None:
        """The newest that can be opened; its bytes are not verified."""
        return next(
            (backup for kept in self._directory.list_files() if not (backup := self._describe(kept)).fault), None
        )

    def list_verified(self) -> Sequence[Backup]:
        """The same as `list`, with every byte of them verified."""
        return [self._describe_verified(kept) for kept in self._directory.list_files()]

    def find_newest_intact(self, at: datetime | None = None) -> Backup | None:
        """The newest, of those not taken after `at`, that is whole by every byte; those that are not are passed."""
        for kept in self._directory.list_files():
            if at is not None and kept.taken_at > at:
                continue
            backup = self._describe_verified(kept)
            if not backup.fault:
                return backup
            _LOG.warning("the backup %s is passed over: %s", backup.name, backup.fault)
        return None

    def restore(self, at: datetime | None = None) -> Backup:
        """Have the newest good backup not taken after `at` answer from now on; raises BackupNotFound and Busy.

        The next sync brings it to HEAD, embedding only what it lacks.
        """
        with self._store.write_lock(self._wiki_id, self._lock_timeout):
            if not self._is_registered():
                self._store.delete(self._wiki_id)  # what waiting for the lock made of it
            return self.restore_locked(at)

    def restore_locked(self, at: datetime | None = None) -> Backup:
        """The same, for who holds the wiki's writer lock already."""
        self._require_registered()
        chosen = self.find_newest_intact(at)
        if chosen is None and any(backup.fault == _FOREIGN for backup in self.list()):
            raise IndexForeign(
                "the backups here belong to another wiki, and none of them is restored",
                hint="take them out of this wiki's directory of backups; `wikiholt sync` builds the index from git",
            )
        if chosen is None:
            raise BackupNotFound(
                "there is no good backup of this wiki"
                + ("" if at is None else f" from before {at:%Y-%m-%d %H:%M:%S %Z}"),
                hint="`wikiholt restore --list` shows what there is; `wikiholt sync` builds the index from git",
            )
        kept = self._find_file(chosen)
        self._save_current(kept)
        generation = self._store.import_backup(self._wiki_id, kept.file)
        self._store.publish(self._wiki_id, generation)
        return chosen

    def delete_all(self) -> Sequence[str]:
        """Remove every byte of every backup, and name what was removed."""
        return [f"backups/{name}" for name in self._directory.delete_all()]

    def _save_current(self, chosen: BackupFile) -> None:
        """Back up what is about to be replaced; what is no index any more is set aside."""
        try:
            if self._find_current() is None:
                self._create(BackupReason.BEFORE_RESTORING, keep_files=(chosen,))
        except (IndexCorrupt, IndexTooNew) as error:
            self._store.quarantine(self._wiki_id, error.message)
        except IndexMissing:
            if self._store.get_published(self._wiki_id) is not None:
                self._store.quarantine(self._wiki_id, "its file is gone")

    def _verify_copy(self, file: Path, expected: IndexState, stop: Callable[[], bool]) -> None:
        """Read the copy back, every byte of it, and compare it with what was copied."""
        copy = self._store.open_backup(file)
        try:
            faults = copy.check(lambda: stop() or self._is_being_removed())
            if faults:
                raise IndexCorrupt(f"the index is damaged: {faults[0]}", hint="run `wikiholt sync` to build it again")
            if copy.get_state() != expected or copy.wiki_id != self._wiki_id:
                raise IndexCorrupt("the copy is not what was copied", hint="check the disk, then try again")
        finally:
            copy.close()

    def _get_state(self) -> IndexState:
        index = self._store.open(self._wiki_id)
        try:
            return index.get_state()
        finally:
            index.close()

    def _describe(self, backup_file: BackupFile) -> Backup:
        copy: WikiIndex | None = None
        try:
            copy = self._store.open_backup(backup_file.file)
            if copy.wiki_id != self._wiki_id:
                return _to_backup(backup_file, None, _FOREIGN)
            return _to_backup(backup_file, copy.get_state())
        except IndexUnavailable as error:
            return _to_backup(backup_file, None, error.message)
        finally:
            if copy is not None:
                copy.close()

    def _describe_verified(self, backup_file: BackupFile) -> Backup:
        fault = self._directory.find_fault(backup_file)
        return _to_backup(backup_file, None, fault) if fault else self._describe(backup_file)

    def _find_file(self, backup: Backup) -> BackupFile:
        for kept in self._directory.list_files():
            if kept.name == backup.name:
                return kept
        raise BackupNotFound("the backup is not there any more", hint="`wikiholt restore --list` shows what there is")

    def _require_registered(self) -> None:
        if not self._is_registered():
            self._directory.delete_all()
            raise WikiNotFound("this wiki was removed meanwhile", hint="`wikiholt list` shows the wikis there are")


def _to_backup(backup_file: BackupFile, state: IndexState | None, fault: str = "") -> Backup:
    try:
        size = backup_file.file.stat().st_size
    except OSError:
        size = 0
    return Backup(backup_file.name, backup_file.taken_at, backup_file.reason, size, state, fault)
