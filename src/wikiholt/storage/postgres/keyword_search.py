"""Which pages hold a word, a beginning of one, or a phrase, and how often.

A page's tsvector holds every term once, and in place of a position how often the page has it, each occurrence counted
with the weight of its field: nothing else of a page is needed to rank it. What follows what, it does not say: for
phrases the words of the pages that hold all of their terms are read. So are those of vast pages (`rows.VAST`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wikiholt.domain.index import IntArray
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.storage.postgres import rows
from wikiholt.storage.postgres.errors import make_missing_error
from wikiholt.storage.postgres.page_queries import build_where_clause
from wikiholt.storage.postgres.pool import Connection, RoleConnections
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.rows import decode_terms
from wikiholt.text.bm25 import FIELD_WEIGHTS, JOINERS, K1, PREFIX_WEIGHT, B, compute_idf, compute_max_score, split_terms

_MATCHED_TERMS = "ts_filter(setweight(p.terms, 'A', %(lexemes)s::text[]), '{a}')"
"""Of a page's terms those that are asked for."""
_PREFIX_TERMS = "CASE WHEN p.terms @@ %(begun)s::tsquery THEN p.terms END"
"""All of them, where one begins as asked for: to go through them takes PostgreSQL ten times as long as it takes us."""
_WORD_COLUMNS = f"p.size, p.words, p.terms @@ $q$'{rows.OVERSIZED}'$q$::tsquery"


@dataclass(frozen=True, slots=True)
class TermUnit:
    """Terms that follow one another; of the last, its beginning is enough if `begun`. Without any, nothing holds it."""

    terms: tuple[str, ...]
    is_prefix: bool = False

    @property
    def is_phrase(self) -> bool:
        return len(self.terms) > 1

    @property
    def tsquery(self) -> str:
        """A tsquery for the pages that may hold it; empty where only vast ones can."""
        parts = [rows.quote_term(term) for term in self.terms]
        if not parts or None in parts:
            return ""
        return f"({' & '.join(part for part in parts if part)}{':*' if self.is_prefix else ''})"

    @property
    def needle(self) -> str:
        return f" {' '.join(self.terms)}{'' if self.is_prefix else ' '}"


PageCounts = Mapping[int, int]
"""The pages that hold a unit, with how often, by weight."""


@dataclass(frozen=True, slots=True)
class TermMatches:
    """What was found at one version; `sizes` are the terms of each page that was found."""

    version: int
    pages: int
    terms: int
    counts: Mapping[TermUnit, PageCounts]
    sizes: Mapping[int, int]


def find_matches(db: Connection, tables: GenerationTables, units: Sequence[TermUnit]) -> TermMatches:
    """The pages of each unit. More than one statement only where there are phrases or vast pages: use a snapshot."""
    while True:
        look = _Lookup(db, tables, units)
        look.read_state()
        look.read_terms()
        look.read_words()
        if not look.is_outdated:
            return look.get_matches()


class _Lookup:
    def __init__(self, db: Connection, tables: GenerationTables, units: Sequence[TermUnit]) -> None:
        self._db = db
        self._tables = tables
        self._units = [unit for unit in dict.fromkeys(units) if unit.terms]
        self._counts: dict[TermUnit, dict[int, int]] = {unit: {} for unit in units}
        self._sizes: dict[int, int] = {}
        self._oversized: list[int] = []
        self._state: tuple[int, int, int] | None = None
        self.is_outdated = False
        """Whether another version came between two statements."""

    def get_matches(self) -> TermMatches:
        assert self._state is not None
        return TermMatches(*self._state, self._counts, self._sizes)

    def read_state(self) -> None:
        """Only that, where no page is asked for."""
        if not self._units:
            sql = "SELECT version, pages, terms FROM state WHERE number = %s"
            self._set_state(self._db.execute(sql, (self._tables.number,), binary=True).fetchone())

    def read_terms(self) -> None:
        """Single words, and the beginning of one, by the tsvectors alone."""
        single = {unit.terms[0]: unit for unit in self._units if not (unit.is_phrase or unit.is_prefix)}
        begun = next((unit for unit in self._units if unit.is_prefix and not unit.is_phrase), None)
        if not single and begun is None:
            return
        lexemes = [rows.OVERSIZED, *(term for term in single if rows.quote_term(term))]
        more = ""
        if begun is not None and begun.tsquery:
            more = f", {_PREFIX_TERMS}"
        values = {
            "lexemes": lexemes,
            "wanted": _build_any_tsquery([*single.values(), *([begun] if begun else [])]),
            "begun": begun.tsquery if begun else "",
        }
        for page_id, size, field, *every in self._select_rows(f"p.size, {_MATCHED_TERMS}{more}", values):
            self._sizes[page_id] = size
            for lexeme, count in rows.iter_lexemes(field):
                if lexeme == rows.OVERSIZED:
                    self._oversized.append(page_id)
                else:
                    self._counts[single[lexeme]][page_id] = count
            if begun is not None and every and every[0] is not None:
                self._counts[begun][page_id] = rows.sum_prefix_positions(every[0], begun.terms[0])

    def read_words(self) -> None:
        """Phrases, by the words of the pages that hold their terms; everything, by those of vast pages."""
        phrases = [unit for unit in self._units if unit.is_phrase]
        if phrases:
            self._count_matches(phrases, self._select_rows(_WORD_COLUMNS, {"wanted": _build_any_tsquery(phrases)}))
        others = [unit for unit in self._units if not unit.is_phrase]
        if self._oversized and others:
            self._count_matches(others, self._select_rows(_WORD_COLUMNS, {"wanted": _build_any_tsquery([])}))

    def _count_matches(self, units: Sequence[TermUnit], page_rows: Iterable[tuple[Any, ...]]) -> None:
        needles = [(unit, unit.needle) for unit in units]
        for page_id, size, packed, vast in page_rows:
            fields = _split_fields(packed, oversized=vast)
            for unit, needle in needles:
                if any(needle in field for field in fields):
                    weighed = zip(fields, FIELD_WEIGHTS, strict=True)
                    self._counts[unit][page_id] = sum(
                        _count_occurrences(needle, field) * int(weight) for field, weight in weighed
                    )
                    self._sizes[page_id] = size

    def _select_rows(self, columns: str, values: Mapping[str, object]) -> Iterable[tuple[Any, ...]]:
        """Rows of pages that match `wanted`; one statement sees one state, and says which."""
        sql = (
            f"SELECT s.version, s.pages, s.terms, p.id, {columns} FROM state s"
            f" LEFT JOIN {self._tables.pages} p ON p.terms @@ %(wanted)s::tsquery WHERE s.number = %(number)s"
        )
        found = self._db.execute(sql, {**values, "number": self._tables.number}, binary=True).fetchall()
        self._set_state(found[0][:3] if found else None)
        return [row[3:] for row in found if row[3] is not None]

    def _set_state(self, state: tuple[Any, ...] | None) -> None:
        if state is None:
            raise make_missing_error()
        version, pages, terms = state
        self.is_outdated = self.is_outdated or self._state not in (None, state)
        self._state = (version, pages, terms)


def _build_any_tsquery(units: Sequence[TermUnit]) -> str:
    """A tsquery for every page that may hold one of the units."""
    return " | ".join([f"'{rows.OVERSIZED}'", *(wanted for unit in units if (wanted := unit.tsquery))])


def _split_fields(packed: bytes, *, oversized: bool) -> list[str]:
    """The fields of a page, each with one space before every term and one at the end."""
    words = decode_terms(packed)
    fields = (words.name, words.headings, words.body)
    if not oversized and not any(joiner in field for joiner in JOINERS for field in fields):
        return [f" {field} " for field in fields]
    return [f" {' '.join(split_terms(field))} " for field in fields]


def _count_occurrences(needle: str, field: str) -> int:
    """How often; what overlaps counts twice."""
    count, at = 0, field.find(needle)
    while at >= 0:
        count, at = count + 1, field.find(needle, at + 1)
    return count


# Keyword search in a generation: which pages hold what and how often is looked up, BM25 is worked out here. The same
# pages with the same scores as FTS5's, to the last bit.


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

    def _find_filtered_matches(
        self, units: Sequence[TermUnit], where: PageFilter
    ) -> tuple[TermMatches, frozenset[int] | None]:
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
