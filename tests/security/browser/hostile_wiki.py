"""A wiki in which all names and texts contain attacks."""

import json
from pathlib import Path

from tests.support.git_repository import Repository
from tests.support.html_attacks import ATTACKS

PAYLOAD = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
IN_ATTRIBUTE = "' onmouseover='alert(3)' autofocus onfocus='alert(4)' x='"
ADDRESS = "javascript:alert(5)"
MARKERS = (
    PAYLOAD,
    IN_ATTRIBUTE,
    ADDRESS,
    "</title><svg onload=alert(6)>",
    "${alert(7)}{{alert(8)}}",
    "--><svg onload=alert(9)>",
)
WORD = "quince"
SLUG = "hostile"

FILES = (
    "Home.md",
    "<img src=x onerror=alert(1)>.md",
    "\"><svg onload=alert(1)>/'onmouseover='alert(1) x='.md",
    "javascript:alert(1).md",
    "Attacks.md",
)


def write_hostile_wiki(directory: Path) -> Repository:
    """Create the repository, also with files that cannot be indexed."""
    repository = Repository(directory / SLUG)
    pages: dict[str, str | bytes | None] = {name: _make_page(name) for name in FILES}
    pages["Attacks.md"] = f"# Attacks {WORD}\n\n" + "\n\n".join(
        f"## {number} {WORD}\n\n{attack}" for number, attack in enumerate(ATTACKS)
    )
    repository.run_git("config", "user.name", IN_ATTRIBUTE)
    repository.commit(pages, PAYLOAD)
    link = repository.path / "<img src=x onerror=alert(10)>link.md"
    link.symlink_to("Home.md")
    (repository.path / "huge <svg onload=alert(11)>.md").write_bytes(b"\0\1" * 40_000)
    repository.commit({}, IN_ATTRIBUTE)
    return repository


def _make_page(name: str) -> str:
    front = {"title": f"{WORD} {PAYLOAD} {name}", "category": PAYLOAD, "tags": [*MARKERS, WORD]}
    headings = "\n\n".join(
        f"## {mark} {WORD}\n\n{WORD} {mark} and [{mark}](Home.md) and [[Home|{mark}]]" for mark in MARKERS
    )
    return f"---\n{json.dumps(front)}\n---\n# {WORD} {PAYLOAD}\n\n{headings}\n\n[{PAYLOAD}]({ADDRESS})\n"
