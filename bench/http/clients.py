"""Clients with persistent connections, all in one thread: a request takes them about .1 ms of CPU time."""

import json
import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

HITS = 5
TIMEOUT_S = 120.0
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_SESSION_ID = re.compile(rb"\r\nmcp-session-id:\s*([^\r\n]+)", re.IGNORECASE)


class Client:
    """One connection to one service, which sends one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"127.0.0.1:{port}"
        self._response = bytearray()
        self._expected_bytes: int | None = None

    def make_request(self, query: str, mode: str) -> bytes:
        raise NotImplementedError

    def send(self, query: str, mode: str) -> None:
        self._response.clear()
        self._expected_bytes = None
        self.socket.sendall(self.make_request(query, mode))

    def receive(self) -> bool:
        """Read what has arrived; whether the response is complete. Fails unless its status is 200."""
        part = self.socket.recv(1 << 18)
        assert part, f"the connection was closed after {bytes(self._response[:500])!r}"
        self._response += part
        if self._expected_bytes is None and not self._read_head():
            return False
        if self._expected_bytes:
            return len(self._response) >= self._expected_bytes
        return self._response.endswith(b"\r\n0\r\n\r\n")

    def _read_head(self) -> bool:
        head_bytes = self._response.find(b"\r\n\r\n") + 4
        if head_bytes < 4:
            return False
        head = bytes(self._response[:head_bytes])
        assert head.startswith(b"HTTP/1.1 200 "), bytes(self._response[:500])
        length = _CONTENT_LENGTH.search(head)
        assert length or _CHUNKED.search(head), head
        self._expected_bytes = head_bytes + int(length[1]) if length else 0
        return True

    def format_request(self, method: str, url: str, body: str = "", headers: str = "") -> bytes:
        length = f"Content-Length: {len(body.encode())}\r\n" if body else ""
        return f"{method} {url} HTTP/1.1\r\nHost: {self._host}\r\n{headers}{length}\r\n{body}".encode()

    def close(self) -> None:
        self.socket.close()


class WikiholtClient(Client):
    def make_request(self, query: str, mode: str) -> bytes:
        return self.format_request("GET", f"/api/v1/search?mode={mode}&n={HITS}&q={quote(query)}")


class BareClient(Client):
    def make_request(self, query: str, mode: str) -> bytes:
        return self.format_request("GET", f"/search?q={quote(query)}&mode={mode}")


class VaultClient(Client):
    """Speaks MCP over streamable HTTP, in one session."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        session_id = _SESSION_ID.search(self._post(_format_call("initialize", about)))
        assert session_id
        self._headers += f"Mcp-Session-Id: {session_id[1].decode()}\r\n"
        self._post(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def _post(self, body: str) -> bytes:
        """Send a message before the measurement and wait for the answer, which may have no body."""
        self.socket.sendall(self.format_request("POST", "/mcp", body, self._headers))
        response = bytearray()
        while not response.endswith((b"0\r\n\r\n", b"}")) and b"\r\ncontent-length: 0\r\n" not in response:
            response += self.socket.recv(1 << 18)
        return bytes(response)

    def make_request(self, query: str, mode: str) -> bytes:
        wanted = {"name": "search", "arguments": {"query": query, "mode": mode, "limit": HITS}}
        return self.format_request("POST", "/mcp", _format_call("tools/call", wanted), self._headers)


def _format_call(method: str, about: dict[str, object]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": about})


class ClientGroup:
    """Several clients of one service."""

    def __init__(self, make: Callable[[], Client], count: int) -> None:
        self._clients = [make() for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for client in self._clients:
            self._selector.register(client.socket, selectors.EVENT_READ, client)

    def run(self, seconds: float, queries: Sequence[str], mode: str) -> tuple[list[float], float]:
        """Every client sends the next request after each answer; the time of every answer, and the total time."""
        taken: list[float] = []
        sent: dict[Client, float] = {}
        turns = {client: number * 7 for number, client in enumerate(self._clients)}

        def send(client: Client) -> None:
            sent[client] = time.perf_counter()
            client.send(queries[turns[client] % len(queries)], mode)
            turns[client] += 1

        began = time.perf_counter()
        for client in self._clients:
            send(client)
        while sent:
            for client in self._wait(TIMEOUT_S):
                now = time.perf_counter()
                taken.append(now - sent.pop(client))
                if now - began < seconds:
                    send(client)
        return taken, time.perf_counter() - began

    def send_at(self, due_times: Sequence[float], queries: Sequence[str], mode: str) -> list[float]:
        """Send a request at each of these times, or as soon as a client is free; the seconds from when each was due to
        its answer."""
        waiting, idle = deque(due_times), list(self._clients)
        taken: list[float] = []
        due: dict[Client, float] = {}
        while waiting or due:
            now = time.perf_counter()
            while waiting and idle and waiting[0] <= now:
                client = idle.pop()
                due[client] = waiting.popleft()
                client.send(queries[int(due[client] * 1e6) % len(queries)], mode)
            for client in self._wait(max(0.0, waiting[0] - time.perf_counter()) if waiting and idle else TIMEOUT_S):
                taken.append(time.perf_counter() - due.pop(client))
                idle.append(client)
        return taken

    def _wait(self, timeout_s: float) -> Iterator[Client]:
        """The clients whose answer is complete, after at most this time."""
        ready = self._selector.select(timeout_s)
        assert ready or timeout_s < TIMEOUT_S, "no answer"
        for key, _ in ready:
            if key.data.receive():
                yield key.data

    def close(self) -> None:
        self._selector.close()
        for client in self._clients:
            client.close()


def run_clients(
    make: Callable[[], Client], count: int, seconds: float, queries: Sequence[str], mode: str
) -> tuple[list[float], float]:
    """Run `count` clients for `seconds`; returns the time of every answer, and the total time."""
    group = ClientGroup(make, count)
    try:
        return group.run(seconds, queries, mode)
    finally:
        group.close()
