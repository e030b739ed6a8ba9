"""Which wikis are being removed, so that nobody writes their index again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.errors import WikiholtError

_NOTE_NAME = "leaving"
_POLL_INTERVAL_S = 0.5
"""Seconds between two reads of a wiki's note, because writers ask continuously."""
_NOTE_MARGIN_S = 60.0
"""Extra lifetime of a note, beyond the time a removal waits. It then expires if the removal was killed."""


class PendingRemovals:
    """Used from many threads. If `shared`, other nodes are informed by a note stored with the index."""

    def __init__(self, store: IndexStore, lock_timeout_s: float, *, shared: bool) -> None:
        """`lock_timeout_s` is how long a removal waits for a writer."""
        self._store = store
        self._note_ttl = timedelta(seconds=lock_timeout_s + _NOTE_MARGIN_S)
        self._shared = shared
        self._local: set[str] = set()
        self._cached: dict[str, tuple[float, bool]] = {}

    @contextmanager
    def mark_removing(self, wiki_id: str) -> Iterator[None]:
        """Mark the wiki as being removed for the duration of the block."""
        self._local.add(wiki_id)
        try:
            self._write_note(wiki_id, (datetime.now(UTC) + self._note_ttl).isoformat())
            yield
        finally:
            self._write_note(wiki_id, "")
            self._local.discard(wiki_id)

    def __contains__(self, wiki_id: str) -> bool:
        if wiki_id in self._local or not self._shared:
            return wiki_id in self._local
        read_at, removing = self._cached.get(wiki_id, (0.0, False))
        if time.monotonic() - read_at >= _POLL_INTERVAL_S:
            removing = self._read_note(wiki_id)
            self._cached[wiki_id] = (time.monotonic(), removing)
        return removing

    def _write_note(self, wiki_id: str, text: str) -> None:
        if self._shared:
            with suppress(WikiholtError):  # without the note the removal is only slower
                self._store.set_note(wiki_id, _NOTE_NAME, text)

    def _read_note(self, wiki_id: str) -> bool:
        try:
            note = self._store.get_note(wiki_id, _NOTE_NAME)
            return bool(note) and datetime.fromisoformat(note or "") > datetime.now(UTC)
        except (WikiholtError, ValueError, TypeError):
            return False
