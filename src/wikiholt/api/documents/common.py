"""How all interfaces build JSON documents from values, and write dates."""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

if TYPE_CHECKING:
    from wikiholt.wikis.session import PathStyle

D = TypeVar("D")

_JSON_TYPES = frozenset({str, int, float, bool, type(None), list, dict})
"""Types of values that JSON has too."""


def build_document(
    document_type: type[D], source: object, path_style: "PathStyle | None" = None, /, **values: object
) -> D:
    """Build a document whose fields are `values` and, for the others, the attributes of `source` with the same name.

    Dates become text, tuples lists, and members of an enumeration their values. With a path style,
    `name` and `path` are those of a page and written in the caller's form.
    """
    names = document_type.__annotations__
    if path_style is not None:
        page = cast(Any, source)
        values.setdefault("path", path_style.to_display_path(page.path))
        if "name" in names:
            values.setdefault("name", path_style.to_display_title(page.name, page.path))
    document: dict[str, object] = {}
    for name in names:
        value = values[name] if name in values else getattr(source, name)
        document[name] = value if type(value) in _JSON_TYPES else _to_json(value)
    if not values.keys() <= document.keys():
        raise TypeError(f"{document_type.__name__} has no field {', '.join(sorted(values.keys() - document.keys()))}")
    return cast(D, document)


def build_documents(document_type: type[D], sources: Iterable[object]) -> list[D]:
    return [build_document(document_type, source) for source in sources]


def _to_json(value: object) -> object:
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, datetime):
        return format_date(value)
    return value.value if isinstance(value, Enum) else value


@overload
def format_date(when: datetime) -> str: ...
@overload
def format_date(when: datetime | None) -> str | None: ...
def format_date(when: datetime | None) -> str | None:
    """Format as ISO 8601 with the UTC offset."""
    return when.isoformat() if when else None
