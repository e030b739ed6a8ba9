"""Keyword search in an index file with FTS5, and what its other queries share."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from wikiholt.domain.index import IntArray
from wikiholt.domain.page import PageTerms
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.index import rows
from wikiholt.index.page_table import SQLITE, build_where_clause
from wikiholt.index.sqlite.connections import select_in_batches
from wikiholt.text.bm25 import FIELD_WEIGHTS, PREFIX_WEIGHT

_FIELD_WEIGHTS = ", ".join(str(weight) for weight in FIELD_WEIGHTS)
LINK_COLUMNS = "page_id, target, text, line, wiki, paths"


# ── keyword search ───────────────────────────────────────────────────────────────────────────────


def search_keywords(db: sqlite3.Connection, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
    """The best pages, best first. Ties go to the lower page id, so the order is stable."""
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


def count_pages(db: sqlite3.Connection, term: str) -> int:
    sql = "SELECT count(*) FROM words WHERE words MATCH ?"
    (count,) = db.execute(sql, (_quote_phrase((term,)),)).fetchone()
    return int(count)


def find_matching_page_ids(db: sqlite3.Connection, query: KeywordQuery) -> list[tuple[int]]:
    """The ids of pages with every phrase and no excluded phrase, in order."""
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
    """The FTS5 expression that ranks pages. Each term and phrase occurs once, because BM25 adds up every occurrence.

    If there are terms, phrases are also required by a separate condition. Every term is quoted, so none is an operator.
    """
    words = [(term,) for term in query.terms]
    return _exclude(_join_any([*words, *query.phrases]) if words else _join_all(query.phrases), query.excluded)


def build_any_expression(query: KeywordQuery) -> str:
    """Match pages with any word that the query asks for."""
    words = _join_any([*((term,) for term in query.terms), *query.phrases])
    prefix = f"{_quote_phrase((query.prefix,))} *" if query.prefix else ""
    return " OR ".join(filter(None, (words, prefix)))


def _build_prefix_expression(query: KeywordQuery) -> str:
    """Match pages with a word that starts with the prefix but not with the last term itself."""
    last_term = tuple((term,) for term in query.terms[-1:])
    return _exclude(f"{_quote_phrase((query.prefix,))} *", query.excluded + last_term)


def _exclude(match: str, excluded: Sequence[tuple[str, ...]]) -> str:
    if not excluded:
        return match
    return f"({match}) NOT ({_join_any(excluded)})"


def _rank(
    db: sqlite3.Connection, match: str, phrases: Sequence[tuple[str, ...]], limit: int, where: PageFilter
) -> list[tuple[int, float]]:
    """The best pages for the FTS5 expression that contain all phrases and match the filter, with their scores."""
    clause, values = build_where_clause(where, SQLITE)
    # The plus keeps SQLite from running the match again for each of these pages, which can take minutes.
    conditions = f" AND +words.rowid IN (SELECT id FROM pages WHERE {clause})" if clause else ""
    if phrases:
        conditions += " AND +words.rowid IN (SELECT rowid FROM words WHERE words MATCH ?)"
        values.append(_join_all(phrases))
    rows = db.execute(
        f"SELECT rowid, bm25(words, {_FIELD_WEIGHTS}) AS negative_score FROM words WHERE words MATCH ?{conditions}"
        " ORDER BY negative_score, rowid LIMIT ?",
        (match, *values, limit),
    )
    return [(page_id, -negative_score) for page_id, negative_score in rows]


def _join_any(phrases: Sequence[Sequence[str]]) -> str:
    return " OR ".join(_quote_phrase(phrase) for phrase in phrases)


def _join_all(phrases: Sequence[Sequence[str]]) -> str:
    return " AND ".join(_quote_phrase(phrase) for phrase in phrases)


def _quote_phrase(terms: Sequence[str]) -> str:
    return '"' + " ".join(terms).replace('"', '""') + '"'


# ── terms, for keyword caches and lexicons ───────────────────────────────────────────────────────


def read_page_keys(db: sqlite3.Connection) -> IntArray:
    """The id and the checksum of each page in one number, sorted."""
    sql = "SELECT page_id << 32 | full_page FROM checksums WHERE page_id > 0 ORDER BY page_id"
    return rows.to_id_array(db.execute(sql).fetchall())


def iter_page_terms(db: sqlite3.Connection, page_ids: Sequence[int] | None) -> Iterator[tuple[int, PageTerms]]:
    """The terms of these pages (sorted ids), or of all, in the order of their ids."""
    # LEFT JOIN: words that are lost are an error, not a page less.
    sql = "SELECT id, words FROM pages LEFT JOIN page_words ON page_id = id"
    if page_ids is None:
        found: Iterable[rows.Row] = db.execute(f"{sql} ORDER BY id")
    else:
        found = select_in_batches(db, f"{sql} WHERE id IN ({{0}}) ORDER BY id", page_ids)
    return ((page_id, rows.decode_terms(terms)) for page_id, terms in found)


def count_terms(db: sqlite3.Connection) -> dict[str, int]:
    """Every term, sorted, with the number of pages that contain it."""
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab(main, words, row)")
    return dict(db.execute("SELECT term, doc FROM temp.terms"))
