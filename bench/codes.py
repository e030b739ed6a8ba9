"""Queries that are a code: an identifier, a flag, or a part number that is on one to three pages of a collection.

The judged collections have few such queries, but people use them, and a model does not know them: keywords must answer.
"""

import re
from collections import defaultdict
from hashlib import blake2b

from bench.collections import Queries
from wikiholt.domain.search import PageFilter
from wikiholt.domain.storage_protocols import WikiIndex

MAX_PAGES = 3
CODES_PER_KIND = 60
"""Number of codes on one page, and the same number on two or three pages."""

_CODE = re.compile(
    r"(?<![\w/.-])(?:"
    r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z_])[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"  # FBW7, x-15, a9dc76
    r"|--[a-z]+(?:-[a-z]+)+"  # --audit-log-path
    r"|[a-z]+(?:_[a-z]+)+"  # worker_connections
    r"|[a-z]+[A-Z][A-Za-z]+"  # podSpec
    r")(?![\w/.-])"
)


def index_codes(index: WikiIndex) -> dict[str, set[str]]:
    """Every code of the collection, with the pages that contain it as written."""
    _, listed = index.list_pages(PageFilter(), None)
    paths = {page.page_id: page.path for page in listed}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for page_id, chunks in index.get_page_chunks(sorted(paths)).items():
        for code in find_codes("\n".join(chunk.text for chunk in chunks)):
            found[code].add(paths[page_id])
    return found


def find_codes(text: str) -> list[str]:
    """The codes of a text."""
    return [code for code in _CODE.findall(text) if 4 <= len(code) <= 30]


def make_queries(collection: str, pages_by_code: dict[str, set[str]]) -> Queries:
    """Some of the codes as queries whose relevant pages are those that contain them; deterministic."""
    shuffled = sorted(pages_by_code, key=lambda code: blake2b(code.encode(), digest_size=8).digest())
    on_one = [code for code in shuffled if len(pages_by_code[code]) == 1][:CODES_PER_KIND]
    on_few = [code for code in shuffled if 1 < len(pages_by_code[code]) <= MAX_PAGES][:CODES_PER_KIND]
    relevant = {code: dict.fromkeys(pages_by_code[code], 1) for code in (*on_one, *on_few)}
    return Queries(collection, "codes", {code: code for code in relevant}, relevant, {})
