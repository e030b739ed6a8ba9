"""HTTP to one server: the time limit holds for the entire exchange, and connections are kept."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from wikiholt.http_client import HttpClient, open_connection

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n"
Reply = Callable[[socket.socket, threading.Event], None]


def drip_headers(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(_HEAD)
    while not ended.wait(0.05):
        connection.sendall(b"a: b\r\n")


def drip_body(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(_HEAD + b"\r\n")
    while not ended.wait(0.05):
        connection.sendall(b"x")


def drip_body_before_closing(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(_HEAD + b"Connection: close\r\n\r\n")
    while not ended.wait(0.05):
        connection.sendall(b"x")


def answer_twice(connection: socket.socket, _: threading.Event) -> None:
    for _ in range(2):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        read_request(connection)


def read_request(connection: socket.socket) -> None:
    """Read one request with its body, which may arrive after the headers."""
    received = connection.recv(65536)
    end = b"\r\n\r\nx" if received.startswith(b"POST") else b"\r\n\r\n"
    while not received.endswith(end) and (block := connection.recv(65536)):
        received += block


@pytest.fixture
def serve() -> Iterator[Callable[[Reply], HttpClient]]:
    """Starts a server for one connection, and returns a client of it."""
    ended, threads = threading.Event(), list[threading.Thread]()
    server = socket.create_server(("127.0.0.1", 0))

    def run(reply: Reply) -> None:
        connection, _ = server.accept()
        with connection:
            try:
                read_request(connection)
                reply(connection, ended)
            except OSError:
                return

    def start(reply: Reply) -> HttpClient:
        threads.append(threading.Thread(target=run, args=(reply,), daemon=True))
        threads[-1].start()
        port = server.getsockname()[1]
        return HttpClient(lambda timeout_s: open_connection("127.0.0.1", port, timeout_s, is_secure=False), "x", 10_000)

    with server:
        yield start
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("reply", [drip_headers, drip_body, drip_body_before_closing])
def test_a_server_that_sends_single_bytes_does_not_extend_the_time_limit(
    serve: Callable[[Reply], HttpClient], reply: Reply
) -> None:
    result: list[type[BaseException] | None] = [None]

    def send() -> None:
        try:
            serve(reply).send("GET", "/", None, {}, timeout_s=0.3)
        except Exception as error:  # noqa: BLE001 - it is compared below
            result[0] = type(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(2.0)
    assert not thread.is_alive()
    assert result == [TimeoutError]


def test_a_connection_is_kept_for_the_next_request(serve: Callable[[Reply], HttpClient]) -> None:
    client = serve(answer_twice)
    first, second = (client.send("POST", "/", b"x", {}, timeout_s=30.0) for _ in range(2))
    assert [(reply.body, reply.is_new_connection) for reply in (first, second)] == [(b"ok", True), (b"ok", False)]
    client.close()
