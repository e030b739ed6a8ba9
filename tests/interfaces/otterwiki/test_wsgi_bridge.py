"""The bridge from WSGI threads to the API: bodies, malformed requests, timeouts, concurrent callers."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from io import BytesIO
from threading import Event
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.git import Author
from wikiholt.domain.wiki import Scope, Wiki
from wikiholt.interfaces.http.request_context import HOST_GRANT_KEY, HostGrant
from wikiholt.interfaces.otterwiki.api import AsgiBridge

WIKI = Wiki("a" * 20, "garden", "/nowhere", datetime.now(UTC))
WRITER = HostGrant(WIKI, frozenset(Scope), Author("Ada", "ada@example.org"))
READER = HostGrant(WIKI, frozenset({Scope.READ}), Author("Ada", "ada@example.org"))
MAX_BODY_BYTES = 200_000
released = Event()


async def echo(request: Request) -> Response:
    grant: HostGrant | None = request.scope.get(HOST_GRANT_KEY)
    body = await request.body()
    document = {"method": request.method, "path": request.url.path, "query": request.url.query, "body": len(body)}
    return JSONResponse(
        document | {"wiki": grant.wiki.slug if grant else None, "keys": sorted(map(str, request.scope))}
    )


async def slow(_: Request) -> Response:
    await run_in_threadpool(released.wait, TIMEOUT_S)
    return Response("late")


async def stream(_: Request) -> Response:
    return Response(b"x" * 3_000_000, headers={"X-Two": "a"}, status_code=203)


async def fails(_: Request) -> Response:
    raise RuntimeError("a fault")


APP = Starlette(
    routes=[
        Route("/api/v1/slow", slow),
        Route("/api/v1/stream", stream),
        Route("/api/v1/fails", fails),
        Route("/{rest:path}", echo, methods=["GET", "PUT", "POST"]),
    ]
)


@pytest.fixture(scope="module")
def bridge() -> AsgiBridge:
    return AsgiBridge(APP, MAX_BODY_BYTES)


def make_environ(path: str = "/api/v1/pages", method: str = "GET", body: bytes = b"", **more: Any) -> dict[str, Any]:
    """A request environment of a WSGI server."""
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": "",
        "SERVER_NAME": "wiki",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
    } | more


def call_bridge(bridge: AsgiBridge, environ: dict[str, Any], admission: HostGrant | None = WRITER) -> dict[str, Any]:
    answer = bridge.call(environ, admission)
    assert answer.status_code == 200, answer
    document: dict[str, Any] = json.loads(answer.data)
    return document


def test_a_request_carries_the_host_grant_and_not_the_wsgi_environment(bridge: AsgiBridge) -> None:
    document = call_bridge(bridge, make_environ("/api/v1/pages/Über uns", "PUT", b"12345", QUERY_STRING="q=a%20b"))
    assert (document["method"], document["path"]) == ("PUT", "/api/v1/pages/Über uns")
    assert (document["query"], document["body"]) == ("q=a%20b", 5)
    assert (document["wiki"], "wsgi_environ" in document["keys"]) == ("garden", False)


def test_environment_values_with_the_same_name_are_replaced(bridge: AsgiBridge) -> None:
    assert call_bridge(bridge, make_environ(**{HOST_GRANT_KEY: WRITER}), None)["wiki"] is None
    assert (
        call_bridge(bridge, make_environ(HTTP_WIKIHOLT_ADMISSION="forged", **{HOST_GRANT_KEY: "forged"}), READER)[
            "wiki"
        ]
        == "garden"
    )


def test_bodies_are_read_only_for_writers_and_up_to_the_limit(bridge: AsgiBridge) -> None:
    assert call_bridge(bridge, make_environ(method="PUT", body=b"x" * MAX_BODY_BYTES))["body"] == MAX_BODY_BYTES
    assert call_bridge(bridge, make_environ(method="PUT", body=b"x" * MAX_BODY_BYTES), READER)["body"] == 0
    assert call_bridge(bridge, make_environ(method="PUT", body=b"x" * MAX_BODY_BYTES), None)["body"] == 0
    chunked = make_environ(method="PUT", body=b"x" * 70_000, CONTENT_LENGTH="", **{"wsgi.input_terminated": True})
    assert call_bridge(bridge, chunked)["body"] == 70_000
    unending = make_environ(
        method="PUT", body=b"x" * (2 * MAX_BODY_BYTES), CONTENT_LENGTH="", **{"wsgi.input_terminated": True}
    )
    assert call_bridge(bridge, unending)["body"] == MAX_BODY_BYTES + 1, (
        "one byte more than allowed, so that the API rejects it"
    )


def test_a_body_shorter_than_its_length_does_not_hang(bridge: AsgiBridge) -> None:
    assert call_bridge(bridge, make_environ(method="PUT", body=b"12345", CONTENT_LENGTH="5000"))["body"] == 5


@pytest.mark.parametrize(
    "odd",
    [
        {"PATH_INFO": "/api/v1/\xff\xfe"},
        {"QUERY_STRING": "q=\xff\xe4"},
        {"REMOTE_ADDR": "", "REMOTE_PORT": ""},
        {"CONTENT_LENGTH": "minus one"},
        {"SERVER_PROTOCOL": "HTTP/1.0"},
        {"SCRIPT_NAME": "/wiki"},
    ],
)
def test_malformed_requests_are_answered(bridge: AsgiBridge, odd: dict[str, str]) -> None:
    assert call_bridge(bridge, make_environ() | odd)["wiki"] == "garden"


def test_a_large_answer_is_complete_with_status_and_headers(bridge: AsgiBridge) -> None:
    answer = bridge.call(make_environ("/api/v1/stream"), WRITER)
    assert (answer.status_code, len(answer.data)) == (203, 3_000_000)
    assert ("x-two", "a") in list(answer.headers)


def test_an_error_is_answered_and_the_next_request_works(bridge: AsgiBridge) -> None:
    assert bridge.call(make_environ("/api/v1/fails"), WRITER).status_code == 500
    assert call_bridge(bridge, make_environ())["wiki"] == "garden"


def test_a_request_that_times_out_does_not_affect_others() -> None:
    impatient = AsgiBridge(APP, MAX_BODY_BYTES, timeout_s=0.2)
    released.clear()
    late = impatient.call(make_environ("/api/v1/slow"), WRITER)
    assert (late.status_code, late.headers["retry-after"]) == (503, "5")
    # On a busy machine, a request may exceed the short timeout as well.
    wait_until(lambda: impatient.call(make_environ(), WRITER).status_code == 200)
    released.set()


def test_concurrent_threads_get_their_own_answers(bridge: AsgiBridge) -> None:
    def ask(number: int) -> bool:
        return bool(call_bridge(bridge, make_environ(f"/api/v1/{number}", "PUT", b"x" * number))["body"] == number)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))
