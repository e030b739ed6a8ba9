"""Takes the pictures of docs/web.md: `python tests/web/screenshots.py`, with chromium on the PATH."""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from web_server import WebServer, serving
from web_visits import chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LARGEST = 200_000
CARDS = "#app\\.results .card >> nth=2"


@dataclass(frozen=True)
class Picture:
    """One picture: where, how large, in which colours, and what must be there before it is taken."""

    name: str
    address: str
    wait: str
    width: int = 1280
    height: int = 800
    scheme: str = "light"


PICTURES = (
    Picture("status", "w/handbook/status", "progress[max]", 1280, 600),
    Picture("search-light", "w/allotment/?q=what+may+go+on+the+compost+heap", CARDS),
    Picture("search-dark", "w/runbook/?q=a+customer+was+charged+two+times", CARDS, scheme="dark"),
    Picture("phone", "w/allotment/?q=when+may+I+light+a+fire", CARDS, 390, 760),
    Picture("preview", "w/allotment/?q=slugs&page=Growing/Pests#slugs", ".near section >> nth=1"),
    Picture("wikis", "", ".tiles small:not(:empty)", 1280, 420),
)


def main() -> int:
    program = chromium()
    if program is None:
        sys.stderr.write("There is no browser. hint: install Debian's package chromium\n")
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    options = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_large_wiki(place / "repositories" / "handbook")
        server, _ = stack.enter_context(serving(place))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=program, args=options)
        sizes = [take(browser, server, picture) for picture in PICTURES]
        browser.close()
    return int(max(sizes) > LARGEST)


def write_large_wiki(place: Path) -> None:
    """A wiki that takes a while to index, so that there is a sync to be seen, with a page that is none."""
    place.mkdir(parents=True)
    for number in range(3000):
        words = " ".join(f"word{number * 7 + at}" for at in range(120))
        (place / f"Plot {number}.md").write_text(f"# Plot {number}\n\n{words}.\n", encoding="utf-8")
    (place / "A scanned letter.md").write_bytes(b"\x89PNG\0\0\0")
    author = ["-c", "user.name=Ines Okafor", "-c", "user.email=ines@wiki.example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "All plots"]):
        subprocess.run(["git", "-C", str(place), *command], check=True)


def take(browser: Browser, server: WebServer, picture: Picture) -> int:
    size = {"width": picture.width, "height": picture.height}
    context = browser.new_context(viewport=size, color_scheme=picture.scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(server.url + picture.address)
    page.wait_for_selector(picture.wait)
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    file = IMAGES / f"{picture.name}.png"
    page.screenshot(path=file, animations="disabled", caret="hide")
    context.close()
    written = file.stat().st_size
    sys.stdout.write(f"{file.name}\t{written:,} bytes\n")
    return written


if __name__ == "__main__":
    raise SystemExit(main())
