"""The index of one wiki as searches read it: what they share of one version, and what each asks of the caches."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from wikiholt.domain.index import FloatArray, IndexState, IntArray, VectorHits, VectorRows, compute_page_means
from wikiholt.domain.page import Facets
from wikiholt.domain.protocols import KeywordCache, VectorCache
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import CacheCannotAnswer, DatabaseUnavailable, NothingIndexed
from wikiholt.search.sort_order import Overrides, group_overrides
from wikiholt.search.title_match import IndexedPage, analyse_names
from wikiholt.text.analysis import split_languages
from wikiholt.text.synonym_rules import SYNONYM_PAGE, SynonymRules, read_synonym_rules

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Cache = TypeVar("_Cache", KeywordCache, VectorCache)

_MAX_KNOWN_FILTERS = 16
MAX_KNOWN_PAGES = 16_000
"""About 30 MB."""
MAX_KNOWN_MEANS = 8_192
"""12 MB of vectors with 384 dimensions."""
_MAX_CHUNKS = 1_000_000
"""More chunks than a hundred pages have."""
_NO_FILTER = PageFilter()


class IndexView:
    """One version of an index. What searches work out of it is kept. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, language: str) -> None:
        """Raises NothingIndexed."""
        self.index = index
        self.state: IndexState = index.get_state()
        if not self.state.pages:
            raise NothingIndexed("this wiki has no indexed page", hint="run `wikiholt sync` and check its output")
        self.languages = split_languages(language)
        self._filtered: dict[PageFilter, IntArray | None] = {}
        self._pages: dict[int, IndexedPage] = {}
        self._means: dict[int, FloatArray] = {}

    def filter_page_ids(self, where: PageFilter) -> IntArray | None:
        """The pages that pass the filter; None for all. More hits, and often the next query, have the same filter."""
        known = self._filtered
        if len(known) >= _MAX_KNOWN_FILTERS:
            # Other threads may read the old ones, so they are replaced and not cleared.
            known = self._filtered = {}
        if where not in known:
            known[where] = self.index.filter_page_ids(where)
        return known[where]

    def is_empty(self, where: PageFilter) -> bool:
        """Whether no page passes the filter."""
        allowed = self.filter_page_ids(where)
        return allowed is not None and not len(allowed)

    def get_pages(self, page_ids: Collection[int]) -> dict[int, IndexedPage]:
        """Those of these pages that are in the index."""
        known = self._pages
        if len(known) > MAX_KNOWN_PAGES:
            known = self._pages = dict(list(known.items())[MAX_KNOWN_PAGES // 2 :])
        found = {page_id: page for page_id in page_ids if (page := known.get(page_id)) is not None}
        if len(found) < len(page_ids):
            pages = self.index.get_pages(sorted(set(page_ids) - found.keys()))
            new = {page_id: analyse_names(page, self.languages) for page_id, page in pages.items()}
            known.update(new)
            found.update(new)
        return found

    def get_page_means(self, page_ids: IntArray) -> FloatArray:
        """The mean of each of these pages (sorted ids)."""
        known, ids = self._means, page_ids.tolist()
        if len(known) > MAX_KNOWN_MEANS:
            known = self._means = {}
        missing = page_ids[[page_id not in known for page_id in ids]]
        if len(missing):
            rows = self.index.get_page_vectors(missing.tolist())
            known.update(zip(missing.tolist(), compute_page_means(rows, missing), strict=True))
        return np.stack([known[page_id] for page_id in ids])

    def read_synonym_rules(self, rules: Sequence[str]) -> SynonymRules:
        """These rules of synonyms, and those that a page of the wiki has."""
        page = self.index.find_page(SYNONYM_PAGE)
        if page is None:
            return SynonymRules(tuple(rules))
        chunks = self.index.get_page_chunks([page.page_id]).get(page.page_id, ())
        return SynonymRules((*rules, *read_synonym_rules(chunks)), page.page_id)

    @cached_property
    def pending_page_ids(self) -> frozenset[int]:
        """The pages that are found by their words only, because they are not embedded yet."""
        return frozenset(self.index.find_pending_page_ids().tolist() if self.state.pending_chunks else ())

    @cached_property
    def facets(self) -> Facets:
        """The values to filter by."""
        return self.index.get_facets(_NO_FILTER)

    @cached_property
    def overrides(self) -> Overrides:
        """What the frontmatter of pages says about their place among the hits."""
        return group_overrides(self.index.get_order_overrides())


class KeywordScores(NamedTuple):
    """The keyword scores of one index, by its cache or by itself."""

    search: Callable[[KeywordQuery], Sequence[KeywordHit]]
    count_pages: Callable[[Sequence[str]], Mapping[str, int]]
    """Counts the pages with each of these terms and phrases."""
    find_page_ids: Callable[[KeywordQuery], IntArray]
    """Finds the pages with all phrases of a query."""
    page_count: int


class IndexReader:
    """Reads one version of an index for one search: from the caches, or from the index if they are not ready or fail.

    `faults` says what the search had to do without.
    """

    def __init__(self, view: IndexView, vector_cache: VectorCache | None, keyword_cache: KeywordCache | None) -> None:
        self.view = view
        self.index = view.index
        self.faults: list[str] = []
        self._vector_cache = vector_cache
        self._keyword_cache = keyword_cache
        self._refreshed: set[str] = set()
        self._unusable: set[str] = set()

    def report_fault(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)

    # ── words ────────────────────────────────────────────────────────────────────────────────────

    def find_page_ids(self, query: KeywordQuery) -> IntArray:
        """The sorted ids of the pages with every phrase and no excluded phrase."""
        return self.index.find_matching_page_ids(query)

    def use_keyword_scores(
        self, compute: Callable[[KeywordScores], _T], limit: int, where: PageFilter, allowed: IntArray | None
    ) -> _T:
        """What `compute` makes of the scores of the best `limit` pages that pass the filter, all from one source.

        `allowed` are those pages, less those that the exclusions of the query leave out.
        """
        count = self.view.state.pages
        found = self._ask_keywords(
            lambda cache: compute(
                KeywordScores(
                    lambda query: cache.search(replace(query, excluded=()), limit, allowed),
                    cache.count_pages,
                    self.find_page_ids,
                    count,
                )
            )
        )
        if found is not None:
            return found
        return compute(
            KeywordScores(
                lambda query: self.index.search_keywords(query, limit, where),
                self.index.count_pages,
                self.index.find_matching_page_ids,
                count,
            )
        )

    # ── vectors ──────────────────────────────────────────────────────────────────────────────────

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks; with `page_ids` (sorted), only of these pages."""
        hits = self._ask_vectors(lambda cache: cache.search(vector, limit, page_ids))
        if hits is None:
            return self.index.search_vectors(vector, limit, page_ids)
        if hits.degraded:
            self.report_fault("part of the vector cache is unavailable; searched by exact scores")
        return hits

    def search_page_vectors(
        self, vector: FloatArray, page_ids: Collection[int], rows: VectorRows | None = None
    ) -> VectorHits:
        """All passages of these pages, nearest first. `rows` are those that `read_ahead` has returned."""
        if rows is not None:
            return VectorHits.rank(rows.chunk_ids, rows.page_ids, np.vecdot(rows.vectors, vector))
        return self.search_vectors(vector, _MAX_CHUNKS, np.array(sorted(page_ids), np.int64))

    def read_ahead(self, page_ids: Collection[int]) -> VectorRows | None:
        """All passages of these pages, before a vector is known; None if that saves no time."""
        return self.index.read_ahead(np.array(sorted(page_ids), np.int64))

    def score_pages(self, vector: FloatArray, page_ids: IntArray) -> FloatArray:
        """The cosines of these pages (sorted ids) as a whole: of the means of their passages."""
        means = self.index.get_page_means(page_ids)
        scores: FloatArray = np.vecdot(self.view.get_page_means(page_ids) if means is None else means, vector)
        return scores

    # ── caches ───────────────────────────────────────────────────────────────────────────────────

    def _ask_vectors(self, ask: Callable[[VectorCache], _T]) -> _T | None:
        return self._ask("vector", self._vector_cache, ask, reports_building=True)

    def _ask_keywords(self, ask: Callable[[KeywordCache], _T]) -> _T | None:
        return self._ask("keyword", self._keyword_cache, ask)

    def _ask(
        self, name: str, cache: _Cache | None, ask: Callable[[_Cache], _T], *, reports_building: bool = False
    ) -> _T | None:
        """The answer of a cache; None if it cannot answer, or if it is not ready or fails, for the rest of the search.

        Then the index answers. A search takes long without vectors, so their cache `reports_building`.
        """
        if cache is None or name in self._unusable:
            return None
        try:
            if name not in self._refreshed:
                cache.refresh()
                self._refreshed.add(name)
            if cache.version is not None:
                return ask(cache)
            if reports_building:
                self.report_fault(f"the {name} cache is being built; searched the index directly")
        except CacheCannotAnswer:
            return None
        except DatabaseUnavailable:
            raise  # the index needs the same database
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the index answers, and the answer says so
            _LOG.warning("the %s cache failed (%s); searching the index", name, error)
            self.report_fault(f"the {name} cache failed; searched the index directly")
        self._unusable.add(name)
        return None
