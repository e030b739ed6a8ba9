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

from wikiholt.backups.shelf import Kept, Shelf
from wikiholt.errors import (
    BackupNotFound,
    IndexCorrupt,
    IndexFault,
    IndexForeign,
    IndexMissing,
    IndexTooNew,
    WikiNotFound,
)
from wikiholt.model import Backup, Occasion, State
from wikiholt.ports import Store, WikiIndex

_LOG = logging.getLogger(__name__)

_FOREIGN = "it belongs to another wiki"


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """Where backups are kept and how many. Without a place they lie with the index, and none is made unasked."""

    place: Path | None = None
    keep: int = 7
    """How many of the latest are kept, and of how many days the newest."""


class Backups:
    """Bound to one wiki; it can reach no other's. Safe to use from many threads."""

    def __init__(
        self,
        wiki_id: str,
        store: Store,
        plan: BackupPlan,
        lock_timeout: float,
        wanted: Callable[[], bool] = lambda: True,
        leaving: Callable[[], bool] = _never,
    ) -> None:
        self._wiki_id = wiki_id
        self._store = store
        self._plan = plan
        self._lock_timeout = lock_timeout
        self._wanted = wanted
        self._leaving = leaving
        own = store.directory(wiki_id)
        self._shelf = Shelf(own / "backups" if plan.place is None else plan.place / own.name)

    def take(self, occasion: Occasion = Occasion.ASKED, stop: Callable[[], bool] = _never) -> Backup:
        """Copy the published index as it is now, verify the copy, and keep it.

        Raises IndexMissing, IndexCorrupt, StorageRefused, and Busy once `stop` says so.
        """
        return self._take(occasion, stop)

    def _take(self, occasion: Occasion, stop: Callable[[], bool] = _never, spare: Sequence[Kept] = ()) -> Backup:
        index = self._store.open(self._wiki_id)
        try:
            with self._shelf.making() as draft:
                self._require_wanted()
                copied = index.backup(draft.file, lambda: stop() or self._leaving())
                self._verify(draft.file, copied, stop)
                self._require_wanted()
                kept = draft.keep(f"g{copied.generation}-v{copied.version}", occasion)
        except IndexFault:
            self._require_wanted()  # who removes a wiki takes the files away from under a copy of it
            raise
        finally:
            index.close()
        # The new one too: by a clock that was set back it may look like the oldest.
        self._shelf.prune(self._plan.keep, but=(kept, *spare))
        return _backup(kept, copied)

    def keep(self, occasion: Occasion, stop: Callable[[], bool] = _never) -> Backup:
        """The newest backup if it holds what the index holds and is whole, else one that is taken now."""
        self._shelf.sweep()  # what a killed process left goes, though there may be nothing to take
        return self._same() or self._take(occasion, stop)

    def _same(self) -> Backup | None:
        newest = self.newest()
        if newest is not None and newest.state == self._state() and not self._shelf.fault(self._find(newest)):
            return newest
        return None

    def take_before_publishing(self) -> None:
        """Keep what another generation is about to replace. That it cannot be is no reason to go without the new."""
        if self._plan.place is None:
            return
        try:
            if self._state().pages:
                self.keep(Occasion.BEFORE_PUBLISHING)
        except IndexMissing:
            return
        except IndexFault as error:
            _LOG.warning("no backup was made before another index took its place: %s", error.message)

    def list(self) -> Sequence[Backup]:
        """What there is, newest first, as far as it can be told without reading all of it."""
        return [self._described(kept) for kept in self._shelf.all()]

    def newest(self) -> Backup | None:
        """The newest that can be opened; its bytes are not verified."""
        return next((backup for kept in self._shelf.all() if not (backup := self._described(kept)).fault), None)

    def verified(self) -> Sequence[Backup]:
        """The same as `list`, with every byte of them verified."""
        return [self._verified(kept) for kept in self._shelf.all()]

    def newest_good(self, at: datetime | None = None) -> Backup | None:
        """The newest, of those not taken after `at`, that is whole by every byte; those that are not are passed."""
        for kept in self._shelf.all():
            if at is not None and kept.taken_at > at:
                continue
            backup = self._verified(kept)
            if not backup.fault:
                return backup
            _LOG.warning("the backup %s is passed over: %s", backup.name, backup.fault)
        return None

    def restore(self, at: datetime | None = None) -> Backup:
        """Have the newest good backup not taken after `at` answer from now on; raises BackupNotFound and Busy.

        The next sync brings it to HEAD, embedding only what it lacks.
        """
        with self._store.writing(self._wiki_id, self._lock_timeout):
            if not self._wanted():
                self._store.drop(self._wiki_id)  # what waiting for the lock made of it
            return self.restore_in_hand(at)

    def restore_in_hand(self, at: datetime | None = None) -> Backup:
        """The same, for who holds the wiki's writer lock already."""
        self._require_wanted()
        chosen = self.newest_good(at)
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
        kept = self._find(chosen)
        self._save_present(kept)
        generation = self._store.adopt(self._wiki_id, kept.file)
        self._store.publish(self._wiki_id, generation)
        return chosen

    def drop(self) -> Sequence[str]:
        """Remove every byte of every backup, and name what was removed."""
        return [f"backups/{name}" for name in self._shelf.drop()]

    def _save_present(self, chosen: Kept) -> None:
        """Back up what is about to be replaced; what is no index any more is set aside."""
        try:
            if self._same() is None:
                self._take(Occasion.BEFORE_RESTORING, spare=(chosen,))
        except (IndexCorrupt, IndexTooNew) as error:
            self._store.set_aside(self._wiki_id, error.message)
        except IndexMissing:
            if self._store.published(self._wiki_id) is not None:
                self._store.set_aside(self._wiki_id, "its file is gone")

    def _verify(self, file: Path, copied: State, stop: Callable[[], bool]) -> None:
        """Read the copy back, every byte of it, and compare it with what was copied."""
        copy = self._store.copy_at(file)
        try:
            faults = copy.check(lambda: stop() or self._leaving())
            if faults:
                raise IndexCorrupt(f"the index is damaged: {faults[0]}", hint="run `wikiholt sync` to build it again")
            if copy.state() != copied or copy.wiki_id != self._wiki_id:
                raise IndexCorrupt("the copy is not what was copied", hint="check the disk, then try again")
        finally:
            copy.close()

    def _state(self) -> State:
        index = self._store.open(self._wiki_id)
        try:
            return index.state()
        finally:
            index.close()

    def _described(self, kept: Kept) -> Backup:
        copy: WikiIndex | None = None
        try:
            copy = self._store.copy_at(kept.file)
            if copy.wiki_id != self._wiki_id:
                return _backup(kept, None, _FOREIGN)
            return _backup(kept, copy.state())
        except IndexFault as error:
            return _backup(kept, None, error.message)
        finally:
            if copy is not None:
                copy.close()

    def _verified(self, kept: Kept) -> Backup:
        fault = self._shelf.fault(kept)
        return _backup(kept, None, fault) if fault else self._described(kept)

    def _find(self, backup: Backup) -> Kept:
        for kept in self._shelf.all():
            if kept.name == backup.name:
                return kept
        raise BackupNotFound("the backup is not there any more", hint="`wikiholt restore --list` shows what there is")

    def _require_wanted(self) -> None:
        if not self._wanted():
            self._shelf.drop()
            raise WikiNotFound("this wiki was removed meanwhile", hint="`wikiholt list` shows the wikis there are")


def _backup(kept: Kept, state: State | None, fault: str = "") -> Backup:
    try:
        size = kept.file.stat().st_size
    except OSError:
        size = 0
    return Backup(kept.name, kept.taken_at, kept.occasion, size, state, fault)
