"""Visitors: each has a persistent connection and sends the next request after every answer."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

HITS = 5


class Visitor:
    """One connection to one service."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, query: str, mode: str) -> bytes:
        raise NotImplementedError

    def _got(self, method: str, url: str, body: str | None = None, headers: dict[str, str] | None = None) -> bytes:
        self._connection.request(method, url, body, headers or {})
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status == 200, (answer.status, content[:500])
        return content

    def close(self) -> None:
        self._connection.close()


class WikiholtVisitor(Visitor):
    def ask(self, query: str, mode: str) -> bytes:
        return self._got("GET", f"/api/v1/search?mode={mode}&n={HITS}&q={quote(query)}")


class BareVisitor(Visitor):
    def ask(self, query: str, mode: str) -> bytes:
        return self._got("GET", f"/search?q={quote(query)}&mode={mode}")


class VaultVisitor(Visitor):
    """Speaks MCP over streamable HTTP, in one session."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self._connection.request("POST", "/mcp", _call("initialize", about), self._headers)
        answer = self._connection.getresponse()
        answer.read()
        self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        body = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._connection.request("POST", "/mcp", body, self._headers)
        self._connection.getresponse().read()

    def ask(self, query: str, mode: str) -> bytes:
        wanted = {"name": "search", "arguments": {"query": query, "mode": mode, "limit": HITS}}
        return self._got("POST", "/mcp", _call("tools/call", wanted), self._headers)


def _call(method: str, about: dict[str, object]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": about})


def run_clients(
    make: Callable[[], Visitor], count: int, seconds: float, queries: Sequence[str], mode: str
) -> tuple[list[float], float]:
    """Run `count` visitors for `seconds`; returns the time of every answer, and the total time."""
    taken: list[list[float]] = [[] for _ in range(count)]
    faults: list[BaseException] = []
    visitors = [make() for _ in range(count)]
    began = threading.Event()

    def visit(number: int) -> None:
        began.wait()
        until = time.perf_counter() + seconds
        turn = number * 7
        try:
            while (now := time.perf_counter()) < until:
                visitors[number].ask(queries[turn % len(queries)], mode)
                taken[number].append(time.perf_counter() - now)
                turn += 1
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            faults.append(error)

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    then = time.perf_counter()
    began.set()
    for thread in threads:
        thread.join()
    lasted = time.perf_counter() - then
    for visitor in visitors:
        visitor.close()
    if faults:
        raise faults[0]
    return [each for own in taken for each in own], lasted
