"""The state of one search: its request, the pages it may return, and what it has to report."""

from dataclasses import dataclass, field

from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.search import SearchMode
from wikiholt.search.query import InterpretedQuery
from wikiholt.search.request import IndexVersion, SearchRequest
from wikiholt.text.snippets import SentenceScorer


@dataclass(slots=True)
class SearchContext:
    """The state of one search."""

    interpreted: InterpretedQuery
    request: SearchRequest
    allowed: IntArray | None
    version: int
    known: IndexVersion | None
    """What the caller has read already; its HEAD is used if the index still has that version."""
    notes: list[str] = field(default_factory=list)
    degraded: bool = False
    refreshed: bool = False
    reranked: bool = False
    found_by: SearchMode = SearchMode.SEMANTIC
    """The mode that found the pages. A hybrid search without a model falls back to keyword."""
    vector: FloatArray | None = None
    """The query's vector, if the search used the model."""
    nearest: VectorHits | None = None
    """The passages nearest to the query."""
    has_all_passages: bool = False
    """Whether `nearest` has every passage of the pages that may be found."""
    sentence_scorer: SentenceScorer | None = None
    """Scores the sentences of a passage by their closeness to the query."""

    def degrade(self, note: str) -> None:
        self.degraded = True
        if note not in self.notes:
            self.notes.append(note)
