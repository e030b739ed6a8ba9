"""Points in time as people and tools write them in frontmatter."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

EARLIEST_DATE = datetime(1970, 1, 2, tzinfo=UTC)
LATEST_DATE = datetime(2200, 1, 1, tzinfo=UTC)

_EPOCH_PATTERN = re.compile(r"\d{4,17}(?:\.\d{1,9})?")
_SLASHED_DATE = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(?!\d)")
_SHORT_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
_LOOSE_ZONE = re.compile(r"(?<!\s)\s++(?=(?:[+-]\d|Z$))")
_MAX_DATE_CHARS = 100


def parse_datetime(text: str) -> datetime | None:
    """What an ISO date or time, a year, epoch seconds or milliseconds or an e-mail date means; None if it is absurd."""
    text = text.strip()
    if len(text) > _MAX_DATE_CHARS:
        return None
    try:
        moment = _parse_epoch(text) if _EPOCH_PATTERN.fullmatch(text) else _parse_date_text(text)
        return check_date_range(to_utc(moment)) if moment else None
    except (ValueError, OverflowError, TypeError, IndexError, OSError):
        return None


def to_utc(moment: datetime) -> datetime:
    """The moment in UTC; one without a zone is taken to be in UTC."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC)


def check_date_range(moment: datetime) -> datetime | None:
    return moment if EARLIEST_DATE <= moment <= LATEST_DATE else None


def _parse_epoch(text: str) -> datetime | None:
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


def _parse_date_text(text: str) -> datetime | None:
    text = _SLASHED_DATE.sub(_format_dashed, _SHORT_DATE.sub(_format_dashed, text, count=1), count=1)
    try:
        return datetime.fromisoformat(_LOOSE_ZONE.sub("", text))
    except ValueError:
        return parsedate_to_datetime(text)


def _format_dashed(match: re.Match[str]) -> str:
    year, month, day = match.groups()
    return f"{year}-{int(month):02}-{int(day):02}"
