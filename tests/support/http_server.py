"""Runs a request handler as an HTTP server on the loopback interface."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    """Sends small replies at once. Otherwise each one waits 40 ms for the acknowledgement of its headers."""

    daemon_threads = True
    request_queue_size = 128

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address


@contextmanager
def run_handler(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve until the block ends, with a thread for each connection. Returns the port."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
