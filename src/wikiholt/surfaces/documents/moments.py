"""Points in time as every surface reads and writes them."""

import re
from datetime import UTC, datetime, timedelta
from typing import overload

from wikiholt.errors import InvalidQuery


@overload
def format_date(when: datetime) -> str: ...
@overload
def format_date(when: datetime | None) -> str | None: ...
def format_date(when: datetime | None) -> str | None:
    """ISO 8601 with the offset from UTC."""
    return when.isoformat() if when else None


def parse_until(text: str) -> datetime:
    """The same as `since`, but a date means the end of that day, a minute and a second the end of that one."""
    when = parse_since(text)
    if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
        return when + timedelta(days=1, microseconds=-1)
    if re.search(r"[T ]\d\d:\d\d(?![\d:])", text):
        return when + timedelta(minutes=1, microseconds=-1)
    return when if when.microsecond else when.replace(microsecond=999_999)


def parse_since(text: str) -> datetime:
    """The moment that is meant by a date, a date with time, or how long ago: 7d, 12h, 3w. Raises InvalidQuery."""
    if ago := re.fullmatch(r"([0-9]{1,5})([hdw])", text):
        unit = {"h": "hours", "d": "days", "w": "weeks"}[ago[2]]
        return datetime.now(UTC) - timedelta(**{unit: int(ago[1])})
    try:
        when = datetime.fromisoformat(text.removesuffix(" UTC"))  # as we print it
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidQuery(f"{text[:80]!r} is no date", hint="write 2024-05-31, or 7d, 12h, 3w") from None
