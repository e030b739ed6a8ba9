"""What is asked and what is answered."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Mode(StrEnum):
    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Filter:
    """Narrows the pages that may be found; an empty filter lets every page pass. All given parts must hold."""

    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    path_prefix: str = ""
    updated_since: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.categories or self.tags or self.path_prefix or self.updated_since)


@dataclass(frozen=True, slots=True)
class WordQuery:
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
class WordHit:
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search returns; says how fresh it is and whether it had to make do."""

    query: str
    mode: Mode
    hits: tuple[Hit, ...]
    total: int
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    nothing_relevant: bool
    notes: tuple[str, ...] = ()
