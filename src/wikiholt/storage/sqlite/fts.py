"""Keyword search in the index file: FTS5 finds and ranks, by the terms the analyser made."""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.storage.sqlite.page_queries import build_where_clause
from wikiholt.text.bm25 import FIELD_WEIGHTS, PREFIX_WEIGHT, compute_max_score

_FIELD_WEIGHTS = ", ".join(str(weight) for weight in FIELD_WEIGHTS)


def search_keywords(db: sqlite3.Connection, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
    """The best pages, best first; ties go to the older page, so that the order never wavers."""
    scores: defaultdict[int, float] = defaultdict(float)
    if query.terms or query.phrases:
        for page_id, score in _rank(
            db, build_match_expression(query), query.phrases if query.terms else (), limit, where
        ):
            scores[page_id] += score
    if query.prefix:
        for page_id, score in _rank(db, _build_prefix_expression(query), query.phrases, limit, where):
            scores[page_id] += score * PREFIX_WEIGHT
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [KeywordHit(page_id, score) for page_id, score in best[:limit]]


def get_max_keyword_score(db: sqlite3.Connection, query: KeywordQuery) -> float:
    """The sum of what each word and phrase can give at most; one that no page holds counts as the rarest."""
    (pages,) = db.execute("SELECT count(*) FROM pages").fetchone()
    phrases = [(term,) for term in query.terms] + list(query.phrases)
    return sum(compute_max_score(pages, _count_pages(db, phrase)) for phrase in phrases)


def _count_pages(db: sqlite3.Connection, phrase: Sequence[str]) -> int:
    return int(db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (_quote_phrase(phrase),)).fetchone()[0])


def find_matching_page_ids(db: sqlite3.Connection, query: KeywordQuery) -> list[tuple[int]]:
    """The ids of pages with every phrase and without what is excluded, in order."""
    conditions, values = [], []
    if query.phrases:
        conditions.append("id IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(_join_all(query.phrases))
    if query.excluded:
        conditions.append("id NOT IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(_join_any(query.excluded))
    condition = " AND ".join(conditions) or "true"
    return db.execute(f"SELECT id FROM pages WHERE {condition} ORDER BY id", values).fetchall()


def build_match_expression(query: KeywordQuery) -> str:
    """What ranks a page, in FTS5's language: each word and phrase once, for BM25 adds up whatever stands here.

    Beside words, phrases are required elsewhere. Every term is quoted, so none can be read as an operator.
    """
    words = [(term,) for term in query.terms]
    return _exclude(_join_any([*words, *query.phrases]) if words else _join_all(query.phrases), query.excluded)


def _build_prefix_expression(query: KeywordQuery) -> str:
    """Pages with a word that goes on from the last one typed, though not with that word itself."""
    whole = tuple((term,) for term in query.terms[-1:])
    return _exclude(f"{_quote_phrase((query.prefix,))} *", query.excluded + whole)


def _exclude(wanted: str, excluded: Sequence[tuple[str, ...]]) -> str:
    if not excluded:
        return wanted
    return f"({wanted}) NOT ({_join_any(excluded)})"


def _rank(
    db: sqlite3.Connection, match: str, phrases: Sequence[tuple[str, ...]], limit: int, where: PageFilter
) -> list[tuple[int, float]]:
    """The best pages by the match, of those that hold every one of these phrases and pass the filter."""
    clause, values = build_where_clause(where)
    # The plus keeps SQLite from running the match anew for each of these pages, which can take minutes.
    inside = f" AND +words.rowid IN (SELECT id FROM pages WHERE {clause})" if clause else ""
    if phrases:
        inside += " AND +words.rowid IN (SELECT rowid FROM words WHERE words MATCH ?)"
        values.append(_join_all(phrases))
    found = db.execute(
        f"SELECT rowid, bm25(words, {_FIELD_WEIGHTS}) AS badness FROM words WHERE words MATCH ?{inside}"
        " ORDER BY badness, rowid LIMIT ?",
        (match, *values, limit),
    )
    return [(page_id, -badness) for page_id, badness in found]


def _join_any(phrases: Sequence[Sequence[str]]) -> str:
    return " OR ".join(_quote_phrase(phrase) for phrase in phrases)


def _join_all(phrases: Sequence[Sequence[str]]) -> str:
    return " AND ".join(_quote_phrase(phrase) for phrase in phrases)


def _quote_phrase(terms: Sequence[str]) -> str:
    return '"' + " ".join(terms).replace('"', '""') + '"'
