"""A filter as SQL over the pages table."""

from wikiholt.model import PageFilter


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
