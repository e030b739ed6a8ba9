"""Listing, links and facets of an index file."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from wikiholt.errors import IndexMissing
from wikiholt.model import Facet, Facets, Filter, Page, StoredLink, StoredPage
from wikiholt.stores.sqlite import rows
from wikiholt.stores.sqlite.filters import where_clause
from wikiholt.text.links import folded

LINKS_SCHEMA = 2
"""The schema from which on an index has keys of links."""

_AT_ONCE = 400
_LINKS = "SELECT page_id, target, text, line, wiki, paths FROM links"


def require(schema: int) -> None:
    """Refuse to answer from an index of before there were links in it; the next sync builds another."""
    if schema < LINKS_SCHEMA:
        raise IndexMissing("the index is an older Wikiholt's and knows no links", hint="run `wikiholt sync`")


def put(db: sqlite3.Connection, page_id: int, page: Page) -> None:
    db.executemany(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (page_id, link.target, link.text, link.line, int(link.wiki), rows.packed(link.paths), *_keys(link.paths))
            for link in page.links
        ],
    )


def _keys(paths: Sequence[str]) -> tuple[str | None, str | None]:
    """A link means one path, or at most two."""
    keys = [*map(folded, paths[:2]), None, None]
    return keys[0], keys[1]


def listed(
    db: sqlite3.Connection, columns: str, where: Filter, limit: int | None, offset: int
) -> tuple[int, Sequence[StoredPage]]:
    clause, values = where_clause(where)
    passing = f"FROM pages WHERE {clause}" if clause else "FROM pages"
    (total,) = db.execute(f"SELECT count(*) {passing}", values).fetchone()
    sql = f"SELECT {columns} {passing} ORDER BY path, file LIMIT ? OFFSET ?"
    found = db.execute(sql, (*values, -1 if limit is None else limit, offset))
    return total, [rows.stored_page(row) for row in found]


def named(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredPage]:
    sql = f"SELECT {rows.PAGE_COLUMNS} FROM pages WHERE key IN ({{0}}) OR last_key IN ({{0}})"
    found = {row[0]: row for row in _in_both(db, sql, keys)}
    return [rows.stored_page(row) for row in found.values()]


def on_pages(db: sqlite3.Connection, page_ids: Sequence[int] | None) -> Iterator[StoredLink]:
    if page_ids is None:
        yield from map(rows.stored_link, db.execute(f"{_LINKS} ORDER BY page_id, rowid"))
        return
    for some in _slices(page_ids):
        sql = f"{_LINKS} WHERE page_id IN ({_marks(some)}) ORDER BY page_id, rowid"
        yield from map(rows.stored_link, db.execute(sql, some))


def naming(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredLink]:
    sql = f"{_LINKS.replace(' FROM', ', rowid FROM')} WHERE key IN ({{0}}) OR other_key IN ({{0}})"
    found = {row[-1]: row[:-1] for row in _in_both(db, sql, keys)}
    return [rows.stored_link(row) for _, row in sorted(found.items())]


def facets(db: sqlite3.Connection, where: Filter) -> Facets:
    clause, values = where_clause(where)
    passing = f"WHERE {clause}" if clause else ""
    return faceted(db.execute(f"SELECT path, category, tags FROM pages {passing}", values))


def faceted(pages: Iterable[rows.Row]) -> Facets:
    """The facets of pages given as (path, category, packed tags)."""
    count, categories, tags, folders = 0, Counter[str](), Counter[str](), Counter[str]()
    for path, category, packed in pages:
        count += 1
        if category is not None:
            categories[category] += 1
        if packed != "[]":
            tags.update(rows.strings(packed))
        folder, slash, _ = path.partition("/")
        if slash:
            folders[folder] += 1
    return Facets(count, _merged(categories), _merged(tags), _sorted(folders.items()))


def _merged(counted: Counter[str]) -> tuple[Facet, ...]:
    """Values that differ in case are one, as filters see it, shown as they are mostly written."""
    forms: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for value, count in counted.items():
        forms[value.casefold()].append((-count, value))
    return _sorted((min(alike)[1], -sum(count for count, _ in alike)) for alike in forms.values())


def _sorted(counted: Iterable[tuple[str, int]]) -> tuple[Facet, ...]:
    return tuple(Facet(value, count) for value, count in sorted(counted, key=lambda one: (-one[1], one[0])))


def _in_both(db: sqlite3.Connection, sql: str, keys: Sequence[str]) -> Iterator[rows.Row]:
    """Rows of a statement that compares two columns with the same keys, asked for a few hundred at a time."""
    for some in _slices(keys):
        yield from db.execute(sql.format(_marks(some)), (*some, *some))


def _slices(keys: Sequence[object]) -> Iterator[Sequence[object]]:
    for at in range(0, len(keys), _AT_ONCE):
        yield keys[at : at + _AT_ONCE]


def _marks(some: Sequence[object]) -> str:
    return ", ".join("?" * len(some))
