"""Which pages hold a word, a beginning of one, or a phrase, and how often.

A page's tsvector holds every term once, and in place of a position how often the page has it, each occurrence counted
with the weight of its field: nothing else of a page is needed to rank it. What follows what, it does not say: for
phrases the words of the pages that hold all of their terms are read. So are those of vast pages (`rows.VAST`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.faults import make_missing_error
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.tables import GenerationTables
from wikiholt.stores.sqlite.rows import decode_terms
from wikiholt.text.fields import FIELD_WEIGHTS, JOINERS, split_terms

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
                    self._counts[unit][page_id] = sum(_count_occurrences(needle, field) * int(weight) for field, weight in weighed)
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
