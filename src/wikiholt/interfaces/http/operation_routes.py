"""HTTP routes made from the table of operations: reads and checks parameters, opens the wiki, runs the function.

FastAPI can read a model from the query string too, but it accepts a repeated parameter silently and costs several
times as much, because it inspects the type of every field for each request. A body is parsed only after the access
check, and in a thread.
"""

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from itertools import chain
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, quote

import anyio
from fastapi import APIRouter, Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Send
from starlette.types import Scope as RequestScope

from wikiholt.api.operations.attachments import ReadAttachment, find_attachment
from wikiholt.api.operations.operation import Caching, Operation
from wikiholt.api.operations.page_writes import CommitParameters
from wikiholt.api.operations.parameters import BodyParameters, Parameters
from wikiholt.api.operations.search import SearchParameters, WikiSearchParameters, wait_for_index
from wikiholt.api.operations.similar_paths import suggest_paths
from wikiholt.domain.page import AttachmentResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AttachmentNotFound, IndexMissing, InvalidPage, NotFound, PageNotFound
from wikiholt.interfaces.http.middleware import run_in_slot
from wikiholt.interfaces.http.preconditions import apply_headers, describe_header, describe_headers
from wikiholt.interfaces.http.problem_details import Responses, describe_error_responses
from wikiholt.interfaces.http.request_context import RequestContext, get_request_context
from wikiholt.interfaces.http.responses import (
    NO_STORE,
    PRIVATE_CACHE_CONTROL,
    encode_json,
    make_cached_response,
    make_json_response,
    make_weak_etag,
)
from wikiholt.wikis.session import WikiSession

M = TypeVar("M", bound=BaseModel)

INERT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})
"""Media types that may be sent to a browser: none in which a script can run."""
LINES_OF_JSON = "application/x-ndjson"
MAX_SEND_S = 10.0
"""How long a client may take to read a line of a stream, which keeps a place at the language model."""


def make_router(prefix: str, operations: Sequence[Operation]) -> APIRouter:
    """A router for the operations that have a route."""
    router = APIRouter(prefix=prefix, route_class=_OperationRoute)
    by_name = {operation.name: operation for operation in operations}
    for operation in filter(lambda operation: operation.route, operations):
        method, path = operation.route.split()
        responses: Responses = {
            status: {"model": model, "description": text} for status, (model, text) in operation.other_results.items()
        }
        if operation.stream is not None:
            responses[200] = {"content": {LINES_OF_JSON: {"schema": {}}}}
        page = by_name.get(operation.page_instead)
        router.add_api_route(
            path.replace("{path}", "{path:path}"),
            _make_endpoint(operation, page),
            methods=[method],
            status_code=operation.status,
            response_model=operation.result | page.result if page else operation.result,
            responses=describe_error_responses(*operation.errors, *([304] if _has_etag(operation) else ())) | responses,
            tags=[operation.tag],
            name=operation.name,
            summary=operation.run.__name__.replace("_", " ").title(),
            description=operation.description,
        )
    return router


class _OperationRoute(APIRoute):
    """A route that FastAPI only describes: its endpoint reads the request and makes the response."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


def _has_etag(operation: Operation) -> bool:
    return operation.route.startswith("GET ") and operation.caching in (Caching.VERSION, Caching.CONTENT)


def _make_endpoint(operation: Operation, page: Operation | None) -> Callable[[Request], Any]:
    model = operation.parameters
    has_body = issubclass(model, BodyParameters)

    async def endpoint(request: Request) -> Response:
        context = get_request_context(request)
        if has_body:
            await refuse_query(request)
            await run_in_threadpool(context.require_key)
            body = await request.body()
            return await run_in_threadpool(_respond, operation, page, request, context, body)
        parameters = parse_query(request, model)
        waits = isinstance(parameters, SearchParameters) and parameters.waits_for_index
        if operation.is_search and context.has_local_search and not waits:
            # A search only computes, so it gets a thread when fewer than one per core run.
            with context.search_load.count_search():
                return await run_in_slot(
                    lambda: _respond(operation, page, request, context, parameters), context.workers
                )
        return await run_in_threadpool(_respond, operation, page, request, context, parameters)

    endpoint.operation = operation  # type: ignore[attr-defined]
    return endpoint


def _respond(
    operation: Operation,
    page: Operation | None,
    request: Request,
    context: RequestContext,
    sent: Parameters | bytes,
) -> Response:
    """Open what the operation is about, parse a body only then, and answer."""
    if operation.run_several is not None:
        assert isinstance(sent, WikiSearchParameters)
        opened = context.open_wikis(sent.wiki)
        if len(opened.sessions) > 1 or opened.failures:
            return make_json_response(operation.run_several(opened, sent), headers=NO_STORE)
        return _answer(operation, request, opened.sessions[0], sent)
    subject = context.open_subject(operation)
    parameters = parse_body(request, operation.parameters, sent) if isinstance(sent, bytes) else sent
    try:
        return _answer(operation, request, subject, parameters)
    except (PageNotFound, AttachmentNotFound, InvalidPage):
        if page is not None:
            _, route = operation.route.split("/pages/")
            shared = page.parameters.model_fields.keys() & type(parameters).model_fields.keys()
            fields = {name: getattr(parameters, name) for name in shared}
            fields["path"] = route.format(**request.path_params)
            with suppress(NotFound, InvalidPage):
                return _answer(page, request, subject, page.parameters.model_construct(**fields))
        raise


def _answer(operation: Operation, request: Request, subject: Any, parameters: Any) -> Response:
    with ExitStack() as stack:
        if isinstance(subject, WikiSession):
            if isinstance(parameters, SearchParameters):
                wait_for_index(subject, parameters)
            path = getattr(parameters, "path", None)
            if path and operation.scope is Scope.READ:
                stack.enter_context(suggest_paths(subject, path))
            if isinstance(parameters, CommitParameters):
                parameters = stack.enter_context(apply_headers(request.headers, subject, parameters))
            if operation.stream is not None and _asks_for_stream(request, parameters):
                return _DocumentStream(operation.stream(subject, parameters))
            if operation.caching is Caching.VERSION:
                return _answer_for_version(operation, request, subject, parameters)
            if isinstance(parameters, ReadAttachment) and parameters.raw:
                return make_file_response(find_attachment(subject, parameters))
        document = operation.run(subject, parameters)
    if operation.caching is Caching.CONTENT and _has_etag(operation):
        # The revision, which writes compare, a dot, and a hash of all else but the commit that was read.
        etag = f'"{document["revision"]}.{make_weak_etag(document | {"read_at": ""})[3:-1]}"'
        return make_cached_response(etag, request.headers.get("if-none-match"), lambda: document)
    status = operation.choose_status(document) if operation.choose_status is not None else operation.status
    headers = dict(NO_STORE) if operation.caching is Caching.NEVER else {}
    if operation.location and status == operation.status:
        headers["Location"] = f"{request.scope.get('root_path', '')}/api/v1{operation.location.format_map(document)}"
    etag = f'"{document["revision"]}"' if operation.caching is Caching.CONTENT else ""
    return make_json_response(document, status, headers, etag)


def _asks_for_stream(request: Request, parameters: Any) -> bool:
    return parameters.stream or request.headers.get("accept", "").startswith(LINES_OF_JSON)


class _DocumentStream(StreamingResponse):
    """One line of JSON per document, sent as they come. An error of the first one is raised here."""

    def __init__(self, documents: Generator[Mapping[str, Any]]) -> None:
        lines = (encode_json(document) + b"\n" for document in chain([next(documents)], documents))
        super().__init__(lines, headers=NO_STORE | {"X-Accel-Buffering": "no"}, media_type=LINES_OF_JSON)
        self._documents = documents

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            with anyio.move_on_after(MAX_SEND_S) as limit:
                await send(message)
            if limit.cancelled_caught:
                raise ClientDisconnect

        try:
            await super().__call__(scope, receive, send_in_time)
        finally:
            self._documents.close()  # also if the client has left: what the documents are made from is free again


def _answer_for_version(operation: Operation, request: Request, wiki: WikiSession, parameters: Any) -> Response:
    """A response whose ETag depends on the version of the index."""
    try:
        with wiki.open_snapshot() if operation.needs_index else wiki.handle.open_snapshot() as snapshot:
            models = (wiki.handle.reranker_identity, wiki.handle.language_model) if operation.is_search else ()
            return make_cached_response(
                make_weak_etag(operation.name, wiki.wiki, snapshot.version, models, parameters),
                request.headers.get("if-none-match"),
                lambda: operation.run(wiki, parameters, snapshot),
            )
    except IndexMissing:
        if operation.needs_index:
            raise
    return make_json_response(operation.run(wiki, parameters))


def make_file_response(file: AttachmentResult) -> Response:
    """The bytes of a file as a download, with a media type in which no script can run."""
    media_type = file.attachment.mime_type
    headers = {
        "Cache-Control": PRIVATE_CACHE_CONTROL,
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.attachment.filename, safe='')}",
        "ETag": f'"{file.attachment.blob}"',
    }
    is_inert = media_type in INERT_MEDIA_TYPES
    return Response(file.data, 200, headers, media_type=media_type if is_inert else "application/octet-stream")


# Parameters


def describe_parameters(route: APIRoute) -> Iterator[dict[str, Any]]:
    """Describe the parameters of a route for the OpenAPI document."""
    operation: Operation | None = getattr(route.endpoint, "operation", None)
    if operation is None:
        return
    in_path = {name.strip("{}") for name in route.path_format.split("/") if name.startswith("{")}
    for field in describe_fields(operation.parameters):
        if field["name"] in in_path:
            field["schema"]["description"] = field["description"]
            yield field | {"in": "path"}
        elif not issubclass(operation.parameters, BodyParameters):
            yield field
    if _has_etag(operation):
        yield describe_header("If-None-Match", "The ETag of a response that the client has cached.")
    yield from describe_headers(operation.parameters)


def describe_fields(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    """Describe the fields of a model. Definitions are inlined: there are few, and they are small."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    for name, declared in schema.get("properties", {}).items():
        inlined = definitions[declared.pop("$ref").rpartition("/")[2]] if "$ref" in declared else {}
        field = {**inlined, **declared}
        yield {
            "name": name,
            "in": "query",
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


def describe_body(route: APIRoute, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """Describe the body of a route for the OpenAPI document; add the models that it uses to `schemas`."""
    operation: Operation | None = getattr(route.endpoint, "operation", None)
    if operation is None or not issubclass(operation.parameters, BodyParameters):
        return None
    schema = operation.parameters.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {})
    for name in [name for name in schema["properties"] if f"{{{name}}}" in route.path_format]:
        del schema["properties"][name]
        schema["required"].remove(name)
    if not schema.get("required"):
        schema.pop("required", None)
    return {"required": not operation.parameters.is_optional, "content": {"application/json": {"schema": schema}}}


async def refuse_query(request: Request) -> None:
    """Raise RequestValidationError if the request has query parameters."""
    _validate(request, Parameters, collect_values(request, Parameters), "query")


NoQuery = Annotated[None, Depends(refuse_query)]


def parse_query(request: Request, model: type[M]) -> M:
    """The parameters in the path and in the query string. Raises RequestValidationError."""
    values = collect_values(request, model)
    return _validate(request, model, _add_path(request, values, "query"), "query")


def parse_body(request: Request, model: type[Parameters], body: bytes) -> Parameters:
    """The parameters in the path and in the body, a JSON object. Raises RequestValidationError."""
    assert issubclass(model, BodyParameters)
    values: Any = {}
    if body or not model.is_optional:
        require_media_type(request, "application/json")
        try:
            values = from_json(body)
        except ValueError as error:
            raise _make_error("json_invalid", f"Invalid JSON: {error}", "body") from None
        if not isinstance(values, dict):
            raise _make_error("model_type", "Input should be an object", "body")
    return _validate(request, model, _add_path(request, values, "body"), "body")


def require_media_type(request: Request, media_type: str, *others: str) -> None:
    """Raise RequestValidationError if the body has none of these types."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent not in (media_type, *others):
        raise _make_error("unreadable", f"it must have Content-Type: {media_type}", "body")


def _add_path(request: Request, values: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The values with those in the path, which must not be elsewhere too."""
    for name in values.keys() & request.path_params.keys():
        raise _make_error("extra_forbidden", "", where, name)
    return {**values, **request.path_params}


def _validate(request: Request, model: type[M], values: Mapping[str, Any], where: str) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        places = ("path" if fault["loc"] and fault["loc"][0] in request.path_params else where for fault in faults)
        raise RequestValidationError(
            [{**fault, "loc": (place, *fault["loc"])} for fault, place in zip(faults, places, strict=True)]
        ) from None


def _make_error(kind: str, message: str, *place: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": place, "msg": message}])


def collect_values(request: Request, model: type[BaseModel]) -> dict[str, str | list[str]]:
    """The values of the query string. Raises RequestValidationError for one that occurs more than once."""
    repeatable = _find_repeatable(model)
    values: dict[str, str | list[str]] = {}
    try:
        query = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise _make_error("encoding", "it is not UTF-8 text, percent-encoded", "query") from None
    for name, value in pairs:
        if name in repeatable:
            repeated = values.setdefault(name, [])
            assert isinstance(repeated, list)
            repeated.append(value)
        elif name in values:
            raise _make_error("twice", "it occurs more than once", "query", name)
        else:
            values[name] = value
    return values


@cache
def _find_repeatable(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in model.model_fields.items() if field.default == [])
