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
        for page_id, score in _ranked(db, expression(query), limit, where):
            scores[page_id] += score
    if query.prefix:
        for page_id, score in _ranked(db, _prefix_expression(query), limit, where):
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
        values.append(" AND ".join(_phrase(phrase) for phrase in query.phrases))
    if query.excluded:
        conditions.append("id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(" OR ".join(_phrase(phrase) for phrase in query.excluded))
    condition = " AND ".join(conditions) or "true"
    return db.execute(f"SELECT id FROM pages WHERE {condition} ORDER BY id", values).fetchall()


def expression(query: WordQuery) -> str:
    """The query in FTS5's language; every term is quoted, so no term can be read as an operator."""
    some = " OR ".join(_phrase((term,)) for term in query.terms)
    every = " AND ".join(_phrase(phrase) for phrase in query.phrases)
    # Words beside a phrase help the order but are not required: both sides of this OR demand the phrases.
    wanted = f"({every}) OR ({every} AND ({some}))" if some and every else some or every
    return _without(wanted, query.excluded)


def _prefix_expression(query: WordQuery) -> str:
    """Pages with a word that goes on from the last one typed, though not with that word itself."""
    every = " AND ".join([f"{_phrase((query.prefix,))} *", *(_phrase(phrase) for phrase in query.phrases)])
    whole = tuple((term,) for term in query.terms[-1:])
    return _without(every, query.excluded + whole)


def _without(wanted: str, excluded: Sequence[tuple[str, ...]]) -> str:
    if not excluded:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(_phrase(phrase) for phrase in excluded)})"


def _ranked(db: sqlite3.Connection, match: str, limit: int, where: Filter) -> list[tuple[int, float]]:
    clause, values = where_clause(where)
    inside = f" AND words.rowid IN (SELECT id FROM pages WHERE {clause})" if clause else ""
    found = db.execute(
        f"SELECT rowid, bm25(words, {_WEIGHTS}) AS badness FROM words WHERE words MATCH ?{inside}"
        " ORDER BY badness, rowid LIMIT ?",
        (match, *values, limit),
    )
    return [(page_id, -badness) for page_id, badness in found]


def _phrase(terms: Sequence[str]) -> str:
    return '"' + " ".join(terms).replace('"', '""') + '"'
