"""An index's words with some pages' replaced, in memory: what a search would find were they written otherwise."""

from collections.abc import Mapping, Sequence

from wikiholt.model import Ints, WordHit, WordQuery, WordRow, Words
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.words import ranking
from wikiholt.words.building import Builder
from wikiholt.words.lexicon import ViewLexicon
from wikiholt.words.view import View, view_of


class RevisedWords:
    """A `WordCache` that stays at the version it was made at; the index itself is left as it is."""

    def __init__(self, index: WikiIndex, words: Mapping[int, Words]) -> None:
        self._view = _view(index, words)

    @property
    def version(self) -> int | None:
        return self._view.version

    def refresh(self) -> None:
        """Nothing to follow."""

    def search(self, query: WordQuery, limit: int, pages: Ints | None) -> Sequence[WordHit]:
        return ranking.search(self._view, query, limit, pages)

    def best_possible(self, query: WordQuery) -> float:
        return ranking.best_possible(self._view, query)

    def lexicon(self) -> Lexicon:
        return ViewLexicon(self._view)

    def verify(self) -> None:
        """Nothing lies on disk."""

    def settle(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        """Nothing is open."""


def _view(index: WikiIndex, words: Mapping[int, Words]) -> View:
    builder = Builder()
    with index.word_rows() as (version, rows):
        for row in rows:
            builder.add(WordRow(row.page_id, words.get(row.page_id, row.words)))
    return view_of(builder.finish(version))
