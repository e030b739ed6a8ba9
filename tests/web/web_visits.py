"""A visit to a page: the tab, and what came of it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Page

_BROWSER_COMMANDS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """A browser of this machine; none is ever downloaded."""
    return next((found for name in _BROWSER_COMMANDS if (found := shutil.which(name))), None)


@dataclass
class BrowserTab:
    """A tab, with everything it complained of and every address it asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected_errors: tuple[str, ...] = ()

    def get_unexpected_errors(self) -> list[str]:
        return [fault for fault in self.errors if not any(part in fault for part in self.expected_errors)]

    def find_foreign_requests(self, url: str) -> list[str]:
        home = urlsplit(url).netloc
        return [each for each in self.requests if urlsplit(each).netloc not in ("", home)]


OpenTab = Callable[..., BrowserTab]
