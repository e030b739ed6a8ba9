"""Compares texts with `difflib`, within a limit: its time can grow with the cube of the length of the texts."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import Match, SequenceMatcher

_MAX_STEPS = 20_000_000
"""A few seconds."""
_MAX_SUGGESTION_STEPS = 3_000_000


class ComparisonTooLong(Exception):
    """The comparison would take too many steps."""


class BoundedMatcher(SequenceMatcher[str]):
    """A `SequenceMatcher` that raises ComparisonTooLong instead of comparing for minutes."""

    a: Sequence[str]
    b2j: Mapping[str, Sequence[int]]

    def __init__(
        self, a: Sequence[str], b: Sequence[str], *, autojunk: bool = False, max_steps: int = _MAX_STEPS
    ) -> None:
        self._remaining_steps = max_steps
        super().__init__(None, a, b, autojunk)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        part = self.a[alo:ahi]
        self._remaining_steps -= len(part) + sum(len(self.b2j.get(item, ())) for item in part)
        if self._remaining_steps < 0:
            raise ComparisonTooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def find_close_matches(wanted: str, known: Iterable[str], limit: int, min_similarity: float) -> list[str]:
    """The known texts most similar to the wanted one. Ends early, with those found so far, if that takes too long."""
    matcher = BoundedMatcher("", wanted, max_steps=_MAX_SUGGESTION_STEPS)
    found: list[tuple[float, str]] = []
    try:
        for text in known:
            matcher.set_seq1(text)
            if matcher.real_quick_ratio() >= min_similarity and matcher.quick_ratio() >= min_similarity:
                found.append((matcher.ratio(), text))
    except ComparisonTooLong:
        pass
    return [text for ratio, text in sorted(found, reverse=True) if ratio >= min_similarity][:limit]
