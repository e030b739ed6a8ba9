"""Frontmatter properties: how names and values are compared, and conditions such as `priority>=3`."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from wikiholt.domain.page import PageProperty
from wikiholt.domain.search import PropertyCondition
from wikiholt.errors import InvalidQuery
from wikiholt.text.analysis import strip_accents
from wikiholt.text.charset import to_one_line

_TEXT_CHARACTERS = r"[^\x00=<>!]"
CONDITION_PATTERN = (
    rf"^{_TEXT_CHARACTERS}*[^\x00=<>!\s_\x22\\-]{_TEXT_CHARACTERS}*"
    r"(!?=\s*[^\x00=<>!\s][^\x00]*"
    r"|[<>]=?\s*-?[0-9]{1,15}|[<>]=?[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$"
)
"""Matches only valid conditions, for schemas. Dates with a time and numbers with a point are valid too."""

_OPERATOR = re.compile(r"!=|<=|>=|=|<|>")
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[Tt ]([0-9]{2}:.{1,30}))?")
_IGNORED_IN_NAMES = re.compile(r"""[\s_"\\-]""")
_MIN_PLURAL_CHARS = 5
"""Shorter words, such as news, are no plurals of their first letters."""
_DAY_S, _INSTANT_S = 86_400.0, 1e-6
_EXAMPLES = "write NAME=VALUE, or one of != < <= > >=: status=draft, priority>=3, 'due<2026-01-01'"


class PropertyValue(NamedTuple):
    """One value of a property as the index stores it: folded name and value, and the value as a number or a date."""

    name: str
    key: str
    number: float | None
    date: float | None
    """Seconds since 1970."""
    spelling: str


def fold_tag(tag: str) -> str:
    """The form in which tags are compared: without case, and without the s of a plural."""
    key = tag.casefold()
    return key[:-1] if len(key) >= _MIN_PLURAL_CHARS and key.endswith("s") and not key.endswith("ss") else key


def fold_property_name(name: str) -> str:
    """The form in which names are compared: `Due date`, `due_date` and `due-date` are the same property.

    It has no character that a JSON path would have to escape.
    """
    return _IGNORED_IN_NAMES.sub("", name).casefold()


def fold_title(text: str) -> str:
    """The form in which `title:` compares names: without case and accents."""
    return strip_accents(to_one_line(text))


def fold_pinned_query(text: str) -> str:
    """The form in which a query is compared with the pins of a page: without case and punctuation around it."""
    return to_one_line(text).casefold().strip(" .,:;!?")


def iter_property_values(page_property: PageProperty) -> Iterator[PropertyValue]:
    """The values of a property in the form that the index stores."""
    name = fold_property_name(page_property.name)
    for text in page_property.values if name else ():
        spelling = to_one_line(text)
        yield PropertyValue(name, spelling.casefold(), _parse_number(spelling), _parse_date(spelling), spelling)


def parse_condition(text: str) -> PropertyCondition:
    """Parse a condition. Raises InvalidQuery, which says at which column the text is wrong."""
    match = _OPERATOR.search(text)
    if match is None:
        raise _make_error(text, len(text), "it has no operator", _EXAMPLES)
    name, value = fold_property_name(text[: match.start()]), " ".join(text[match.end() :].split()).casefold()
    if not name:
        raise _make_error(text, 0, "the name of the property is missing", _EXAMPLES)
    if not value:
        raise _make_error(text, match.end(), "the value is missing", _EXAMPLES)
    if match[0] in ("=", "!=") and _OPERATOR.match(value):
        raise _make_error(text, match.end(), f"there is no operator {match[0]}{value[0]}", _EXAMPLES)
    number, start = _parse_number(value), _parse_date(value)
    if match[0] not in ("=", "!=") and number is None and start is None:
        hint = "write a number (3, -1.5) or a date (2026-01-31), or compare with = or !="
        raise _make_error(text, match.end(), f"{match[0]} needs a number or a date", hint)
    end = None if start is None else start + (_DAY_S if value.count(":") == 0 else _INSTANT_S)
    return PropertyCondition(name, match[0], value, number, start, end)


def _parse_number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _parse_date(text: str) -> float | None:
    """The start of a day or the time, in UTC if the text has no time zone."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day, time = match.groups()
    try:
        date = datetime.fromisoformat(f"{year}-{month:0>2}-{day:0>2}" + (f"T{time.upper()}" if time else ""))
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _make_error(text: str, index: int, reason: str, hint: str) -> InvalidQuery:
    return InvalidQuery(f"the condition {text[:80]!r} is invalid at column {index + 1}: {reason}", hint=hint)
