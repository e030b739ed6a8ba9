"""From an answer to what is written down of it (pure)."""

import time

from wikiholt.model import Answer, Searched, Surface

_LONGEST = 500
"""Characters of a query that are kept."""
_SHOWN = 20
"""Pages of an answer that are kept; hardly anybody looks further."""
_PATHS = 4000
"""Characters that their paths may have together."""


def written_down(answer: Answer, surface: Surface, *, filtered: bool) -> Searched:
    """The entry for an answer that was just given."""
    score = max((hit.score for hit in answer.hits), default=0.0)
    return Searched(
        at=time.time(),
        surface=surface.value,
        query=answer.query[:_LONGEST],
        mode=answer.mode.value,
        filtered=filtered,
        hits=len(answer.hits),
        nothing_relevant=answer.nothing_relevant,
        degraded=answer.degraded,
        score=score,
        ms=answer.took_ms,
        did_you_mean=answer.did_you_mean[:_LONGEST],
        pages=_shown(answer),
    )


def _shown(answer: Answer) -> tuple[str, ...]:
    # One page may have several hits, each another of its passages.
    paths = tuple(dict.fromkeys([hit.path for hit in answer.hits[:_SHOWN]]))
    room = _PATHS
    for number, path in enumerate(paths):
        room -= len(path)
        if room < 0:
            return paths[:number]
    return paths
