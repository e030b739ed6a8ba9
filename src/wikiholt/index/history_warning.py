"""Why pages of an index lack dates and former names: the history of the repository could not be read completely.

The warning is a small note beside the index, by generation. It is stored before the pages, and removed after all of
them were indexed with a complete history.
"""

import json
from typing import Any

from wikiholt.domain.storage_protocols import IndexStore

_NOTE_NAME = "history"


class HistoryWarnings:
    """The warnings of one wiki. Writing is only for the thread that holds the write lock."""

    def __init__(self, wiki_id: str, store: IndexStore) -> None:
        self._wiki_id = wiki_id
        self._store = store

    def read(self, generation: int) -> str:
        """The warning of a generation; empty if there is none."""
        return str(self._load().get(str(generation), ""))

    def write(self, generation: int, text: str) -> None:
        """Store the warning of a generation, or remove it. Those of older generations are removed too."""
        known = self._load()
        if not text and not known:
            return
        current = {str(generation), str(self._store.get_published(self._wiki_id))}
        updated = {name: known[name] for name in current & known.keys()} | {str(generation): text}
        kept = {name: warning for name, warning in updated.items() if warning}
        if kept != known:
            self._store.set_note(self._wiki_id, _NOTE_NAME, json.dumps(kept))

    def _load(self) -> dict[str, Any]:
        try:
            known = json.loads(self._store.get_note(self._wiki_id, _NOTE_NAME) or "{}")
        except ValueError:
            return {}
        return known if isinstance(known, dict) else {}
