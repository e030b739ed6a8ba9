"""A stand-in for a reranker: fast, deterministic, and fond of texts that have the query's words."""

import re
from collections.abc import Sequence

_WORD_PATTERN = re.compile(r"\w+")


class FakeReranker:
    """The more of the query's words a text has, the higher its score."""

    name = "fake"

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        """What was asked and which texts were read for it, so that a test can look."""

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        self.calls.append((query, tuple(texts)))
        if timeout_s <= 0:
            return None
        asked = set(_WORD_PATTERN.findall(query.casefold()))
        return [12 * len(asked & set(_WORD_PATTERN.findall(text.casefold()))) / max(1, len(asked)) - 6 for text in texts]

    def run_self_test(self) -> None:
        """Nothing to prove."""
