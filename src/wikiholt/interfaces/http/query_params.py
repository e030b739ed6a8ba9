"""Query strings, read once and strictly, into the model of what an address takes.

The framework can do this too, at several times the price: it looks at the type of every field anew for each request.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from starlette.requests import Request

from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES, PageFilter, SearchMode
from wikiholt.errors import InvalidQuery
from wikiholt.interfaces.schemas.common import parse_since, parse_until
from wikiholt.search.request import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_QUERY_CHARS, SearchRequest

M = TypeVar("M", bound=BaseModel)


def parse_query(model: type[M]) -> Any:
    """A dependency that gives the query string as this model; raises RequestValidationError."""
    repeatable = frozenset(name for name, field in model.model_fields.items() if field.default == [])

    async def read_query(request: Request) -> M:
        values = _collect_values(request.scope["query_string"], repeatable)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**fault, "loc": ("query", *fault["loc"])} for fault in faults]) from None

    read_query.model = model  # type: ignore[attr-defined]
    return Depends(read_query)


def describe_query_params(route: APIRoute) -> Iterator[dict[str, Any]]:
    """What a route takes after the question mark, for the OpenAPI document."""
    for dependency in route.dependant.dependencies:
        model: type[BaseModel] | None = getattr(dependency.call, "model", None)
        if model is None:
            continue
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        needed = schema.get("required", ())
        kinds = schema.get("$defs", {})
        for name, told in schema.get("properties", {}).items():
            # Kinds are few and small: they stand where they are used.
            shape = {**kinds[told.pop("$ref").rpartition("/")[2]], **told} if "$ref" in told else told
            yield {
                "name": name,
                "in": "query",
                "required": name in needed,
                "description": shape.pop("description", ""),
                "schema": _remove_null(shape),
            }


def _remove_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter that may be left out: in a query string there is no null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if not kinds or len(kinds) == len(schema["anyOf"]):
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**rest, **kinds[0]} if len(kinds) == 1 else {**rest, "anyOf": kinds}


def _collect_values(query: bytes, repeatable: frozenset[str]) -> dict[str, str | list[str]]:
    values: dict[str, str | list[str]] = {}
    for name, value in _split_pairs(query):
        if name in repeatable:
            several = values.setdefault(name, [])
            assert isinstance(several, list)
            several.append(value)
        elif name in values:
            raise RequestValidationError(
                [{"type": "twice", "loc": ("query", name), "msg": "it is given more than once"}]
            )
        else:
            values[name] = value
    return values


def _split_pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        message = "it is not UTF-8 text, percent-encoded"
        raise RequestValidationError([{"type": "encoding", "loc": ("query",), "msg": message}]) from None


# What addresses take after the question mark. A parameter that is not here is refused, and so is a value that only
# nearly fits: whoever asks for n=1e1 or fresh=yes is told so.


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

    tag: list[FilterValue] = Field(
        [], max_length=MAX_FILTER_VALUES, description="Pages with this tag; may be given several times."
    )
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
        return PageFilter(
            tuple(self.category), tuple(self.tag), self._get_prefix() or "", self.since or self.updated_since
        )

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
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        pattern=r"^[^\x00]*[^\s\x00][^\x00]*$",
        description="What to look for.",
    )
    n: Count = Field(10, ge=1, le=MAX_HITS, description="How many pages at most.")
    mode: SearchMode = Field(
        SearchMode.HYBRID, description="By meaning and words, by meaning alone, or by words alone."
    )
    max_chunks_per_page: Count = Field(
        1, ge=1, le=MAX_CHUNKS_PER_PAGE, description="How many passages of one page at most."
    )
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
    max_chunks_per_page: Count = Field(
        2, ge=1, le=MAX_CHUNKS_PER_PAGE, description="How many passages of one page at most."
    )


class SimilarParams(FilterParams):
    """Pages like one page."""

    path: str = Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$", description="The page.")
    n: Count = Field(5, ge=1, le=MAX_HITS, description="How many pages at most.")


class PageListParams(ListParams):
    """Some of the pages, in order of their paths."""

    limit: Count = Field(10_000, ge=1, le=10_000, description="How many at most.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="How many to leave out at the beginning.")
