"""A server on the loopback interface with OpenAI's `/v1/embeddings`, in front of any function that embeds texts."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import numpy as np

from tests.support.http_server import run_handler
from tests.support.wait import TIMEOUT_S

Embed = Callable[[Sequence[str]], np.ndarray]


@dataclass(slots=True)
class ServedModel:
    """What the server does; tests change it while it runs."""

    embed: Embed
    url: str = ""
    name: str = "served"
    key: str = ""
    statuses: list[int] = field(default_factory=list)
    """Statuses of the next replies, before one that succeeds."""
    rewrite: Callable[[list[dict[str, object]]], list[dict[str, object]]] = lambda rows: rows
    """Changes the rows of a reply."""
    requests: list[list[str]] = field(default_factory=list)
    """The texts of every request that was answered."""
    block: threading.Event | None = None
    """If set, a reply waits for it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: ServedModel

    def do_POST(self) -> None:
        served = self.served
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if served.block is not None:
            served.block.wait(TIMEOUT_S)
        if served.statuses:
            self._send(served.statuses.pop(0), {"error": {"message": f"failed: {body['input'][0]}", "type": "busy"}})
        elif served.key and self.headers.get("Authorization") != f"Bearer {served.key}":
            wrong = self.headers.get("Authorization")
            self._send(401, {"error": {"message": f"wrong key {wrong}", "code": "invalid_api_key"}})
        elif self.path != "/v1/embeddings" or body["model"] != served.name:
            self._send(404, {"error": {"message": "no such model", "code": "model_not_found"}})
        else:
            served.requests.append(body["input"])
            vectors = served.embed(body["input"])
            rows = [{"index": i, "embedding": [float(x) for x in vector]} for i, vector in enumerate(vectors)]
            self._send(200, {"object": "list", "model": served.name, "data": served.rewrite(rows)})

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _send(self, status: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serve_embeddings(embed: Embed) -> Iterator[ServedModel]:
    """Serve a model until the block ends."""
    served = ServedModel(embed)
    with run_handler(type("Handler", (_Handler,), {"served": served})) as port:
        served.url = f"http://127.0.0.1:{port}/v1"
        yield served
