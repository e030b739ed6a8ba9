"""Real chunks: about 200 tokens each from the Markdown pages of a git bundle."""

import random
import re
from pathlib import Path

from bench.corpus import list_pages, open_clone, read_pages
from wikiholt.models.embedder import OnnxEmbedder

TOKENS = 200
_FRONTMATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)


def sample_pages(bundle: Path, count: int) -> list[str]:
    """The bodies of some pages of a bundle, always the same ones."""
    repository = open_clone(bundle).path
    names = sorted(list_pages(repository))
    random.Random(7).shuffle(names)
    return [_FRONTMATTER.sub("", page) for page in read_pages(repository, names[:count])]


def make_chunks(embedder: OnnxEmbedder, pages: list[str], count: int) -> list[str]:
    """The first 200 tokens of pages that have as many."""
    found = []
    for page in pages:
        spans = embedder.get_token_spans(page)
        if len(spans) >= TOKENS:
            found.append(page[spans[0][0] : spans[TOKENS - 1][1]])
    return found[:count]


def find_headings(pages: list[str], count: int) -> list[str]:
    """Headings of the pages, as queries."""
    return [heading for page in pages for heading in _HEADING.findall(page)][:count]
