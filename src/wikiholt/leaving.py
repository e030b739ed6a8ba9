"""Wikis that are being removed: whoever writes their index, on whichever node, had better let go of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from wikiholt.errors import WikiholtError
from wikiholt.ports import Store

_NAME = "leaving"
_EVERY = 0.5
"""Seconds between two looks at the note of a wiki: writers and readers of whole indexes ask without end."""
_MARGIN = 60.0
"""Seconds for which a note counts beyond the time that a removal waits: what was killed in the middle leaves it."""


class Leaving:
    """Used from many threads. Where other nodes may be at work on a wiki they are `told`, by a note with its index."""

    def __init__(self, store: Store, patience: float, *, told: bool) -> None:
        """`patience` is how long a removal waits for a writer, in seconds."""
        self._store = store
        self._lasts = timedelta(seconds=patience + _MARGIN)
        self._told = told
        self._here: set[str] = set()
        self._seen: dict[str, tuple[float, bool]] = {}

    @contextmanager
    def begun(self, wiki_id: str) -> Iterator[None]:
        """While the block lasts the wiki is being removed."""
        self._here.add(wiki_id)
        try:
            self._tell(wiki_id, (datetime.now(UTC) + self._lasts).isoformat())
            yield
        finally:
            self._tell(wiki_id, "")
            self._here.discard(wiki_id)

    def __contains__(self, wiki_id: str) -> bool:
        if wiki_id in self._here or not self._told:
            return wiki_id in self._here
        looked, leaving = self._seen.get(wiki_id, (0.0, False))
        if time.monotonic() - looked >= _EVERY:
            leaving = self._noted(wiki_id)
            self._seen[wiki_id] = (time.monotonic(), leaving)
        return leaving

    def _tell(self, wiki_id: str, text: str) -> None:
        if self._told:
            with suppress(WikiholtError):  # it is only so much slower
                self._store.keep_note(wiki_id, _NAME, text)

    def _noted(self, wiki_id: str) -> bool:
        try:
            note = self._store.note(wiki_id, _NAME)
            return bool(note) and datetime.fromisoformat(note or "") > datetime.now(UTC)
        except (WikiholtError, ValueError, TypeError):
            return False
