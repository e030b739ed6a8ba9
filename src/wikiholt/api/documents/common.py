"""How all interfaces build JSON documents from values, and read and write dates."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from wikiholt.errors import InvalidQuery

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


_AGE_PATTERN = re.compile(r"([0-9]{1,5}) ?(h|d|w|hours?|days?|weeks?|months?|years?)(?: ago)?")
_AGE_UNITS = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}


def parse_until(text: str) -> datetime:
    """Parse like `parse_since`, but return the end of the given day, minute or second."""
    when = parse_since(text)
    if re.fullmatch(r"\d{4}-?\d\d-?\d\d|today|yesterday", text):
        return when + timedelta(days=1, microseconds=-1)
    if re.search(r"[T ]\d\d:\d\d(?![\d:])", text):
        return when + timedelta(minutes=1, microseconds=-1)
    return when if when.microsecond else when.replace(microsecond=999_999)


def parse_since(text: str) -> datetime:
    """Parse a date, a date with time, `yesterday`, or an age: 7d, 12h, 3w, `2 weeks ago`. Raises InvalidQuery."""
    now = datetime.now(UTC)
    if text in ("today", "yesterday"):
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=text == "yesterday")
    try:
        if ago := _AGE_PATTERN.fullmatch(text):
            return now - int(ago[1]) * _AGE_UNITS[ago[2][0]]
        when = datetime.fromisoformat(text.removesuffix(" UTC"))  # the CLI prints dates with this suffix
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "write 2024-05-31, yesterday, 7d, 12h, 3w or 2 weeks ago"
        raise InvalidQuery(f"{text[:80]!r} is not a date", hint=hint) from None
