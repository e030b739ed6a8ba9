"""Keyword search in a generation, with the same pages and the same BM25 scores as FTS5.

A page's tsvector contains every term once, with the weighted count of the term as its position. That is all a page
needs to be ranked. It does not contain the order of words, so phrases are checked against the stored words of the pages
that contain all their terms. Pages too large for a tsvector (`rows.OVERSIZED`) are always searched by their words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import local
from typing import Any

from wikiholt.domain.index import IntArray
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.index.postgres import rows
from wikiholt.index.postgres.errors import make_missing_error
from wikiholt.index.postgres.pool import Connection, RoleConnections
from wikiholt.index.postgres.queries import build_where_clause
from wikiholt.index.postgres.schema import GenerationTables
from wikiholt.index.rows import decode_terms, to_id_array
from wikiholt.text.bm25 import (
    JOINERS,
    K1,
    PREFIX_WEIGHT,
    B,
    compute_idf,
    compute_max_score,
    count_phrase,
    pad_terms,
    split_terms,
)

Row = tuple[Any, ...]

_MATCHED_TERMS = "ts_filter(setweight(p.terms, 'A', %(lexemes)s::text[]), '{a}')"
"""The terms of a page that are in the query."""
_PREFIX_TERMS = "CASE WHEN p.terms @@ %(prefix)s::tsquery THEN p.terms END"
"""All terms of a page with a match of the prefix. Filtering them here is ten times as fast as in PostgreSQL."""
_WORD_COLUMNS = f"p.size, p.words, p.terms @@ $q$'{rows.OVERSIZED}'$q$::tsquery"
_MAX_CACHED_PAGES = 20_000
"""The most pages of which matches are kept for the next search."""


@dataclass(frozen=True, slots=True)
class TermUnit:
    """A sequence of terms; with `is_prefix` the last one is a prefix. Without terms it matches no page."""

    terms: tuple[str, ...]
    is_prefix: bool = False

    @property
    def is_phrase(self) -> bool:
        return len(self.terms) > 1

    @property
    def tsquery(self) -> str:
        """A tsquery for the candidate pages; empty if only an oversized page can match."""
        parts = [rows.quote_term(term) for term in self.terms]
        if not parts or None in parts:
            return ""
        return f"({' & '.join(part for part in parts if part)}{':*' if self.is_prefix else ''})"

    @property
    def needle(self) -> str:
        return f" {' '.join(self.terms)}{'' if self.is_prefix else ' '}"


PageCounts = Mapping[int, int]
"""The pages that contain a unit, with the weighted count."""


@dataclass(frozen=True, slots=True)
class TermMatches:
    """The matches of units at one version. `sizes` is the number of terms of each matching page."""

    version: int
    pages: int
    terms: int
    counts: Mapping[TermUnit, PageCounts]
    sizes: Mapping[int, int]

    def merge(self, other: "TermMatches") -> "TermMatches":
        """These matches with those of other units at the same version."""
        return replace(self, counts={**self.counts, **other.counts}, sizes={**self.sizes, **other.sizes})


class SearchSession:
    """The state of a generation that one search has read."""

    state: tuple[int, int, int] | None = None
    """Version, pages and terms; None until they are read."""


class ThreadSession(local):
    """The search session of the current thread, if any."""

    current: SearchSession | None = None


def find_matches(db: Connection, tables: GenerationTables, units: Sequence[TermUnit]) -> TermMatches:
    """Find the pages of each unit, at one version."""
    while True:
        lookup = _Lookup(db, tables, units)
        lookup.read_state()
        lookup.read_terms()
        lookup.read_words()
        if not lookup.is_outdated:
            return lookup.get_matches()


class _Lookup:
    """Reads the matches of units in as few statements as possible."""

    def __init__(self, db: Connection, tables: GenerationTables, units: Sequence[TermUnit]) -> None:
        self._db = db
        self._tables = tables
        self._units = [unit for unit in dict.fromkeys(units) if unit.terms]
        self._counts: dict[TermUnit, dict[int, int]] = {unit: {} for unit in units}
        self._sizes: dict[int, int] = {}
        self._oversized: list[int] = []
        self._state: tuple[int, int, int] | None = None
        self.is_outdated = False
        """Whether the version changed between two statements."""

    def get_matches(self) -> TermMatches:
        assert self._state is not None
        return TermMatches(*self._state, self._counts, self._sizes)

    def read_state(self) -> None:
        """Read the state alone, if there are no units."""
        if not self._units:
            sql = "SELECT version, pages, terms FROM state WHERE name = %s"
            self._set_state(self._db.execute(sql, (self._tables.state_name,), binary=True).fetchone())

    def read_terms(self) -> None:
        """Match single terms and a prefix, by the tsvectors alone."""
        single = {unit.terms[0]: unit for unit in self._units if not (unit.is_phrase or unit.is_prefix)}
        prefix = next((unit for unit in self._units if unit.is_prefix and not unit.is_phrase), None)
        if not single and prefix is None:
            return
        prefix_tsquery = prefix.tsquery if prefix is not None else ""
        values = {
            "lexemes": [rows.OVERSIZED, *(term for term in single if rows.quote_term(term))],
            "wanted": _build_any_tsquery([*single.values(), *([prefix] if prefix is not None else [])]),
            "prefix": prefix_tsquery,
        }
        columns = f"p.size, {_MATCHED_TERMS}, {_PREFIX_TERMS if prefix_tsquery else 'NULL'}"
        for page_id, size, matched_terms, all_terms in self._select_rows(columns, values):
            self._sizes[page_id] = size
            for lexeme, count in rows.iter_lexemes(matched_terms):
                if lexeme == rows.OVERSIZED:
                    self._oversized.append(page_id)
                else:
                    self._counts[single[lexeme]][page_id] = count
            if prefix is not None and all_terms is not None:
                self._counts[prefix][page_id] = rows.sum_prefix_positions(all_terms, prefix.terms[0])

    def read_words(self) -> None:
        """Match phrases by the words of their candidate pages, and all units by the words of oversized pages."""
        phrases = [unit for unit in self._units if unit.is_phrase]
        if phrases:
            self._count_matches(phrases, self._select_rows(_WORD_COLUMNS, {"wanted": _build_any_tsquery(phrases)}))
        others = [unit for unit in self._units if not unit.is_phrase]
        if self._oversized and others:
            self._count_matches(others, self._select_rows(_WORD_COLUMNS, {"wanted": _build_any_tsquery([])}))

    def _count_matches(self, units: Sequence[TermUnit], page_rows: Iterable[Row]) -> None:
        needles = [(unit, unit.needle) for unit in units]
        for page_id, size, packed, oversized in page_rows:
            fields = _split_fields(packed, oversized=oversized)
            for unit, needle in needles:
                if count := count_phrase(fields, needle):
                    self._counts[unit][page_id] = count
                    self._sizes[page_id] = size

    def _select_rows(self, columns: str, values: Mapping[str, object]) -> Iterable[Row]:
        """Select the id and the columns of the pages that match `wanted`, with the state they were read at."""
        sql = (
            f"SELECT s.version, s.pages, s.terms, p.id, {columns} FROM state s"
            f" LEFT JOIN {self._tables.pages} p ON p.terms @@ %(wanted)s::tsquery WHERE s.name = %(state)s"
        )
        matches: list[Row] = []
        state: tuple[int, int, int] | None = None
        for version, pages, terms, page_id, *page_values in self._db.execute(
            sql, {**values, "state": self._tables.state_name}, binary=True
        ):
            state = version, pages, terms
            if page_id is not None:
                matches.append((page_id, *page_values))
        self._set_state(state)
        return matches

    def _set_state(self, state: tuple[Any, ...] | None) -> None:
        if state is None:
            raise make_missing_error()
        version, pages, terms = state
        self.is_outdated = self.is_outdated or self._state not in (None, state)
        self._state = (version, pages, terms)


def _build_any_tsquery(units: Sequence[TermUnit]) -> str:
    """Build a tsquery for every page that may contain one of the units."""
    return " | ".join([f"'{rows.OVERSIZED}'", *(tsquery for unit in units if (tsquery := unit.tsquery))])


def _split_fields(packed: bytes, *, oversized: bool) -> list[str]:
    """The fields of a page, each with a space before every term and at the end."""
    fields = decode_terms(packed).fields
    if not oversized and not any(joiner in field for joiner in JOINERS for field in fields):
        return [f" {field} " for field in fields]
    return [pad_terms(field) for field in fields]


class PostgresKeywordSearch:
    """Keyword search in one generation. Safe to use from many threads."""

    def __init__(self, connections: RoleConnections, tables: GenerationTables, session: ThreadSession) -> None:
        self._connections = connections
        self._tables = tables
        self._session = session
        self._cache: TermMatches | None = None

    def search(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        """Find the best pages, best first. Ties go to the older page, so the order is stable."""
        if limit <= 0:
            return []
        units = _QueryUnits(query)
        matches, page_ids = self._find_filtered_matches(units.all_units, where)
        scores: dict[int, float] = {}
        if units.terms or units.phrases:
            _add_scores(scores, units.score_terms(matches, page_ids), limit, 1.0)
        if units.prefix is not None:
            _add_scores(scores, units.score_prefix(matches, page_ids), limit, PREFIX_WEIGHT)
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [KeywordHit(page_id, score) for page_id, score in best[:limit]]

    def get_max_score(self, query: KeywordQuery) -> float:
        """Sum the maximum scores of all terms and phrases. One without matches counts as the rarest possible."""
        units = _QueryUnits(query)
        scored = [*units.terms, *units.phrases]
        matches, _ = self._find_filtered_matches(scored, PageFilter())
        return sum(compute_max_score(matches.pages, len(matches.counts[unit])) for unit in scored)

    def count_pages(self, terms: Sequence[str]) -> dict[str, int]:
        """The number of pages with each term."""
        units = {term: _make_unit((term,)) for term in terms}
        matches = self._find_matches(list(units.values()))
        return {term: len(matches.counts[unit]) for term, unit in units.items()}

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        """The sorted ids of pages with every phrase and without excluded phrases."""
        units = _QueryUnits(query)
        wanted = [*units.phrases, *units.excluded]
        if units.phrases:
            matches = self._find_matches(wanted)
            page_ids = set.intersection(*(set(matches.counts[unit]) for unit in units.phrases))
        else:
            matches, page_ids = self._find_with_pages(wanted, "true", [])
        for unit in units.excluded:
            page_ids.difference_update(matches.counts[unit])
        return to_id_array([(page_id,) for page_id in sorted(page_ids)])

    def _find_filtered_matches(
        self, units: Sequence[TermUnit], where: PageFilter
    ) -> tuple[TermMatches, frozenset[int] | None]:
        """Find the matches of the units and the pages that pass the filter (None: all), at one version."""
        clause, values = build_where_clause(where)
        if not clause:
            return self._find_matches(units), None
        matches, page_ids = self._find_with_pages(units, clause, values)
        return matches, frozenset(page_ids)

    def _find_with_pages(
        self, units: Sequence[TermUnit], clause: str, values: Sequence[object]
    ) -> tuple[TermMatches, set[int]]:
        """Find the matches of the units and the pages that satisfy the condition, at one version."""
        sql = (
            "SELECT version, id FROM (SELECT version FROM state WHERE name = %s) AS s"
            f" LEFT JOIN (SELECT id FROM {self._tables.pages} WHERE {clause}) AS p ON true"
        )
        while True:
            matches = self._find_matches(units)
            with self._connections.read_connection() as db:
                found = db.execute(sql, (self._tables.state_name, *values)).fetchall()
            if found and all(version == matches.version for version, _ in found):
                return matches, {page_id for _, page_id in found if page_id is not None}
            self._forget_state()

    def _find_matches(self, units: Sequence[TermUnit]) -> TermMatches:
        """Find the matches of the units. One search needs the same ones several times, so they are kept."""
        cached, session = self._cache, self._session.current
        version = session.state[0] if session is not None and session.state is not None else None
        if cached is None or version not in (None, cached.version):
            missing = list(units)
        else:
            missing = [unit for unit in units if unit not in cached.counts]
            if version is not None and not missing:
                return cached
        with self._connections.read_connection() as db:
            matches = find_matches(db, self._tables, missing)
            if cached is not None and matches.version == cached.version:
                matches = cached.merge(matches)
            elif len(missing) < len(units):
                matches = find_matches(db, self._tables, units)
        if session is not None:
            session.state = (matches.version, matches.pages, matches.terms)
        self._cache = matches if len(matches.sizes) <= _MAX_CACHED_PAGES else None
        return matches

    def _forget_state(self) -> None:
        if self._session.current is not None:
            self._session.current.state = None


class _QueryUnits:
    """The units of a query, and the scores of their matches."""

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
        """Score the pages with any of the terms and all of the phrases."""
        is_match = self._make_page_test(matches, page_ids)
        scores = _compute_scores(matches, [*self.terms, *self.phrases])
        return ((page_id, score) for page_id, score in scores if is_match(page_id))

    def score_prefix(self, matches: TermMatches, page_ids: frozenset[int] | None) -> Iterable[tuple[int, float]]:
        """Score the pages with a completion of the last term, except those with that term itself."""
        assert self.prefix is not None
        with_last_term = [matches.counts[unit] for unit in self.terms[-1:]]
        is_match = self._make_page_test(matches, page_ids)
        for page_id, score in _compute_scores(matches, [self.prefix]):
            if is_match(page_id) and not any(page_id in counts for counts in with_last_term):
                yield page_id, score

    def _make_page_test(self, matches: TermMatches, page_ids: frozenset[int] | None) -> Callable[[int], bool]:
        required = [matches.counts[unit] for unit in self.phrases]
        excluded = [matches.counts[unit] for unit in self.excluded]

        def is_match(page_id: int) -> bool:
            if page_ids is not None and page_id not in page_ids:
                return False
            return all(page_id in counts for counts in required) and not any(page_id in counts for counts in excluded)

        return is_match


def _make_unit(phrase: Sequence[str], *, is_prefix: bool = False) -> TermUnit:
    """Make a unit. Splits quoted text again, as FTS5 does."""
    return TermUnit(tuple(split_terms(" ".join(phrase))), is_prefix)


def _add_scores(totals: dict[int, float], scores: Iterable[tuple[int, float]], limit: int, weight: float) -> None:
    for page_id, score in sorted(scores, key=lambda item: (-item[1], item[0]))[:limit]:
        totals[page_id] = totals.get(page_id, 0.0) + score * weight


def _compute_scores(matches: TermMatches, units: Sequence[TermUnit]) -> Iterable[tuple[int, float]]:
    """Compute BM25 for every matching page. The operations are in FTS5's order, so scores are equal to the last bit."""
    average_size = matches.terms / matches.pages if matches.terms else 1.0
    scores: dict[int, float] = {}
    for unit in units:
        page_counts = matches.counts[unit]
        idf = compute_idf(matches.pages, len(page_counts))
        for page_id, count in page_counts.items():
            denominator = count + K1 * (1 - B + B * matches.sizes[page_id] / average_size)
            scores[page_id] = scores.get(page_id, 0.0) + idf * ((count * (K1 + 1.0)) / denominator)
    return scores.items()
