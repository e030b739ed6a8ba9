"""Screenshots for the manual."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.support.browser import find_chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAX_IMAGE_BYTES = 200_000
CARDS = "#app\\.results .card >> nth=2"


@dataclass(frozen=True)
class Screenshot:
    """One screenshot: URL, size, colour scheme, typed text, and what must be visible first."""

    name: str
    address: str
    wait_for: str
    width: int = 1280
    height: int = 800
    scheme: str = "light"
    typed: str = ""


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """A browser; exits the program if there is none."""
    program = find_chromium()
    if program is None:
        raise SystemExit("There is no browser. hint: install Debian's package chromium")
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            browser.close()


def take_screenshot(
    browser: Browser, url: str, screenshot: Screenshot, cookies: Sequence[Mapping[str, str]] = ()
) -> int:
    """Take one screenshot of `url` and return its size in bytes."""
    size = {"width": screenshot.width, "height": screenshot.height}
    context = browser.new_context(viewport=size, color_scheme=screenshot.scheme)  # type: ignore[arg-type]
    context.add_cookies(list(cookies))  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url + screenshot.address)
    if screenshot.typed:
        page.fill("#search-query", screenshot.typed)
    page.wait_for_selector(screenshot.wait_for)
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    if screenshot.typed:
        page.keyboard.press("ArrowDown")
    IMAGES.mkdir(parents=True, exist_ok=True)
    file = IMAGES / f"{screenshot.name}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    context.close()
    written = file.stat().st_size
    sys.stdout.write(f"{file.name}\t{written:,} bytes\n")
    return written
