"""Exception handlers: which error becomes which problem response."""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.domain.wiki import Scope
from wikiholt.errors import AccessDenied, InputTooLarge, WikiholtError
from wikiholt.interfaces.http.problem_details import (
    FieldError,
    make_error_response,
    make_invalid_response,
    make_problem_response,
)
from wikiholt.interfaces.http.request_context import get_request_context


async def on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, WikiholtError)
    return make_problem_response(error)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Respond to invalid parameters or an invalid body with a list of all wrong fields.

    A client without access to the wiki gets the access error instead.
    """
    assert isinstance(error, RequestValidationError)
    access_error = await run_in_threadpool(_find_access_error, request)
    if access_error is not None:
        return make_problem_response(access_error)
    return make_invalid_response([_build_field_error(fault) for fault in error.errors()], _get_openapi_path(request))


def _find_access_error(request: Request) -> AccessDenied | None:
    """Return the access error of the request, if any; it takes precedence over validation errors."""
    if (getattr(request.scope.get("route"), "openapi_extra", None) or {}).get("security") == []:
        return None
    try:
        get_request_context(request).open_wiki(Scope.READ)
    except AccessDenied as error:
        return error
    except WikiholtError:
        return None
    return None


def _build_field_error(error: Mapping[str, Any]) -> FieldError:
    where, *names = error["loc"]
    message = "unknown field" if error["type"] == "extra_forbidden" else str(error["msg"])
    return {"field": ".".join(map(str, names)), "where": str(where), "message": message}


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Respond to errors that the framework raises: unknown path, wrong method, body too large, invalid JSON."""
    assert isinstance(error, HTTPException)
    if error.status_code == InputTooLarge.status:
        return make_problem_response(
            InputTooLarge(str(error.detail), hint="Send less, or raise the setting limit.body_bytes.")
        )
    if error.status_code == 404:
        return make_error_response(404, "not-found", "Unknown path.", f"{_get_openapi_path(request)} lists all paths.")
    if error.status_code == 405:
        allowed = ", ".join(sorted(find_allowed_methods(request)))
        return make_error_response(405, "method-not-allowed", f"This path allows {allowed}.", "", {"Allow": allowed})
    return make_invalid_response(
        [{"field": "", "where": "body", "message": "it is not JSON in UTF-8"}], _get_openapi_path(request)
    )


def find_allowed_methods(request: Request) -> set[str]:
    """Return the methods of all routes that match the path."""
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(dict(request.scope))
        if match.value and getattr(route, "methods", None):
            methods |= route.methods
    return methods | ({"HEAD"} if "GET" in methods else set())


def _get_openapi_path(request: Request) -> str:
    path: str = request.app.state.openapi_path
    return path
