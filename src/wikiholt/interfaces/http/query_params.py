"""Query parameters: a strict parser, and the parameter models that routes share.

FastAPI can parse a model from the query string too, but it accepts a repeated parameter silently and costs several
times as much, because it inspects the type of every field for each request.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from starlette.requests import Request

from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES, PageFilter, SearchMode, SortOrder
from wikiholt.domain.slugs import MAX_SLUG_CHARS
from wikiholt.errors import InvalidQuery
from wikiholt.interfaces.schemas.common import parse_since, parse_until
from wikiholt.interfaces.schemas.filter_params import FILTER_PARAMS, FilterParam, build_filter
from wikiholt.search.request import (
    MAX_CHUNKS_PER_PAGE,
    MAX_FACETS,
    MAX_HITS,
    MAX_OFFSET,
    MAX_QUERY_CHARS,
    SearchRequest,
)
from wikiholt.wikis.multi_search import MAX_WIKIS_PER_SEARCH

M = TypeVar("M", bound=BaseModel)
_HITS_TEXT = "Maximum number of pages; of chunks if max_chunks_per_page is more than 1."


def parse_query(model: type[M]) -> Any:
    """A dependency that parses the query string as this model. It raises RequestValidationError."""
    repeatable = frozenset(name for name, field in model.model_fields.items() if field.default == [])

    async def read_query(request: Request) -> M:
        values = _collect_values(request.scope["query_string"], repeatable)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            raise build_validation_error(error, "query") from None

    read_query.model = model  # type: ignore[attr-defined]
    return Depends(read_query)


def build_validation_error(error: ValidationError, where: str) -> RequestValidationError:
    """The error of a request whose query or body does not match its model."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**fault, "loc": (where, *fault["loc"])} for fault in faults])


def describe_query_params(route: APIRoute) -> Iterator[dict[str, Any]]:
    """Describe the query parameters of a route for the OpenAPI document."""
    for dependency in route.dependant.dependencies:
        model: type[BaseModel] | None = getattr(dependency.call, "model", None)
        if model is None:
            continue
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        required = schema.get("required", ())
        definitions = schema.get("$defs", {})
        for name, declared in schema.get("properties", {}).items():
            # Inline the definitions: there are few, and they are small.
            inlined = definitions[declared.pop("$ref").rpartition("/")[2]] if "$ref" in declared else {}
            field = {**inlined, **declared}
            yield {
                "name": name,
                "in": "query",
                "required": name in required,
                "description": field.pop("description", ""),
                "schema": _remove_null(field),
            }


def _remove_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the schema of an optional parameter: a query string has no null."""
    variants = [variant for variant in schema.get("anyOf", ()) if variant != {"type": "null"}]
    if not variants or len(variants) == len(schema["anyOf"]):
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**rest, **variants[0]} if len(variants) == 1 else {**rest, "anyOf": variants}


def _collect_values(query: bytes, repeatable: frozenset[str]) -> dict[str, str | list[str]]:
    values: dict[str, str | list[str]] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        message = "it is not UTF-8 text, percent-encoded"
        raise RequestValidationError([{"type": "encoding", "loc": ("query",), "msg": message}]) from None
    for name, value in pairs:
        if name in repeatable:
            repeated = values.setdefault(name, [])
            assert isinstance(repeated, list)
            repeated.append(value)
        elif name in values:
            raise RequestValidationError([{"type": "twice", "loc": ("query", name), "msg": "it occurs more than once"}])
        else:
            values[name] = value
    return values


# Parameter models. Unknown parameters are refused, and so are values in another notation, such as n=1e1 or fresh=yes.


def _check_digits(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"-?(?:0|[1-9][0-9]{0,17})", value):
        raise ValueError("it is not a whole number")
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
SlugValue = Annotated[
    FilterValue,
    WithJsonSchema({"type": "string", "maxLength": MAX_SLUG_CHARS, "pattern": "^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$"}),
]
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
    """The parameters of a route without parameters."""

    model_config = ConfigDict(extra="forbid")


NoQuery = Annotated[NoParams, parse_query(NoParams)]


def _build_filter_fields() -> Iterator[tuple[str, Any]]:
    """The fields of the filters of all interfaces, and of their aliases."""
    for param in FILTER_PARAMS:
        if param.is_list:
            options: Any = Field([], max_length=MAX_FILTER_VALUES, description=param.description)
            yield param.name, (list[_get_value_type(param)], options)  # type: ignore[misc]
            continue
        kind: Any = Since if param.is_date else FilterValue
        yield param.name, (kind | None, Field(None, description=param.description))
        if param.alias:
            yield param.alias, (kind | None, Field(None, description=f"The same as {param.name}."))


def _get_value_type(param: FilterParam) -> Any:
    if not param.pattern:
        return FilterValue
    schema = {"type": "string", "maxLength": MAX_FILTER_VALUE_CHARS, "pattern": param.pattern}
    return Annotated[FilterValue, WithJsonSchema(schema)]


if TYPE_CHECKING:
    _FilterFields = NoParams
else:
    _FilterFields = create_model("_FilterFields", __base__=NoParams, **dict(_build_filter_fields()))


class FilterParams(_FilterFields):
    """Page filters; a page must match all of them. Its fields are the filters of all interfaces."""

    _aliases: ClassVar[Mapping[str, str]] = {param.name: param.alias for param in FILTER_PARAMS if param.alias}
    """Other names of parameters."""

    @model_validator(mode="after")
    def _check_aliases(self) -> Self:
        for name, alias in self._aliases.items():
            if None not in (getattr(self, name), getattr(self, alias)):
                raise ValueError(f"{' and '.join(sorted((name, alias)))} are the same; give one of them")
        return self

    def to_filter(self) -> PageFilter:
        return build_filter(self._get_param)

    def _get_param(self, param: FilterParam) -> Any:
        value, alias = getattr(self, param.name), self._aliases.get(param.name)
        return getattr(self, alias) if value is None and alias else value


class ListParams(FilterParams):
    """Page filters of routes where `path` is an alias of `prefix`."""

    path: FilterValue | None = Field(None, description="The same as prefix.")
    _aliases: ClassVar[Mapping[str, str]] = {**FilterParams._aliases, "prefix": "path"}


class FacetParams(ListParams):
    """Parameters of the facets."""

    facets: list[FilterValue] = Field(
        [],
        max_length=MAX_FACETS,
        description="A frontmatter property whose values are counted; may be repeated.",
    )


class FacetQueryParams(FacetParams):
    """Parameters of the facets, which may be those of the pages that a query finds."""

    q: str = Field("", max_length=MAX_QUERY_CHARS, description="Count only pages that match this query.")
    mode: SearchMode = Field(SearchMode.HYBRID, description="How the query finds pages.")


class SearchParams(FacetParams):
    """Parameters of a search."""

    q: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        pattern=r"^[^\x00]*[^\s\x00][^\x00]*$",
        description="The query.",
    )
    n: Count = Field(10, ge=1, le=MAX_HITS, description=_HITS_TEXT)
    mode: SearchMode = Field(
        SearchMode.HYBRID, description="Search by meaning and words, by meaning only, or by words only."
    )
    max_chunks_per_page: Count = Field(
        1, ge=1, le=MAX_CHUNKS_PER_PAGE, description="Maximum number of chunks of one page."
    )
    fresh: Flag = Field(False, description="Wait, for a limited time, until the index reaches HEAD.")
    at_least: str = Field(
        "",
        pattern="^([0-9a-f]{7,64})?$",
        description="A commit, as a write answers: wait, for a limited time, until the index contains it.",
    )
    offset: Count = Field(0, ge=0, le=MAX_OFFSET, description="Number of hits to skip.")
    sort: SortOrder = Field(
        SortOrder.RELEVANCE,
        description="The order: by relevance, or of the pages about as relevant as the best by date.",
    )
    rerank: Flag | None = Field(
        None,
        description="Whether the reranker rescores the best pages; default: with rerank.model, for unclear answers.",
    )

    def to_request(self) -> SearchRequest:
        return SearchRequest(
            self.q,
            self.n,
            self.mode,
            self.to_filter(),
            self.max_chunks_per_page,
            self.rerank,
            self.offset,
            self.sort,
            tuple(self.facets),
        )


class WikiSearchParams(SearchParams):
    """Parameters of a search that may cover several wikis."""

    wiki: list[SlugValue] = Field(
        [],
        max_length=MAX_WIKIS_PER_SEARCH,
        description="Search this wiki; may be repeated. Needs an operator key, or the key of each wiki.",
    )


class SemanticParams(SearchParams):
    """Parameters of a search by meaning, for clients of otterwiki-semantic-search."""

    n: Count = Field(5, ge=1, le=MAX_HITS, description=_HITS_TEXT)
    mode: SearchMode = Field(SearchMode.SEMANTIC, description="Search by meaning only, unless set otherwise.")


class SimilarParams(FilterParams):
    """Parameters of a search for similar pages."""

    path: str = Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$", description="The page.")
    n: Count = Field(5, ge=1, le=MAX_HITS, description="Maximum number of pages.")


class PageListParams(ListParams):
    """Filters and paging of the page list, which is sorted by path."""

    limit: Count = Field(10_000, ge=1, le=10_000, description="Maximum number of entries.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")
