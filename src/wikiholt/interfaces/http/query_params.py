"""Query parameters: a strict parser, and the parameter models that routes share.

FastAPI can parse a model from the query string too, but it accepts a repeated parameter silently and costs several
times as much, because it inspects the type of every field for each request.
"""

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    ValidationError,
)
from starlette.requests import Request

from wikiholt.api.operations.parameters import Parameters

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


NoQuery = Annotated[Parameters, parse_query(Parameters)]
