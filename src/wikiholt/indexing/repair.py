"""The health of one wiki's index: what is known of it, and how a broken one is mended.

What is known lies in a small note beside the index, so that every process, and the next one, knows it too. Losing the
note costs nothing: damage that is there is found again. Mending is writing, under the wiki's writer lock: the broken
index is set aside, never deleted; the newest good backup takes its place, and where there is none an empty index does,
which the sync then fills from git. Each step is one line in the log.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from wikiholt.domain.index import HealthCondition, IndexHealth, VerificationResult
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.domain.wiki import Backup
from wikiholt.errors import BackupNotFound, IndexCorrupt, IndexUnavailable
from wikiholt.indexing.index_backups import IndexBackups

_LOG = logging.getLogger(__name__)
_NOTE_NAME = "health"
_DATE_FIELDS = ("since", "checked_at")
_REPAIR_NOTE = "the index was found damaged and is being mended"
CONFIRMATION_TTL_S = 60.0
"""How long an index that was compared with what its writer left is opened again without that."""
EMPTY_CONFIRMATION_TTL_S = 1.0
"""The same for an answer without a hit: a word that was lost by damage must not pass for one that is on no page."""


class IndexRepair:
    """Bound to one wiki. Noticing may happen in any thread; mending is for who holds the writer lock."""

    def __init__(
        self,
        wiki_id: str,
        slug: str,
        store: IndexStore,
        backups: IndexBackups | None = None,
        on_damage: Callable[[], None] = lambda: None,
    ) -> None:
        """`alarm` is called when damage is news: somebody had better sync the wiki."""
        self._wiki_id = wiki_id
        self._slug = slug
        self._store = store
        self._backups = backups
        self._on_damage = on_damage
        self._damage_reported = False

    @property
    def health(self) -> IndexHealth:
        """What is known; nothing bad where nothing is."""
        try:
            found = json.loads(self._store.get_note(self._wiki_id, _NOTE_NAME) or "")
            since, checked = (datetime.fromisoformat(found[name]) if found[name] else None for name in _DATE_FIELDS)
            return IndexHealth(
                HealthCondition(found["condition"]), str(found["reason"]), since, str(found["aside"]), checked
            )
        except (ValueError, TypeError, KeyError):
            return IndexHealth()

    def report_damage(self, reason: str) -> bool:
        """Note that the index seems broken; whether that is news. The next sync reads all of it."""
        known = self.health
        if not known.is_ok:
            return False
        # Whoever mends it tells the story; this is only for who wants to know the moment.
        _LOG.info("%s: its index seems to be broken: %s", self._slug, reason)
        self.save(
            replace(known, condition=HealthCondition.BROKEN, reason=reason, since=datetime.now(UTC), quarantined_as="")
        )
        return True

    def confirm(self, max_age_s: float = 0.0) -> VerificationResult:
        """Compare the index's bytes with those its last writer left, if that is longer ago; raises IndexCorrupt."""
        proof = self._store.compare_checksum(self._wiki_id, max_age_s)
        if proof is VerificationResult.CHANGED:
            self.report("it is not as its last writer left it")
        return proof

    def report(self, reason: str) -> None:
        """The index cannot be trusted: have every answer say so, and have it mended."""
        self._damage_reported = True
        if self.report_damage(reason):
            self._on_damage()

    def report_suspicion(self) -> str:
        """Why answers of the index cannot be trusted now, as far as that is known; empty when they can."""
        if self._damage_reported:
            self._damage_reported = not self.health.is_ok
        return _REPAIR_NOTE if self._damage_reported else ""

    def mark_checked(self) -> None:
        """Every byte was read and found right."""
        self.save(replace(self.health, checked_at=datetime.now(UTC)))

    def has_backup(self) -> bool:
        """Whether there is a backup whose every byte is right."""
        return self._backups is not None and self._backups.find_newest_intact() is not None

    def repair(self, reason: str, *, from_backup: bool = True) -> bool:
        """Set the broken index aside and have another whole generation, or a backup, take its place; whether there
        was one.

        Raises StorageRefused when there is a backup that cannot be restored now: the next sync tries again.
        """
        self.report_damage(reason)  # before it is gone, so that whoever asks meanwhile is told that it is being mended
        aside = self._store.quarantine(self._wiki_id, reason)
        known = self.health
        since = known.since if not known.is_ok and known.since else datetime.now(UTC)
        self.save(replace(known, condition=HealthCondition.REPAIRING, reason=reason, since=since, quarantined_as=aside))
        _LOG.warning("%s: its index was broken (%s) and is set aside as %s", self._slug, reason, aside)
        beside = self._store.get_published(self._wiki_id)
        if beside is not None:
            _LOG.warning(
                "%s: generation %d, which is whole, takes its place and is brought to HEAD", self._slug, beside
            )
            return True
        restored = self._restore_backup() if from_backup else None
        if restored is None:
            _LOG.warning("%s: there is no good backup; the index is built again from git", self._slug)
        else:
            _LOG.warning("%s: the backup %s takes its place and is brought to HEAD", self._slug, restored.name)
        return restored is not None

    def restore_missing(self) -> bool:
        """Where there is no index but a backup of one, it was lost: have the backup take its place."""
        restored = self._restore_backup()
        if restored is None:
            return False
        reason = "its files were gone"
        self.save(
            replace(
                self.health,
                condition=HealthCondition.REPAIRING,
                reason=reason,
                since=datetime.now(UTC),
                quarantined_as="",
            )
        )
        _LOG.warning("%s: its index was gone; the backup %s takes its place", self._slug, restored.name)
        return True

    def log_recovered_pointer(self) -> None:
        """It was not known which generation is published, and now is."""
        beside = self._store.get_published(self._wiki_id)
        _LOG.warning("%s: which generation answers was lost; the newest that is whole (%s) does", self._slug, beside)

    def mark_repaired(self, revision: str, chunks_embedded: int) -> None:
        """A sync has come to its end: if the index was broken, it is no more."""
        known = self.health
        if known.is_ok:
            return
        now = datetime.now(UTC)
        self.save(IndexHealth(checked_at=now))
        chunks = "1 chunk" if chunks_embedded == 1 else f"{chunks_embedded} chunks"
        seconds = f"{(now - known.since).total_seconds():.1f} s" if known.since else "a while"
        if known.condition is HealthCondition.BROKEN:
            _LOG.warning("%s: its index seemed broken (%s) and is whole by every byte", self._slug, known.reason)
        else:
            told = (self._slug, revision[:10], seconds, chunks)
            _LOG.warning("%s: its index is whole and stands for HEAD (%s) again, after %s; %s embedded", *told)

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

    def save(self, health: IndexHealth) -> None:
        """Note it, whole or not at all. A wiki that is not here has nothing that could be broken; a full disk none."""
        moments = {name: moment.isoformat() if (moment := getattr(health, name)) else None for name in _DATE_FIELDS}
        document = {"condition": health.condition, "reason": health.reason, "aside": health.quarantined_as, **moments}
        try:
            self._store.set_note(self._wiki_id, _NOTE_NAME, json.dumps(document))
        except IndexUnavailable as error:
            _LOG.warning("what is known of an index's health could not be written: %s", error.message)
