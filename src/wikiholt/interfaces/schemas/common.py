"""Dates as all interfaces read and write them."""

import re
from datetime import UTC, datetime, timedelta
from typing import overload

from wikiholt.errors import InvalidQuery


@overload
def format_date(when: datetime) -> str: ...
@overload
def format_date(when: datetime | None) -> str | None: ...
def format_date(when: datetime | None) -> str | None:
    """Format as ISO 8601 with the UTC offset."""
    return when.isoformat() if when else None


def parse_until(text: str) -> datetime:
    """Parse like `parse_since`, but return the end of the given day, minute or second."""
    when = parse_since(text)
    if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
        return when + timedelta(days=1, microseconds=-1)
    if re.search(r"[T ]\d\d:\d\d(?![\d:])", text):
        return when + timedelta(minutes=1, microseconds=-1)
    return when if when.microsecond else when.replace(microsecond=999_999)


def parse_since(text: str) -> datetime:
    """Parse a date, a date with time, or an age such as 7d, 12h or 3w. Raises InvalidQuery."""
    if ago := re.fullmatch(r"([0-9]{1,5})([hdw])", text):
        unit = {"h": "hours", "d": "days", "w": "weeks"}[ago[2]]
        return datetime.now(UTC) - timedelta(**{unit: int(ago[1])})
    try:
        when = datetime.fromisoformat(text.removesuffix(" UTC"))  # the CLI prints dates with this suffix
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidQuery(f"{text[:80]!r} is not a date", hint="write 2024-05-31, or 7d, 12h, 3w") from None
