"""Takes the pictures of docs/otterwiki.md: `python tests/otterwiki/otter_screenshots.py`, with chromium on the PATH."""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "sources"), str(TESTS / "web")]

from otter_ground import Otter, wait_until  # noqa: E402
from otter_readers import demo_pages  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402
from web_pictures import CARDS, LARGEST, Picture, launched, take  # noqa: E402

SEARCH = "/-/wikiholt/search"
MOVING = "progress[value]:not([value='0'])"

ALLOTMENT = (
    Picture("otterwiki-search", f"{SEARCH}?q=what+may+go+on+the+compost+heap", ".filters:not([hidden])"),
    Picture(
        "otterwiki-box", "/growing/crop%20rotation", ".suggestions [role=option] >> nth=1", typed="keep slugs off the"
    ),
    Picture("otterwiki-near", "/growing/composting", "#app\\.near:not([hidden])", 1360, 820),
    Picture("otterwiki-phone", f"{SEARCH}?q=when+may+I+light+a+fire", CARDS, 390, 760),
)
RUNBOOK = (
    Picture("otterwiki-dark", f"{SEARCH}?q=a+customer+was+charged+two+times", ".filters:not([hidden])", scheme="dark"),
)
LARGE = (
    Picture("otterwiki-first", f"{SEARCH}?q=which+plot+is+free", f".preparing {MOVING}", 1280, 420),
    Picture("otterwiki-index", "/-/wikiholt/admin", MOVING, 1280, 620),
)


def main() -> int:
    plots = {
        f"plot {n}.md": f"# Plot {n}\n\n{' '.join(f'word{n * 7 + at}' for at in range(120))}.\n" for n in range(3000)
    }
    with tempfile.TemporaryDirectory() as place, launched() as browser:
        sizes = [
            *taken(browser, Path(place) / "allotment", "Millbrook Allotments", demo_pages("allotment"), ALLOTMENT),
            *taken(browser, Path(place) / "runbook", "Harbour Runbook", demo_pages("runbook"), RUNBOOK),
            *taken(browser, Path(place) / "large", "All Plots", plots, LARGE, indexed=False),
        ]
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


if __name__ == "__main__":
    raise SystemExit(main())
