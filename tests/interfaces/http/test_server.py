"""The application on a real server, over real sockets."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn

from tests.support.served_application import ServedApplication, serve_application
from tests.support.wait import TIMEOUT_S, wait_until


class RunningServer:
    """uvicorn on a free port of this machine."""

    def __init__(self, served: ServedApplication) -> None:
        self.application = served
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # A client must not reuse a connection that the server closes at that moment.
        config = uvicorn.Config(served.app, log_config=None, server_header=False, timeout_keep_alive=int(TIMEOUT_S))
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()
        wait_until(lambda: self._server.started, "the server starts")

    def get(self, path: str, key: str = "read", **options: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.application.tokens[key]}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.get(url, headers=headers, timeout=TIMEOUT_S, **options)  # type: ignore[arg-type]

    def send_raw(self, request: bytes, *, half: bool = False) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as talk:
            talk.sendall(request)
            if half:
                return b""
            return b"".join(iter(lambda: talk.recv(65536), b""))

    def stop(self) -> bool:
        self._server.should_exit = True
        self._thread.join(TIMEOUT_S)
        self._listener.close()
        return not self._thread.is_alive()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serve_application(tmp_path_factory.mktemp("server")) as served:
        running = RunningServer(served)
        yield running
        assert running.stop()


def test_a_real_client_searches_over_a_real_socket(server: RunningServer) -> None:
    answer = server.get("/w/alpha/api/v1/search?q=printer")
    assert answer.status_code == 200
    assert answer.json()["total"] == 3
    assert "server" not in answer.headers


def test_head_over_a_real_socket_has_the_headers_of_get(server: RunningServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {server.application.tokens['read']}"}
    connection.request("HEAD", "/api/v1/pages/Home", headers=headers)
    head = connection.getresponse()
    assert (head.status, head.read()) == (200, b"")
    connection.request("GET", "/api/v1/pages/Home", headers=headers)
    got = connection.getresponse()
    assert head.headers["content-length"] == str(len(got.read()))
    connection.close()


def test_64_clients_at_once_are_all_answered(server: RunningServer) -> None:
    def ask(number: int) -> tuple[int, bool]:
        key, word = (("read", "alphacanary"), ("other", "betacanary"))[number % 2]
        answer = server.get(f"/api/v1/search?q={word}&mode=keyword", key)
        return answer.status_code, word in answer.text

    with ThreadPoolExecutor(64) as pool:
        assert set(pool.map(ask, range(192))) == {(200, True)}


def test_a_client_that_disconnects_does_not_affect_others(server: RunningServer) -> None:
    token = server.application.tokens["write"]
    known = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    before = server.application.alpha.get_head()
    for request in (
        f"GET /api/v1/search?q=printer HTTP/1.1\r\n{known}\r\n".encode(),
        f'PUT /api/v1/pages/X HTTP/1.1\r\n{known}Content-Length: 1000\r\n\r\n{{"content": "half'.encode(),
        b"GET /api/v1/sea",
    ):
        for _ in range(10):
            assert server.send_raw(request, half=True) == b""
    assert server.get("/api/v1/search?q=printer").status_code == 200
    assert server.get("/api/v1/pages/X").status_code == 404
    assert server.application.alpha.get_head() == before


def test_a_chunked_body_is_cut_off_at_the_limit(server: RunningServer) -> None:
    limit = server.application.application.settings.limit_body_bytes
    sent = 0

    def parts() -> Iterator[bytes]:
        nonlocal sent
        while sent < 4 * limit:
            sent += 1 << 20
            yield b"x" * (1 << 20)

    headers = {"Authorization": f"Bearer {server.application.tokens['write']}", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{server.port}/api/v1/pages/X"
    try:
        answer = httpx.put(url, content=parts(), headers=headers, timeout=TIMEOUT_S)
        assert answer.status_code == 413
        assert answer.json()["code"] == "too-large"
    except httpx.TransportError:
        # The server may close the connection while the client sends; it must not have read everything.
        assert sent < 4 * limit
    assert server.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "line",
    [
        b"GET /w/../../etc/passwd HTTP/1.1",
        b"GET /w/%2e%2e/api/v1/status HTTP/1.1",
        b"GET //w/alpha/api/v1/status HTTP/1.1",
        b"GET /w/alpha%00/api/v1/status HTTP/1.1",
        b"GET /w/alpha/../beta/api/v1/status HTTP/1.1",
        b"GET http://beta.example.org/api/v1/status HTTP/1.1",
        b"GET /api/v1/search?q=\xff HTTP/1.1",
        b"\x00\x01\x02",
    ],
)
def test_malformed_request_lines_get_a_4xx_without_wiki_data(server: RunningServer, line: bytes) -> None:
    answer = server.send_raw(line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ", 2)[1].startswith(b"4"), answer[:200]
    assert b"canary" not in answer
    assert b"root:" not in answer


def test_the_server_stops_cleanly_during_requests(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve_application(tmp_path_factory.mktemp("stopping")) as served:
        running = RunningServer(served)
        stop = threading.Event()

        def ask() -> set[int]:
            seen = set()
            while not stop.is_set():
                try:
                    seen.add(running.get("/api/v1/search?q=printer").status_code)
                except httpx.TransportError:
                    return seen
            return seen

        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(ask) for _ in range(8)]
            wait_until(lambda: json.loads(running.get("/api/v1/status").text)["pages"])
            stopped = running.stop()
            stop.set()
            assert {status for future in futures for status in future.result()} <= {200}
        assert stopped
