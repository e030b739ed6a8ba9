"""Which searches were only the beginning of one that was being typed (pure).

Pages that search as one types ask for `dep`, `deploy` and `deploy on friday` within seconds, and for the last of them
once more when it is sent. Nothing tells who asked, so whatever is typed on is taken for the same person's.
"""

from collections.abc import Sequence
from itertools import islice

from wikiholt.model import QueryRecord, SearchInterface

_TYPED_INTERFACES = (SearchInterface.HTTP.value, SearchInterface.OTTERWIKI.value)
"""Ways by which people type; agents and commands say at once what they want."""
_TYPING_WINDOW_S = 5.0
"""Seconds within which somebody types on."""
_MAX_LOOKAHEAD = 200
"""Searches after one that are looked at, however many there are in those seconds."""


def drop_unfinished_queries(records: Sequence[QueryRecord]) -> list[QueryRecord]:
    """The searches, given oldest first, that nobody typed on or sent again within seconds by the same way."""
    texts = [searched.query.lstrip().casefold() for searched in records]
    return [searched for place, searched in enumerate(records) if not _is_unfinished(records, texts, place)]


def _is_unfinished(records: Sequence[QueryRecord], texts: Sequence[str], position: int) -> bool:
    searched, text = records[position], texts[position]
    if searched.surface not in _TYPED_INTERFACES:
        return False
    for number in islice(range(position + 1, len(records)), _MAX_LOOKAHEAD):
        after = records[number]
        if after.at - searched.at > _TYPING_WINDOW_S:
            return False
        if after.surface == searched.surface and texts[number].startswith(text):
            return True
    return False
