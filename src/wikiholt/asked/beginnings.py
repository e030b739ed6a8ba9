"""Which searches were only the beginning of one that was being typed (pure).

Pages that search as one types ask for `dep`, `deploy` and `deploy on friday` within seconds, and for the last of them
once more when it is sent. Nothing tells who asked, so whatever is typed on is taken for the same person's.
"""

from collections.abc import Sequence
from itertools import islice

from wikiholt.model import Searched, Surface

_TYPED = (Surface.HTTP.value, Surface.OTTERWIKI.value)
"""Ways by which people type; agents and commands say at once what they want."""
_SOON = 5.0
"""Seconds within which somebody types on."""
_NEXT = 200
"""Searches after one that are looked at, however many there are in those seconds."""


def without_beginnings(searches: Sequence[Searched]) -> list[Searched]:
    """The searches, given oldest first, that nobody typed on or sent again within seconds by the same way."""
    texts = [searched.query.lstrip().casefold() for searched in searches]
    return [searched for place, searched in enumerate(searches) if not _typed_on(searches, texts, place)]


def _typed_on(searches: Sequence[Searched], texts: Sequence[str], place: int) -> bool:
    searched, text = searches[place], texts[place]
    if searched.surface not in _TYPED:
        return False
    for number in islice(range(place + 1, len(searches)), _NEXT):
        after = searches[number]
        if after.at - searched.at > _SOON:
            return False
        if after.surface == searched.surface and texts[number].startswith(text):
            return True
    return False
