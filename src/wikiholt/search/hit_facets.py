"""Counts the filter values of the pages that a search found."""

from collections import Counter
from collections.abc import Iterable, Sequence

from wikiholt.domain.page import Facets
from wikiholt.domain.search import Confidence, Facet, Hit

_KEYWORD_CHANNEL = "keyword"


def count_hit_facets(hits: Sequence[Hit], prefix: str = "") -> Facets:
    """The categories and tags of hits, and the folders directly below `prefix`.

    A search by meaning ranks every page. So a hit counts if it contains words of the query, or is a likely answer.
    """
    found = [hit for hit in hits if hit.confidence is not Confidence.LOW or _KEYWORD_CHANNEL in hit.channels]
    pages = {hit.path: hit for hit in found}.values()
    start = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    paths = (page.path.removeprefix(start) for page in pages if page.path.startswith(start))
    return Facets(
        len(pages),
        _count(page.category for page in pages if page.category is not None),
        _count(tag for page in pages for tag in dict.fromkeys(page.tags)),
        _count(start + path.partition("/")[0] for path in paths if "/" in path),
    )


def _count(values: Iterable[str]) -> tuple[Facet, ...]:
    """The values and their counts, most frequent first; values that differ only in case are one."""
    counts: Counter[str] = Counter()
    spellings: dict[str, str] = {}
    for value in values:
        counts[value.casefold()] += 1
        spellings.setdefault(value.casefold(), value)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Facet(spellings[key], count) for key, count in ordered)
