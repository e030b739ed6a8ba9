"""A filter as SQL over a generation's pages."""

from wikiholt.model import PageFilter
from wikiholt.stores.postgres.rows import encode_text, encode_key


def build_where_clause(where: PageFilter) -> tuple[str, list[object]]:
    """The condition a page must meet and its values; an empty condition lets every page pass."""
    parts: list[str] = []
    values: list[object] = []
    if where.categories:
        parts.append("category_key = ANY(%s)")
        values.append([encode_text(category.casefold()) for category in where.categories])
    if where.tags:
        parts.append("tag_keys @> %s::text[]")
        values.append([encode_key(tag.casefold()) for tag in where.tags])
    prefix = encode_text(where.path_prefix.strip("/"))
    if prefix:
        # A path prefix names whole components: "ops" is ops and ops/backup, never opsec.
        parts.append("(path = %s OR starts_with(path, %s))")
        values += [prefix, prefix + "/"]
    if where.updated_since is not None:
        parts.append("last_updated >= %s")
        values.append(where.updated_since.timestamp())
    return " AND ".join(parts), values
