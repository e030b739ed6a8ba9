"""Shared code of the peers' scripts: read the input, build once, answer lines of standard input.

Imported by the scripts beside it in environments without Wikiholt. Each line read is a JSON
pair of a query and the number of pages; each line written is a pair of pages, best first, and milliseconds.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PASSAGES_A_PAGE = 10
"""Number of requested passages per page, because they are grouped by page."""

Ask = Callable[[str, int], Iterable[str]]


def read_texts(file: Path) -> list[tuple[str, str]]:
    """The pages or passages: path of the page, and text."""
    return [(row["page"], row["text"]) for row in map(json.loads, file.read_text().splitlines())]


def is_built(state: Path) -> bool:
    return (state / "built").exists()


def mark_built(state: Path) -> None:
    (state / "built").touch()


def get_best_pages(pages: Iterable[str], n: int) -> list[str]:
    """The first n pages of a ranking of passages."""
    return list(dict.fromkeys(pages))[:n]


def run_peer(ask: Ask) -> None:
    """Print "ready", then answer until the input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        query, n = json.loads(line)
        began = time.perf_counter()
        pages = get_best_pages(ask(query, n), n)
        print(json.dumps([pages, (time.perf_counter() - began) * 1000]), flush=True)
