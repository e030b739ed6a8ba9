"""Paths as visitors know them: a wiki engine may write them otherwise than git does."""

import re
from datetime import UTC, datetime, timedelta
from typing import Protocol, overload

from wikiholt.errors import InvalidQuery


class PathStyle(Protocol):
    """Translates between paths of pages as git has them and as visitors write and read them."""

    def to_display_path(self, path: str) -> str:
        """A page's path as visitors know it."""

    def to_display_title(self, name: str, path: str) -> str:
        """A page's name as visitors know it, where the page does not say it itself."""

    def to_git_path(self, path: str) -> str:
        """The path in git that a visitor's path stands for."""

    def to_link_path(self, path: str) -> str | None:
        """A path as links write it, where they always name whole paths; None where the last part may do."""

    def to_url(self, url: str) -> str:
        """A page's link as visitors can follow it."""

    def to_git_prefix(self, prefix: str) -> str:
        """The beginning of paths in git that a visitor's stands for."""


class StoredPaths:
    """Visitors know what git has."""

    def to_display_path(self, path: str) -> str:
        return path

    def to_display_title(self, name: str, path: str) -> str:  # noqa: ARG002
        return name

    def to_git_path(self, path: str) -> str:
        return path

    def to_link_path(self, path: str) -> str | None:  # noqa: ARG002
        return None

    def to_url(self, url: str) -> str:
        return url

    def to_git_prefix(self, prefix: str) -> str:
        return prefix


STORED_PATHS = StoredPaths()


# Points in time as every surface reads and writes them.


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
