"""Errors as problem+json (RFC 9457), derived from the class of the error.

What is the visitor's to mend is said in full. What is not (a 5xx) may hold paths of this machine: the visitor is told
what it means for them, the operator's log has the rest.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.errors import (
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexRepairing,
    IndexUnavailable,
    InvalidInput,
    LockTimeout,
    MissingDependency,
    ModelError,
    NoCommits,
    NothingIndexed,
    RevisionMismatch,
    SourceError,
    StorageError,
    SyncFailed,
    TooManyRequests,
    Unauthorized,
    WikiholtError,
)
from wikiholt.interfaces.http.responses import encode_json

_log = logging.getLogger(__name__)

PROBLEM_MEDIA_TYPE = "application/problem+json"

_OPERATOR_HINT = "The operator finds the reason in the service's log."
_PUBLIC_MESSAGES: Mapping[type[WikiholtError], tuple[str, str]] = {
    IndexRepairing: ("This wiki's index was damaged and is being mended.", "Try again in a moment; status says more."),
    IndexMissing: ("This wiki is not indexed yet.", "Try again in a moment; status says how far it is."),
    IndexCorrupt: ("This wiki's index was found damaged; it is being mended.", "Try again in a moment."),
    NothingIndexed: ("This wiki has no indexed page yet.", "Try again in a moment; status says how far it is."),
    StorageError: ("The service cannot write to its disk.", _OPERATOR_HINT),
    LockTimeout: ("This wiki's index is locked in the database.", "Try again in a moment; nothing is lost."),
    DatabaseUnavailable: (
        "The database of this wiki cannot be reached now.",
        "Try again in a moment; nothing is lost.",
    ),
    IndexUnavailable: ("This wiki's index cannot answer.", _OPERATOR_HINT),
    NoCommits: ("This wiki has no commit yet.", "Write a first page."),
    SourceError: ("This wiki's repository cannot be read.", _OPERATOR_HINT),
    ModelError: ("The embedding model cannot be used.", f"mode=keyword does without it. {_OPERATOR_HINT}"),
    SyncFailed: ("This wiki's index could not be brought up to date.", _OPERATOR_HINT),
    MissingDependency: ("The service lacks an optional part.", _OPERATOR_HINT),
    WikiholtError: ("The service could not do this.", _OPERATOR_HINT),
}
_TRANSIENT_ERRORS = (IndexMissing, NothingIndexed, IndexCorrupt, LockTimeout)
_TRANSIENT_RETRY_S = 2


class FieldError(TypedDict):
    """What is wrong with one field of a request."""

    field: str
    where: str
    message: str


class ProblemDetails(TypedDict):
    """An error (RFC 9457); `error` repeats the detail for clients of otterwiki-api."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    error: str
    errors: NotRequired[list[FieldError]]
    current_revision: NotRequired[str | None]


def get_public_message(error: WikiholtError) -> tuple[str, str]:
    """Message and hint as a visitor may read them."""
    if error.status < 500:
        return error.message, error.hint
    return next(_PUBLIC_MESSAGES[kind] for kind in type(error).__mro__ if kind in _PUBLIC_MESSAGES)


def make_problem_response(
    error: WikiholtError, status: int | None = None, errors: Sequence[FieldError] = ()
) -> Response:
    """The answer to a request that failed with this error."""
    message, hint = get_public_message(error)
    if error.status >= 500:
        # A wiki that is being indexed for the first time is no trouble.
        _log.log(
            logging.DEBUG if isinstance(error, _TRANSIENT_ERRORS) else logging.WARNING,
            "%s: %s",
            error.code,
            error.message,
        )
    document = _build_problem(status or error.status, error.code, message, hint)
    if errors:
        document["errors"] = list(errors)
    if isinstance(error, RevisionMismatch):
        document["current_revision"] = error.current
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="wikiholt"'
    if isinstance(error, TooManyRequests):
        wait = max(1, math.ceil(error.retry_after))
        headers |= {"Retry-After": str(wait), "RateLimit": f'"minute";r=0;t={wait}'}
    if isinstance(error, DatabaseUnavailable):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, _TRANSIENT_ERRORS):
        headers["Retry-After"] = str(_TRANSIENT_RETRY_S)
    return _make_response(document, headers)


def make_internal_error_response() -> Response:
    """The answer when something failed that nobody foresaw: nothing of it is told."""
    return _make_response(_build_problem(500, "fault", "The service has a fault.", _OPERATOR_HINT), {})


def make_error_response(
    status: int, code: str, message: str, hint: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer where the request did not even reach a route."""
    return _make_response(_build_problem(status, code, message, hint), headers or {})


def _build_problem(status: int, code: str, message: str, hint: str) -> ProblemDetails:
    return {
        "type": f"urn:wikiholt:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": message,
        "code": code,
        "hint": hint,
        "error": message,
    }


def _make_response(document: ProblemDetails, headers: Mapping[str, str]) -> Response:
    fixed = {"Cache-Control": "no-store", **headers}
    return Response(encode_json(document), document["status"], fixed, media_type=PROBLEM_MEDIA_TYPE)


def make_invalid_response(errors: Sequence[FieldError], openapi_path: str) -> Response:
    """The answer to fields that are wrong; `reference` is where the OpenAPI document is."""
    message = "; ".join(f"{fault['field'] or fault['where']}: {fault['message']}" for fault in errors[:5])
    return make_problem_response(
        InvalidInput(message, hint=f"{openapi_path} lists what each address takes."), errors=errors
    )


# What routes declare of their answers, so that the OpenAPI document says all that may come.


Responses = dict[int | str, dict[str, Any]]

PROBLEM_SCHEMA = "ProblemDetails"
_STATUS_DESCRIPTIONS = {
    304: "It is what the tag in If-None-Match stands for.",
    401: "A key is needed, or the one sent is not known.",
    403: "The key does not open this, or does not allow it.",
    404: "There is no such thing.",
    409: "It conflicts with what is there.",
    412: "The page is another one than If-Match says.",
    413: "The body is too large.",
    422: "A parameter or field is unknown, missing or wrong; `errors` lists each.",
    429: "Too many requests; Retry-After says when to come back.",
    503: "The index, repository or model cannot serve now.",
}


def describe_error_responses(*statuses: int) -> Responses:
    """The answers of a route beside its success: those every route may give, and these."""
    return {status: _describe_response(status) for status in sorted({401, 403, 422, 429, 503, *statuses})}


def _describe_response(status: int) -> dict[str, Any]:
    if status == 304:
        return {"description": _STATUS_DESCRIPTIONS[status]}
    schema = {"$ref": f"#/components/schemas/{PROBLEM_SCHEMA}"}
    return {"description": _STATUS_DESCRIPTIONS[status], "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}}}
