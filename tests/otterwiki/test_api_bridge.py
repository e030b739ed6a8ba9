"""The bridge from a WSGI server's threads to the API: bodies, odd requests, time-outs, many callers."""

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

from wikiholt.model import Author, Scope, Wiki
from wikiholt.surfaces.http.admission import ADMISSION, Admission
from wikiholt.surfaces.otterwiki.bridge import Bridge

WIKI = Wiki("a" * 20, "garden", "/nowhere", datetime.now(UTC))
WRITER = Admission(WIKI, frozenset(Scope), Author("Ada", "ada@example.org"))
READER = Admission(WIKI, frozenset({Scope.READ}), Author("Ada", "ada@example.org"))
LIMIT = 200_000
released = Event()


async def echo(request: Request) -> Response:
    given: Admission | None = request.scope.get(ADMISSION)
    body = await request.body()
    told = {"method": request.method, "path": request.url.path, "query": request.url.query, "body": len(body)}
    return JSONResponse(told | {"wiki": given.wiki.slug if given else None, "keys": sorted(map(str, request.scope))})


async def slow(_: Request) -> Response:
    await run_in_threadpool(released.wait, 60)
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
def bridge() -> Bridge:
    return Bridge(APP, LIMIT)


def environ(path: str = "/api/v1/pages", method: str = "GET", body: bytes = b"", **more: Any) -> dict[str, Any]:
    """A request as a WSGI server gives it."""
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


def told(bridge: Bridge, given: dict[str, Any], admission: Admission | None = WRITER) -> dict[str, Any]:
    answer = bridge.call(given, admission)
    assert answer.status == 200, answer
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_a_request_arrives_with_what_the_host_decided_and_without_the_servers_surroundings(bridge: Bridge) -> None:
    found = told(bridge, environ("/api/v1/pages/Über uns", "PUT", b"12345", QUERY_STRING="q=a%20b"))
    assert (found["method"], found["path"]) == ("PUT", "/api/v1/pages/Über uns")
    assert (found["query"], found["body"]) == ("q=a%20b", 5)
    assert (found["wiki"], "wsgi_environ" in found["keys"]) == ("garden", False)


def test_what_a_server_has_under_the_same_name_is_overruled(bridge: Bridge) -> None:
    assert told(bridge, environ(**{ADMISSION: WRITER}), None)["wiki"] is None
    assert told(bridge, environ(HTTP_WIKIHOLT_ADMISSION="forged", **{ADMISSION: "forged"}), READER)["wiki"] == "garden"


def test_bodies_are_taken_of_who_may_change_something_and_up_to_the_limit(bridge: Bridge) -> None:
    assert told(bridge, environ(method="PUT", body=b"x" * LIMIT))["body"] == LIMIT
    assert told(bridge, environ(method="PUT", body=b"x" * LIMIT), READER)["body"] == 0
    assert told(bridge, environ(method="PUT", body=b"x" * LIMIT), None)["body"] == 0
    chunked = environ(method="PUT", body=b"x" * 70_000, CONTENT_LENGTH="", **{"wsgi.input_terminated": True})
    assert told(bridge, chunked)["body"] == 70_000
    unending = environ(method="PUT", body=b"x" * (2 * LIMIT), CONTENT_LENGTH="", **{"wsgi.input_terminated": True})
    assert told(bridge, unending)["body"] == LIMIT + 1, "one byte more than is allowed, by which it is refused"


def test_a_body_that_ends_before_its_length_is_no_endless_wait(bridge: Bridge) -> None:
    assert told(bridge, environ(method="PUT", body=b"12345", CONTENT_LENGTH="5000"))["body"] == 5


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
def test_odd_requests_are_answered(bridge: Bridge, odd: dict[str, str]) -> None:
    assert told(bridge, environ() | odd)["wiki"] == "garden"


def test_a_large_answer_comes_whole_with_status_and_headers(bridge: Bridge) -> None:
    answer = bridge.call(environ("/api/v1/stream"), WRITER)
    assert (answer.status, len(answer.body)) == (203, 3_000_000)
    assert ("x-two", "a") in answer.headers


def test_a_fault_is_an_answer_and_the_next_request_is_served(bridge: Bridge) -> None:
    assert bridge.call(environ("/api/v1/fails"), WRITER).status == 500
    assert told(bridge, environ())["wiki"] == "garden"


def test_an_answer_that_takes_too_long_is_given_up_and_harms_no_other() -> None:
    impatient = Bridge(APP, LIMIT, seconds=0.2)
    released.clear()
    late = impatient.call(environ("/api/v1/slow"), WRITER)
    assert (late.status, dict(late.headers)["retry-after"]) == (503, "5")
    assert told(impatient, environ())["wiki"] == "garden"
    released.set()


def test_many_threads_each_get_their_own_answer(bridge: Bridge) -> None:
    def ask(number: int) -> bool:
        return bool(told(bridge, environ(f"/api/v1/{number}", "PUT", b"x" * number))["body"] == number)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))
