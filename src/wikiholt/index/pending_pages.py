"""Pages that are found by their words only: which come first, and how long it takes."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import WikiholtError
from wikiholt.text.links import fold_path

_WANTED_NOTE = "wanted"
_MAX_WANTED = 50
_PAGES_PER_READ = 500
_BOILERPLATE_NAME = re.compile(
    r"(licen[cs]e|copying|notice|code[-_]of[-_]conduct|codeowners|contributors|authors|changelog|summary|toc"
    r"|_?(sidebar|navbar|footer))([-_.].*)?",
    re.IGNORECASE,
)
"""Names of files that many repositories have, and that say little about their subject."""
_LISTED_LINE = re.compile(r"\s*(\||([-*+]|\d+\.)\s+\[[^\]]*\](\([^)]*\)|\])?\s*$)")
"""A row of a table, or an item that is only a link."""
_LISTED_SHARE, _MIN_LINES = 0.9, 10
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PendingPages:
    """The pending pages of an index, by file: those most likely wanted first, with the length of their text."""

    lengths: Mapping[str, int]

    @classmethod
    def read(cls, index: WikiIndex) -> "PendingPages":
        """Read them from the index. Recently changed and much linked pages come first, and boilerplate last: licences,
        navigation, and pages that are only a table or a list of links."""
        page_ids = index.find_pending_page_ids().tolist()
        pages = index.get_pages(page_ids)
        links = Counter(fold_path(link.paths[0]) for link in index.get_links() if link.paths)
        by_links = sorted(page_ids, key=lambda page_id: -links[fold_path(pages[page_id].path)])
        by_date = sorted(page_ids, key=lambda page_id: pages[page_id].last_updated or _NEVER, reverse=True)
        ranks: Counter[int] = Counter()
        for order in (by_links, by_date):
            ranks.update({page_id: place for place, page_id in enumerate(order)})
        lengths, boilerplate = dict[int, int](), set[int]()
        for start in range(0, len(page_ids), _PAGES_PER_READ):
            for page_id, chunks in index.get_page_chunks(page_ids[start : start + _PAGES_PER_READ]).items():
                texts = [chunk.text for chunk in chunks]
                shown = (len("".join((pages[page_id].name, *chunk.heading_path))) for chunk in chunks)
                lengths[page_id] = sum(map(len, texts)) + sum(shown)
                if is_boilerplate(pages[page_id].file, "\n".join(texts)):
                    boilerplate.add(page_id)
        ordered = sorted(page_ids, key=lambda page_id: (page_id in boilerplate, ranks[page_id]))
        return cls({pages[page_id].file: lengths.get(page_id, 0) for page_id in ordered})


def is_boilerplate(file: str, text: str) -> bool:
    """Whether few people search for what this page says: its name tells so, or it is a table or a list of links."""
    if _BOILERPLATE_NAME.fullmatch(file.rpartition("/")[2]):
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) >= _MIN_LINES and sum(map(bool, map(_LISTED_LINE.match, lines))) >= _LISTED_SHARE * len(lines)


class EmbeddingSpeed:
    """How fast the pages of one wiki are embedded, in all slices of a sync."""

    def __init__(self) -> None:
        self._seconds = self._characters = 0.0
        self._began = 0.0
        self._length = self._done = 0

    def start(self, pending: PendingPages) -> None:
        """A slice begins, with these pages."""
        self._seconds += time.monotonic() - self._began if self._done else 0.0
        self._characters += self._done
        self._began, self._length, self._done = time.monotonic(), sum(pending.lengths.values()), 0

    def estimate_seconds(self, characters_done: int) -> float | None:
        """The seconds until the other pages of this slice are embedded; None before the first text."""
        self._done = characters_done
        characters = self._characters + characters_done
        seconds = self._seconds + time.monotonic() - self._began
        return seconds * max(0, self._length - characters_done) / characters if characters else None


def record_wanted(store: IndexStore, wiki_id: str, files: Sequence[str]) -> None:
    """Have these files embedded before the others. Never raises."""
    text = json.dumps(list(files[:_MAX_WANTED]))
    with suppress(WikiholtError):
        if store.get_note(wiki_id, _WANTED_NOTE) != text:
            store.set_note(wiki_id, _WANTED_NOTE, text)


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
