"""Whether a view taken from a file tells the truth: a few terms are asked of the index too, and answers compared.

Checksums say that a file is as it was written; only the index can say that it was written from this index. A score
depends on every page's length, so pages of another history hardly ever agree.
"""

import logging
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.caches.background_worker import BackgroundWorker
from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheFileName, CacheNotReady, MappedFile
from wikiholt.caches.keywords import keyword_scores, postings_file
from wikiholt.caches.keywords.keyword_scores import search_keywords
from wikiholt.caches.keywords.keyword_view import KeywordView, make_view, merge_postings
from wikiholt.caches.keywords.lexicon import ViewLexicon
from wikiholt.caches.keywords.postings import Postings, PostingsBuilder
from wikiholt.domain.index import IntArray, KeywordDelta, KeywordRow
from wikiholt.domain.page import PageTerms
from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex

_SAMPLE_TERMS, _RARE_MAX_PAGES, _COMPARED_HITS = 8, 64, 20


def verify_against_index(view: KeywordView, index: WikiIndex) -> bool | None:
    """Whether the index gives the same answers; None when it moved on meanwhile and nothing can be said."""
    if index.get_state().pages != view.page_count:
        return False if index.get_version() == view.version else None
    for number in _sample_terms(view):
        query = KeywordQuery((view.postings.terms.get_term(number),))
        ours, theirs = (
            search_keywords(view, query, _COMPARED_HITS, None),
            index.search_keywords(query, _COMPARED_HITS, PageFilter()),
        )
        if index.get_version() != view.version:
            return None
        if [hit.page_id for hit in ours] != [hit.page_id for hit in theirs]:
            return False
        if not all(math.isclose(a.score, b.score, rel_tol=1e-6) for a, b in zip(ours, theirs, strict=True)):
            return False
    return True


def _sample_terms(view: KeywordView) -> list[int]:
    """Numbers of rare terms: some of the youngest page, where histories differ first, some from everywhere."""
    postings = view.postings
    held = np.diff(postings.offsets)
    youngest = np.flatnonzero(postings.rows == len(postings.page_ids) - 1)
    there = np.searchsorted(postings.offsets, youngest, side="right") - 1
    rare = np.flatnonzero(held <= _RARE_MAX_PAGES)
    everywhere = rare[np.linspace(0, len(rare) - 1, min(_SAMPLE_TERMS, len(rare))).astype(np.int64)]
    return [*there[np.argsort(held[there], kind="stable")][:_SAMPLE_TERMS].tolist(), *everywhere.tolist()]


# The word cache of one index: follows its versions, keeps postings in a file, mends itself from the truth. Any number
# of threads may search while one refreshes; refreshing threads wait for one another. A search works on one view from
# end to end. Merging and large builds run in one background thread and are taken up by the next refresh.


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _KeywordCacheState:
    """What searches use: a view, the file under it if there is one, and whether the index has confirmed it."""

    view: KeywordView
    file: MappedFile | None
    verified: bool


class FileKeywordCache:
    """A `WordCache` over one index: the same pages and scores as its store, but for phrases (NotHere)."""

    def __init__(
        self, index: WikiIndex, directory: Path, *, background: bool = True, inline_build_pages: int = 2_000
    ) -> None:
        self._index = index
        self._directory = CacheDirectory(directory, postings_file.CACHE_FAMILY)
        self._background = background
        self._inline_build_pages = inline_build_pages
        self._state: _KeywordCacheState | None = None
        self._failed_version: int | None = None
        self._unverified_file: MappedFile | None = None
        self._closed = False
        self._init_process()

    def _init_process(self) -> None:
        """Locks and threads belong to one process; a forked child gets its own."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._worker: BackgroundWorker[_KeywordCacheState] = BackgroundWorker(
            "wikiholt-words", background=self._background
        )

    # ── the contract ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int | None:
        """The version of the index this cache stands for; None before it is ready."""
        standing = self._state
        return None if standing is None else standing.view.version

    def refresh(self) -> None:
        """Bring the cache to the index's version: by what changed since, by a file on disk, or by building."""
        if self._process_id != os.getpid():
            self._init_process()
        with self._lock:
            if self._closed:
                raise CacheNotReady("The word cache was closed.")
            standing = self._take_background_result(self._check_state(self._state))
            if standing is None or standing.view.version != self._index.get_version():
                standing = self._bring_up_to_date(standing)
            self._state = self._verify_state(standing)
            if self._state is not None:
                self._start_maintenance(self._state)

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]:
        """The best pages by BM25, of these (sorted ids) only if given; NotHere for phrases, CacheNotReady before."""
        return keyword_scores.search_keywords(self._get_view(), query, limit, page_ids)

    def get_max_score(self, query: KeywordQuery) -> float:
        """The score no page can exceed for this query; fails as `search` does."""
        return keyword_scores.get_max_score(self._get_view(), query)

    def get_lexicon(self) -> Lexicon:
        """The terms of the version it stands for; CacheNotReady before."""
        return ViewLexicon(self._get_view())

    def _get_view(self) -> KeywordView:
        standing = self._state
        if standing is None:
            raise CacheNotReady("The word cache is not built yet.", hint="searches read the index meanwhile")
        if standing.file is not None:
            standing.file.ensure_unchanged()
        return standing.view

    def verify(self) -> None:
        """Compare every byte of the file with its checksums; a damaged file is dropped and CacheBroken raised."""
        standing = self._state
        if standing is not None and standing.file is not None:
            try:
                standing.file.verify_checksums()
            except CacheBroken as error:
                self._invalidate(standing.file, error)
                raise

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait for work in the background to end; says whether it has. The next refresh takes it up."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Stop work in the background and let the file go."""
        self._closed = True
        if self._process_id == os.getpid() and not self._worker.stop(timeout=10.0):
            _LOG.warning("the word cache's background work did not stop in time; it ends with the process")
        self._state = None

    # ── getting there ────────────────────────────────────────────────────────────────────────────

    def _take_background_result(self, state: _KeywordCacheState | None) -> _KeywordCacheState | None:
        """Continue from what the background made, if it is of use."""
        made, failure = self._worker.take_result()
        if failure is not None:
            self._failed_version = self._index.get_version()
            _LOG.warning("the word cache could not be made: %s", failure)
        fresh = self._advance(made)
        return fresh if fresh is not None else state

    def _bring_up_to_date(self, state: _KeywordCacheState | None) -> _KeywordCacheState | None:
        """The cache at the index's version; None while the background is on its way there."""
        state = self._advance(state)
        if state is None and not self._worker.is_busy:
            state = self._load_from_disk()
        if state is None and not self._worker.is_busy:
            state = self._build_from_index()
        return state

    def _advance(self, state: _KeywordCacheState | None) -> _KeywordCacheState | None:
        """The same at the index's version, by the pages changed since; None when that cannot be."""
        if state is None:
            return None
        delta = self._index.get_keyword_changes(state.view.version)
        if delta is None:
            return None
        if delta.version == state.view.version:
            return state
        if self._background and len(delta.changed) > self._inline_build_pages:
            self._worker.start(lambda: self._apply_delta(state, delta))
            return None
        return self._apply_delta(state, delta)

    @staticmethod
    def _apply_delta(state: _KeywordCacheState, delta: KeywordDelta) -> _KeywordCacheState:
        return _KeywordCacheState(state.view.apply(delta), state.file, state.verified)

    def _load_from_disk(self) -> _KeywordCacheState | None:
        """The newest file that can be used, brought up to date; files that cannot are removed."""
        for name in self._directory.list_files(self._index.generation, postings_file.CACHE_KIND):
            try:
                standing = self._advance(self._open_file(name))
            except FileNotFoundError:
                continue
            except (CacheBroken, OSError) as error:
                _LOG.warning("dropping the word cache %s: %s", name, error)
                standing = None
            if standing is not None or self._worker.is_busy:
                return standing
            # Broken, too old, or of a version this index never had: nobody can use it.
            self._directory.remove(name)
        return None

    def _open_file(self, name: CacheFileName) -> _KeywordCacheState:
        postings, file, checked = postings_file.open_postings(self._directory, name)
        if not checked and not self._background:
            file.verify_checksums()
        elif not checked:
            self._unverified_file = file
        return _KeywordCacheState(make_view(postings), file, verified=False)

    def _verify_file(self, file: MappedFile) -> None:
        try:
            file.verify_checksums()
        except CacheBroken as error:
            self._invalidate(file, error)

    def _build_from_index(self) -> _KeywordCacheState | None:
        """Build from the truth: small ones at once, large ones in the background (None until then)."""
        if self._failed_version == self._index.get_version():
            return None
        if self._background and self._index.get_state().pages > self._inline_build_pages:
            self._worker.start(self._build)
            return None
        return self._advance(self._build())

    def _build(self) -> _KeywordCacheState:
        builder = PostingsBuilder()
        with self._index.open_keyword_rows() as (version, rows):
            for row in self._worker.iter_until_stopped(rows):
                builder.add(row)
        return self._store_postings(builder.build(version))

    def _start_maintenance(self, state: _KeywordCacheState) -> None:
        """Begin what the state calls for: a merge, or the check of a large file's every byte."""
        view, file = state.view, state.file
        if file is not None and file is self._unverified_file:
            if self._worker.start(lambda: self._verify_file(file)):
                self._unverified_file = None
        elif view.needs_merge:
            self._worker.start(lambda: self._store_postings(merge_postings(view)))
            if not self._background:
                self._state = self._take_background_result(state)

    def _store_postings(self, postings: Postings) -> _KeywordCacheState:
        """The postings in a file, or in memory where the disk does not take them."""
        try:
            postings_file.write_postings(self._directory, self._index.generation, postings)
            name = postings_file.make_file_name(self._index.generation, postings.version)
            postings, file, _ = postings_file.open_postings(self._directory, name)
        except (OSError, CacheBroken) as error:
            _LOG.warning("the word cache stays in memory: %s", error)
            return _KeywordCacheState(make_view(postings), None, verified=True)
        return _KeywordCacheState(make_view(postings), file, verified=True)

    # ── trust ────────────────────────────────────────────────────────────────────────────────────

    def _check_state(self, state: _KeywordCacheState | None) -> _KeywordCacheState | None:
        """What we have, unless its file was condemned or changed since, or the truth went back behind it."""
        if state is None or state.view.version > self._index.get_version():
            return None
        if state.file is not None:
            try:
                state.file.ensure_unchanged()
            except CacheBroken as error:
                self._invalidate(state.file, error)
                return None
        return state

    def _verify_state(self, state: _KeywordCacheState | None) -> _KeywordCacheState | None:
        """What came from a file, once the index has confirmed it; otherwise what the index itself gives."""
        if state is None or state.verified:
            return state
        verdict = verify_against_index(state.view, self._index)
        if verdict is None:
            return state
        if verdict:
            return _KeywordCacheState(state.view, state.file, verified=True)
        if state.file is not None:
            self._invalidate(state.file, CacheBroken("it was made from another index"))
        return self._build_from_index()

    def _invalidate(self, file: MappedFile, error: Exception) -> None:
        """Never believe this file again, and remove it if it still lies there."""
        _LOG.warning("dropping the word cache of version %d: %s", file.header.version, error)
        file.invalid = True
        self._directory.remove(postings_file.make_file_name(file.header.generation, file.header.version))


# An index's words with some pages' replaced, in memory: what a search would find were they written otherwise.


class PatchedKeywordCache:
    """A `WordCache` that stays at the version it was made at; the index itself is left as it is."""

    def __init__(self, index: WikiIndex, replacements: Mapping[int, PageTerms]) -> None:
        self._view = _build_patched_view(index, replacements)

    @property
    def version(self) -> int | None:
        return self._view.version

    def refresh(self) -> None:
        """Nothing to follow."""

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]:
        return keyword_scores.search_keywords(self._view, query, limit, page_ids)

    def get_max_score(self, query: KeywordQuery) -> float:
        return keyword_scores.get_max_score(self._view, query)

    def get_lexicon(self) -> Lexicon:
        return ViewLexicon(self._view)

    def verify(self) -> None:
        """Nothing lies on disk."""

    def wait_idle(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        """Nothing is open."""


def _build_patched_view(index: WikiIndex, replacements: Mapping[int, PageTerms]) -> KeywordView:
    builder = PostingsBuilder()
    with index.open_keyword_rows() as (version, rows):
        for row in rows:
            builder.add(KeywordRow(row.page_id, replacements.get(row.page_id, row.terms)))
    return make_view(builder.build(version))
