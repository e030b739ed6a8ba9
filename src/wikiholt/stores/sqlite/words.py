"""Keyword search in the index file: FTS5 finds and ranks, by the terms the analyser made."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from wikiholt.model import Filter, WordHit, WordQuery
from wikiholt.stores.sqlite.filters import where_clause
from wikiholt.text.fields import FIELD_WEIGHTS, PREFIX_WEIGHT, most

_WEIGHTS = ", ".join(str(weight) for weight in FIELD_WEIGHTS)


def search(db: sqlite3.Connection, query: WordQuery, limit: int, where: Filter) -> Sequence[WordHit]:
    """The best pages, best first; ties go to the older page, so that the order never wavers."""
    scores: defaultdict[int, float] = defaultdict(float)
    if query.terms or query.phrases:
        for page_id, score in _ranked(db, expression(query), query.phrases if query.terms else (), limit, where):
            scores[page_id] += score
    if query.prefix:
        for page_id, score in _ranked(db, _prefix_expression(query), query.phrases, limit, where):
            scores[page_id] += score * PREFIX_WEIGHT
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [WordHit(page_id, score) for page_id, score in best[:limit]]


def best_possible(db: sqlite3.Connection, query: WordQuery) -> float:
    """The sum of what each word and phrase can give at most; one that no page holds counts as the rarest."""
    (pages,) = db.execute("SELECT count(*) FROM pages").fetchone()
    phrases = [(term,) for term in query.terms] + list(query.phrases)
    return sum(most(pages, _count(db, phrase)) for phrase in phrases)


def _count(db: sqlite3.Connection, phrase: Sequence[str]) -> int:
    return int(db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (_phrase(phrase),)).fetchone()[0])


def holding(db: sqlite3.Connection, query: WordQuery) -> list[tuple[int]]:
    """The ids of pages with every phrase and without what is excluded, in order."""
    conditions, values = [], []
    if query.phrases:
        conditions.append("id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(_every(query.phrases))
    if query.excluded:
        conditions.append("id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(_any(query.excluded))
    condition = " AND ".join(conditions) or "true"
    return db.execute(f"SELECT id FROM pages WHERE {condition} ORDER BY id", values).fetchall()


def expression(query: WordQuery) -> str:
    """What ranks a page, in FTS5's language: each word and phrase once, for BM25 adds up whatever stands here.

    Beside words, phrases are required elsewhere. Every term is quoted, so none can be read as an operator.
    """
    words = [(term,) for term in query.terms]
    return _without(_any([*words, *query.phrases]) if words else _every(query.phrases), query.excluded)


def _prefix_expression(query: WordQuery) -> str:
    """Pages with a word that goes on from the last one typed, though not with that word itself."""
    whole = tuple((term,) for term in query.terms[-1:])
    return _without(f"{_phrase((query.prefix,))} *", query.excluded + whole)


def _without(wanted: str, excluded: Sequence[tuple[str, ...]]) -> str:
    if not excluded:
        return wanted
    return f"({wanted}) NOT ({_any(excluded)})"


def _ranked(
    db: sqlite3.Connection, match: str, phrases: Sequence[tuple[str, ...]], limit: int, where: Filter
) -> list[tuple[int, float]]:
    """The best pages by the match, of those that hold every one of these phrases and pass the filter."""
    clause, values = where_clause(where)
    # The plus keeps SQLite from running the match anew for each of these pages, which can take minutes.
    inside = f" AND +words.rowid IN (SELECT id FROM pages WHERE {clause})" if clause else ""
    if phrases:
        inside += " AND +words.rowid IN (SELECT rowid FROM words WHERE words MATCH ?)"
        values.append(_every(phrases))
    found = db.execute(
        f"SELECT rowid, bm25(words, {_WEIGHTS}) AS badness FROM words WHERE words MATCH ?{inside}"
        " ORDER BY badness, rowid LIMIT ?",
        (match, *values, limit),
    )
    return [(page_id, -badness) for page_id, badness in found]


def _any(phrases: Sequence[Sequence[str]]) -> str:
    return " OR ".join(_phrase(phrase) for phrase in phrases)


def _every(phrases: Sequence[Sequence[str]]) -> str:
    return " AND ".join(_phrase(phrase) for phrase in phrases)


def _phrase(terms: Sequence[str]) -> str:
    return '"' + " ".join(terms).replace('"', '""') + '"'
