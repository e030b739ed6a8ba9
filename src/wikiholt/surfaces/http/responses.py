"""What routes declare of their answers, so that the OpenAPI document says all that may come."""

from typing import Any

from wikiholt.surfaces.http.problems import PROBLEM_MEDIA_TYPE

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
