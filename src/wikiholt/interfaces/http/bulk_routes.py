"""The route that writes many pages from NDJSON."""

from collections.abc import Sequence
from itertools import chain, islice
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wikiholt.domain.wiki import Scope
from wikiholt.errors import InputTooLarge
from wikiholt.interfaces.http.problem_details import describe_error_responses, get_public_message
from wikiholt.interfaces.http.query_params import NoParams, parse_query
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, encode_json
from wikiholt.interfaces.http.write_request import AuthorHeader, RawBody, WriteBody, get_author, receive_body
from wikiholt.interfaces.schemas.bulk_schemas import BulkPage, BulkResultDocument, write_lines
from wikiholt.wikis.pages.bulk_writer import BulkLine, BulkLineResult

router = APIRouter(prefix="/api/v1", tags=["pages"])

MAX_LINES = 10_000
NDJSON_MEDIA_TYPE = "application/x-ndjson"
_MEDIA_TYPES = (NDJSON_MEDIA_TYPE, "application/ndjson", "application/jsonl", "application/x-jsonlines")


class BulkParams(NoParams):
    """The message of the commits."""

    message: str = Field("", max_length=1000, pattern=r"^[^\x00]*$", description="The message of the commits.")


async def _receive_ndjson(request: Request, context: RequestContextDep) -> RawBody:
    return await receive_body(request, context)


_receive_ndjson.body = (BulkPage, False, NDJSON_MEDIA_TYPE)  # type: ignore[attr-defined]


def _split_lines(body: RawBody) -> list[bytes]:
    """The lines of the body. Raises RequestValidationError and InputTooLarge."""
    body.require_media_type(*_MEDIA_TYPES)
    lines = body.data.split(b"\n")
    if len(lines) > MAX_LINES + 1:
        raise InputTooLarge(
            f"The body has more than {MAX_LINES:,} lines; nothing was written.",
            hint="Send the lines in several requests.",
        )
    return lines


@router.post(
    "/pages:bulk",
    response_model=BulkResultDocument,
    responses={
        200: {"content": {NDJSON_MEDIA_TYPE: {}}, "description": "One result per line, sent once it is committed."},
        **describe_error_responses(404, 409, 413),
    },
)
def write_pages(
    context: RequestContextDep,
    body: Annotated[RawBody, Depends(_receive_ndjson)],
    params: Annotated[BulkParams, parse_query(BulkParams)],
    author_header: AuthorHeader = None,
) -> Response:
    """Write or delete many pages: a JSON object per line. Repeating a line changes nothing."""
    wiki, lines = context.open_wiki(Scope.WRITE), _split_lines(body)
    author = get_author(wiki, WriteBody(), author_header)

    def write(batch: Sequence[BulkLine]) -> Sequence[BulkLineResult]:
        results = wiki.handle.pages.write_many(batch, author, params.message)
        wiki.report_bulk_write(results, author, params.message)
        return results

    documents = write_lines(lines, write, wiki.path_style, get_public_message)
    first = list(islice(documents, 1))  # an error of the first batch becomes an error response
    encoded = (encode_json(document) + b"\n" for document in chain(first, documents))
    return StreamingResponse(encoded, 200, {"Cache-Control": PRIVATE_CACHE_CONTROL}, NDJSON_MEDIA_TYPE)
