"""Query strings, read once and strictly, into the model of what an address takes.

The framework can do this too, at several times the price: it looks at the type of every field anew for each request.
"""

from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

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
