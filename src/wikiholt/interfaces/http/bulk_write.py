"""The route that writes many pages: one JSON object per line (NDJSON), and one result per line as it is committed."""

from collections.abc import Sequence
from itertools import chain, islice

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wikiholt.api.operations.bulk_lines import BulkPage, BulkResultDocument, write_lines
from wikiholt.api.operations.page_writes import get_author
from wikiholt.api.operations.parameters import NO_NUL_PATTERN, Parameters
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InputTooLarge
from wikiholt.interfaces.http.operation_routes import describe_fields, parse_query, require_media_type
from wikiholt.interfaces.http.preconditions import describe_author_header, parse_author
from wikiholt.interfaces.http.problem_details import Responses, describe_route
from wikiholt.interfaces.http.request_context import RequestContext, RequestContextDep
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, encode_json
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult

router = APIRouter(prefix="/api/v1", tags=["pages"])

MAX_BULK_LINES = 10_000
_NDJSON_MEDIA_TYPE = "application/x-ndjson"
_OTHER_NDJSON_TYPES = ("application/ndjson", "application/jsonl", "application/x-jsonlines")
_BULK_RESPONSE: Responses = {
    200: {"content": {_NDJSON_MEDIA_TYPE: {}}, "description": "One result per line, sent once it is committed."}
}


class BulkParameters(Parameters):
    """The message of the commits."""

    message: str = Field("", max_length=1000, pattern=NO_NUL_PATTERN, description="The message of the commits.")


_BULK_OPENAPI = {
    "parameters": [*describe_fields(BulkParameters), describe_author_header()],
    "requestBody": {"required": True, "content": {_NDJSON_MEDIA_TYPE: {"schema": BulkPage.model_json_schema()}}},
}


@router.post(
    "/pages:bulk",
    openapi_extra=_BULK_OPENAPI,
    **describe_route(BulkResultDocument, 404, 409, 413, others=_BULK_RESPONSE),
)
async def write_pages(request: Request, context: RequestContextDep) -> Response:
    """Write or delete many pages: a JSON object per line. Repeating a line changes nothing."""
    parameters = parse_query(request, BulkParameters)
    await run_in_threadpool(context.require_key)
    body = await request.body()
    return await run_in_threadpool(_write_lines, request, context, parameters.message, body)


def _write_lines(request: Request, context: RequestContext, message: str, body: bytes) -> Response:
    wiki = context.open_wiki(Scope.WRITE)
    require_media_type(request, _NDJSON_MEDIA_TYPE, *_OTHER_NDJSON_TYPES)
    lines = body.split(b"\n")
    if len(lines) > MAX_BULK_LINES + 1:
        raise InputTooLarge(
            f"The body has more than {MAX_BULK_LINES:,} lines; nothing was written.",
            hint="Send the lines in several requests.",
        )
    author = get_author(wiki, parse_author(request.headers))

    def write(batch: Sequence[BulkLine]) -> Sequence[BulkLineResult]:
        results = wiki.handle.pages.write_many(batch, author, message)
        wiki.report_bulk_write(results, author, message)
        return results

    documents = write_lines(lines, write, wiki.path_style, get_public_message)
    first = list(islice(documents, 1))  # an error of the first batch becomes an error response
    encoded = (encode_json(document) + b"\n" for document in chain(first, documents))
    return StreamingResponse(encoded, 200, {"Cache-Control": PRIVATE_CACHE_CONTROL}, _NDJSON_MEDIA_TYPE)
