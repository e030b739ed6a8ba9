"""Takes the screenshots of docs/web.md: `python -m tests.interfaces.web.take_screenshots`. Needs chromium."""

import subprocess
import tempfile
from pathlib import Path

from tests.support.screenshots import CARDS, MAX_IMAGE_BYTES, Screenshot, launch_browser, take_screenshot
from tests.support.web_server import run_web_server

ANSWER = "#app\\.answer li >> nth=0"
SCREENSHOTS = (
    Screenshot("status", "w/handbook/status", "progress[max]", 1280, 600),
    Screenshot("search-light", "w/allotment/?q=what+may+go+on+the+compost+heap", ANSWER),
    Screenshot("search-dark", "w/runbook/?q=a+customer+was+charged+two+times", ANSWER, scheme="dark"),
    Screenshot("phone", "w/allotment/?q=when+may+I+light+a+fire", CARDS, 390, 760),
    Screenshot("preview", "w/allotment/?q=slugs&page=Growing/Pests#slugs", ".related section >> nth=1"),
    Screenshot("page", "w/allotment/read?page=Growing/Pests&q=slugs", ".related section"),
    Screenshot("wikis", "?q=water", CARDS, 1280, 640),
)


def main() -> int:
    with launch_browser() as browser, tempfile.TemporaryDirectory() as place:
        write_large_wiki(Path(place) / "repositories" / "handbook")
        with run_web_server(Path(place)) as (server, _):
            sizes = [take_screenshot(browser, server.url, picture) for picture in SCREENSHOTS]
    return int(max(sizes) > MAX_IMAGE_BYTES)


def write_large_wiki(place: Path) -> None:
    """A wiki that takes a while to index, so that a sync is visible, with one unreadable page."""
    place.mkdir(parents=True)
    for number in range(3000):
        words = " ".join(f"word{number * 7 + at}" for at in range(120))
        (place / f"Plot {number}.md").write_text(f"# Plot {number}\n\n{words}.\n", encoding="utf-8")
    (place / "A scanned letter.md").write_bytes(b"\x89PNG\0\0\0")
    author = ["-c", "user.name=Ines Okafor", "-c", "user.email=ines@wiki.example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "All plots"]):
        subprocess.run(["git", "-C", str(place), *command], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
