"""Points in time as people and tools write them in frontmatter."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

_NUMBER = re.compile(r"\d{4,17}(?:\.\d{1,9})?")
_SLASHED = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(?!\d)")
_SHORT = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
_LOOSE_ZONE = re.compile(r"(?<!\s)\s++(?=(?:[+-]\d|Z$))")
_LONGEST = 100


def parse_instant(text: str) -> datetime | None:
    """What an ISO date or time, a year, epoch seconds or milliseconds or an e-mail date means; None if it is absurd."""
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    try:
        moment = _from_number(text) if _NUMBER.fullmatch(text) else _from_words(text)
        return within_reason(aware(moment)) if moment else None
    except (ValueError, OverflowError, TypeError, IndexError, OSError):
        return None


def aware(moment: datetime) -> datetime:
    """The moment in UTC; one without a zone is taken to be in UTC."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def within_reason(moment: datetime) -> datetime | None:
    return moment if EARLIEST <= moment <= LATEST else None


def _from_number(text: str) -> datetime | None:
    value = float(text)
    digits = len(text.partition(".")[0])
    if digits == 4:
        return datetime(int(value), 1, 1, tzinfo=UTC)
    if digits == 8 and "." not in text:
        return datetime(int(text[:4]), int(text[4:6]), int(text[6:]), tzinfo=UTC)
    if digits < 9:
        return None
    for scale in (1, 1_000, 1_000_000):
        if value / scale < 1e11:
            return datetime.fromtimestamp(value / scale, UTC)
    return None


def _from_words(text: str) -> datetime | None:
    text = _SLASHED.sub(_dashed, _SHORT.sub(_dashed, text, count=1), count=1)
    try:
        return datetime.fromisoformat(_LOOSE_ZONE.sub("", text))
    except ValueError:
        return parsedate_to_datetime(text)


def _dashed(found: re.Match[str]) -> str:
    year, month, day = found.groups()
    return f"{year}-{int(month):02}-{int(day):02}"
