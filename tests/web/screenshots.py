"""Takes the pictures of docs/web.md: `python tests/web/screenshots.py`, with chromium on the PATH."""

import subprocess
import tempfile
from pathlib import Path

from web_pictures import CARDS, LARGEST, Picture, launched, take
from web_server import serving

PICTURES = (
    Picture("status", "w/handbook/status", "progress[max]", 1280, 600),
    Picture("search-light", "w/allotment/?q=what+may+go+on+the+compost+heap", CARDS),
    Picture("search-dark", "w/runbook/?q=a+customer+was+charged+two+times", CARDS, scheme="dark"),
    Picture("phone", "w/allotment/?q=when+may+I+light+a+fire", CARDS, 390, 760),
    Picture("preview", "w/allotment/?q=slugs&page=Growing/Pests#slugs", ".near section >> nth=1"),
    Picture("wikis", "", ".tiles small:not(:empty)", 1280, 420),
)


def main() -> int:
    with launched() as browser, tempfile.TemporaryDirectory() as place:
        write_large_wiki(Path(place) / "repositories" / "handbook")
        with serving(Path(place)) as (server, _):
            sizes = [take(browser, server.url, picture) for picture in PICTURES]
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


if __name__ == "__main__":
    raise SystemExit(main())
