"""An index's words with some pages' replaced, in memory: what a search would find were they written otherwise."""

from collections.abc import Mapping, Sequence

from wikiholt.model import IntArray, KeywordHit, KeywordQuery, KeywordRow, PageTerms
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.words import ranking
from wikiholt.words.building import PostingsBuilder
from wikiholt.words.lexicon import ViewLexicon
from wikiholt.words.view import KeywordView, make_view


class PatchedKeywordCache:
    """A `WordCache` that stays at the version it was made at; the index itself is left as it is."""

    def __init__(self, index: WikiIndex, replacements: Mapping[int, PageTerms]) -> None:
        self._view = _build_patched_view(index, replacements)

    @property
    def version(self) -> int | None:
        return self._view.version

    def refresh(self) -> None:
        """Nothing to follow."""

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]:
        return ranking.search_keywords(self._view, query, limit, page_ids)

    def get_max_score(self, query: KeywordQuery) -> float:
        return ranking.get_max_score(self._view, query)

    def get_lexicon(self) -> Lexicon:
        return ViewLexicon(self._view)

    def verify(self) -> None:
        """Nothing lies on disk."""

    def wait_idle(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        """Nothing is open."""


def _build_patched_view(index: WikiIndex, replacements: Mapping[int, PageTerms]) -> KeywordView:
    builder = PostingsBuilder()
    with index.open_keyword_rows() as (version, rows):
        for row in rows:
            builder.add(KeywordRow(row.page_id, replacements.get(row.page_id, row.terms)))
    return make_view(builder.build(version))
