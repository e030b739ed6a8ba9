"""Limits for clients without a key: their bodies are not read, slow requests time out, and logs stay readable."""

import asyncio
import hmac
import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.support.served_application import serve_application
from tests.support.uvicorn_server import run_server
from tests.support.wait import wait_until
from wikiholt.interfaces.cli.http_server import MAX_HEAD_BYTES, TimeoutProtocol
from wikiholt.interfaces.cli.log_output import SafeFormatter

WRITES = (
    ("PUT", "/w/alpha/api/v1/pages/x"),
    ("PATCH", "/w/alpha/api/v1/pages/Home"),
    ("DELETE", "/w/alpha/api/v1/pages/Home"),
    ("POST", "/w/alpha/api/v1/pages/Home/rename"),
    ("POST", "/w/alpha/api/v1/keys"),
    ("POST", "/api/v1/wikis"),
    ("PATCH", "/api/v1/wikis/alpha"),
)


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize("token", [None, "wh_" + "a" * 12 + "_" + "a" * 40])
def test_no_body_is_read_without_a_key(tmp_path: Path, method: str, path: str, token: str | None) -> None:
    with serve_application(tmp_path) as served:
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"1000")]
        if token:
            headers.append((b"authorization", b"Bearer " + token.encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("192.0.2.1", 1),
            "server": ("127.0.0.1", 80),
        }
        sent = []

        async def receive() -> dict[str, object]:
            raise AssertionError("the body was read")

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        # In another thread, because the browser of other tests has an event loop in this one.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(served.app(scope, receive, send))).result(60)
        assert sent[0]["status"] == 401


def test_a_webhook_signature_must_cover_the_complete_body(tmp_path: Path) -> None:
    with serve_application(tmp_path) as served:
        served.application.service.configure("alpha", {"webhook_secret": "s3cret"})
        client = served.make_client()
        body = b"x" * 300_000
        right = hmac.new(b"s3cret", body, sha256).hexdigest()
        good = {"X-Hub-Signature-256": f"sha256={right}"}
        blocks = (body[at : at + 1000] for at in range(0, len(body), 1000))
        assert client.post("/w/alpha/api/v1/webhook", headers=good, content=blocks).status_code == 202
        wrong = [
            {"X-Hub-Signature": "sha1=" + hmac.new(b"s3cret", body, "sha1").hexdigest()},
            {"X-Hub-Signature-256": f"sha256={right[:-1]}"},
            {"X-Hub-Signature-256": "sha256="},
            {"X-Hub-Signature-256": "sha256=" + hmac.new(b"", body, sha256).hexdigest()},
            {"X-Gitlab-Token": ""},
            {"X-Gitlab-Token": "s3cre"},
            {},
        ]
        answers = [client.post("/w/alpha/api/v1/webhook", headers=headers, content=body) for headers in wrong]
        answers.append(client.post("/w/alpha/api/v1/webhook", headers=good, content=body + b"y"))
        answers.append(client.post("/w/beta/api/v1/webhook", headers=good, content=body))
        answers.append(client.post("/w/none/api/v1/webhook", headers=good, content=body))
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.text for answer in answers}) == 1


class ShortTimeoutProtocol(TimeoutProtocol):
    """Short timeouts for tests."""

    request_timeout_s = 0.5
    max_connections: ClassVar[int] = 5  # type: ignore[misc]


@contextmanager
def run_impatient_server(directory: Path) -> Iterator[int]:
    """The port of a server with short timeouts."""
    with serve_application(directory) as served, run_server(served.app, http=ShortTimeoutProtocol, ws="none") as url:
        yield httpx.URL(url).port or 0


def answers(port: int) -> bool:
    """Whether a complete request is answered. On a busy machine, even a fast client may exceed the short timeout."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def read_until_closed(connection: socket.socket) -> bytes:
    """Read until the server closes or resets the connection. A connection that stays open raises TimeoutError."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /api/v1/webhook HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nx",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    ],
    ids=["silent", "head", "body", "second"],
)
def test_an_incomplete_request_times_out(tmp_path: Path, beginning: bytes) -> None:
    with run_impatient_server(tmp_path) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
        with suppress(ConnectionError):  # on a busy machine, the time is over before this client sends
            slow.sendall(beginning)
        received = read_until_closed(slow)
        assert received.count(b"HTTP/1.1 200") <= beginning.count(b"\r\n\r\nGET"), "only a complete request is answered"
        wait_until(lambda: answers(port))


def test_a_head_of_any_size_is_not_kept_in_memory(tmp_path: Path) -> None:
    beginnings = [b"GET /healthz", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: "]
    chunked = b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    beginnings.append(chunked + b"1\r\nx\r\n0\r\nX-Long: ")
    with serve_application(tmp_path) as served, run_server(served.app, http=TimeoutProtocol, ws="none") as url:
        for beginning in beginnings:
            with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=60) as client:
                sent = 0
                with suppress(ConnectionError):
                    client.sendall(beginning)
                    while sent < 100 * MAX_HEAD_BYTES:
                        sent += client.send(b"x" * MAX_HEAD_BYTES)
                assert sent < 100 * MAX_HEAD_BYTES, "the connection is closed"
        assert httpx.get(f"{url}/healthz", headers={"X-Long": "x" * (MAX_HEAD_BYTES // 2)}).status_code == 200


def send_all(url: str, data: bytes) -> bytes:
    """What a server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=60) as client:
        client.sendall(data)
        return read_until_closed(client)


def test_few_requests_wait_behind_one_and_few_fields_are_kept() -> None:
    """Each costs a hundred times the memory of its bytes."""
    waiting: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.05)
        waiting.append(1)
        await PlainTextResponse("read")(scope, receive, send)

    request, last = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with run_server(app, http=TimeoutProtocol, ws="none") as url:
        assert send_all(url, 3 * request + last).count(b"200 OK") == 4
        waiting.clear()
        assert send_all(url, 5000 * request).endswith(b"received.")
        assert len(waiting) <= 1
        fields = b"GET / HTTP/1.1\r\nHost: x\r\n" + 5000 * b"a:\r\n"
        assert send_all(url, fields).startswith(b"HTTP/1.1 400")


def test_a_request_names_one_host() -> None:
    with run_server(PlainTextResponse("read"), http=TimeoutProtocol, ws="none") as url:
        for hosts in (b"", b"Host: a\r\nHost: b\r\n"):
            answer = send_all(url, b"GET / HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 400")


def test_fields_after_a_body_are_no_headers() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.extend(scope["headers"])
        await PlainTextResponse("read")(scope, receive, send)

    with (
        run_server(app, http=TimeoutProtocol, ws="none") as url,
        socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=60) as client,
    ):
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        client.sendall(b"1\r\nx\r\n0\r\nX-Forwarded-User: admin\r\n\r\n")
        assert read_until_closed(client).endswith(b"read")
    assert [name for name, _ in seen] == [b"host", b"transfer-encoding", b"connection"]


def test_connections_beyond_the_limit_are_closed_and_later_ones_accepted(tmp_path: Path) -> None:
    with run_impatient_server(tmp_path) as port:
        connections = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(12)]
        for connection in connections:
            with connection:
                assert b"200 OK" not in read_until_closed(connection)
        wait_until(lambda: answers(port))


def test_quoted_text_in_a_log_line_cannot_look_like_another_line() -> None:
    formatter = SafeFormatter("%(levelname)s %(name)s: %(message)s")
    forged = "x\nERROR wikiholt: all is lost\r\n\x1b[2J\u2028WARNING more"
    record = logging.LogRecord("wikiholt.test", logging.WARNING, "", 0, "page %s", (forged,), None)
    assert len(formatter.format(record).splitlines()) == 1
    try:
        raise ValueError(forged)
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    lines = formatter.format(record).split("\n")
    assert [line for line in lines if re.match(r"(ERROR|WARNING) ", line)] == lines[:1]
    assert "\x1b" not in "".join(lines)
