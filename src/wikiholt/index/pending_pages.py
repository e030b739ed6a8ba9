"""Pages that are found by their words only: which come first, and how long it takes."""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import WikiholtError
from wikiholt.text.links import fold_path

_WANTED_NOTE = "wanted"
_MAX_WANTED = 50
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class PendingPages:
    """The pending pages of an index, by file: those most likely wanted first, with the length of their text."""

    lengths: dict[str, int]
    _began: float = field(default_factory=time.monotonic)

    @classmethod
    def read(cls, index: WikiIndex) -> "PendingPages":
        """Read them from the index. Recently changed and much linked pages come first."""
        page_ids = index.find_pending_page_ids().tolist()
        pages = index.get_pages(page_ids)
        links = Counter(fold_path(link.paths[0]) for link in index.get_links() if link.paths)
        by_links = sorted(page_ids, key=lambda page_id: -links[fold_path(pages[page_id].path)])
        by_date = sorted(page_ids, key=lambda page_id: pages[page_id].last_updated or _NEVER, reverse=True)
        ranks: Counter[int] = Counter()
        for order in (by_links, by_date):
            ranks.update({page_id: place for place, page_id in enumerate(order)})
        ordered = (pages[page_id] for page_id in sorted(page_ids, key=lambda page_id: ranks[page_id]))
        return cls({page.file: max(1, page.length) for page in ordered})

    def estimate_seconds(self, characters_done: int) -> float | None:
        """The time that the rest takes at the speed so far; None before the first text."""
        # A text is embedded with the names of its page and headings, so that more is embedded than the pages have.
        elapsed, total = time.monotonic() - self._began, sum(self.lengths.values())
        return elapsed * max(0, total - characters_done) / characters_done if characters_done else None


def record_wanted(store: IndexStore, wiki_id: str, files: Sequence[str]) -> None:
    """Have these files embedded before the others. Never raises."""
    with suppress(WikiholtError):
        store.set_note(wiki_id, _WANTED_NOTE, json.dumps(list(files[:_MAX_WANTED])))


def make_wanted_reader(store: IndexStore, wiki_id: str) -> Callable[[], Sequence[str]]:
    """Reads the files of `record_wanted`."""

    def read() -> Sequence[str]:
        with suppress(WikiholtError, ValueError):
            files = json.loads(store.get_note(wiki_id, _WANTED_NOTE) or "[]")
            return [file for file in files if isinstance(file, str)] if isinstance(files, list) else ()
        return ()

    return read


def read_seconds_left(store: IndexStore, wiki_id: str) -> float | None:
    """The time that a process reports in which it embeds the rest; None if none does, or if it is unknown."""
    with suppress(WikiholtError, ValueError, TypeError):
        seconds = json.loads(store.get_activity(wiki_id) or "{}").get("seconds_left")
        return float(seconds) if seconds is not None else None
    return None
