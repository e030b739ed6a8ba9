"""Errors as problem+json (RFC 9457), derived from the class of the error.

Errors that the client can fix (4xx) are reported in full. The message of a 5xx error may contain paths of the server:
the client gets a general message, and the log gets the details.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypeVar

from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.api.public_messages import OPERATOR_HINT, get_public_message
from wikiholt.errors import (
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    InvalidInput,
    LockTimeout,
    NothingIndexed,
    RevisionMismatch,
    TooManyRequests,
    Unauthorized,
    ViewPending,
    WikiholtError,
)
from wikiholt.interfaces.http.responses import encode_json

T = TypeVar("T")

_log = logging.getLogger(__name__)

PROBLEM_MEDIA_TYPE = "application/problem+json"

_SENTENCE_START = re.compile(r"(?:a|[a-z]{2,})\b(?![_.:=/])")
"""A word, and not the name of a parameter."""
_TRANSIENT_ERRORS = (IndexMissing, NothingIndexed, IndexCorrupt, LockTimeout, ViewPending)
_TRANSIENT_RETRY_S = 2


class FieldError(TypedDict):
    """The error of one field of a request."""

    field: str
    where: str
    message: str


class ProblemDetails(TypedDict):
    """An error (RFC 9457). `error` is `detail` with the hint, for clients of otterwiki-api."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    error: str
    errors: NotRequired[list[FieldError]]
    current_revision: NotRequired[str | None]


def make_problem_response(error: WikiholtError, errors: Sequence[FieldError] = ()) -> Response:
    """Make the response to a request that failed with this error."""
    message, hint = get_public_message(error)
    if error.status >= 500:
        # A wiki that is being indexed for the first time needs no warning.
        _log.log(
            logging.DEBUG if isinstance(error, _TRANSIENT_ERRORS) else logging.WARNING,
            "%s: %s",
            error.code,
            error.message,
        )
    document = _build_problem(error.status, error.code, message, hint)
    if errors:
        document["errors"] = list(errors)
    if isinstance(error, RevisionMismatch):
        document["current_revision"] = error.current
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="wikiholt"'
    if isinstance(error, TooManyRequests):
        seconds = max(1, math.ceil(error.retry_after))
        headers |= {"Retry-After": str(seconds), "RateLimit": f'"minute";r=0;t={seconds}'}
    if isinstance(error, DatabaseUnavailable):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, _TRANSIENT_ERRORS):
        headers["Retry-After"] = str(_TRANSIENT_RETRY_S)
    return _make_response(document, headers)


def make_internal_error_response() -> Response:
    """Make the response to an unexpected exception, without details."""
    return _make_response(_build_problem(500, "fault", "Internal error.", OPERATOR_HINT), {})


def make_error_response(
    status: int, code: str, message: str, hint: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Make the response to a request that reached no route."""
    return _make_response(_build_problem(status, code, message, hint), headers or {})


def to_sentence(text: str) -> str:
    """The text with a capital letter and a full stop, unless it starts with the name of a parameter."""
    if text[:1].islower() and not _SENTENCE_START.match(text):
        return text
    end = "" if not text or text.endswith((".", "!", "?", "…")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def _build_problem(status: int, code: str, message: str, hint: str) -> ProblemDetails:
    message, hint = to_sentence(message), to_sentence(hint)
    return {
        "type": f"urn:wikiholt:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": message,
        "code": code,
        "hint": hint,
        "error": f"{message.removesuffix('.')}. {hint}" if hint else message,
    }


def _make_response(document: ProblemDetails, headers: Mapping[str, str]) -> Response:
    all_headers = {"Cache-Control": "no-store", **headers}
    return Response(encode_json(document), document["status"], all_headers, media_type=PROBLEM_MEDIA_TYPE)


def make_invalid_response(errors: Sequence[FieldError], openapi_path: str) -> Response:
    """Make the response to invalid fields; the hint names the path of the OpenAPI document."""
    message = "; ".join(f"{fault['field'] or fault['where']}: {fault['message']}" for fault in errors[:5])
    return make_problem_response(
        InvalidInput(message, hint=f"{openapi_path} lists the parameters of each path."), errors=errors
    )


# Error responses of routes in the OpenAPI document


Responses = dict[int | str, dict[str, Any]]

PROBLEM_SCHEMA = "ProblemDetails"
_STATUS_DESCRIPTIONS = {
    304: "The resource still has the ETag in If-None-Match.",
    401: "A key is required, or the key is unknown.",
    403: "Permission denied: wrong wiki or scope.",
    404: "Not found.",
    409: "Conflict with the current state.",
    412: "If-Match or If-None-Match does not hold.",
    413: "The body is too large.",
    422: "A parameter or field is unknown, missing or wrong; `errors` lists each.",
    429: "Too many requests; Retry-After says when to retry.",
    503: "The index, repository or model is unavailable.",
}


def describe_route(response_model: Any, *statuses: int, others: Responses | None = None) -> dict[str, Any]:
    """Arguments of a route: its document, its error responses with these statuses, and its other documents."""
    return {"response_model": response_model, "responses": describe_error_responses(*statuses) | (others or {})}


def describe_error_responses(*statuses: int) -> Responses:
    """Describe the error responses of a route: those that every route has, and these."""
    content = {"content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{PROBLEM_SCHEMA}"}}}}
    return {
        status: {"description": _STATUS_DESCRIPTIONS[status], **(content if status != 304 else {})}
        for status in sorted({401, 403, 422, 429, 503, *statuses})
    }
