"""A server on the loopback interface with `/v1/chat/completions` and `/v1/rerank` that answers as a test tells it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_server import run_handler
from tests.support.wait import TIMEOUT_S


@dataclass(slots=True)
class ScriptedModel:
    """What the server does; tests change it while it runs."""

    url: str = ""
    parts: list[str] = field(default_factory=list)
    """The parts of the text that it streams."""
    scores: list[float] | None = None
    """The relevance of each document; None for what is no list of scores."""
    status: int = 200
    key: str = ""
    raw: bytes = b""
    """What it sends instead of a stream of events."""
    cuts_off: bool = False
    """Whether it closes the connection instead of ending the reply."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    gate: threading.Event | None = None
    """If set, the second part waits for it."""

    @property
    def prompt(self) -> str:
        """The passages and the question of the last request."""
        content: str = self.requests[-1]["messages"][-1]["content"]
        return content


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel

    def do_POST(self) -> None:
        model = self.model
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model.requests.append(body)
        if model.status != 200 or (model.key and self.headers.get("Authorization") != f"Bearer {model.key}"):
            self._send(model.status if model.status != 200 else 401, b'{"error": {"code": "refused"}}')
        elif model.raw:
            self._send(200, model.raw)
        elif self.path.endswith("/rerank"):
            rows = [{"index": index, "relevance_score": score} for index, score in enumerate(model.scores or [])]
            self._send(200, json.dumps({"results": rows}).encode())
        else:
            with suppress(BrokenPipeError, ConnectionResetError):  # the client may read only a part
                self._stream(model)

    def _stream(self, model: ScriptedModel) -> None:
        self._send(200, b"")
        for number, part in enumerate(model.parts):
            if number and model.gate is not None:
                model.gate.wait(TIMEOUT_S)
            self._write({"choices": [{"delta": {"content": part}, "finish_reason": None}]})
        if not model.cuts_off:
            self._write({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\n\n")

    def _write(self, document: object) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        self.wfile.flush()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"{self.model.url}/elsewhere")
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serve_model() -> Iterator[ScriptedModel]:
    """Serve a model until the block ends."""
    model = ScriptedModel()
    with run_handler(type("Handler", (_Handler,), {"model": model})) as port:
        model.url = f"http://127.0.0.1:{port}/v1"
        yield model
