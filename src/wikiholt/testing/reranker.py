"""A stand-in for a reranker: fast, deterministic, and fond of texts that have the query's words."""

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


class FakeReranker:
    """The more of the query's words a text has, the higher its score."""

    name = "fake"

    def __init__(self) -> None:
        self.read: list[tuple[str, tuple[str, ...]]] = []
        """What was asked and which texts were read for it, so that a test can look."""

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> Sequence[float] | None:
        self.read.append((query, tuple(texts)))
        if seconds <= 0:
            return None
        asked = set(_WORD.findall(query.casefold()))
        return [12 * len(asked & set(_WORD.findall(text.casefold()))) / max(1, len(asked)) - 6 for text in texts]

    def prove(self) -> None:
        """Nothing to prove."""
