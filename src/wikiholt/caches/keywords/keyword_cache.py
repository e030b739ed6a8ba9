"""Keyword caches: one that keeps postings in a file and follows the index, and one in memory with replaced pages."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheFileName, MappedFile, SectionWriter
from wikiholt.caches.keywords import keyword_view
from wikiholt.caches.keywords.keyword_view import KeywordView, make_view, merge_postings
from wikiholt.caches.keywords.lexicon import ViewLexicon
from wikiholt.caches.keywords.postings import Positions, Postings, PostingsBuilder, Vocabulary
from wikiholt.caches.versioned_cache import VersionedCache
from wikiholt.domain.index import IntArray, KeywordDelta, KeywordRow
from wikiholt.domain.page import PageTerms
from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.text.bm25 import FIELD_WEIGHTS

_LOG = logging.getLogger(__name__)

_SAMPLE_TERMS, _RARE_MAX_PAGES, _COMPARED_HITS = 8, 64, 20


@dataclass(frozen=True, slots=True)
class KeywordCacheState:
    """A view, its file if there is one, and whether the view was verified against the index."""

    view: KeywordView
    file: MappedFile | None
    verified: bool

    @property
    def version(self) -> int:
        return self.view.version


class _ViewReader(ABC):
    """The searches of a `KeywordCache`, answered by a view. Raises CacheCannotAnswer, CacheNotReady and CacheBroken."""

    @abstractmethod
    def _get_view(self) -> KeywordView: ...

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]:
        return keyword_view.search_keywords(self._get_view(), query, limit, page_ids)

    def get_max_score(self, query: KeywordQuery) -> float:
        return keyword_view.get_max_score(self._get_view(), query)

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        return keyword_view.find_matching_page_ids(self._get_view(), query)

    def get_lexicon(self) -> Lexicon:
        return ViewLexicon(self._get_view())


class FileKeywordCache(_ViewReader, VersionedCache[KeywordCacheState]):
    """A `KeywordCache` over one index: the same pages and scores as its store.

    Without positions, phrases raise CacheCannotAnswer.
    """

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        *,
        with_positions: bool = False,
        background: bool = True,
        inline_build_pages: int = 2_000,
    ) -> None:
        super().__init__(
            index,
            CacheDirectory(directory, CACHE_FAMILY),
            label="keyword cache",
            background=background,
            inline_build_limit=inline_build_pages,
        )
        self._with_positions = with_positions

    def _get_view(self) -> KeywordView:
        state = self._get_state()
        if state.file is not None:
            state.file.ensure_unchanged()
        return state.view

    # ── advancing and building ───────────────────────────────────────────────────────────────────

    def _bring_up_to_date(self, state: KeywordCacheState | None) -> KeywordCacheState | None:
        """Return a state at the index's version; None while a background job is on its way there."""
        state = self._advance(state)
        if state is None and not self._worker.is_busy:
            state = self._load_from_disk()
        if state is None and not self._worker.is_busy:
            state = self._build_from_index()
        return state

    def _advance(self, state: KeywordCacheState | None) -> KeywordCacheState | None:
        if state is None:
            return None
        delta = self._index.get_keyword_changes(state.version)
        if delta is None:
            return None
        if delta.version == state.version:
            return state
        if self._background and len(delta.changed) > self._inline_build_limit:
            self._worker.start(lambda: self._apply_delta(state, delta))
            return None
        return self._apply_delta(state, delta)

    @staticmethod
    def _apply_delta(state: KeywordCacheState, delta: KeywordDelta) -> KeywordCacheState:
        return replace(state, view=state.view.apply(delta))

    def _get_file_kind(self) -> str:
        return CACHE_KIND

    def _open_file(self, name: CacheFileName) -> KeywordCacheState:
        postings, file, is_verified = open_postings(self._directory, name, with_positions=self._with_positions)
        if not is_verified:
            self._verify_later(file)
        return KeywordCacheState(make_view(postings), file, verified=False)

    def _get_build_size(self) -> int:
        return self._index.get_state().pages

    def _build(self) -> KeywordCacheState:
        builder = PostingsBuilder(with_positions=self._with_positions)
        with self._index.open_keyword_rows() as (version, rows):
            builder.add_all(self._worker.iter_until_stopped(rows))
        return self._store_postings(builder.build(version))

    def _start_maintenance(self, state: KeywordCacheState) -> None:
        view = state.view
        if view.needs_merge:
            self._run_merge(state, lambda: self._store_postings(merge_postings(view)))

    def _store_postings(self, postings: Postings) -> KeywordCacheState:
        """Write the postings to a file, or keep them in memory if that fails."""
        file: MappedFile | None = None
        try:
            wanted = self._with_positions
            write_postings(self._directory, self._index.generation, postings, with_positions=wanted)
            name = make_file_name(self._index.generation, postings.version)
            postings, file, _ = open_postings(self._directory, name, with_positions=wanted)
        except (OSError, CacheBroken) as error:
            _LOG.warning("the keyword cache stays in memory: %s", error)
        return KeywordCacheState(make_view(postings), file, verified=True)

    # ── verification ─────────────────────────────────────────────────────────────────────────────

    def _confirm(self, state: KeywordCacheState | None) -> KeywordCacheState | None:
        """Verify a state that came from a file against the index. If they differ, build from the index."""
        if state is None or state.verified:
            return state
        matches = matches_index(state.view, self._index)
        if matches is None:
            return state
        if matches:
            return replace(state, verified=True)
        self._invalidate(state, CacheBroken("it was built from another index"))
        return self._build_from_index()


def matches_index(view: KeywordView, index: WikiIndex) -> bool | None:
    """Whether the index gives the same results for a sample of terms; None if the index changed in the meantime.

    Checksums prove that a file is as it was written; only the index can prove that it was built from this index. A
    score depends on the length of every page, so pages of another history hardly ever match.
    """
    if index.get_state().pages != view.page_count:
        return False if index.get_version() == view.version else None
    for number in _sample_terms(view):
        query = KeywordQuery((view.postings.terms.get_term(number),))
        cached = keyword_view.search_keywords(view, query, _COMPARED_HITS, None)
        stored = index.search_keywords(query, _COMPARED_HITS, PageFilter())
        if index.get_version() != view.version:
            return None
        if [hit.page_id for hit in cached] != [hit.page_id for hit in stored]:
            return False
        if not all(math.isclose(a.score, b.score, rel_tol=1e-6) for a, b in zip(cached, stored, strict=True)):
            return False
    return True


def _sample_terms(view: KeywordView) -> list[int]:
    """Return numbers of rare terms: some of the newest page, where histories differ first, and some of all pages."""
    postings = view.postings
    page_counts = np.diff(postings.offsets)
    newest = np.flatnonzero(postings.rows == len(postings.page_ids) - 1)
    of_newest = np.searchsorted(postings.offsets, newest, side="right") - 1
    rare = np.flatnonzero(page_counts <= _RARE_MAX_PAGES)
    of_all = rare[np.linspace(0, len(rare) - 1, min(_SAMPLE_TERMS, len(rare))).astype(np.int64)]
    rarest_of_newest = of_newest[np.argsort(page_counts[of_newest], kind="stable")][:_SAMPLE_TERMS]
    return [*rarest_of_newest.tolist(), *of_all.tolist()]


class PatchedKeywordCache(_ViewReader):
    """A `KeywordCache` in memory with the terms of some pages replaced. It stays at one version of the index."""

    def __init__(self, index: WikiIndex, replacements: Mapping[int, PageTerms]) -> None:
        builder = PostingsBuilder()
        with index.open_keyword_rows() as (version, rows):
            builder.add_all(KeywordRow(row.page_id, replacements.get(row.page_id, row.terms)) for row in rows)
        self._view = make_view(builder.build(version))

    @property
    def version(self) -> int | None:
        return self._view.version

    def refresh(self) -> None:
        """Do nothing: the cache does not follow the index."""

    def verify(self) -> None:
        """Do nothing: there is no file."""

    def wait_idle(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _get_view(self) -> KeywordView:
        return self._view


# The file format of postings: written once, mapped for reading


CACHE_FAMILY, CACHE_KIND = "words", "postings"
LAYOUT_VERSION = 2
"""Incremented when the meaning of the sections changes."""

_LOOKUP_SECTIONS = ("text", "ends", "offsets", "page_ids", "lengths")
_LIST_SECTIONS = ("rows", "counts")
_POSITION_LOOKUP_SECTIONS = ("place_offsets", "field_starts")
_POSITION_LIST_SECTION = "places"
_MAX_EAGER_CHECK_BYTES = 16 << 20
"""Postings up to this size are verified at opening, which takes less than twenty milliseconds."""


def make_file_name(generation: int, version: int) -> CacheFileName:
    return CacheFileName(CACHE_FAMILY, generation, version, CACHE_KIND)


def write_postings(
    directory: CacheDirectory, generation: int, postings: Postings, *, with_positions: bool = False
) -> None:
    """Write the postings atomically and remove the files they replace. Raises OSError."""
    name = make_file_name(generation, postings.version)
    with directory.open_for_writing(name) as file:
        writer = SectionWriter(file)
        writer.write("text", np.frombuffer(postings.terms.text, np.uint8))
        writer.write("ends", np.asarray(postings.terms.ends).astype("<i8", copy=False))
        writer.write("offsets", postings.offsets.astype("<i8", copy=False))
        writer.write("page_ids", postings.page_ids.astype("<i8", copy=False))
        writer.write("lengths", postings.lengths.astype("<i8", copy=False))
        writer.write("rows", postings.rows.astype("<i4", copy=False))
        writer.write("counts", postings.counts.astype("<f4", copy=False))
        if (positions := postings.positions) is not None:
            writer.write(_POSITION_LIST_SECTION, positions.places.astype("<i4", copy=False))
            writer.write("place_offsets", positions.offsets.astype("<i8", copy=False))
            writer.write("field_starts", positions.field_starts.astype("<i8", copy=False))
        about = _build_header_fields(postings, with_positions)
        writer.finish(CACHE_KIND, directory.owner, generation, postings.version, about)
    directory.remove_older(name)


def open_postings(
    directory: CacheDirectory, name: CacheFileName, *, with_positions: bool = False
) -> tuple[Postings, MappedFile, bool]:
    """Return the postings of a file, the file, and whether it was fully verified. Raises CacheBroken or OSError."""
    file = MappedFile(directory.get_path(name))
    header = file.header
    if header.owner != directory.owner:
        raise CacheBroken("The cache file belongs to another wiki.")
    if (header.kind, header.generation, header.version) != (CACHE_KIND, name.generation, name.version):
        raise CacheBroken("The header of the cache file does not match its name.")
    has_positions = header.about.get("positions") is not None
    lists = (*_LIST_SECTIONS, _POSITION_LIST_SECTION) if has_positions else _LIST_SECTIONS
    lookups = (*_LOOKUP_SECTIONS, *_POSITION_LOOKUP_SECTIONS) if has_positions else _LOOKUP_SECTIONS
    is_small = sum(len(file.get_section(section)) for section in lists) <= _MAX_EAGER_CHECK_BYTES
    file.verify_checksums(None if is_small else lookups)
    terms = Vocabulary(file.get_section("text"), file.get_section("ends").cast("q"))
    offsets, page_ids, lengths = (_read_array(file, section, "<i8") for section in ("offsets", "page_ids", "lengths"))
    rows, counts = _read_array(file, "rows", "<i4"), _read_array(file, "counts", "<f4")
    positions = _read_positions(file) if has_positions else None
    postings = Postings(name.version, terms, offsets, rows, counts, page_ids, lengths, positions)
    if header.about != _build_header_fields(postings, with_positions) or len(offsets) != len(terms) + 1:
        raise CacheBroken("The cache file was written with another layout.")
    return postings, file, is_small


def _read_array(file: MappedFile, section: str, dtype: str) -> NDArray[Any]:
    return np.frombuffer(file.get_section(section), dtype)


def _read_positions(file: MappedFile) -> Positions:
    offsets, field_starts = (_read_array(file, section, "<i8") for section in _POSITION_LOOKUP_SECTIONS)
    return Positions(_read_array(file, _POSITION_LIST_SECTION, "<i4"), offsets, field_starts)


def _build_header_fields(postings: Postings, with_positions: bool) -> dict[str, Any]:
    return {
        "layout": LAYOUT_VERSION,
        "weights": list(FIELD_WEIGHTS),
        "pages": len(postings.page_ids),
        "terms": len(postings.terms),
        "postings": len(postings.rows),
        "bytes": len(postings.terms.text),
        "with_positions": with_positions,
        "positions": None if postings.positions is None else len(postings.positions.places),
    }
