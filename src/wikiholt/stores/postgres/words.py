"""Keyword search in a generation: which pages hold what and how often is looked up, BM25 is worked out here.

The same pages with the same scores as FTS5's, to the last bit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from wikiholt.model import Filter, Ints, WordHit, WordQuery
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.filters import where_clause
from wikiholt.stores.postgres.lookup import Counts, Look, Unit, look_up
from wikiholt.stores.postgres.pool import Connection, Door
from wikiholt.stores.postgres.tables import Tables
from wikiholt.text.fields import K1, PREFIX_WEIGHT, B, idf, most, split

_REMEMBERED = 20_000
"""Pages of words and phrases that are kept until the version changes: one search asks for the same three times."""


class WordSearch:
    """Searches one generation by words. Safe to use from many threads."""

    def __init__(self, door: Door, tables: Tables) -> None:
        self._door = door
        self._tables = tables
        self._last: Look | None = None

    def search(self, query: WordQuery, limit: int, where: Filter) -> Sequence[WordHit]:
        """The best pages, best first; ties go to the older page, so that the order never wavers."""
        if limit <= 0:
            return []
        asked = _Asked(query)
        look, allowed = self._look(asked.every, where)
        found: dict[int, float] = {}
        if asked.terms or asked.phrases:
            _add(found, asked.whole(look, allowed), limit, 1.0)
        if asked.prefix is not None:
            _add(found, asked.begun(look, allowed), limit, PREFIX_WEIGHT)
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))
        return [WordHit(page_id, score) for page_id, score in best[:limit]]

    def best_possible(self, query: WordQuery) -> float:
        """The sum of what each word and phrase can give at most; one that no page holds counts as the rarest."""
        asked = _Asked(query)
        units = [*asked.terms, *asked.phrases]
        look, _ = self._look(units, Filter())
        return sum(most(look.pages, len(look.counts[unit])) for unit in units)

    def holding(self, query: WordQuery) -> Ints:
        """The ids of pages with every phrase and without what is excluded, in order."""
        asked = _Asked(query)
        with self._door.snapshot() as db:
            look = self._looked(db, [*asked.phrases, *asked.excluded])
            if asked.phrases:
                found = set.intersection(*(set(look.counts[unit]) for unit in asked.phrases))
            else:
                found = {page_id for (page_id,) in db.execute(f"SELECT id FROM {self._tables.pages}")}
        for unit in asked.excluded:
            found.difference_update(look.counts[unit])
        return rows.ids([(page_id,) for page_id in sorted(found)])

    def _look(self, units: Sequence[Unit], where: Filter) -> tuple[Look, frozenset[int] | None]:
        """The units' pages, and the pages that pass; all at one version."""
        clause, values = where_clause(where)
        simple = not clause and not any(unit.is_phrase for unit in units)
        # A single statement sees a single state; more than one need a transaction.
        with self._door.reading() if simple else self._door.snapshot() as db:
            if not clause:
                return self._looked(db, units), None
            sql = f"SELECT id FROM {self._tables.pages} WHERE {clause}"
            return self._looked(db, units), frozenset(row[0] for row in db.execute(sql, values))

    def _looked(self, db: Connection, units: Sequence[Unit]) -> Look:
        """The units' pages, as far as possible from memory."""
        last = self._last
        lacking = [unit for unit in units if last is None or unit not in last.counts]
        if last is not None and len(lacking) < len(units):
            look = look_up(db, self._tables, lacking)
            if look.version == last.version:
                look = replace(look, counts={**last.counts, **look.counts}, sizes={**last.sizes, **look.sizes})
                self._remember(look, units)
                return look
        look = look_up(db, self._tables, units)
        self._remember(look, units)
        return look

    def _remember(self, look: Look, asked: Sequence[Unit]) -> None:
        """Keep what was just asked for, and of what was before as much as there is room for."""
        counts: dict[Unit, Counts] = {}
        room = _REMEMBERED
        for unit in dict.fromkeys([*asked, *look.counts]):
            room -= len(look.counts[unit]) + 1
            if room < 0:
                break
            counts[unit] = look.counts[unit]
        sizes = {page_id: look.sizes[page_id] for held in counts.values() for page_id in held}
        self._last = replace(look, counts=counts, sizes=sizes)


class _Asked:
    """A query as units, and what it makes of what was found."""

    def __init__(self, query: WordQuery) -> None:
        self.terms = [_unit((term,)) for term in query.terms]
        self.phrases = [_unit(phrase) for phrase in query.phrases]
        self.excluded = [_unit(phrase) for phrase in query.excluded]
        self.prefix = _unit((query.prefix,), begun=True) if query.prefix else None

    @property
    def every(self) -> list[Unit]:
        prefix = [self.prefix] if self.prefix is not None else []
        return [*self.terms, *self.phrases, *self.excluded, *prefix]

    def whole(self, look: Look, allowed: frozenset[int] | None) -> Iterable[tuple[int, float]]:
        """Pages by words and phrases: any word, every phrase."""
        fits = self._fitting(look, allowed)
        scores = _scores(look, [*self.terms, *self.phrases])
        return ((page_id, score) for page_id, score in scores if fits(page_id))

    def begun(self, look: Look, allowed: frozenset[int] | None) -> Iterable[tuple[int, float]]:
        """Pages with a word that goes on from the last one typed, though not with that word itself."""
        assert self.prefix is not None
        barred = [look.counts[unit] for unit in self.terms[-1:]]
        fits = self._fitting(look, allowed)
        for page_id, score in _scores(look, [self.prefix]):
            if fits(page_id) and not any(page_id in held for held in barred):
                yield page_id, score

    def _fitting(self, look: Look, allowed: frozenset[int] | None) -> Callable[[int], bool]:
        required = [look.counts[unit] for unit in self.phrases]
        excluded = [look.counts[unit] for unit in self.excluded]

        def fits(page_id: int) -> bool:
            if allowed is not None and page_id not in allowed:
                return False
            return all(page_id in held for held in required) and not any(page_id in held for held in excluded)

        return fits


def _unit(phrase: Sequence[str], *, begun: bool = False) -> Unit:
    """FTS5 splits what stands between quotation marks once more; so do we."""
    return Unit(tuple(split(" ".join(phrase))), begun)


def _add(found: dict[int, float], scored: Iterable[tuple[int, float]], limit: int, weight: float) -> None:
    for page_id, score in sorted(scored, key=lambda item: (-item[1], item[0]))[:limit]:
        found[page_id] = found.get(page_id, 0.0) + score * weight


def _scores(look: Look, units: Sequence[Unit]) -> Iterable[tuple[int, float]]:
    """BM25 of every page that holds one of the units; the order of the operations is FTS5's, to the last bit."""
    average = look.terms / look.pages if look.terms else 1.0
    scores: dict[int, float] = {}
    for unit in units:
        held = look.counts[unit]
        telling = idf(look.pages, len(held))
        for page_id, count in held.items():
            below = count + K1 * (1 - B + B * look.sizes[page_id] / average)
            scores[page_id] = scores.get(page_id, 0.0) + telling * ((count * (K1 + 1.0)) / below)
    return scores.items()
