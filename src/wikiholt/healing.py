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

from wikiholt.backups import Backups
from wikiholt.errors import BackupNotFound, IndexCorrupt, IndexFault
from wikiholt.model import Backup, Condition, Health, Proof
from wikiholt.ports import Store

_LOG = logging.getLogger(__name__)
_NAME = "health"
_MOMENTS = ("since", "checked_at")
_MENDING = "the index was found damaged and is being mended"
CONFIRMED_FOR_S = 60.0
"""How long an index that was compared with what its writer left is opened again without that."""
EMPTY_CONFIRMED_FOR_S = 1.0
"""The same for an answer without a hit: a word that was lost by damage must not pass for one that is on no page."""


class Healing:
    """Bound to one wiki. Noticing may happen in any thread; mending is for who holds the writer lock."""

    def __init__(
        self,
        wiki_id: str,
        slug: str,
        store: Store,
        backups: Backups | None = None,
        alarm: Callable[[], None] = lambda: None,
    ) -> None:
        """`alarm` is called when damage is news: somebody had better sync the wiki."""
        self._wiki_id = wiki_id
        self._slug = slug
        self._store = store
        self._backups = backups
        self._alarm = alarm
        self._doubted = False

    @property
    def health(self) -> Health:
        """What is known; nothing bad where nothing is."""
        try:
            found = json.loads(self._store.note(self._wiki_id, _NAME) or "")
            since, checked = (datetime.fromisoformat(found[name]) if found[name] else None for name in _MOMENTS)
            return Health(Condition(found["condition"]), str(found["reason"]), since, str(found["aside"]), checked)
        except (ValueError, TypeError, KeyError):
            return Health()

    def suspect(self, reason: str) -> bool:
        """Note that the index seems broken; whether that is news. The next sync reads all of it."""
        known = self.health
        if not known.well:
            return False
        # Whoever mends it tells the story; this is only for who wants to know the moment.
        _LOG.info("%s: its index seems to be broken: %s", self._slug, reason)
        self.keep(replace(known, condition=Condition.BROKEN, reason=reason, since=datetime.now(UTC), aside=""))
        return True

    def confirm(self, max_age_s: float = 0.0) -> Proof:
        """Compare the index's bytes with those its last writer left, if that is longer ago; raises IndexCorrupt."""
        proof = self._store.confirm(self._wiki_id, max_age_s)
        if proof is Proof.CHANGED:
            self.report("it is not as its last writer left it")
        return proof

    def report(self, reason: str) -> None:
        """The index cannot be trusted: have every answer say so, and have it mended."""
        self._doubted = True
        if self.suspect(reason):
            self._alarm()

    def doubt(self) -> str:
        """Why answers of the index cannot be trusted now, as far as that is known; empty when they can."""
        if self._doubted:
            self._doubted = not self.health.well
        return _MENDING if self._doubted else ""

    def checked(self) -> None:
        """Every byte was read and found right."""
        self.keep(replace(self.health, checked_at=datetime.now(UTC)))

    def has_backup(self) -> bool:
        """Whether there is a backup whose every byte is right."""
        return self._backups is not None and self._backups.newest_good() is not None

    def heal(self, reason: str, *, from_backup: bool = True) -> bool:
        """Set the broken index aside and have another whole generation, or a backup, take its place; whether there
        was one.

        Raises StorageRefused when there is a backup that cannot be restored now: the next sync tries again.
        """
        self.suspect(reason)  # before it is gone, so that whoever asks meanwhile is told that it is being mended
        aside = self._store.set_aside(self._wiki_id, reason)
        known = self.health
        since = known.since if not known.well and known.since else datetime.now(UTC)
        self.keep(replace(known, condition=Condition.HEALING, reason=reason, since=since, aside=aside))
        _LOG.warning("%s: its index was broken (%s) and is set aside as %s", self._slug, reason, aside)
        beside = self._store.published(self._wiki_id)
        if beside is not None:
            _LOG.warning(
                "%s: generation %d, which is whole, takes its place and is brought to HEAD", self._slug, beside
            )
            return True
        restored = self._restored() if from_backup else None
        if restored is None:
            _LOG.warning("%s: there is no good backup; the index is built again from git", self._slug)
        else:
            _LOG.warning("%s: the backup %s takes its place and is brought to HEAD", self._slug, restored.name)
        return restored is not None

    def restore_lost(self) -> bool:
        """Where there is no index but a backup of one, it was lost: have the backup take its place."""
        restored = self._restored()
        if restored is None:
            return False
        reason = "its files were gone"
        self.keep(replace(self.health, condition=Condition.HEALING, reason=reason, since=datetime.now(UTC), aside=""))
        _LOG.warning("%s: its index was gone; the backup %s takes its place", self._slug, restored.name)
        return True

    def regained(self) -> None:
        """It was not known which generation is published, and now is."""
        beside = self._store.published(self._wiki_id)
        _LOG.warning("%s: which generation answers was lost; the newest that is whole (%s) does", self._slug, beside)

    def stands(self, revision: str, embedded: int) -> None:
        """A sync has come to its end: if the index was broken, it is no more."""
        known = self.health
        if known.well:
            return
        now = datetime.now(UTC)
        self.keep(Health(checked_at=now))
        chunks = "1 chunk" if embedded == 1 else f"{embedded} chunks"
        seconds = f"{(now - known.since).total_seconds():.1f} s" if known.since else "a while"
        if known.condition is Condition.BROKEN:
            _LOG.warning("%s: its index seemed broken (%s) and is whole by every byte", self._slug, known.reason)
        else:
            told = (self._slug, revision[:10], seconds, chunks)
            _LOG.warning("%s: its index is whole and stands for HEAD (%s) again, after %s; %s embedded", *told)

    def _restored(self) -> Backup | None:
        if self._backups is None:
            return None
        try:
            return self._backups.restore_in_hand()
        except BackupNotFound:
            return None
        except IndexCorrupt as error:
            _LOG.warning("%s: no backup could be restored: %s", self._slug, error.message)
            return None

    def keep(self, health: Health) -> None:
        """Note it, whole or not at all. A wiki that is not here has nothing that could be broken; a full disk none."""
        moments = {name: moment.isoformat() if (moment := getattr(health, name)) else None for name in _MOMENTS}
        document = {"condition": health.condition, "reason": health.reason, "aside": health.aside, **moments}
        try:
            self._store.keep_note(self._wiki_id, _NAME, json.dumps(document))
        except IndexFault as error:
            _LOG.warning("what is known of an index's health could not be written: %s", error.message)
