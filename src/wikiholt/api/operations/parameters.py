"""The base class of parameter models, the types of their fields, and the page filters."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model, model_validator

from wikiholt.api.filter_params import FILTER_PARAMS, FilterParam, build_filter
from wikiholt.domain.dates import parse_since, parse_until
from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS, MAX_FILTER_VALUES, PageFilter
from wikiholt.domain.slugs import MAX_SLUG_CHARS
from wikiholt.errors import InvalidQuery
from wikiholt.search.request import MAX_QUERY_CHARS

# Values in another notation, such as n=1e1 or fresh=yes, are refused.


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


def to_list(value: Any) -> Any:
    """Accept a string for a list of one, an empty one for an empty list, and a list as JSON, as some agents send."""
    if not isinstance(value, str):
        return value
    if value.startswith('["') and value.endswith('"]'):
        with suppress(ValueError):
            return json.loads(value)
    return [value] if value else []


NO_NUL_PATTERN = r"^[^\x00]*$"
Count = Annotated[int, BeforeValidator(_check_digits)]
Flag = Annotated[bool, BeforeValidator(_check_flag)]
FilterValue = Annotated[str, Field(min_length=1, max_length=MAX_FILTER_VALUE_CHARS, pattern=r"^[^\x00]+$")]
QueryText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS, pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
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
PagePath = Annotated[str, Field(min_length=1, max_length=1100, pattern=r"^[^\x00]+$", description="The page.")]
PageRevision = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{7,64}$")]


class Parameters(BaseModel):
    """The parameters of an operation. Unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class BodyParameters(Parameters):
    """Parameters from a JSON object, whose values must have the declared types. Names in the path are not in it."""

    model_config = ConfigDict(strict=True)
    is_optional: ClassVar[bool] = False
    """Whether the object may be missing."""


def _build_filter_fields() -> Iterator[tuple[str, Any]]:
    """The fields of the filters of all interfaces, and of their aliases."""
    for param in FILTER_PARAMS:
        if param.is_list:
            values: Any = list[_get_value_type(param)]  # type: ignore[misc]
            values = Annotated[values, BeforeValidator(to_list)]
            yield param.name, (values, Field([], max_length=MAX_FILTER_VALUES, description=param.description))
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
    _FilterFields = Parameters
else:
    _FilterFields = create_model("_FilterFields", __base__=Parameters, **dict(_build_filter_fields()))


class FilterParameters(_FilterFields):
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


class ListParameters(FilterParameters):
    """Page filters of operations where `path` is an alias of `prefix`."""

    path: FilterValue | None = Field(None, description="The same as prefix.")
    _aliases: ClassVar[Mapping[str, str]] = {**FilterParameters._aliases, "prefix": "path"}
