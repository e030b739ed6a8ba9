"""The health of one wiki's index, and the repair of a damaged one.

Health is stored in a small note beside the index, where every process can read it. Losing the note is harmless, because
existing damage is detected again. Repairing requires the wiki's write lock. The damaged index is quarantined, never
deleted; the sync fills an empty one from git, with the vectors that are intact. Each step is logged.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial

from wikiholt.domain.index import FloatArray, HealthCondition, IndexHealth
from wikiholt.domain.storage_protocols import IndexStore, VectorSource, WikiIndex
from wikiholt.errors import IndexUnavailable, NoCommits
from wikiholt.index.index_backups import IndexBackups

_LOG = logging.getLogger(__name__)
_NOTE_NAME = "health"
_REPAIR_NOTE = "the index is damaged and is being repaired"

OtherStores = Callable[[], Iterable[IndexStore]]
"""Returns stores with other indexes of the same wiki, which may know vectors of its texts."""


class KeptVectors:
    """The intact vectors of a damaged index. What cannot be read counts as missing."""

    def __init__(self, index: VectorSource) -> None:
        self._index = index

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        with suppress(IndexUnavailable):
            return self._index.find_vectors_by_hash(hashes)
        found: dict[bytes, FloatArray] = {}
        for digest in hashes:
            with suppress(IndexUnavailable):
                found |= self._index.find_vectors_by_hash([digest])
        return found


class IndexRepair:
    """Bound to one wiki. Any thread may report damage; repairing is only for the thread that holds the write lock."""

    def __init__(
        self,
        wiki_id: str,
        slug: str,
        store: IndexStore,
        backups: IndexBackups | None = None,
        on_damage: Callable[[], None] = lambda: None,
        list_others: OtherStores = tuple,
    ) -> None:
        """`on_damage` is called when new damage is reported; the wiki then needs a sync."""
        self._wiki_id = wiki_id
        self._slug = slug
        self._store = store
        self._backups = backups
        self._on_damage = on_damage
        self._list_others = list_others
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

    def report(self, reason: str) -> None:
        """Mark the index as damaged, so that every answer says so, and request a sync, which checks all of it."""
        self._damage_reported = True
        if not self.health.is_ok:
            return
        # The repair logs warnings; this line only records when the damage was noticed.
        _LOG.info("%s: the index seems to be damaged: %s", self._slug, reason)
        self._save_damage(HealthCondition.BROKEN, reason, datetime.now(UTC))
        self._on_damage()

    def read_damage_note(self) -> str:
        """Why answers of the index cannot be trusted now, or an empty string."""
        if self._damage_reported:
            self._damage_reported = not self.health.is_ok
        return _REPAIR_NOTE if self._damage_reported else ""

    def recall_damage(self) -> None:
        """Learn whether another process has reported damage."""
        self._damage_reported = not self.health.is_ok

    def mark_checked(self) -> None:
        """Record that the entire index was read and is intact."""
        self.save(replace(self.health, checked_at=datetime.now(UTC)))

    def require_never_indexed(self) -> None:
        """Raise NoCommits if there is or was an index: a wiki that has no pages then has lost them."""
        store, wiki_id = self._store, self._wiki_id
        has_backup = self._backups is not None and bool(self._backups.list())
        if store.get_published(wiki_id) is not None or store.list_quarantined(wiki_id) or has_backup:
            raise NoCommits("The repository has no commits any more.", hint="Restore the repository from a backup.")

    def quarantine(self, reason: str) -> None:
        """Quarantine the damaged index. The next index is built from git."""
        known = self.health
        since = known.since if not known.is_ok and known.since else datetime.now(UTC)
        self._save_damage(HealthCondition.BROKEN, reason, since)  # before, so that searches report the repair
        name = self._store.quarantine(self._wiki_id, reason)
        self._save_damage(HealthCondition.REPAIRING, reason, since, name)
        _LOG.warning("%s: the index was damaged (%s) and is quarantined as %s", self._slug, reason, name)

    @contextmanager
    def open_kept_vectors(self, fingerprint: str) -> Iterator[Sequence[VectorSource]]:
        """The vectors of the last quarantined index, of the newest backup and of others, if they are of this model."""
        with ExitStack() as stack:
            sources = []
            store, wiki_id = self._store, self._wiki_id
            openers: list[Callable[[], WikiIndex | None]] = [
                partial(store.open_quarantined, wiki_id),
                self._open_backup,
            ]
            openers += [partial(other.open, wiki_id) for other in self._list_others()]
            for open_index in openers:
                with suppress(IndexUnavailable):
                    index = open_index()
                    if index is not None:
                        stack.enter_context(closing(index))
                        if index.get_state().recipe.fingerprint == fingerprint:
                            sources.append(KeptVectors(index))
            yield sources

    def _open_backup(self) -> WikiIndex | None:
        return self._backups.open_newest() if self._backups is not None else None

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
        if known.condition is HealthCondition.BROKEN:
            _LOG.warning(
                "%s: the index seemed damaged (%s), but a full check found it intact", self._slug, known.reason
            )
            return
        chunks = "1 chunk" if chunks_embedded == 1 else f"{chunks_embedded} chunks"
        seconds = f"{(now - known.since).total_seconds():.1f} s" if known.since else "a while"
        _LOG.warning(
            "%s: the index is intact and at HEAD (%s) again, after %s; %s embedded",
            self._slug,
            revision[:10],
            seconds,
            chunks,
        )

    def save(self, health: IndexHealth) -> None:
        """Store the note atomically. An unavailable store is logged, not raised."""
        try:
            text = json.dumps(asdict(health), default=datetime.isoformat)
            self._store.set_note(self._wiki_id, _NOTE_NAME, text)
        except IndexUnavailable as error:
            _LOG.warning("the health of an index could not be written: %s", error.message)

    def _save_damage(self, condition: HealthCondition, reason: str, since: datetime, quarantined_as: str = "") -> None:
        self.save(IndexHealth(condition, reason, since, quarantined_as, self.health.checked_at))
