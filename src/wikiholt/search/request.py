"""The parameters of a search, and the version of an index that it was made for."""

from dataclasses import dataclass, field
from typing import NamedTuple

from wikiholt.domain.search import PageFilter, SearchMode, SortOrder, validate_text
from wikiholt.errors import InvalidQuery

MAX_HITS = 100
MAX_OFFSET = 900
"""Maximum number of hits to skip. With MAX_HITS, a thousand hits of a query can be read."""
MIN_COMPARED = 10
"""Ranked pages of which near-duplicates are found at least, so that the first hits name the same ones for every n."""
MAX_FACETS = 10
MAX_QUERY_CHARS = 2000
MAX_CHUNKS_PER_PAGE = 10


class IndexVersion(NamedTuple):
    """Generation and version of an index, and HEAD if it is known: every result depends on these."""

    generation: int
    version: int
    head: str | None


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A validated search. Raises InvalidQuery when created with invalid values."""

    query: str
    n: int = 5
    mode: SearchMode = SearchMode.HYBRID
    where: PageFilter = field(default_factory=PageFilter)
    chunks_per_page: int = 1
    """Maximum hits per page, each with another passage. Keyword search always returns one."""

    rerank: bool | None = None
    """Whether to rerank the best pages. None means: if a reranker is configured and the answer is unclear."""

    offset: int = 0
    """Number of hits to skip."""
    sort: SortOrder = SortOrder.RELEVANCE
    facets: tuple[str, ...] = ()
    """Frontmatter properties whose values are counted."""
    explain: bool = False
    """Whether each hit says why it is there."""
    collapse: bool = False
    """Whether hits whose passages are nearly the same are one hit."""

    @property
    def depth(self) -> int:
        """The number of hits up to the last one requested."""
        return self.offset + self.n

    @property
    def ranked(self) -> slice:
        """The places of the ranked pages that are read for the requested hits. With `collapse`, from the first one on,
        so that more hits continue these, and as many again instead of near-duplicates."""
        return slice(0, max(2 * self.depth, MIN_COMPARED)) if self.collapse else slice(self.offset, self.depth)

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise InvalidQuery("the query is empty", hint="enter search terms")
        if len(self.query) > MAX_QUERY_CHARS:
            raise InvalidQuery(f"the query has {len(self.query)} characters", hint=f"use at most {MAX_QUERY_CHARS}")
        if "\0" in self.query:
            raise InvalidQuery("the query contains a NUL character", hint="send plain text")
        if isinstance(self.n, bool) or not 1 <= self.n <= MAX_HITS:
            raise InvalidQuery(f"n is {self.n}", hint=f"use 1 to {MAX_HITS}")
        if isinstance(self.chunks_per_page, bool) or not 1 <= self.chunks_per_page <= MAX_CHUNKS_PER_PAGE:
            raise InvalidQuery(f"chunks_per_page is {self.chunks_per_page}", hint=f"use 1 to {MAX_CHUNKS_PER_PAGE}")
        if isinstance(self.offset, bool) or not 0 <= self.offset <= MAX_OFFSET:
            raise InvalidQuery(f"offset is {self.offset}", hint=f"use 0 to {MAX_OFFSET}, or narrow the search")
        if len(self.facets) > MAX_FACETS or any(not name.strip() for name in self.facets):
            raise InvalidQuery("the facets are invalid", hint=f"name 1 to {MAX_FACETS} frontmatter properties")
        validate_text("the query", self.query)
        self.where.validate()
