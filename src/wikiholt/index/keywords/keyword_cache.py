"""Keyword caches: one that keeps postings in a file and follows the index, and one in memory with replaced pages."""

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from wikiholt.domain.index import IntArray
from wikiholt.domain.page import PageTerms
from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import CacheCannotAnswer
from wikiholt.index.keywords.keyword_file import CacheBroken, KeywordFile, open_draft, write_keyword_file
from wikiholt.index.keywords.keyword_state import (
    KeywordState,
    count_pages,
    find_lists,
    follow_index,
    iter_page_counts,
    rank_pages,
)
from wikiholt.index.keywords.lexicon import make_state_lexicon
from wikiholt.index.keywords.postings import PageCounts, build_postings
from wikiholt.regular_files import move_away
from wikiholt.text.bm25 import count_weighted_terms

_LOG = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 10.0
RETRY_DELAY_S = 5.0
"""After a build failed, or another process was found to build the same file."""


class MemoryKeywordCache:
    """A `KeywordCache` that has one state. It raises CacheCannotAnswer and CacheBroken."""

    def __init__(self, state: KeywordState | None) -> None:
        self._state = state

    @property
    def version(self) -> int | None:
        """The version of the index that the cache equals; None before it is ready."""
        state = self._state
        return None if state is None else state.version

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]:
        state = self._get_state()
        return rank_pages(state, find_lists(state, query), limit, page_ids)

    def count_pages(self, terms: Sequence[str]) -> Mapping[str, int]:
        return count_pages(terms, find_lists(self._get_state(), KeywordQuery(tuple(terms))))

    def get_lexicon(self) -> Lexicon:
        return make_state_lexicon(self._get_state())

    def refresh(self) -> None:
        """Bring the cache to the version of the index, if it follows one. Raises CacheCannotAnswer if it was closed."""

    def verify(self) -> None:
        """Verify its file completely, if it has one. Removes a damaged file and raises CacheBroken."""

    def wait_idle(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - nothing runs
        """Wait for a build. Returns whether it has ended; the next refresh uses its result."""
        return True

    def close(self) -> None:
        """Stop a build and release the file."""
        self._state = None

    def _get_state(self) -> KeywordState:
        if self._state is None:
            raise CacheCannotAnswer("the keyword cache is not built yet", hint="search the index")
        return self._state


def build_patched_cache(index: WikiIndex, replacements: Mapping[int, PageTerms]) -> MemoryKeywordCache:
    """Build a cache with the terms of some pages replaced. It stays at one version of the index."""
    with index.open_keywords() as snapshot:
        pages = (
            PageCounts(page_id << 32, *count_weighted_terms(replacements.get(page_id, terms)))
            for page_id, terms in snapshot.iter_terms()
        )
        return MemoryKeywordCache(KeywordState(snapshot.version, build_postings(pages)))


class FileKeywordCache(MemoryKeywordCache):
    """A `KeywordCache` over one index: the same pages and scores, without phrases and exclusions.

    Any number of threads may search while one refreshes. Postings that are missing, damaged or old are built by one
    thread of one process, from the index alone; the next refresh of each process uses them.
    """

    def __init__(self, index: WikiIndex, directory: Path, *, background: bool = True) -> None:
        """Without `background`, the thread that refreshes also builds."""
        super().__init__(None)
        self._index = index
        self._path = directory / f"g{index.generation:06d}.keywords"
        self._background = background
        self._closed = False
        self._init_process()

    def _init_process(self) -> None:
        """Create the lock and forget builds. A forked child needs its own."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._builder: threading.Thread | None = None
        self._built: KeywordState | None = None
        self._next_build_at = 0.0

    def refresh(self) -> None:
        if self._process_id != os.getpid():
            self._init_process()
        with self._lock:
            if self._closed:
                raise CacheCannotAnswer("the keyword cache was closed", hint="search the index")
            self._state = self._find_state()
            if self._state is None or self._state.is_old:
                self._start_build()

    def verify(self) -> None:
        state = self._state
        if state is not None and state.file is not None:
            try:
                state.file.verify()
            except CacheBroken as error:
                self._remove_file(error)
                self._state = None
                raise

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        builder = self._builder
        if builder is not None:
            builder.join(timeout_s)
        return builder is None or not builder.is_alive()

    def close(self) -> None:
        self._closed = True
        if self._process_id == os.getpid() and not self.wait_idle(_STOP_TIMEOUT_S):
            _LOG.warning("building the keyword cache did not stop in time; it ends with the process")
        super().close()

    def _get_state(self) -> KeywordState:
        state = super()._get_state()
        if state.file is not None:
            state.file.ensure_unchanged()
        return state

    def _find_state(self) -> KeywordState | None:
        """Return a state at the index's version: the last one followed, that of a build, or that of the file."""
        state = self._state
        if state is not None and state.file is not None:
            try:
                state.file.ensure_unchanged()
            except CacheBroken as error:
                self._remove_file(error)
                state = None
        if self._built is not None:
            state, self._built = self._built, None
        elif state is None and not self._can_build():
            return None
        if state is None or (state.is_old and state.file is not None and state.file.is_replaced()):
            state = self._open_file() or state
        if state is None or state.version == self._index.get_version():
            return state
        with self._index.open_keywords() as snapshot:
            return follow_index(state, snapshot)

    def _open_file(self) -> KeywordState | None:
        """Open the file; None if there is none. Removes an unusable one."""
        try:
            file = KeywordFile(self._path, self._index.wiki_id, self._index.generation)
        except FileNotFoundError:
            return None
        except (CacheBroken, OSError) as error:
            self._remove_file(error)
            return None
        # At no version: only a comparison with the index shows which pages are as they were.
        return KeywordState(-1, file.postings, file)

    def _remove_file(self, error: Exception) -> None:
        """Remove the file. Processes that mapped it can still read it."""
        _LOG.warning("removing the keyword file: %s", error)
        with suppress(OSError):
            move_away(self._path)

    def _can_build(self) -> bool:
        return self.wait_idle(0) and time.monotonic() >= self._next_build_at

    def _start_build(self) -> None:
        if not self._can_build():
            return
        if self._background:
            self._builder = threading.Thread(target=self._run_build, name="wikiholt-keywords", daemon=True)
            self._builder.start()
        else:
            self._run_build()
            self._state = self._find_state()

    def _run_build(self) -> None:
        try:
            self._built = self._build()
        except Exception as error:  # noqa: BLE001 - whatever it is, the index answers until the next attempt
            level = logging.INFO if self._closed or isinstance(error, BlockingIOError) else logging.WARNING
            _LOG.log(level, "the keyword cache could not be built: %s", error)
            self._next_build_at = time.monotonic() + RETRY_DELAY_S

    def _build(self) -> KeywordState:
        """Build the postings and write the file; keep them in memory if that fails. Raises BlockingIOError."""
        try:
            draft = open_draft(self._path)
        except BlockingIOError:
            raise
        except OSError as error:
            _LOG.warning("the keyword cache stays in memory: %s", error)
            draft = None
        with draft or nullcontext():
            with self._index.open_keywords() as snapshot:
                postings = build_postings(self._iter_until_closed(iter_page_counts(snapshot)))
            if draft is not None:
                try:
                    file = write_keyword_file(draft, self._path, self._index.wiki_id, self._index.generation, postings)
                    return KeywordState(snapshot.version, file.postings, file)
                except (CacheBroken, OSError) as error:
                    _LOG.warning("the keyword cache stays in memory: %s", error)
        return KeywordState(snapshot.version, postings)

    def _iter_until_closed(self, pages: Iterator[PageCounts]) -> Iterator[PageCounts]:
        for page in pages:
            if self._closed:
                raise CacheCannotAnswer("the keyword cache was closed", hint="search the index")
            yield page
