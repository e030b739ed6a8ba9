"""HTTP routes made from the table of operations: reads and checks parameters, opens the wiki, runs the function.

FastAPI can read a model from the query string too, but it accepts a repeated parameter silently and costs several
times as much, because it inspects the type of every field for each request. A body is parsed only after the access
check, and in a thread.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.api.operations.operation import Caching, Operation, Subject
from wikiholt.api.operations.parameters import Parameters
from wikiholt.api.operations.search import SearchParameters, SemanticParameters, wait_for_index
from wikiholt.api.operations.similar_paths import suggest_paths
from wikiholt.interfaces.http.middleware import run_in_slot
from wikiholt.interfaces.http.problem_details import Responses, describe_error_responses
from wikiholt.interfaces.http.request_context import RequestContext, get_request_context
from wikiholt.interfaces.http.responses import (
    NO_STORE,
    make_cached_response,
    make_json_response,
    make_weak_etag,
)
from wikiholt.wikis.session import WikiSession

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def make_router(prefix: str, operations: tuple[Operation, ...]) -> APIRouter:
    """A router with a route for each operation."""
    router = APIRouter(prefix=prefix)
    for operation in operations:
        method, path = operation.route.split()
        responses: Responses = {
            status: {"model": model, "description": text} for status, (model, text) in operation.other_results.items()
        }
        statuses = (*operation.errors, *((304,) if operation.caching in (Caching.VERSION, Caching.CONTENT) else ()))
        router.add_api_route(
            path,
            _make_endpoint(operation),
            methods=[method],
            status_code=operation.status,
            response_model=operation.result,
            responses=describe_error_responses(*statuses) | responses,
            tags=[operation.tag],
            name=operation.name,
            description=operation.description,
        )
    return router


def _make_endpoint(operation: Operation) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        context = get_request_context(request)
        values = dict(request.path_params) | collect_values(request, operation.parameters)
        parameters = _validate(operation.parameters, values, "query")
        return await _run(operation, context, parameters, lambda: _respond(operation, request, context, parameters))

    endpoint.operation = operation  # type: ignore[attr-defined]
    return endpoint


async def _run(
    operation: Operation, context: RequestContext, parameters: Parameters, respond: Callable[[], Response]
) -> Response:
    """Run in a thread; a search that only computes gets one when fewer than one per core run."""
    waits = isinstance(parameters, SearchParameters) and parameters.waits_for_index
    if operation.is_search and context.has_local_search and not waits:
        with context.search_load.count_search():
            return await run_in_slot(respond)
    return await run_in_threadpool(respond)


def _respond(operation: Operation, request: Request, context: RequestContext, parameters: Any) -> Response:
    if operation.run_several is not None:
        opened = context.open_wikis(parameters.wiki)
        if len(opened.sessions) > 1 or opened.failures:
            return make_json_response(operation.run_several(opened, parameters), headers=NO_STORE)
        return _respond_for_wiki(operation, request, opened.sessions[0], parameters)
    if operation.subject is Subject.WIKI:
        if isinstance(parameters, SemanticParameters) and "max_chunks_per_page" not in parameters.model_fields_set:
            parameters = parameters.model_copy(update={"max_chunks_per_page": context.semantic_chunks_per_page})
        return _respond_for_wiki(operation, request, context.open_wiki(operation.scope), parameters)
    raise NotImplementedError(operation.subject)


def _respond_for_wiki(operation: Operation, request: Request, wiki: WikiSession, parameters: Any) -> Response:
    if isinstance(parameters, SearchParameters):
        wait_for_index(wiki, parameters)
    path = getattr(parameters, "path", None)
    with suggest_paths(wiki, path) if path else nullcontext():
        if operation.caching is Caching.VERSION:
            return _respond_for_version(operation, request, wiki, parameters)
        document = operation.run(wiki, parameters)
    headers = NO_STORE if operation.caching is Caching.NEVER else {}
    return make_json_response(document, operation.status, headers)


def _respond_for_version(operation: Operation, request: Request, wiki: WikiSession, parameters: Any) -> Response:
    """A response whose ETag depends on the version of the index."""
    with wiki.open_snapshot() as snapshot:
        identity = wiki.handle.reranker_identity if operation.is_search else ""
        return make_cached_response(
            make_weak_etag(operation.name, wiki.wiki, snapshot.version, identity, parameters),
            request.headers.get("if-none-match"),
            lambda: operation.run(wiki, parameters, snapshot),
        )


# Parameters


def describe_parameters(route: APIRoute) -> Iterator[dict[str, Any]]:
    """Describe the parameters of an operation for the OpenAPI document."""
    operation: Operation | None = getattr(route.endpoint, "operation", None)
    if operation is not None:
        if {304} & route.responses.keys():
            text = "The ETag of a response that the client has cached."
            schema = {"type": "string", "description": text}
            yield {"name": "If-None-Match", "in": "header", "required": False, "description": text, "schema": schema}
        yield from describe_fields(operation.parameters, "query")


def describe_fields(model: type[BaseModel], where: str) -> Iterator[dict[str, Any]]:
    """Describe the fields of a model. Definitions are inlined: there are few, and they are small."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    for name, declared in schema.get("properties", {}).items():
        inlined = definitions[declared.pop("$ref").rpartition("/")[2]] if "$ref" in declared else {}
        field = {**inlined, **declared}
        yield {
            "name": name,
            "in": where,
            "required": name in schema.get("required", ()),
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


def collect_values(request: Request, model: type[BaseModel]) -> dict[str, str | list[str]]:
    """The values of the query string. Raises RequestValidationError for one that occurs more than once."""
    repeatable = _find_repeatable(model)
    values: dict[str, str | list[str]] = {}
    try:
        query = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
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


@cache
def _find_repeatable(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in model.model_fields.items() if field.default == [])


def _validate(model: type[M], values: Mapping[str, Any], where: str) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**fault, "loc": (where, *fault["loc"])} for fault in faults]) from None
