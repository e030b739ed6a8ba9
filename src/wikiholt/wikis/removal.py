"""Wikis that are being removed: whoever writes their index, on whichever node, had better let go of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.errors import WikiholtError

_NOTE_NAME = "leaving"
_POLL_INTERVAL_S = 0.5
"""Seconds between two looks at the note of a wiki: writers and readers of whole indexes ask without end."""
_NOTE_MARGIN_S = 60.0
"""Seconds for which a note counts beyond the time that a removal waits: what was killed in the middle leaves it."""


class PendingRemovals:
    """Used from many threads. Where other nodes may be at work on a wiki they are `told`, by a note with its index."""

    def __init__(self, store: IndexStore, lock_timeout: float, *, shared: bool) -> None:
        """`patience` is how long a removal waits for a writer, in seconds."""
        self._store = store
        self._note_ttl = timedelta(seconds=lock_timeout + _NOTE_MARGIN_S)
        self._shared = shared
        self._local: set[str] = set()
        self._cached: dict[str, tuple[float, bool]] = {}

    @contextmanager
    def mark_removing(self, wiki_id: str) -> Iterator[None]:
        """While the block lasts the wiki is being removed."""
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
        looked, leaving = self._cached.get(wiki_id, (0.0, False))
        if time.monotonic() - looked >= _POLL_INTERVAL_S:
            leaving = self._read_note(wiki_id)
            self._cached[wiki_id] = (time.monotonic(), leaving)
        return leaving

    def _write_note(self, wiki_id: str, text: str) -> None:
        if self._shared:
            with suppress(WikiholtError):  # it is only so much slower
                self._store.set_note(wiki_id, _NOTE_NAME, text)

    def _read_note(self, wiki_id: str) -> bool:
        try:
            note = self._store.get_note(wiki_id, _NOTE_NAME)
            return bool(note) and datetime.fromisoformat(note or "") > datetime.now(UTC)
        except (WikiholtError, ValueError, TypeError):
            return False
