"""Pages for browser tests: the demo wikis with Otterwiki file names, and a page with attacks."""

from importlib.resources import files
from importlib.resources.abc import Traversable

HOSTILE = "<img src=x onerror=window.fooled=1>"
HOSTILE_PAGE = f"""---
tags: ["{HOSTILE}", "<script>window.fooled=1</script>"]
category: "<b onclick=window.fooled=1>category</b>"
---
# Zebra {HOSTILE}

## <script>window.fooled=1</script> stripes

The zebra </p><script>window.fooled=1</script> has {HOSTILE} stripes and `</mark><svg onload=window.fooled=1>` hooves.
See [composting](/growing/composting) and [bonfires](/rules/bonfires).
"""


def read_demo_pages(*names: str) -> dict[str, str]:
    """File → text of these demo wikis merged; for equal file names the last one wins."""
    pages: dict[str, str] = {}
    for name in names:
        _collect_pages(files("wikiholt.interfaces.cli.demo_wikis").joinpath(name), "", pages)
    return pages


def _collect_pages(folder: Traversable, above: str, pages: dict[str, str]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect_pages(entry, f"{above}{entry.name.lower()}/", pages)
        elif entry.name.endswith(".md"):
            pages[above + entry.name.lower()] = entry.read_text(encoding="utf-8")


READERS_WIKI = {
    **read_demo_pages("runbook", "allotment"),
    "zebra.md": HOSTILE_PAGE,
    f"attacks/{HOSTILE.replace('/', '')}.md": (
        "---\ncategory: animals\n---\n# Okapi\n\nThe okapi hides. See [zebra](/zebra).\n"
    ),
    "scanned letter.md": f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n",
}
