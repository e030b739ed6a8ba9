"""Takes the pictures of docs/otterwiki.md: `python tests/otterwiki/otter_screenshots.py`, with chromium on the PATH."""

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "sources"), str(TESTS / "web")]

from otter_ground import Otter, wait_until  # noqa: E402
from otter_readers import demo_pages  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from web_visits import chromium  # noqa: E402

IMAGES = TESTS.parent / "docs" / "images"
LARGEST = 200_000
SEARCH = "/-/wikiholt/search"
MOVING = "progress[value]:not([value='0'])"
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


ALLOTMENT = (
    Picture("search", f"{SEARCH}?q=what+may+go+on+the+compost+heap", ".filters:not([hidden])"),
    Picture("box", "/growing/crop%20rotation", ".suggestions [role=option] >> nth=1", typed="keep slugs off the"),
    Picture("near", "/growing/composting", "#app\\.near:not([hidden])", 1360, 820),
    Picture("phone", f"{SEARCH}?q=when+may+I+light+a+fire", CARDS, 390, 760),
)
RUNBOOK = (Picture("dark", f"{SEARCH}?q=a+customer+was+charged+two+times", ".filters:not([hidden])", scheme="dark"),)
LARGE = (
    Picture("first", f"{SEARCH}?q=which+plot+is+free", f".preparing {MOVING}", 1280, 420),
    Picture("index", "/-/wikiholt/admin", MOVING, 1280, 620),
)


def main() -> int:
    program = chromium()
    if program is None:
        sys.stderr.write("There is no browser. hint: install Debian's package chromium\n")
        return 1
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    plots = {
        f"plot {n}.md": f"# Plot {n}\n\n{' '.join(f'word{n * 7 + at}' for at in range(120))}.\n" for n in range(3000)
    }
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        sizes = [
            *taken(browser, Path(place) / "allotment", "Millbrook Allotments", demo_pages("allotment"), ALLOTMENT),
            *taken(browser, Path(place) / "runbook", "Harbour Runbook", demo_pages("runbook"), RUNBOOK),
            *taken(browser, Path(place) / "large", "All Plots", plots, LARGE, indexed=False),
        ]
        browser.close()
    return int(max(sizes) > LARGEST)


def taken(
    browser: Browser,
    place: Path,
    name: str,
    pages: dict[str, str],
    pictures: Sequence[Picture],
    *,
    indexed: bool = True,
) -> list[int]:
    """The pictures of one wiki; returns their sizes."""
    with Otter.start(place, settings={"SITE_NAME": name}, pages=pages) as otter, closing(otter.login()) as session:
        session.get("/")  # the greeting is shown once
        if indexed:
            wait_until(lambda: not session.get("/api/v1/status").json()["stale"])
            session.get("/api/v1/search?q=warm")
        kept = [{"name": key, "value": value, "url": otter.url} for key, value in session.cookies.items()]
        return [take(browser, otter.url, picture, kept) for picture in pictures]


def take(browser: Browser, url: str, picture: Picture, cookies: list[dict[str, str]]) -> int:
    size = {"width": picture.width, "height": picture.height}
    context = browser.new_context(viewport=size, color_scheme=picture.scheme)  # type: ignore[arg-type]
    context.add_cookies(cookies)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url + picture.address)
    if picture.typed:
        page.fill("#search-query", picture.typed)
    page.wait_for_selector(picture.wait)
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    if picture.typed:
        page.keyboard.press("ArrowDown")
    file = IMAGES / f"otterwiki-{picture.name}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    context.close()
    written = file.stat().st_size
    sys.stdout.write(f"{file.name}\t{written:,} bytes\n")
    return written


if __name__ == "__main__":
    raise SystemExit(main())
