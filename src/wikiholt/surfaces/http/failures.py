"""How a request that failed is answered: which error becomes which problem."""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.errors import Refused, TooLarge, WikiholtError
from wikiholt.model import Scope
from wikiholt.surfaces.http.problems import FieldFault, invalid, problem, refused
from wikiholt.surfaces.http.visits import visitor


async def on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, WikiholtError)
    return problem(error)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Parameters or a body that are not what the route takes: every field that is wrong is named, to who may ask."""
    assert isinstance(error, RequestValidationError)
    refusal = await run_in_threadpool(_refusal, request)
    return problem(refusal) if refusal else invalid([_fault(each) for each in error.errors()], _reference(request))


def _refusal(request: Request) -> Refused | None:
    """Why this visitor has no business here at all, if so: that goes before what is wrong with their request."""
    if (getattr(request.scope.get("route"), "openapi_extra", None) or {}).get("security") == []:
        return None
    try:
        visitor(request).wiki(Scope.READ)
    except Refused as error:
        return error
    except WikiholtError:
        return None
    return None


def _fault(error: Mapping[str, Any]) -> FieldFault:
    where, *names = error["loc"]
    message = "there is no such field" if error["type"] == "extra_forbidden" else str(error["msg"])
    return {"field": ".".join(map(str, names)), "where": str(where), "message": message}


async def on_refusal(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: no such address, no such method, a body that is too large."""
    assert isinstance(error, HTTPException)
    if error.status_code == TooLarge.status:
        return problem(TooLarge(str(error.detail), hint="Send less; the setting limit.body_bytes is the limit."))
    if error.status_code == 404:
        return refused(
            404, "not-found", "There is nothing at this address.", f"{_reference(request)} lists what there is."
        )
    if error.status_code == 405:
        allowed = ", ".join(sorted(methods_at(request)))
        return refused(405, "method-not-allowed", f"This address takes {allowed}.", "", {"Allow": allowed})
    return invalid([{"field": "", "where": "body", "message": "it is not JSON in UTF-8"}], _reference(request))


def methods_at(request: Request) -> set[str]:
    """The methods of every route that has this address."""
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(dict(request.scope))
        if match.value and getattr(route, "methods", None):
            methods |= route.methods
    return methods | ({"HEAD"} if "GET" in methods else set())


def _reference(request: Request) -> str:
    where: str = request.app.state.reference
    return where
