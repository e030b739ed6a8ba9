"""One letter's difference between two words. Pure functions."""

from wikiholt.ports import Lexicon

SWAPPED, MISSING, DOUBLED, EXTRA, OTHER = 1.0, 1.0, 1.0, 0.1, 0.09
"""How readily each slip is believed: two letters swapped, one left out, one typed twice, one too many, another one.

A finger that hits another key can hit one of many; that it was this one makes the slip the less likely.
"""
OTHER_BEGINNING = 0.2
"""People seldom miss the first letter."""
_LONG = 5
"""Shorter words that differ in their first letter alone are different words more often than slips; so are names."""

_MOST_LOOKED_AT = 5_000


def likeness(typed: str, word: str, *, name: bool = False) -> float:
    """How readily the typed letters are a slip of one letter in the word; 0 if they are not."""
    if abs(len(typed) - len(word)) > 1 or typed == word:
        return 0.0
    same = _alike_until(typed, word)
    slip = _slip(typed, word, same)
    if same or slip == SWAPPED:
        return slip
    return 0.0 if slip == OTHER and (name or len(word) < _LONG) else slip * OTHER_BEGINNING


def near(typed: str, lexicon: Lexicon, *, name: bool = False) -> dict[str, float]:
    """The lexicon's terms that are one slip away, each with its likeness.

    A slip leaves the first half of a word or the second as it was, but for a swap in the very middle.
    """
    half = len(typed) // 2
    lengths = range(len(typed) - 1, len(typed) + 2)
    terms = {typed[: half - 1] + typed[half] + typed[half - 1] + typed[half + 1 :]}
    terms.update(lexicon.beginning_with(typed[:half], _MOST_LOOKED_AT, lengths))
    terms.update(lexicon.ending_with(typed[half:], _MOST_LOOKED_AT, lengths))
    return {term: like for term in terms if (like := likeness(typed, term, name=name))}


def _slip(typed: str, word: str, same: int) -> float:
    """What was done at the first letter that differs, if that is all that differs."""
    if len(typed) < len(word):
        return MISSING if typed[same:] == word[same + 1 :] else 0.0
    if len(typed) > len(word):
        if typed[same + 1 :] != word[same:]:
            return 0.0
        # Of two like letters the second is the one that differs.
        return DOUBLED if same and typed[same] == typed[same - 1] else EXTRA
    if typed[same + 1 :] == word[same + 1 :]:
        return OTHER
    swapped = typed[same : same + 2] == word[same : same + 2][::-1]
    return SWAPPED if swapped and typed[same + 2 :] == word[same + 2 :] else 0.0


def _alike_until(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
