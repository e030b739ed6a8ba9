"""Queries over the pages of a generation: filters, listing, links and facets."""

from collections.abc import Iterator, Sequence

from wikiholt.domain.page import Facets
from wikiholt.domain.search import PageFilter, StoredLink, StoredPage
from wikiholt.storage import page_table
from wikiholt.storage.page_table import HAS_ALIAS, HAS_PROPERTIES, STORED_PAGE_COLUMNS, SqlDialect
from wikiholt.storage.postgres import rows
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import encode_key, encode_text
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.queries import count_facets

_POSTGRES = SqlDialect(
    "%s",
    has_tag="tag_keys @> ARRAY[?]::text[]",
    has_title="strpos(titles, ?) > 0",
    has_properties=f"({HAS_PROPERTIES} AND {{0}})",
    property_values="jsonb_array_elements_text(properties::jsonb #> ARRAY[?, '{0}']::text[]) AS item(value)",
    number="value::float8",
    encode_property=lambda name, _: encode_text(name),
    encode_text=encode_text,
    encode_key=encode_key,
)


def build_where_clause(where: PageFilter) -> tuple[str, list[object]]:
    """Build the SQL condition of a filter and its values. The condition is empty if every page matches."""
    return page_table.build_where_clause(where, _POSTGRES)


def list_pages(
    db: Connection, tables: GenerationTables, where: PageFilter, limit: int | None, offset: int
) -> tuple[int, Sequence[StoredPage]]:
    clause, values = build_where_clause(where)
    source = f"FROM {tables.pages} WHERE {clause or 'true'}"
    # A single statement sees a single version, so the count is joined to every row, or alone if no row is left.
    matches = db.execute(
        f"SELECT total.count, part.* FROM (SELECT count(*) {source}) AS total LEFT JOIN"
        f' (SELECT {STORED_PAGE_COLUMNS} {source} ORDER BY path, file COLLATE "C" LIMIT %s OFFSET %s) AS part ON true'
        ' ORDER BY part.path, part.file COLLATE "C"',
        (*values, *values, limit, offset),
    ).fetchall()
    total, *_ = matches[0]
    return total, [rows.to_stored_page(page) for _, *page in matches if page[0] is not None]


def find_pages_by_key(db: Connection, tables: GenerationTables, keys: Sequence[str]) -> Sequence[StoredPage]:
    encoded = [rows.encode_text(key) for key in keys]
    # Two parts, because only the first one can use indexes.
    sql = (
        f"SELECT {STORED_PAGE_COLUMNS} FROM {tables.pages} WHERE key = ANY(%s) OR last_key = ANY(%s)"
        f" UNION ALL SELECT {STORED_PAGE_COLUMNS} FROM {tables.pages} WHERE {HAS_ALIAS} AND EXISTS"
        " (SELECT 1 FROM jsonb_array_elements_text(alias_keys::jsonb) AS item(value) WHERE value = ANY(%s))"
    )
    pages = [rows.to_stored_page(row) for row in db.execute(sql, (encoded, encoded, encoded))]
    return list({page.page_id: page for page in pages}.values())


def iter_links(db: Connection, tables: GenerationTables, page_ids: Sequence[int] | None) -> Iterator[StoredLink]:
    sql = f"SELECT id, links FROM {tables.pages} WHERE links <> '[]'"
    if page_ids is None:
        packed_links = db.execute(f"{sql} ORDER BY id")
    else:
        packed_links = db.execute(f"{sql} AND id = ANY(%s) ORDER BY id", (list(page_ids),))
    for page_id, packed in packed_links:
        for link in rows.decode_links(rows.decode_text(packed)):
            yield rows.to_stored_link(page_id, link)


def find_links_by_key(db: Connection, tables: GenerationTables, keys: Sequence[str]) -> Iterator[StoredLink]:
    sql = f"SELECT id, links FROM {tables.pages} WHERE link_keys && %s::text[] ORDER BY id"
    wanted = frozenset(keys)
    for page_id, packed in db.execute(sql, ([rows.encode_key(key) for key in keys],)):
        for link in rows.decode_links(rows.decode_text(packed)):
            if not wanted.isdisjoint((link.key, link.other_key)):
                yield rows.to_stored_link(page_id, link)


def get_facets(db: Connection, tables: GenerationTables, where: PageFilter, properties: Sequence[str]) -> Facets:
    clause, values = build_where_clause(where)
    sql = f"SELECT path, category, tags, properties FROM {tables.pages} WHERE {clause or 'true'}"
    return count_facets(map(rows.decode_row, db.execute(sql, values)), properties, where.path_prefix)
