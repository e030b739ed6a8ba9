"""Keyword search in a generation: which pages hold what and how often is looked up, BM25 is worked out here.

The same pages with the same scores as FTS5's, to the last bit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from wikiholt.model import PageFilter, IntArray, KeywordHit, KeywordQuery
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.filters import build_where_clause
from wikiholt.stores.postgres.lookup import PageCounts, TermMatches, TermUnit, find_matches
from wikiholt.stores.postgres.pool import Connection, RoleConnections
from wikiholt.stores.postgres.tables import GenerationTables
from wikiholt.text.fields import K1, PREFIX_WEIGHT, B, compute_idf, compute_max_score, split_terms

_MAX_CACHED_PAGES = 20_000
"""Pages of words and phrases that are kept until the version changes: one search asks for the same three times."""


class PostgresKeywordSearch:
    """Searches one generation by words. Safe to use from many threads."""

    def __init__(self, connections: RoleConnections, tables: GenerationTables) -> None:
        self._connections = connections
        self._tables = tables
        self._cache: TermMatches | None = None

    def search(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        """The best pages, best first; ties go to the older page, so that the order never wavers."""
        if limit <= 0:
            return []
        asked = _QueryUnits(query)
        look, allowed = self._find_filtered_matches(asked.all_units, where)
        found: dict[int, float] = {}
        if asked.terms or asked.phrases:
            _add_scores(found, asked.score_terms(look, allowed), limit, 1.0)
        if asked.prefix is not None:
            _add_scores(found, asked.score_prefix(look, allowed), limit, PREFIX_WEIGHT)
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return [KeywordHit(page_id, score) for page_id, score in best[:limit]]

    def get_max_score(self, query: KeywordQuery) -> float:
        """The sum of what each word and phrase can give at most; one that no page holds counts as the rarest."""
        asked = _QueryUnits(query)
        units = [*asked.terms, *asked.phrases]
        look, _ = self._find_filtered_matches(units, PageFilter())
        return sum(compute_max_score(look.pages, len(look.counts[unit])) for unit in units)

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        """The ids of pages with every phrase and without what is excluded, in order."""
        asked = _QueryUnits(query)
        with self._connections.read_snapshot() as db:
            look = self._find_matches(db, [*asked.phrases, *asked.excluded])
            if asked.phrases:
                found = set.intersection(*(set(look.counts[unit]) for unit in asked.phrases))
            else:
                found = {page_id for (page_id,) in db.execute(f"SELECT id FROM {self._tables.pages}")}
        for unit in asked.excluded:
            found.difference_update(look.counts[unit])
        return rows.to_id_array([(page_id,) for page_id in sorted(found)])

    def _find_filtered_matches(self, units: Sequence[TermUnit], where: PageFilter) -> tuple[TermMatches, frozenset[int] | None]:
        """The units' pages, and the pages that pass; all at one version."""
        clause, values = build_where_clause(where)
        simple = not clause and not any(unit.is_phrase for unit in units)
        # A single statement sees a single state; more than one need a transaction.
        with self._connections.read_connection() if simple else self._connections.read_snapshot() as db:
            if not clause:
                return self._find_matches(db, units), None
            sql = f"SELECT id FROM {self._tables.pages} WHERE {clause}"
            return self._find_matches(db, units), frozenset(row[0] for row in db.execute(sql, values))

    def _find_matches(self, db: Connection, units: Sequence[TermUnit]) -> TermMatches:
        """The units' pages, as far as possible from memory."""
        last = self._cache
        lacking = [unit for unit in units if last is None or unit not in last.counts]
        if last is not None and len(lacking) < len(units):
            look = find_matches(db, self._tables, lacking)
            if look.version == last.version:
                look = replace(look, counts={**last.counts, **look.counts}, sizes={**last.sizes, **look.sizes})
                self._cache_matches(look, units)
                return look
        look = find_matches(db, self._tables, units)
        self._cache_matches(look, units)
        return look

    def _cache_matches(self, matches: TermMatches, units: Sequence[TermUnit]) -> None:
        """Keep what was just asked for, and of what was before as much as there is room for."""
        counts: dict[TermUnit, PageCounts] = {}
        room = _MAX_CACHED_PAGES
        for unit in dict.fromkeys([*units, *matches.counts]):
            room -= len(matches.counts[unit]) + 1
            if room < 0:
                break
            counts[unit] = matches.counts[unit]
        sizes = {page_id: matches.sizes[page_id] for held in counts.values() for page_id in held}
        self._cache = replace(matches, counts=counts, sizes=sizes)


class _QueryUnits:
    """A query as units, and what it makes of what was found."""

    def __init__(self, query: KeywordQuery) -> None:
        self.terms = [_make_unit((term,)) for term in query.terms]
        self.phrases = [_make_unit(phrase) for phrase in query.phrases]
        self.excluded = [_make_unit(phrase) for phrase in query.excluded]
        self.prefix = _make_unit((query.prefix,), is_prefix=True) if query.prefix else None

    @property
    def all_units(self) -> list[TermUnit]:
        prefix = [self.prefix] if self.prefix is not None else []
        return [*self.terms, *self.phrases, *self.excluded, *prefix]

    def score_terms(self, matches: TermMatches, page_ids: frozenset[int] | None) -> Iterable[tuple[int, float]]:
        """Pages by words and phrases: any word, every phrase."""
        fits = self._make_page_test(matches, page_ids)
        scores = _compute_scores(matches, [*self.terms, *self.phrases])
        return ((page_id, score) for page_id, score in scores if fits(page_id))

    def score_prefix(self, matches: TermMatches, page_ids: frozenset[int] | None) -> Iterable[tuple[int, float]]:
        """Pages with a word that goes on from the last one typed, though not with that word itself."""
        assert self.prefix is not None
        barred = [matches.counts[unit] for unit in self.terms[-1:]]
        fits = self._make_page_test(matches, page_ids)
        for page_id, score in _compute_scores(matches, [self.prefix]):
            if fits(page_id) and not any(page_id in held for held in barred):
                yield page_id, score

    def _make_page_test(self, matches: TermMatches, page_ids: frozenset[int] | None) -> Callable[[int], bool]:
        required = [matches.counts[unit] for unit in self.phrases]
        excluded = [matches.counts[unit] for unit in self.excluded]

        def fits(page_id: int) -> bool:
            if page_ids is not None and page_id not in page_ids:
                return False
            return all(page_id in held for held in required) and not any(page_id in held for held in excluded)

        return fits


def _make_unit(phrase: Sequence[str], *, is_prefix: bool = False) -> TermUnit:
    """FTS5 splits what stands between quotation marks once more; so do we."""
    return TermUnit(tuple(split_terms(" ".join(phrase))), is_prefix)


def _add_scores(totals: dict[int, float], scores: Iterable[tuple[int, float]], limit: int, weight: float) -> None:
    for page_id, score in sorted(scores, key=lambda item: (-item[1], item[0]))[:limit]:
        totals[page_id] = totals.get(page_id, 0.0) + score * weight


def _compute_scores(matches: TermMatches, units: Sequence[TermUnit]) -> Iterable[tuple[int, float]]:
    """BM25 of every page that holds one of the units; the order of the operations is FTS5's, to the last bit."""
    average = matches.terms / matches.pages if matches.terms else 1.0
    scores: dict[int, float] = {}
    for unit in units:
        held = matches.counts[unit]
        telling = compute_idf(matches.pages, len(held))
        for page_id, count in held.items():
            below = count + K1 * (1 - B + B * matches.sizes[page_id] / average)
            scores[page_id] = scores.get(page_id, 0.0) + telling * ((count * (K1 + 1.0)) / below)
    return scores.items()
