"""The state of one search: its request, the pages it may return, and what it has to report."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.search import SearchMode
from wikiholt.errors import SourceMissing, WikiholtError
from wikiholt.search.query import InterpretedQuery
from wikiholt.search.ranking import TitleMatch
from wikiholt.search.request import IndexVersion, SearchRequest
from wikiholt.text.snippets import QueryMatcher, SentenceScorer


class Head(NamedTuple):
    """The revision at HEAD, or None and a note that says why it is unknown."""

    revision: str | None
    note: str = ""


def read_head(get_head: Callable[[], str] | None, version: int, known: IndexVersion | None) -> Head:
    """HEAD of the repository; the one that the caller has read is used if the index still has that version."""
    if get_head is None:
        return Head(None, "HEAD was not checked (search.stale_check is off)")
    if known is not None and known.head is not None and known.version == version:
        return Head(known.head)
    try:
        return Head(get_head())
    except WikiholtError as error:
        # Report only the code: the message may contain a local path, and notes are public.
        state = "is missing" if isinstance(error, SourceMissing) else "cannot be read"
        return Head(None, f"the folder or repository of this wiki {state} ({error.code}); recent changes are unknown")


@dataclass(slots=True)
class SearchContext:
    """The state of one search."""

    interpreted: InterpretedQuery
    request: SearchRequest
    allowed: IntArray | None
    version: int
    page_count: int
    head: Head
    notes: list[str] = field(default_factory=list)
    degraded: bool = False
    refreshed: bool = False
    reranked: bool = False
    found_by: SearchMode = SearchMode.SEMANTIC
    """The mode that found the pages. A hybrid search without a model falls back to keyword."""
    named: frozenset[int] = frozenset()
    """The ids of the pages whose own name is the query."""
    answer: float = 0.0
    """How likely the wiki has an answer."""
    vector: FloatArray | None = None
    """The query's vector, if the search used the model."""
    nearest: VectorHits | None = None
    """The passages nearest to the query."""
    has_all_passages: bool = False
    """Whether `nearest` has every passage of the pages that may be found."""
    found_rows: VectorRows | None = None
    """All passages of the pages found by keyword, if they were read before the query's vector was known."""
    page_hits: VectorHits | None = None
    """All passages of `complete_pages`, and possibly of others, nearest first."""
    complete_pages: Set[int] = frozenset()
    likely_pages: Set[int] = frozenset()
    """The nearest pages of a hybrid search."""
    titles: dict[int, TitleMatch] = field(default_factory=dict)
    """Page id → how its title matches, of the pages that were compared."""
    matcher: QueryMatcher | None = None
    """Finds the words of the query, if it was made before the hits were known."""
    sentence_scorer: SentenceScorer | None = None
    """Scores the sentences of a passage by their closeness to the query."""

    def degrade(self, note: str) -> None:
        self.degraded = True
        if note not in self.notes:
            self.notes.append(note)
