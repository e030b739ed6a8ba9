"""The health of one wiki's index, and the repair of a damaged one.

Health is stored in a small note beside the index, where every process can read it. Losing the note is harmless, because
existing damage is detected again. Repairing requires the wiki's write lock. The damaged index is quarantined, never
deleted; the newest intact backup replaces it, or an empty index that the sync fills from git. Each step is logged.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime

from wikiholt.domain.index import HealthCondition, IndexHealth, VerificationResult
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.domain.wiki import Backup
from wikiholt.errors import BackupNotFound, IndexCorrupt, IndexUnavailable, NoCommits
from wikiholt.indexing.index_backups import IndexBackups

_LOG = logging.getLogger(__name__)
_NOTE_NAME = "health"
_REPAIR_NOTE = "the index is damaged and is being repaired"
CONFIRMATION_TTL_S = 60.0
"""How long an index whose checksum was compared is opened without comparing it again."""
EMPTY_CONFIRMATION_TTL_S = 1.0
"""The same for a search without hits: a term lost by damage must not look like a term that is on no page."""


class IndexRepair:
    """Bound to one wiki. Any thread may report damage; repairing is only for the thread that holds the write lock."""

    def __init__(
        self,
        wiki_id: str,
        slug: str,
        store: IndexStore,
        backups: IndexBackups | None = None,
        on_damage: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_damage` is called when new damage is reported; the wiki then needs a sync."""
        self._wiki_id = wiki_id
        self._slug = slug
        self._store = store
        self._backups = backups
        self._on_damage = on_damage
        self._damage_reported = False

    @property
    def health(self) -> IndexHealth:
        """The stored health; healthy if the note is missing or invalid."""
        try:
            note = json.loads(self._store.get_note(self._wiki_id, _NOTE_NAME) or "")
            since, checked_at = (
                datetime.fromisoformat(note[name]) if note[name] else None for name in ("since", "checked_at")
            )
            return IndexHealth(
                HealthCondition(note["condition"]), str(note["reason"]), since, str(note["quarantined_as"]), checked_at
            )
        except (ValueError, TypeError, KeyError):
            return IndexHealth()

    def report_damage(self, reason: str) -> bool:
        """Mark the index as damaged and return whether that is new. The next sync checks the entire index."""
        known = self.health
        if not known.is_ok:
            return False
        # The repair logs warnings; this line only records when the damage was noticed.
        _LOG.info("%s: the index seems to be damaged: %s", self._slug, reason)
        self._save_damage(HealthCondition.BROKEN, reason, datetime.now(UTC))
        return True

    def confirm(self, max_age_s: float = 0.0) -> VerificationResult:
        """Compare the index's checksum, unless done within `max_age_s` seconds. Raises IndexCorrupt."""
        result = self._store.compare_checksum(self._wiki_id, max_age_s)
        if result is VerificationResult.CHANGED:
            self.report("it differs from what its last writer left")
        return result

    def report(self, reason: str) -> None:
        """Mark the index as damaged, so that every answer says so, and request a repair."""
        self._damage_reported = True
        if self.report_damage(reason):
            self._on_damage()

    def report_suspicion(self) -> str:
        """Why answers of the index cannot be trusted now, or an empty string."""
        if self._damage_reported:
            self._damage_reported = not self.health.is_ok
        return _REPAIR_NOTE if self._damage_reported else ""

    def mark_checked(self) -> None:
        """Record that the entire index was read and is intact."""
        self.save(replace(self.health, checked_at=datetime.now(UTC)))

    def has_backup(self) -> bool:
        """Whether there is an intact backup."""
        return self._backups is not None and self._backups.find_newest_intact() is not None

    def require_never_indexed(self) -> None:
        """Raise NoCommits if there is or was an index: a wiki that has no pages then has lost them."""
        store, wiki_id = self._store, self._wiki_id
        has_backup = self._backups is not None and bool(self._backups.list())
        if store.get_published(wiki_id) is not None or store.list_quarantined(wiki_id) or has_backup:
            raise NoCommits("The repository has no commits any more.", hint="Restore the repository from a backup.")

    def repair(self, reason: str, *, from_backup: bool = True) -> bool:
        """Quarantine the damaged index and replace it with another intact generation or a backup.

        Returns whether there was one. Raises StorageError when a backup cannot be restored now; the next sync tries
        again.
        """
        self.report_damage(reason)  # before the quarantine, so that searches meanwhile report the repair
        quarantined_as = self._store.quarantine(self._wiki_id, reason)
        known = self.health
        since = known.since if not known.is_ok and known.since else datetime.now(UTC)
        self._save_damage(HealthCondition.REPAIRING, reason, since, quarantined_as)
        _LOG.warning("%s: the index was damaged (%s) and is quarantined as %s", self._slug, reason, quarantined_as)
        generation = self._store.get_published(self._wiki_id)
        if generation is not None:
            _LOG.warning("%s: generation %d is intact, replaces it and is brought to HEAD", self._slug, generation)
            return True
        restored = self._restore_backup() if from_backup else None
        if restored is None:
            _LOG.warning("%s: there is no intact backup; the index is rebuilt from git", self._slug)
        else:
            _LOG.warning("%s: the backup %s replaces it and is brought to HEAD", self._slug, restored.name)
        return restored is not None

    def restore_missing(self) -> bool:
        """If there is a backup but no index, the index was lost: restore the backup. Returns whether it did."""
        restored = self._restore_backup()
        if restored is None:
            return False
        self._save_damage(HealthCondition.REPAIRING, "its files were missing", datetime.now(UTC))
        _LOG.warning("%s: the index was missing; the backup %s replaces it", self._slug, restored.name)
        return True

    def log_recovered_pointer(self) -> None:
        """Log that the name of the published generation was lost and has been recovered."""
        generation = self._store.get_published(self._wiki_id)
        _LOG.warning(
            "%s: the published generation was unknown; the newest intact one (%s) is used", self._slug, generation
        )

    def mark_repaired(self, revision: str, chunks_embedded: int) -> None:
        """Clear the damage after a completed sync."""
        known = self.health
        if known.is_ok:
            return
        now = datetime.now(UTC)
        self.save(IndexHealth(checked_at=now))
        chunks = "1 chunk" if chunks_embedded == 1 else f"{chunks_embedded} chunks"
        seconds = f"{(now - known.since).total_seconds():.1f} s" if known.since else "a while"
        if known.condition is HealthCondition.BROKEN:
            _LOG.warning(
                "%s: the index seemed damaged (%s), but a full check found it intact", self._slug, known.reason
            )
        else:
            _LOG.warning(
                "%s: the index is intact and at HEAD (%s) again, after %s; %s embedded",
                self._slug,
                revision[:10],
                seconds,
                chunks,
            )

    def _restore_backup(self) -> Backup | None:
        if self._backups is None:
            return None
        try:
            return self._backups.restore_locked()
        except BackupNotFound:
            return None
        except IndexCorrupt as error:
            _LOG.warning("%s: no backup could be restored: %s", self._slug, error.message)
            return None

    def _save_damage(self, condition: HealthCondition, reason: str, since: datetime, quarantined_as: str = "") -> None:
        self.save(IndexHealth(condition, reason, since, quarantined_as, self.health.checked_at))

    def save(self, health: IndexHealth) -> None:
        """Store the note atomically. An unavailable store is logged, not raised."""
        try:
            text = json.dumps(asdict(health), default=datetime.isoformat)
            self._store.set_note(self._wiki_id, _NOTE_NAME, text)
        except IndexUnavailable as error:
            _LOG.warning("the health of an index could not be written: %s", error.message)
