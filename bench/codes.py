"""Queries that are a code: an identifier, a flag, a part number that stands on one to three pages of a collection.

The judged collections hardly ask for such things, people do, and a model knows nothing of them: words alone must answer.
"""

import re
from collections import defaultdict
from hashlib import blake2b

from bench.collections import Queries
from wikiholt.domain.search import PageFilter
from wikiholt.domain.storage_protocols import WikiIndex

MOST_PAGES = 3
OF_EACH = 60
"""Codes taken of those that stand on one page, and as many of those that stand on two or three."""

_CODE = re.compile(
    r"(?<![\w/.-])(?:"
    r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z_])[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"  # FBW7, x-15, a9dc76
    r"|--[a-z]+(?:-[a-z]+)+"  # --audit-log-path
    r"|[a-z]+(?:_[a-z]+)+"  # worker_connections
    r"|[a-z]+[A-Z][A-Za-z]+"  # podSpec
    r")(?![\w/.-])"
)


def holding(index: WikiIndex) -> dict[str, set[str]]:
    """Every code of the collection, with the pages it stands on as written."""
    _, listed = index.list_pages(PageFilter(), None)
    paths = {page.page_id: page.path for page in listed}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for page_id, chunks in index.get_page_chunks(sorted(paths)).items():
        for code in _CODE.findall("\n".join(chunk.text for chunk in chunks)):
            if 4 <= len(code) <= 30:
                found[code].add(paths[page_id])
    return found


def mined(collection: str, held: dict[str, set[str]]) -> Queries:
    """Some of the codes as queries whose right answers are the pages that hold them; always the same ones."""
    shuffled = sorted(held, key=lambda code: blake2b(code.encode(), digest_size=8).digest())
    alone = [code for code in shuffled if len(held[code]) == 1][:OF_EACH]
    few = [code for code in shuffled if 1 < len(held[code]) <= MOST_PAGES][:OF_EACH]
    relevant = {code: dict.fromkeys(held[code], 1) for code in (*alone, *few)}
    return Queries(collection, "codes", {code: code for code in relevant}, relevant, {})
