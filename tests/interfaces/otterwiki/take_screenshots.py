"""Takes the screenshots of docs/otterwiki.md. Needs chromium on the PATH.

Run it by `python -m tests.interfaces.otterwiki.take_screenshots`.
"""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.interfaces.otterwiki.reader_wiki import read_demo_pages
from tests.support.screenshots import CARDS, MAX_IMAGE_BYTES, Screenshot, launch_browser, take_screenshot
from tests.support.wait import wait_until

SEARCH = "/-/wikiholt/search"
PROGRESS_SELECTOR = "progress[value]:not([value='0'])"

ALLOTMENT_SCREENSHOTS = (
    Screenshot("otterwiki-search", f"{SEARCH}?q=what+may+go+on+the+compost+heap", ".filters:not([hidden])"),
    Screenshot(
        "otterwiki-box", "/growing/crop%20rotation", ".suggestions [role=option] >> nth=1", typed="keep slugs off the"
    ),
    Screenshot("otterwiki-near", "/growing/composting", "#app\\.related:not([hidden])", 1360, 820),
    Screenshot("otterwiki-phone", f"{SEARCH}?q=when+may+I+light+a+fire", CARDS, 390, 760),
)
RUNBOOK_SCREENSHOTS = (
    Screenshot(
        "otterwiki-dark", f"{SEARCH}?q=a+customer+was+charged+two+times", ".filters:not([hidden])", scheme="dark"
    ),
)
LARGE_SCREENSHOTS = (
    Screenshot("otterwiki-first", f"{SEARCH}?q=which+plot+is+free", f".first-index {PROGRESS_SELECTOR}", 1280, 420),
    Screenshot("otterwiki-index", "/-/wikiholt/admin", PROGRESS_SELECTOR, 1280, 620),
)


def main() -> int:
    plots = {
        f"plot {n}.md": f"# Plot {n}\n\n{' '.join(f'word{n * 7 + at}' for at in range(120))}.\n" for n in range(3000)
    }
    with tempfile.TemporaryDirectory() as place, launch_browser() as browser:
        sizes = [
            *take_screenshots(
                browser,
                Path(place) / "allotment",
                "Millbrook Allotments",
                read_demo_pages("allotment"),
                ALLOTMENT_SCREENSHOTS,
            ),
            *take_screenshots(
                browser, Path(place) / "runbook", "Harbour Runbook", read_demo_pages("runbook"), RUNBOOK_SCREENSHOTS
            ),
            *take_screenshots(browser, Path(place) / "large", "All Plots", plots, LARGE_SCREENSHOTS, indexed=False),
        ]
    return int(max(sizes) > MAX_IMAGE_BYTES)


def take_screenshots(
    browser: Browser,
    place: Path,
    name: str,
    pages: dict[str, str],
    screenshots: Sequence[Screenshot],
    *,
    indexed: bool = True,
) -> list[int]:
    """Take the screenshots of one wiki and return their sizes."""
    with (
        OtterwikiServer.start(place, settings={"SITE_NAME": name}, pages=pages) as otter,
        closing(otter.login()) as session,
    ):
        session.get("/")  # the welcome message is shown once
        if indexed:
            wait_until(lambda: not session.get("/api/v1/status").json()["stale"])
            session.get("/api/v1/search?q=warm")
        cookies = [{"name": key, "value": value, "url": otter.url} for key, value in session.cookies.items()]
        return [take_screenshot(browser, otter.url, picture, cookies) for picture in screenshots]


if __name__ == "__main__":
    raise SystemExit(main())
