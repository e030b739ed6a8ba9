"""A filter as SQL over a generation's pages."""

from wikiholt.model import Filter
from wikiholt.stores.postgres.rows import held, indexed


def where_clause(where: Filter) -> tuple[str, list[object]]:
    """The condition a page must meet and its values; an empty condition lets every page pass."""
    parts: list[str] = []
    values: list[object] = []
    if where.categories:
        parts.append("category_key = ANY(%s)")
        values.append([held(category.casefold()) for category in where.categories])
    if where.tags:
        parts.append("tag_keys @> %s::text[]")
        values.append([indexed(tag.casefold()) for tag in where.tags])
    prefix = held(where.path_prefix.strip("/"))
    if prefix:
        # A path prefix names whole components: "ops" is ops and ops/backup, never opsec.
        parts.append("(path = %s OR starts_with(path, %s))")
        values += [prefix, prefix + "/"]
    if where.updated_since is not None:
        parts.append("last_updated >= %s")
        values.append(where.updated_since.timestamp())
    return " AND ".join(parts), values
