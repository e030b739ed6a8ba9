"""Puts the pages first whose own name is the query: their title, file, path or an alias, whatever the ranking says."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import reduce

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray, IntArray
from wikiholt.domain.search import KeywordQuery
from wikiholt.search.ranking import Candidate, group_by_page
from wikiholt.search.search_context import SearchContext
from wikiholt.search.vector_channel import VectorChannel
from wikiholt.text.own_names import make_name_term

NAME_CHANNEL = "name"
MAX_ADDED_PAGES = 50
"""Pages of the same name that are found by it alone. More, such as those of a hundred `index` files, need evidence."""

NAME_LIKELIHOOD, MIN_NAME_LIKELIHOOD = 0.95, 0.3
"""The likelihood of a page with this name, which pages of the same name share, and the least of each: it is medium."""


def find_named_pages(
    context: SearchContext, find_matching_page_ids: Callable[[KeywordQuery], IntArray]
) -> frozenset[int]:
    """The ids of the pages whose name is the query, as typed or as interpreted, among those that may be found."""
    texts = dict.fromkeys((context.request.query, context.interpreted.text))
    terms = dict.fromkeys(filter(None, map(make_name_term, texts)))
    if not terms:
        return frozenset()
    found = reduce(np.union1d, (find_matching_page_ids(KeywordQuery(phrases=((term,),))) for term in terms))
    if context.allowed is not None:
        found = np.intersect1d(found, context.allowed, assume_unique=True)
    return frozenset(found.tolist())


def add_named_pages(named: Set[int], shares: Mapping[int, float]) -> dict[int, float]:
    """The keyword shares with those of named pages first, so that these compete; 0 for one without a share."""
    added = sorted(named - shares.keys())[:MAX_ADDED_PAGES]
    first = {page_id: share for page_id, share in shares.items() if page_id in named}
    return first | dict.fromkeys(added, 0.0) | dict(shares)


def find_missing_pages(
    context: SearchContext,
    vector: FloatArray,
    vectors: VectorChannel,
    scale: CosineScale,
    page_ids: Iterable[int],
    found: Sequence[Candidate],
) -> list[Candidate]:
    """The candidates of those of these pages that a search by meaning has not found."""
    missing = set(page_ids) - {candidate.page_id for candidate in found}
    if not missing:
        return []
    nearest = group_by_page(
        vectors.search_pages(context, vector, missing), context.request.chunks_per_page, scale, missing
    )
    without_passage = missing - {candidate.page_id for candidate in nearest}
    return [*nearest, *(Candidate(page_id, scale=scale) for page_id in sorted(without_passage))]


def move_named_pages(candidates: Sequence[Candidate], named: Collection[int]) -> list[Candidate]:
    """The ranked candidates with those of named pages first, in the same order."""
    if not named:
        return list(candidates)
    first, others = [], []
    for candidate in candidates:
        if candidate.page_id in named:
            channels = tuple(name for name in candidate.channels if name != "keyword" or candidate.keyword_share)
            first.append(candidate._replace(channels=(*channels, NAME_CHANNEL)))
        else:
            others.append(candidate)
    return first + others


def with_name_likelihoods(candidates: Sequence[Candidate], named: Collection[int]) -> list[Candidate]:
    """The candidates with likelihoods; that of a named page is at least what its name earns."""
    least = max(NAME_LIKELIHOOD / max(len(named), 1), MIN_NAME_LIKELIHOOD)
    return [
        candidate._replace(likelihood=max(candidate.likelihood or 0.0, least))
        if candidate.page_id in named
        else candidate
        for candidate in candidates
    ]
