"""Real chunks: about 200 tokens each from the Markdown pages of a git bundle."""

import random
import re
import subprocess
import tempfile
from pathlib import Path

from wikiholt.embedding.embedder import OnnxEmbedder

TOKENS = 200
_FRONTMATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_HEADING = re.compile(r"^#{1,3} (.+)$", re.MULTILINE)


def read_pages(bundle: Path, count: int, seed: int = 7) -> list[str]:
    """The bodies of some pages at the tip of the bundle's main branch, always the same ones."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["git", "clone", "-q", "--bare", "-b", "main", str(bundle), scratch], check=True)
        git = ["git", "-C", scratch]
        listed = subprocess.run([*git, "ls-tree", "-r", "-z", "--name-only", "main"], check=True, capture_output=True)
        names = sorted(name for name in listed.stdout.decode().split("\0") if name.endswith(".md"))
        random.Random(seed).shuffle(names)
        asked = "".join(f"main:{name}\n" for name in names[:count])
        read = subprocess.run([*git, "cat-file", "--batch"], input=asked.encode(), check=True, capture_output=True)
    return [_FRONTMATTER.sub("", page) for page in parse_blobs(read.stdout)]


def parse_blobs(data: bytes) -> list[str]:
    """The texts in the output of `git cat-file --batch`."""
    pages, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        pages.append(data[end + 1 : end + 1 + size].decode())
        at = end + 2 + size
    return pages


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
