"""Values of a search: filters, queries, stored pages, hits, results, and the query log."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from wikiholt.domain.git import LaterFile, PastCommit
from wikiholt.errors import InvalidQuery

MAX_FILTER_VALUES = 50
"""Maximum number of tags, and of categories, in one filter."""
MAX_FILTER_VALUE_CHARS = 500
"""Maximum length of one filter value, in characters."""
_MAX_FILTER_PARTS = 500
"""Maximum number of conditions in a filter, with those of its alternatives."""


class SearchMode(StrEnum):
    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    UNKNOWN = "unknown"
    """Not all pages are found by their meaning yet."""


class SortOrder(StrEnum):
    """The order of hits. By date: newest first, of the pages that are about as relevant as the best one."""

    RELEVANCE = "relevance"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class PropertyCondition:
    """A condition on a frontmatter property. A page without the property does not match, also not for `!=`.

    `name` and `text` are folded. `number`, or the period from `start` to `end` (in seconds since 1970, without its
    end), is set if the value is a number or a date.
    """

    name: str
    operator: str
    """One of `=`, `!=`, `<`, `<=`, `>`, `>=`."""
    text: str
    number: float | None = None
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class PageFilter:
    """Restricts the pages of a search. All conditions must match; an empty filter matches every page."""

    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    path_prefix: str = ""
    updated_since: datetime | None = None
    properties: tuple[PropertyCondition, ...] = ()
    languages: tuple[str, ...] = ()
    """Languages of pages, one of which a page has; see `text.language_names`."""
    titles: tuple[str, ...] = ()
    """Texts that a name of the page contains, ignoring case and accents."""
    path_key: str = ""
    """The path or one of its directories, as folded by `text.links.fold_path`."""
    any_of: tuple[tuple["PageFilter", ...], ...] = ()
    """Groups of filters; a page must match at least one filter of each group."""
    none_of: tuple["PageFilter", ...] = ()
    """Filters that a page must not match."""

    def __bool__(self) -> bool:
        return self != _NO_FILTER

    def validate(self) -> None:
        """Raise InvalidQuery if the filter exceeds the limits or contains invalid text."""
        parts = [self, *(part for group in self.any_of for part in group), *self.none_of]
        for part in parts:
            part._validate_values()
        if len(parts) > _MAX_FILTER_PARTS:
            raise InvalidQuery(f"the filter has {len(parts)} parts", hint=f"use at most {_MAX_FILTER_PARTS}")

    def _validate_values(self) -> None:
        properties = tuple(text for condition in self.properties for text in (condition.name, condition.text))
        lists: tuple[tuple[str, tuple[object, ...]], ...] = (
            ("tags", self.tags),
            ("categories", self.categories),
            ("conditions", self.properties),
            ("languages", self.languages),
        )
        for label, values in lists:
            if len(values) > MAX_FILTER_VALUES:
                raise InvalidQuery(f"the filter names {len(values)} {label}", hint=f"use at most {MAX_FILTER_VALUES}")
        for label, texts in (
            ("tag", self.tags),
            ("category", self.categories),
            ("path", (self.path_prefix,)),
            ("language", self.languages),
            ("title", (*self.titles, self.path_key)),
            ("property", properties),
        ):
            for text in texts:
                if len(text) > MAX_FILTER_VALUE_CHARS:
                    raise InvalidQuery(
                        f"a {label} of the filter has {len(text)} characters",
                        hint=f"use at most {MAX_FILTER_VALUE_CHARS}",
                    )
                validate_text(f"a {label} of the filter", text)
                if "\0" in text:
                    raise InvalidQuery(f"a {label} of the filter contains NUL", hint="remove it")


_NO_FILTER = PageFilter()


def validate_text(label: str, text: str) -> None:
    """Raise InvalidQuery for unpaired surrogates, which bytes that are not UTF-8 decode to."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidQuery(f"{label} is not text: {text[:80]!r}", hint="send UTF-8") from None


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """An analysed keyword query. Pages must contain every phrase, no excluded phrase, and at least one term.

    Each phrase is a tuple of consecutive terms; `prefix` is the last word as typed so far.
    """

    terms: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    prefix: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms or self.phrases or self.prefix)


@dataclass(frozen=True, slots=True)
class KeywordHit:
    """A page found by keywords; a higher BM25 score is better."""

    page_id: int
    score: float


class StoredPage(NamedTuple):
    """A page in the index, without its text.

    A tuple and not a dataclass, like a chunk and a span: every search makes very many.
    """

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
    aliases: tuple[str, ...] = ()
    """Other names of the page."""


@dataclass(frozen=True, slots=True)
class OrderOverride:
    """What the frontmatter of a page says about its place among the hits."""

    page_id: int
    boost: float = 1.0
    """The factor on the evidence by which pages are ordered."""
    pins: tuple[str, ...] = ()
    """Folded queries for which the page comes first."""


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A link in the index: its page and its candidate target paths; see `Link`."""

    page_id: int
    target: str
    text: str
    line: int
    wiki: bool
    paths: tuple[str, ...]


class StoredChunk(NamedTuple):
    """A chunk in the index."""

    chunk_id: int
    page_id: int
    number: int
    """Its place on the page, from 0."""
    text: str
    heading_path: tuple[str, ...]
    anchor: str
    first_line: int
    last_line: int


class Span(NamedTuple):
    """A half-open range of characters of a snippet, a name or a heading."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    matches: tuple[Span, ...] = ()
    sentence: Span | None = None
    """The sentence closest in meaning to the query, or the visible part of it."""

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class PassagePlace:
    """Where a passage is."""

    name: str
    path: str
    file: str
    url: str
    first_line: int
    last_line: int


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
    """The full text of the chunk, as written on the page."""
    total_chunks: int = 0
    page_words: int = 0
    file: str = ""
    """The page's file, relative to the wiki's directory."""
    wiki: str = ""
    """The slug of its wiki in the merged result of several wikis; else empty."""
    name_matches: tuple[Span, ...] = ()
    """Ranges of the name that match the query."""
    heading_matches: tuple[tuple[Span, ...], ...] = ()
    """The same for each heading of `heading_path`."""
    explanation: str = ""
    """Why it is there, if the request asks for it."""
    also_on: tuple[PassagePlace, ...] = ()
    """Pages further down whose passages are nearly the same, if the request collapses them."""
    later: LaterFile | None = None
    """What became of the file of a page of the past; None if it is the same today."""


@dataclass(frozen=True, slots=True)
class Facet:
    """A filter value in its most common spelling, and the number of pages that have it."""

    value: str
    count: int


ALL_PROPERTIES = "*"
"""Instead of the name of a property: its values are the names of all properties."""


@dataclass(frozen=True, slots=True)
class PropertyFacets:
    """The values of a frontmatter property, most frequent first."""

    name: str
    values: tuple[Facet, ...]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search, with its freshness and whether it is degraded."""

    query: str
    mode: SearchMode
    hits: tuple[Hit, ...]
    considered: int
    """Number of pages that pass the filters, phrases and exclusions."""
    took_ms: float
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    degraded: bool
    nothing_relevant: bool
    notes: tuple[str, ...] = ()
    did_you_mean: str = ""
    """The query with unknown words replaced by similar known ones; the hits were found with it."""
    reranked: bool = False
    """Whether a reranker rescored the best pages."""
    offset: int = 0
    """Number of hits before the first one."""
    facets: tuple["PropertyFacets", ...] = ()
    """The values of the requested properties among the pages that pass the filters."""
    wikis: tuple[str, ...] = ()
    """The slugs of the wikis of a merged result; else empty."""
    answer: float = 0.0
    """How likely the wiki has an answer."""
    meaning_ready: float = 1.0
    """The share of the passages that are found by their meaning. Below 1, no hit has a confidence."""
    seconds_left: float | None = None
    """The time until all are; None if it is unknown."""
    at: PastCommit | None = None
    """The commit of a search in the past."""


# Query log.


class SearchInterface(StrEnum):
    """The interface a search came through."""

    HTTP = "http"
    OTTERWIKI = "otterwiki"
    MCP = "mcp"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One search and its outcome. It contains nothing about the user."""

    at: float
    """Seconds since 1970."""
    interface: str
    query: str
    mode: str
    filtered: bool
    hits: int
    nothing_relevant: bool
    degraded: bool
    score: float
    """The score of the best hit, 0 if there is none."""
    ms: float
    did_you_mean: str
    pages: tuple[str, ...]
    """Paths of the returned pages, best first."""
    lost: int = 0
    """Number of searches before this one that could not be recorded."""


@dataclass(frozen=True, slots=True)
class QueryRetention:
    """Limits of a query log: the maximum age of a record and the maximum number of records."""

    max_days: float
    max_records: int


@dataclass(frozen=True, slots=True)
class QueryRecords:
    """The records of a period, oldest first."""

    records: tuple[QueryRecord, ...]
    damaged_at: float | None = None
    """When the log was last replaced because of damage, if ever."""
