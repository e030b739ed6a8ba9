"""Dates as people write them."""

import re
from datetime import UTC, datetime, timedelta

from wikiholt.errors import InvalidQuery

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
