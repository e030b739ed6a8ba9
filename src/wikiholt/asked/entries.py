"""From an answer to what is written down of it (pure)."""

import time

from wikiholt.model import SearchResult, QueryRecord, SearchInterface

_MAX_QUERY_CHARS = 500
"""Characters of a query that are kept."""
_MAX_SHOWN_PAGES = 20
"""Pages of an answer that are kept; hardly anybody looks further."""
_MAX_PATHS_CHARS = 4000
"""Characters that their paths may have together."""


def make_record(result: SearchResult, interface: SearchInterface, *, filtered: bool) -> QueryRecord:
    """The entry for an answer that was just given."""
    score = max((hit.score for hit in result.hits), default=0.0)
    return QueryRecord(
        at=time.time(),
        surface=interface.value,
        query=result.query[:_MAX_QUERY_CHARS],
        mode=result.mode.value,
        filtered=filtered,
        hits=len(result.hits),
        nothing_relevant=result.nothing_relevant,
        degraded=result.degraded,
        score=score,
        ms=result.took_ms,
        did_you_mean=result.did_you_mean[:_MAX_QUERY_CHARS],
        pages=_get_shown_pages(result),
    )


def _get_shown_pages(result: SearchResult) -> tuple[str, ...]:
    # One page may have several hits, each another of its passages.
    paths = tuple(dict.fromkeys([hit.path for hit in result.hits[:_MAX_SHOWN_PAGES]]))
    room = _MAX_PATHS_CHARS
    for number, path in enumerate(paths):
        room -= len(path)
        if room < 0:
            return paths[:number]
    return paths
