"""Which pages hold a word, a beginning of one, or a phrase, and how often.

A page's tsvector holds every term once, and in place of a position how often the page has it, each occurrence counted
with the weight of its field: nothing else of a page is needed to rank it. What follows what, it does not say: for
phrases the words of the pages that hold all of their terms are read. So are those of vast pages (`rows.VAST`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.faults import missing
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.tables import Tables
from wikiholt.stores.sqlite.rows import unpack_words
from wikiholt.text.fields import FIELD_WEIGHTS, JOINERS, split

_KEPT = "ts_filter(setweight(p.terms, 'A', %(lexemes)s::text[]), '{a}')"
"""Of a page's terms those that are asked for."""
_BEGUN = "CASE WHEN p.terms @@ %(begun)s::tsquery THEN p.terms END"
"""All of them, where one begins as asked for: to go through them takes PostgreSQL ten times as long as it takes us."""
_WORDS = f"p.size, p.words, p.terms @@ $q$'{rows.VAST}'$q$::tsquery"


@dataclass(frozen=True, slots=True)
class Unit:
    """Terms that follow one another; of the last, its beginning is enough if `begun`. Without any, nothing holds it."""

    terms: tuple[str, ...]
    begun: bool = False

    @property
    def is_phrase(self) -> bool:
        return len(self.terms) > 1

    @property
    def wanted(self) -> str:
        """A tsquery for the pages that may hold it; empty where only vast ones can."""
        parts = [rows.quoted(term) for term in self.terms]
        if not parts or None in parts:
            return ""
        return f"({' & '.join(part for part in parts if part)}{':*' if self.begun else ''})"

    @property
    def needle(self) -> str:
        return f" {' '.join(self.terms)}{'' if self.begun else ' '}"


Counts = Mapping[int, int]
"""The pages that hold a unit, with how often, by weight."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at one version; `sizes` are the terms of each page that was found."""

    version: int
    pages: int
    terms: int
    counts: Mapping[Unit, Counts]
    sizes: Mapping[int, int]


def look_up(db: Connection, tables: Tables, units: Sequence[Unit]) -> Look:
    """The pages of each unit. More than one statement only where there are phrases or vast pages: use a snapshot."""
    while True:
        look = _Looking(db, tables, units)
        look.at_standing()
        look.at_terms()
        look.at_words()
        if not look.moved:
            return look.done()


class _Looking:
    def __init__(self, db: Connection, tables: Tables, units: Sequence[Unit]) -> None:
        self._db = db
        self._tables = tables
        self._units = [unit for unit in dict.fromkeys(units) if unit.terms]
        self._counts: dict[Unit, dict[int, int]] = {unit: {} for unit in units}
        self._sizes: dict[int, int] = {}
        self._vast: list[int] = []
        self._standing: tuple[int, int, int] | None = None
        self.moved = False
        """Whether another version came between two statements."""

    def done(self) -> Look:
        assert self._standing is not None
        return Look(*self._standing, self._counts, self._sizes)

    def at_standing(self) -> None:
        """Only that, where no page is asked for."""
        if not self._units:
            sql = "SELECT version, pages, terms FROM state WHERE number = %s"
            self._stand(self._db.execute(sql, (self._tables.number,), binary=True).fetchone())

    def at_terms(self) -> None:
        """Single words, and the beginning of one, by the tsvectors alone."""
        single = {unit.terms[0]: unit for unit in self._units if not (unit.is_phrase or unit.begun)}
        begun = next((unit for unit in self._units if unit.begun and not unit.is_phrase), None)
        if not single and begun is None:
            return
        lexemes = [rows.VAST, *(term for term in single if rows.quoted(term))]
        more = ""
        if begun is not None and begun.wanted:
            more = f", {_BEGUN}"
        values = {
            "lexemes": lexemes,
            "wanted": _any([*single.values(), *([begun] if begun else [])]),
            "begun": begun.wanted if begun else "",
        }
        for page_id, size, field, *every in self._rows(f"p.size, {_KEPT}{more}", values):
            self._sizes[page_id] = size
            for lexeme, count in rows.lexemes(field):
                if lexeme == rows.VAST:
                    self._vast.append(page_id)
                else:
                    self._counts[single[lexeme]][page_id] = count
            if begun is not None and every and every[0] is not None:
                self._counts[begun][page_id] = rows.begun(every[0], begun.terms[0])

    def at_words(self) -> None:
        """Phrases, by the words of the pages that hold their terms; everything, by those of vast pages."""
        phrases = [unit for unit in self._units if unit.is_phrase]
        if phrases:
            self._read(phrases, self._rows(_WORDS, {"wanted": _any(phrases)}))
        others = [unit for unit in self._units if not unit.is_phrase]
        if self._vast and others:
            self._read(others, self._rows(_WORDS, {"wanted": _any([])}))

    def _read(self, units: Sequence[Unit], found: Iterable[tuple[Any, ...]]) -> None:
        needles = [(unit, unit.needle) for unit in units]
        for page_id, size, packed, vast in found:
            fields = _fields(packed, vast=vast)
            for unit, needle in needles:
                if any(needle in field for field in fields):
                    weighed = zip(fields, FIELD_WEIGHTS, strict=True)
                    self._counts[unit][page_id] = sum(_often(needle, field) * int(weight) for field, weight in weighed)
                    self._sizes[page_id] = size

    def _rows(self, columns: str, values: Mapping[str, object]) -> Iterable[tuple[Any, ...]]:
        """Rows of pages that match `wanted`; one statement sees one state, and says which."""
        sql = (
            f"SELECT s.version, s.pages, s.terms, p.id, {columns} FROM state s"
            f" LEFT JOIN {self._tables.pages} p ON p.terms @@ %(wanted)s::tsquery WHERE s.number = %(number)s"
        )
        found = self._db.execute(sql, {**values, "number": self._tables.number}, binary=True).fetchall()
        self._stand(found[0][:3] if found else None)
        return [row[3:] for row in found if row[3] is not None]

    def _stand(self, standing: tuple[Any, ...] | None) -> None:
        if standing is None:
            raise missing()
        version, pages, terms = standing
        self.moved = self.moved or self._standing not in (None, standing)
        self._standing = (version, pages, terms)


def _any(units: Sequence[Unit]) -> str:
    """A tsquery for every page that may hold one of the units."""
    return " | ".join([f"'{rows.VAST}'", *(wanted for unit in units if (wanted := unit.wanted))])


def _fields(packed: bytes, *, vast: bool) -> list[str]:
    """The fields of a page, each with one space before every term and one at the end."""
    words = unpack_words(packed)
    fields = (words.name, words.headings, words.body)
    if not vast and not any(joiner in field for joiner in JOINERS for field in fields):
        return [f" {field} " for field in fields]
    return [f" {' '.join(split(field))} " for field in fields]


def _often(needle: str, field: str) -> int:
    """How often; what overlaps counts twice."""
    count, at = 0, field.find(needle)
    while at >= 0:
        count, at = count + 1, field.find(needle, at + 1)
    return count
