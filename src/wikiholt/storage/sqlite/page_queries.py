"""A filter as SQL over the pages table."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from wikiholt.domain.page import Facet, Facets, Page
from wikiholt.domain.search import PageFilter, StoredLink, StoredPage
from wikiholt.errors import IndexMissing
from wikiholt.storage.sqlite import rows
from wikiholt.text.links import fold_path


def build_where_clause(where: PageFilter) -> tuple[str, list[object]]:
    """The condition a page must meet and its values; an empty condition lets every page pass."""
    parts: list[str] = []
    values: list[object] = []
    if where.categories:
        parts.append(f"category_key IN ({_format_marks(where.categories)})")
        values += [category.casefold() for category in where.categories]
    for tag in where.tags:
        parts.append("id IN (SELECT page_id FROM tags WHERE tag = ?)")
        values.append(tag.casefold())
    prefix = where.path_prefix.strip("/")
    if prefix:
        # A path prefix names whole components: "ops" is ops and ops/backup, never opsec.
        parts.append("(path = ? OR substr(path, 1, ?) = ?)")
        values += [prefix, len(prefix) + 1, prefix + "/"]
    if where.updated_since is not None:
        parts.append("last_updated >= ?")
        values.append(where.updated_since.timestamp())
    return " AND ".join(parts), values


def _format_marks(things: tuple[str, ...]) -> str:
    return ", ".join("?" * len(things))


# Listing, links and facets of an index file.


MIN_LINKS_SCHEMA = 2
"""The schema from which on an index has keys of links."""

_BATCH_KEYS = 400
_SELECT_LINKS = "SELECT page_id, target, text, line, wiki, paths FROM links"


def require_links(schema: int) -> None:
    """Refuse to answer from an index of before there were links in it; the next sync builds another."""
    if schema < MIN_LINKS_SCHEMA:
        raise IndexMissing("the index is an older Wikiholt's and knows no links", hint="run `wikiholt sync`")


def insert_links(db: sqlite3.Connection, page_id: int, page: Page) -> None:
    db.executemany(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                page_id,
                link.target,
                link.text,
                link.line,
                int(link.wiki),
                rows.encode_strings(link.paths),
                *_make_link_keys(link.paths),
            )
            for link in page.links
        ],
    )


def _make_link_keys(paths: Sequence[str]) -> tuple[str | None, str | None]:
    """A link means one path, or at most two."""
    keys = [*map(fold_path, paths[:2]), None, None]
    return keys[0], keys[1]


def list_pages(
    db: sqlite3.Connection, columns: str, where: PageFilter, limit: int | None, offset: int
) -> tuple[int, Sequence[StoredPage]]:
    clause, values = build_where_clause(where)
    passing = f"FROM pages WHERE {clause}" if clause else "FROM pages"
    (total,) = db.execute(f"SELECT count(*) {passing}", values).fetchone()
    sql = f"SELECT {columns} {passing} ORDER BY path, file LIMIT ? OFFSET ?"
    found = db.execute(sql, (*values, -1 if limit is None else limit, offset))
    return total, [rows.to_stored_page(row) for row in found]


def find_pages_by_key(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredPage]:
    sql = f"SELECT {rows.PAGE_COLUMNS} FROM pages WHERE key IN ({{0}}) OR last_key IN ({{0}})"
    found = {row[0]: row for row in _select_by_either_key(db, sql, keys)}
    return [rows.to_stored_page(row) for row in found.values()]


def iter_links(db: sqlite3.Connection, page_ids: Sequence[int] | None) -> Iterator[StoredLink]:
    if page_ids is None:
        yield from map(rows.to_stored_link, db.execute(f"{_SELECT_LINKS} ORDER BY page_id, rowid"))
        return
    for some in _iter_batches(page_ids):
        sql = f"{_SELECT_LINKS} WHERE page_id IN ({_format_placeholders(some)}) ORDER BY page_id, rowid"
        yield from map(rows.to_stored_link, db.execute(sql, some))


def find_links_by_key(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredLink]:
    sql = f"{_SELECT_LINKS.replace(' FROM', ', rowid FROM')} WHERE key IN ({{0}}) OR other_key IN ({{0}})"
    found = {row[-1]: row[:-1] for row in _select_by_either_key(db, sql, keys)}
    return [rows.to_stored_link(row) for _, row in sorted(found.items())]


def get_facets(db: sqlite3.Connection, where: PageFilter) -> Facets:
    clause, values = build_where_clause(where)
    passing = f"WHERE {clause}" if clause else ""
    return count_facets(db.execute(f"SELECT path, category, tags FROM pages {passing}", values))


def count_facets(pages: Iterable[rows.Row]) -> Facets:
    """The facets of pages given as (path, category, packed tags)."""
    count, categories, tags, folders = 0, Counter[str](), Counter[str](), Counter[str]()
    for path, category, packed in pages:
        count += 1
        if category is not None:
            categories[category] += 1
        if packed != "[]":
            tags.update(rows.decode_strings(packed))
        folder, slash, _ = path.partition("/")
        if slash:
            folders[folder] += 1
    return Facets(count, _merge_case(categories), _merge_case(tags), _sort_facets(folders.items()))


def _merge_case(counted: Counter[str]) -> tuple[Facet, ...]:
    """Values that differ in case are one, as filters see it, shown as they are mostly written."""
    forms: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for value, count in counted.items():
        forms[value.casefold()].append((-count, value))
    return _sort_facets((min(alike)[1], -sum(count for count, _ in alike)) for alike in forms.values())


def _sort_facets(counted: Iterable[tuple[str, int]]) -> tuple[Facet, ...]:
    return tuple(Facet(value, count) for value, count in sorted(counted, key=lambda one: (-one[1], one[0])))


def _select_by_either_key(db: sqlite3.Connection, sql: str, keys: Sequence[str]) -> Iterator[rows.Row]:
    """Rows of a statement that compares two columns with the same keys, asked for a few hundred at a time."""
    for some in _iter_batches(keys):
        yield from db.execute(sql.format(_format_placeholders(some)), (*some, *some))


def _iter_batches(keys: Sequence[object]) -> Iterator[Sequence[object]]:
    for at in range(0, len(keys), _BATCH_KEYS):
        yield keys[at : at + _BATCH_KEYS]


def _format_placeholders(some: Sequence[object]) -> str:
    return ", ".join("?" * len(some))
