"""Queries over the pages of an index file: keyword search with FTS5, lists, links and facets."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from wikiholt.domain.index import PageContents
from wikiholt.domain.page import Facets, Link
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter, StoredLink, StoredPage
from wikiholt.storage.page_table import (
    CONTENTS_COLUMNS,
    HAS_ALIAS,
    SQLITE,
    STORED_PAGE_COLUMNS,
    build_where_clause,
    count_property_values,
    merge_case,
    sort_facets,
    to_page_contents,
    to_stored_page,
)
from wikiholt.storage.sqlite import rows
from wikiholt.text.bm25 import FIELD_WEIGHTS, PREFIX_WEIGHT, compute_max_score

_BATCH_KEYS = 400
"""Keys per statement; a statement may compare each key with two columns."""
_FIELD_WEIGHTS = ", ".join(str(weight) for weight in FIELD_WEIGHTS)
_LINK_COLUMNS = "page_id, target, text, line, wiki, paths"


def select_in_batches(db: sqlite3.Connection, sql: str, keys: Sequence[object], columns: int = 1) -> Iterator[rows.Row]:
    """Run a statement with `{0}` for the keys, a few hundred at a time, that compares them with `columns` columns."""
    for start in range(0, len(keys), _BATCH_KEYS):
        batch = keys[start : start + _BATCH_KEYS]
        yield from db.execute(sql.format(_format_placeholders(batch)), (*batch,) * columns)


def list_pages(
    db: sqlite3.Connection, where: PageFilter, limit: int | None, offset: int
) -> tuple[int, Sequence[StoredPage]]:
    clause, values = build_where_clause(where, SQLITE)
    matching = f"FROM pages WHERE {clause}" if clause else "FROM pages"
    (total,) = db.execute(f"SELECT count(*) {matching}", values).fetchone()
    sql = f"SELECT {STORED_PAGE_COLUMNS} {matching} ORDER BY path, file LIMIT ? OFFSET ?"
    pages = db.execute(sql, (*values, -1 if limit is None else limit, offset))
    return total, [to_stored_page(row) for row in pages]


def read_contents(db: sqlite3.Connection, files: Sequence[str]) -> dict[str, PageContents]:
    """What a move of these pages may change, by file."""
    sql = f"SELECT id, {CONTENTS_COLUMNS} FROM pages WHERE file IN ({{0}})"
    pages = {page_id: row for page_id, *row in select_in_batches(db, sql, files)}
    links: dict[int, list[Link]] = {page_id: [] for page_id in pages}
    sql = f"SELECT {_LINK_COLUMNS} FROM links WHERE page_id IN ({{0}}) ORDER BY page_id, rowid"
    for page_id, target, text, line, wiki, paths in select_in_batches(db, sql, list(pages)):
        links[page_id].append(Link(target, text, line, bool(wiki), rows.decode_strings(paths)))
    return {row[0]: to_page_contents(row, links[page_id]) for page_id, row in pages.items()}


def find_pages_by_key(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredPage]:
    sql = f"SELECT {STORED_PAGE_COLUMNS} FROM pages WHERE key IN ({{0}}) OR last_key IN ({{0}})"
    by_alias = (
        f"SELECT {STORED_PAGE_COLUMNS} FROM pages WHERE {HAS_ALIAS}"
        " AND EXISTS (SELECT 1 FROM json_each(alias_keys) WHERE value IN ({0}))"
    )
    found = (*select_in_batches(db, sql, keys, columns=2), *select_in_batches(db, by_alias, keys))
    return list({page.page_id: page for page in map(to_stored_page, found)}.values())


def insert_links(db: sqlite3.Connection, page_id: int, links: Iterable[Link]) -> None:
    sql = f"INSERT INTO links ({_LINK_COLUMNS}, key, other_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    db.executemany(sql, [(page_id, *row) for row in rows.to_link_rows(links)])


def iter_links(db: sqlite3.Connection, page_ids: Sequence[int] | None) -> Iterator[StoredLink]:
    select = f"SELECT {_LINK_COLUMNS} FROM links"
    if page_ids is None:
        links: Iterable[rows.Row] = db.execute(f"{select} ORDER BY page_id, rowid")
    else:
        links = select_in_batches(db, f"{select} WHERE page_id IN ({{0}}) ORDER BY page_id, rowid", page_ids)
    return map(rows.to_stored_link, links)


def find_links_by_key(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredLink]:
    sql = f"SELECT rowid, {_LINK_COLUMNS} FROM links WHERE key IN ({{0}}) OR other_key IN ({{0}})"
    links = {rowid: row for rowid, *row in select_in_batches(db, sql, keys, columns=2)}
    return [rows.to_stored_link(row) for _, row in sorted(links.items())]


def get_facets(db: sqlite3.Connection, where: PageFilter, properties: Sequence[str]) -> Facets:
    clause, values = build_where_clause(where, SQLITE)
    matching = f"WHERE {clause}" if clause else ""
    return count_facets(
        db.execute(f"SELECT path, category, tags, properties FROM pages {matching}", values),
        properties,
        where.path_prefix,
    )


def count_facets(pages: Iterable[rows.Row], properties: Sequence[str], prefix: str) -> Facets:
    """The facets of pages, given as (path, category, encoded tags, encoded properties); folders are below `prefix`."""
    start = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    count, categories, tags, folders = 0, Counter[str](), Counter[str](), Counter[str]()
    encoded_properties: list[str] = []
    for path, category, encoded, page_properties in pages:
        count += 1
        if properties:
            encoded_properties.append(page_properties)
        if category is not None:
            categories[category] += 1
        if encoded != "[]":
            tags.update(rows.decode_strings(encoded))
        folder, slash, _ = path[len(start) :].partition("/") if path.startswith(start) else ("", "", "")
        if slash:
            folders[start + folder] += 1
    return Facets(
        count,
        merge_case(categories),
        merge_case(tags),
        sort_facets(folders.items()),
        count_property_values(encoded_properties, properties),
    )


def _format_placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


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


def get_max_keyword_score(db: sqlite3.Connection, query: KeywordQuery) -> float:
    """The sum of the maximum scores of each term and phrase. A term without pages counts as the rarest."""
    (pages,) = db.execute("SELECT count(*) FROM pages").fetchone()
    phrases = [(term,) for term in query.terms] + list(query.phrases)
    return sum(compute_max_score(pages, _count_pages(db, phrase)) for phrase in phrases)


def _count_pages(db: sqlite3.Connection, phrase: Sequence[str]) -> int:
    sql = "SELECT count(*) FROM words WHERE words MATCH ?"
    (count,) = db.execute(sql, (_quote_phrase(phrase),)).fetchone()
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
