"""One letter's difference between two words. Pure functions."""

from wikiholt.ports import Lexicon

SWAPPED_LIKELIHOOD, MISSING_LIKELIHOOD, DOUBLED_LIKELIHOOD, EXTRA_LIKELIHOOD, OTHER_LIKELIHOOD = 1.0, 1.0, 1.0, 0.1, 0.09
"""How readily each slip is believed: two letters swapped, one left out, one typed twice, one too many, another one.

A finger that hits another key can hit one of many; that it was this one makes the slip the less likely.
"""
FIRST_LETTER_FACTOR = 0.2
"""People seldom miss the first letter."""
_MIN_LONG_WORD_CHARS = 5
"""Shorter words that differ in their first letter alone are different words more often than slips; so are names."""

_MAX_CANDIDATES = 5_000


def score_typo(typed: str, word: str, *, is_name: bool = False) -> float:
    """How readily the typed letters are a slip of one letter in the word; 0 if they are not."""
    if abs(len(typed) - len(word)) > 1 or typed == word:
        return 0.0
    same = _count_common_prefix(typed, word)
    slip = _score_edit(typed, word, same)
    if same or slip == SWAPPED_LIKELIHOOD:
        return slip
    return 0.0 if slip == OTHER_LIKELIHOOD and (is_name or len(word) < _MIN_LONG_WORD_CHARS) else slip * FIRST_LETTER_FACTOR


def find_near_terms(typed: str, lexicon: Lexicon, *, is_name: bool = False) -> dict[str, float]:
    """The lexicon's terms that are one slip away, each with its likeness.

    A slip leaves the first half of a word or the second as it was, but for a swap in the very middle.
    """
    half = len(typed) // 2
    lengths = range(len(typed) - 1, len(typed) + 2)
    terms = {typed[: half - 1] + typed[half] + typed[half - 1] + typed[half + 1 :]}
    terms.update(lexicon.find_by_prefix(typed[:half], _MAX_CANDIDATES, lengths))
    terms.update(lexicon.find_by_suffix(typed[half:], _MAX_CANDIDATES, lengths))
    return {term: like for term in terms if (like := score_typo(typed, term, is_name=is_name))}


def _score_edit(typed: str, word: str, prefix_length: int) -> float:
    """What was done at the first letter that differs, if that is all that differs."""
    if len(typed) < len(word):
        return MISSING_LIKELIHOOD if typed[prefix_length:] == word[prefix_length + 1 :] else 0.0
    if len(typed) > len(word):
        if typed[prefix_length + 1 :] != word[prefix_length:]:
            return 0.0
        # Of two like letters the second is the one that differs.
        return DOUBLED_LIKELIHOOD if prefix_length and typed[prefix_length] == typed[prefix_length - 1] else EXTRA_LIKELIHOOD
    if typed[prefix_length + 1 :] == word[prefix_length + 1 :]:
        return OTHER_LIKELIHOOD
    swapped = typed[prefix_length : prefix_length + 2] == word[prefix_length : prefix_length + 2][::-1]
    return SWAPPED_LIKELIHOOD if swapped and typed[prefix_length + 2 :] == word[prefix_length + 2 :] else 0.0


def _count_common_prefix(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
