"""A browser for tests, and tabs that record errors and requests."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Request, Response, expect, sync_playwright

# The shell without a user interface comes first: a tab in it takes a quarter of the CPU time.
_BROWSER_COMMANDS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DEFAULT_SIZE = {"width": 1280, "height": 800}
TIMEOUT_MS = 60_000
"""The longest wait for an element or a page; long enough for busy machines."""


def find_chromium() -> str | None:
    """Find an installed browser; none is downloaded."""
    return next((tab for name in _BROWSER_COMMANDS if (tab := shutil.which(name))), None)


@dataclass
class BrowserTab:
    """A tab with its console errors and its requests."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected_errors: tuple[str, ...] = ()

    def get_unexpected_errors(self) -> list[str]:
        return [fault for fault in self.errors if not any(part in fault for part in self.expected_errors)]

    def find_foreign_requests(self, url: str) -> list[str]:
        home = urlsplit(url).netloc
        return [request for request in self.requests if urlsplit(request).netloc not in ("", home)]

    def assert_no_faults(self, url: str) -> None:
        """Check that there was no unexpected error and no request to another server than that of the URL."""
        assert self.get_unexpected_errors() == [], self.get_unexpected_errors()
        assert self.find_foreign_requests(url) == []


OpenTab = Callable[..., BrowserTab]


def wait_for_filters(page: Page) -> None:
    """Wait until the filters of a search page are complete: elements that are replaced meanwhile lose a click."""
    expect(page.locator("#app\\.filters")).to_have_attribute("aria-busy", "false")


def measure_page(page: Page, url: str) -> dict[str, int]:
    """Open a page and return the bytes sent for each file that it loads, without responses of the API."""
    responses: list[Response] = []

    def record(response: Response) -> None:
        responses.append(response)

    page.on("response", record)
    page.goto(url)
    page.wait_for_load_state("networkidle")
    page.remove_listener("response", record)
    return {
        response.url: response.request.sizes()["responseBodySize"]
        for response in responses
        if "/api/" not in response.url
    }


# Fixtures: the browser, and a function that opens a tab.


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no browser: install Debian's package chromium-headless-shell or chromium to run these tests")
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=options, timeout=2 * TIMEOUT_MS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def used_tabs() -> Iterator[dict[str, BrowserTab]]:
    tabs: dict[str, BrowserTab] = {}
    yield tabs
    for tab in tabs.values():
        tab.page.context.close()


@pytest.fixture
def visit(browser: Browser, used_tabs: dict[str, BrowserTab]) -> Iterator[OpenTab]:
    """Opens a URL in a tab. After the test no tab may have an unexpected error or a request to another server.

    The tests of a module that give the same options use the same tab, which takes half of the time. It forgets what
    pages have stored, and all routes. It keeps its history and its clock, and a page that asks before it is left: a
    test with such a page, or with several tabs, gives `fresh=True` for a new tab.
    """
    visited: dict[str, tuple[BrowserTab, str]] = {}

    def go(
        url: str, *, wait: str = "", expected: tuple[str, ...] = (), fresh: bool = False, **options: object
    ) -> BrowserTab:
        key = f"fresh {len(visited)}" if fresh else repr(sorted(options.items()))
        if key in visited:
            tab, left = visited[key]
            tab.assert_no_faults(left)
        if key in used_tabs:
            _reset_tab(used_tabs[key], **options)
        else:
            used_tabs[key] = _open_tab(browser, **options)
        tab = used_tabs[key]
        visited[key] = tab, url
        tab.expected_errors = expected
        tab.page.goto(url)
        if wait:
            tab.page.wait_for_selector(wait)
        return tab

    yield go
    for key in [key for key in visited if key.startswith("fresh")]:
        used_tabs.pop(key).page.context.close()
    for tab, url in visited.values():
        tab.assert_no_faults(url)


def _reset_tab(tab: BrowserTab, **options: Any) -> None:
    page = tab.page
    page.unroute_all(behavior="ignoreErrors")
    # The page that is left cannot store anything after that.
    page.evaluate("localStorage.clear(); sessionStorage.clear(); Storage.prototype.setItem = () => {}")
    page.context.clear_cookies()
    page.context.add_cookies(options.get("storage_state", {}).get("cookies", []))
    page.set_viewport_size(options.get("viewport", DEFAULT_SIZE))
    tab.errors.clear()
    tab.requests.clear()


def _open_tab(browser: Browser, **options: object) -> BrowserTab:
    # Without motion, no check sees a style that is still changing.
    defaults = {"viewport": DEFAULT_SIZE, "reduced_motion": "reduce"}
    context = browser.new_context(**{**defaults, **options})  # type: ignore[arg-type]
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    tab = BrowserTab(page)

    def record_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            tab.errors.append(f"{message.text} {message.location.get('url', '')}")

    def record_request(request: Request) -> None:
        tab.requests.append(request.url)

    def record_dialog(dialog: Dialog) -> None:
        tab.errors.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", record_dialog)
    page.on("console", record_message)
    page.on("pageerror", lambda error: tab.errors.append(str(error)))
    page.on("request", record_request)
    return tab
