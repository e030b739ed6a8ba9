"""Pictures for the manual: what each shows, and how it is taken."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from web_visits import chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LARGEST = 200_000
CARDS = "#app\\.results .card >> nth=2"


@dataclass(frozen=True)
class Picture:
    """One picture: where, how large, in which colours, what is typed, and what must be there before it is taken."""

    name: str
    address: str
    wait: str
    width: int = 1280
    height: int = 800
    scheme: str = "light"
    typed: str = ""


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser; ends the program where there is none."""
    program = chromium()
    if program is None:
        raise SystemExit("There is no browser. hint: install Debian's package chromium")
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            browser.close()


def take(browser: Browser, url: str, picture: Picture, cookies: Sequence[Mapping[str, str]] = ()) -> int:
    """Take one picture of what is served at `url`; returns how many bytes it has."""
    size = {"width": picture.width, "height": picture.height}
    context = browser.new_context(viewport=size, color_scheme=picture.scheme)  # type: ignore[arg-type]
    context.add_cookies(list(cookies))  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url + picture.address)
    if picture.typed:
        page.fill("#search-query", picture.typed)
    page.wait_for_selector(picture.wait)
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    if picture.typed:
        page.keyboard.press("ArrowDown")
    IMAGES.mkdir(parents=True, exist_ok=True)
    file = IMAGES / f"{picture.name}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    context.close()
    written = file.stat().st_size
    sys.stdout.write(f"{file.name}\t{written:,} bytes\n")
    return written
