"""How a request that failed is answered: which error becomes which problem."""

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
    """Parameters or a body that are not what the route takes: every field that is wrong is named, to who may ask."""
    assert isinstance(error, RequestValidationError)
    refusal = await run_in_threadpool(_find_access_error, request)
    return (
        make_problem_response(refusal)
        if refusal
        else make_invalid_response([_build_field_error(each) for each in error.errors()], _get_openapi_path(request))
    )


def _find_access_error(request: Request) -> AccessDenied | None:
    """Why this visitor has no business here at all, if so: that goes before what is wrong with their request."""
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
    message = "there is no such field" if error["type"] == "extra_forbidden" else str(error["msg"])
    return {"field": ".".join(map(str, names)), "where": str(where), "message": message}


async def on_http_exception(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: no such address, no such method, a body that is too large."""
    assert isinstance(error, HTTPException)
    if error.status_code == InputTooLarge.status:
        return make_problem_response(
            InputTooLarge(str(error.detail), hint="Send less; the setting limit.body_bytes is the limit.")
        )
    if error.status_code == 404:
        return make_error_response(
            404, "not-found", "There is nothing at this address.", f"{_get_openapi_path(request)} lists what there is."
        )
    if error.status_code == 405:
        allowed = ", ".join(sorted(find_allowed_methods(request)))
        return make_error_response(405, "method-not-allowed", f"This address takes {allowed}.", "", {"Allow": allowed})
    return make_invalid_response(
        [{"field": "", "where": "body", "message": "it is not JSON in UTF-8"}], _get_openapi_path(request)
    )


def find_allowed_methods(request: Request) -> set[str]:
    """The methods of every route that has this address."""
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(dict(request.scope))
        if match.value and getattr(route, "methods", None):
            methods |= route.methods
    return methods | ({"HEAD"} if "GET" in methods else set())


def _get_openapi_path(request: Request) -> str:
    where: str = request.app.state.openapi_path
    return where
