"""What is asked and what is answered."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from wikiholt.errors import InvalidQuery

MAX_FILTER_VALUES = 50
"""Tags, and categories, that one filter may name."""
MAX_FILTER_VALUE_CHARS = 500
"""Characters of one value of a filter."""


class SearchMode(StrEnum):
    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class PageFilter:
    """Narrows the pages that may be found; an empty filter lets every page pass. All given parts must hold."""

    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    path_prefix: str = ""
    updated_since: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.categories or self.tags or self.path_prefix or self.updated_since)

    def validate(self) -> None:
        """Raise InvalidQuery for a filter that no store should be asked to apply."""
        for what, values in (("tags", self.tags), ("categories", self.categories)):
            if len(values) > MAX_FILTER_VALUES:
                raise InvalidQuery(f"the filter names {len(values)} {what}", hint=f"use at most {MAX_FILTER_VALUES}")
        for what, values in (("tag", self.tags), ("category", self.categories), ("path", (self.path_prefix,))):
            for value in values:
                if len(value) > MAX_FILTER_VALUE_CHARS:
                    raise InvalidQuery(
                        f"a {what} of the filter has {len(value)} characters",
                        hint=f"use at most {MAX_FILTER_VALUE_CHARS}",
                    )
                validate_text(f"a {what} of the filter", value)


def validate_text(label: str, text: str) -> None:
    """Refuse what no encoding of Unicode can hold: half a surrogate pair, which bytes that are no text turn into."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidQuery(f"{label} is not text: {text[:80]!r}", hint="send UTF-8") from None


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """A keyword query, analysed. Pages must hold every phrase, no excluded phrase, and at least one term.

    Each phrase is a tuple of terms that follow one another; `prefix` is the last word as typed so far.
    """

    terms: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    prefix: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms or self.phrases or self.prefix)


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """A page found by words; a larger BM25 score is better."""

    page_id: int
    score: float


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page as the index knows it, without its text."""

    page_id: int
    file: str
    path: str
    name: str
    category: str | None
    tags: tuple[str, ...]
    last_updated: datetime | None
    chunks: int
    warnings: tuple[str, ...] = ()
    words: int = 0
    length: int = 0
    """Characters of the file."""


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A link as the index knows it: the page it stands on and the paths it may mean; see `Link`."""

    page_id: int
    target: str
    text: str
    line: int
    wiki: bool
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as the index knows it."""

    chunk_id: int
    page_id: int
    index: int
    text: str
    heading_path: tuple[str, ...]
    anchor: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters of a snippet."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    matches: tuple[Span, ...] = ()
    sentence: Span | None = None
    """Where the sentence stands, or what is shown of it, that is closest in meaning to the query."""

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class Hit:
    """A page with its best chunk."""

    name: str
    path: str
    url: str
    snippet: Snippet
    distance: float | None
    score: float
    confidence: Confidence
    channels: tuple[str, ...]
    heading_path: tuple[str, ...]
    anchor: str
    first_line: int
    last_line: int
    chunk_index: int
    category: str | None
    tags: tuple[str, ...]
    last_updated: datetime | None
    text: str = ""
    """The whole chunk, as it is written on the page."""
    total_chunks: int = 0
    page_words: int = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search returns; says how fresh it is and whether it had to make do."""

    query: str
    mode: SearchMode
    hits: tuple[Hit, ...]
    total: int
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    nothing_relevant: bool
    notes: tuple[str, ...] = ()
    did_you_mean: str = ""
    """The query with words that no page holds replaced by like ones that some do; pages were found by it."""
    reranked: bool = False
    """Whether a reranker has read the best pages."""


# Searches as they are written down, if the operator wants that.


class SearchInterface(StrEnum):
    """By which way somebody searched."""

    HTTP = "http"
    OTTERWIKI = "otterwiki"
    MCP = "mcp"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One search and what came of it; nothing says who asked."""

    at: float
    """Seconds since 1970."""
    surface: str
    query: str
    mode: str
    filtered: bool
    hits: int
    nothing_relevant: bool
    degraded: bool
    score: float
    """That of the best hit, 0 without one."""
    ms: float
    did_you_mean: str
    pages: tuple[str, ...]
    """Paths of the pages that were shown, best first."""
    lost: int = 0
    """How many searches before this one could not be written down."""


@dataclass(frozen=True, slots=True)
class QueryRetention:
    """What a query log may hold: entries of so many days, and the newest so many of them."""

    max_days: float
    max_records: int


@dataclass(frozen=True, slots=True)
class QueryRecords:
    """What a query log holds of a period, oldest first."""

    records: tuple[QueryRecord, ...]
    damaged_at: float | None = None
    """When the log was found damaged and begun anew, if it ever was."""
