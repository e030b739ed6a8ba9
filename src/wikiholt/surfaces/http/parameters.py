"""What addresses take after the question mark. A parameter that is not here is refused, and so is a value that only
nearly fits: whoever asks for n=1e1 or fresh=yes is told so."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from wikiholt.errors import InvalidQuery
from wikiholt.model import PageFilter, SearchMode
from wikiholt.model.answers import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES
from wikiholt.search import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_QUERY_CHARS, SearchRequest
from wikiholt.surfaces.documents.moments import parse_since, parse_until


def _check_digits(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"-?(?:0|[1-9][0-9]{0,17})", value):
        raise ValueError("it is no whole number")
    return value


def _check_flag(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return value


def _parse_date(value: Any, parse: Callable[[str], datetime]) -> Any:
    try:
        return parse(value) if isinstance(value, str) else value
    except InvalidQuery as error:
        raise ValueError(f"{error.message}; {error.hint}") from None


Count = Annotated[int, BeforeValidator(_check_digits)]
Flag = Annotated[bool, BeforeValidator(_check_flag)]
FilterValue = Annotated[str, Field(min_length=1, max_length=MAX_FILTER_VALUE_CHARS, pattern=r"^[^\x00]+$")]
_DATE_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string", "format": "date"},
            {"type": "string", "format": "date-time"},
            {"type": "string", "pattern": "^[0-9]{1,4}[hdw]$"},
        ]
    }
)
Since = Annotated[datetime, BeforeValidator(lambda value: _parse_date(value, parse_since)), _DATE_SCHEMA]
Until = Annotated[datetime, BeforeValidator(lambda value: _parse_date(value, parse_until)), _DATE_SCHEMA]


class NoParams(BaseModel):
    """An address that takes no parameters."""

    model_config = ConfigDict(extra="forbid")


class FilterParams(NoParams):
    """Which pages count; all that is given must hold."""

    tag: list[FilterValue] = Field([], max_length=MAX_FILTER_VALUES, description="Pages with this tag; may be given several times.")
    category: list[FilterValue] = Field(
        [], max_length=MAX_FILTER_VALUES, description="Pages of this category; of any of them if given several times."
    )
    prefix: FilterValue | None = Field(None, description="Pages whose path begins with this.")
    since: Since | None = Field(None, description="Pages changed since: a date, a date with time, or 7d, 12h, 3w.")
    updated_since: Since | None = Field(None, description="The same as since.")

    @model_validator(mode="after")
    def _check_single_since(self) -> "FilterParams":
        if self.since is not None and self.updated_since is not None:
            raise ValueError("since and updated_since are the same; give one of them")
        return self

    def to_filter(self) -> PageFilter:
        return PageFilter(tuple(self.category), tuple(self.tag), self._get_prefix() or "", self.since or self.updated_since)

    def _get_prefix(self) -> str | None:
        return self.prefix


class ListParams(FilterParams):
    """Narrowed, where `path` is free to mean the same as `prefix`."""

    path: FilterValue | None = Field(None, description="The same as prefix.")

    @model_validator(mode="after")
    def _check_single_prefix(self) -> "ListParams":
        if self.path is not None and self.prefix is not None:
            raise ValueError("path and prefix are the same; give one of them")
        return self

    def _get_prefix(self) -> str | None:
        return self.path or self.prefix


class SearchParams(ListParams):
    """A search."""

    q: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARS, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$", description="What to look for."
    )
    n: Count = Field(10, ge=1, le=MAX_HITS, description="How many pages at most.")
    mode: SearchMode = Field(SearchMode.HYBRID, description="By meaning and words, by meaning alone, or by words alone.")
    max_chunks_per_page: Count = Field(1, ge=1, le=MAX_CHUNKS_PER_PAGE, description="How many passages of one page at most.")
    fresh: Flag = Field(False, description="Wait until the index has reached HEAD, for a bounded time.")
    rerank: Flag | None = Field(
        None, description="Whether the reranker reads the best pages again; as rerank.model says if left out."
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(self.q, self.n, self.mode, self.to_filter(), self.max_chunks_per_page, self.rerank)


class SemanticParams(SearchParams):
    """A search as otterwiki-semantic-search takes it."""

    n: Count = Field(5, ge=1, le=MAX_HITS, description="How many pages at most.")
    mode: SearchMode = Field(SearchMode.SEMANTIC, description="By meaning alone, unless said otherwise.")
    max_chunks_per_page: Count = Field(2, ge=1, le=MAX_CHUNKS_PER_PAGE, description="How many passages of one page at most.")


class SimilarParams(FilterParams):
    """Pages like one page."""

    path: str = Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$", description="The page.")
    n: Count = Field(5, ge=1, le=MAX_HITS, description="How many pages at most.")


class PageListParams(ListParams):
    """Some of the pages, in order of their paths."""

    limit: Count = Field(10_000, ge=1, le=10_000, description="How many at most.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")
