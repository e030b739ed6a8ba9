"""A visit to a page: the tab, and what came of it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """A browser of this machine; none is ever downloaded."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@dataclass
class Visit:
    """A tab, with everything it complained of and every address it asked for."""

    page: Page
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def complained(self) -> list[str]:
        return [fault for fault in self.faults if not any(part in fault for part in self.expected)]

    def strangers(self, url: str) -> list[str]:
        home = urlsplit(url).netloc
        return [each for each in self.requests if urlsplit(each).netloc not in ("", home)]


Visiting = Callable[..., Visit]
