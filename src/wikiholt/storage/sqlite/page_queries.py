"""Reading pages of an index file: filters, lists, links and facets."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from wikiholt.domain.index import PageContents
from wikiholt.domain.page import Facets, Link, Page
from wikiholt.domain.search import PageFilter, StoredLink, StoredPage
from wikiholt.errors import IndexCorrupt
from wikiholt.storage.checksums import compute_page_checksum
from wikiholt.storage.page_contents import make_page_contents
from wikiholt.storage.page_table import (
    HAS_ALIAS,
    SQLITE,
    STORED_PAGE_COLUMNS,
    PageRow,
    build_where_clause,
    count_property_values,
    merge_case,
    sort_facets,
    to_stored_page,
)
from wikiholt.storage.sqlite import rows
from wikiholt.text.links import fold_path

_BATCH_KEYS = 400
"""Keys per statement; a statement may compare each key with two columns."""
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


def read_contents(db: sqlite3.Connection, files: Sequence[str], dimensions: int) -> dict[str, PageContents]:
    """The contents of pages that match their checksums, by file."""
    sql = f"SELECT {', '.join(PageRow._fields)} FROM full_pages WHERE file IN ({{0}})"
    contents: dict[str, PageContents] = {}
    for page in map(PageRow._make, list(select_in_batches(db, sql, files))):
        with suppress(IndexCorrupt):
            found = _read_page_contents(db, page, dimensions)
            contents |= {page.file: found} if found is not None else {}
    return contents


def _read_page_contents(db: sqlite3.Connection, page: PageRow, dimensions: int) -> PageContents | None:
    """The contents of a page, or None if they do not match its checksum. Raises IndexCorrupt."""
    sql = f"{rows.FULL_CHUNKS} WHERE chunks.page_id = ? ORDER BY number"
    chunks, vectors = rows.split_full_chunks(db.execute(sql, (page.id,)))
    tags = [tag for (tag,) in db.execute("SELECT tag FROM tags WHERE page_id = ? ORDER BY tag", (page.id,))]
    links = db.execute(
        "SELECT target, text, line, wiki, paths, key, other_key FROM links WHERE page_id = ? ORDER BY rowid",
        (page.id,),
    ).fetchall()
    checksum = db.execute("SELECT crc FROM seals WHERE page_id = ?", (page.id,)).fetchone()
    if checksum != (compute_page_checksum(page, chunks, vectors, tags, links),):
        return None
    return make_page_contents(page, chunks, rows.to_vector_rows(vectors, dimensions).vectors, links)


def find_pages_by_key(db: sqlite3.Connection, keys: Sequence[str]) -> Sequence[StoredPage]:
    sql = f"SELECT {STORED_PAGE_COLUMNS} FROM pages WHERE key IN ({{0}}) OR last_key IN ({{0}})"
    by_alias = (
        f"SELECT {STORED_PAGE_COLUMNS} FROM pages WHERE {HAS_ALIAS}"
        " AND EXISTS (SELECT 1 FROM json_each(alias_keys) WHERE value IN ({0}))"
    )
    found = (*select_in_batches(db, sql, keys, columns=2), *select_in_batches(db, by_alias, keys))
    return list({page.page_id: page for page in map(to_stored_page, found)}.values())


def insert_links(db: sqlite3.Connection, page_id: int, page: Page) -> None:
    sql = f"INSERT INTO links ({_LINK_COLUMNS}, key, other_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    db.executemany(sql, [_to_link_row(page_id, link) for link in page.links])


def _to_link_row(page_id: int, link: Link) -> tuple[object, ...]:
    paths = rows.encode_strings(link.paths)
    key, other_key, *_ = (*map(fold_path, link.paths[:2]), None, None)  # a link has at most two candidate paths
    return page_id, link.target, link.text, link.line, int(link.wiki), paths, key, other_key


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
