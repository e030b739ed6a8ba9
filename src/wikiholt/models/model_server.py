"""HTTP client for one model of a server with an OpenAI-compatible API: Ollama, llama.cpp, vLLM and others.

Messages contain neither the key nor a text: only the status and the server's short error code.
"""

import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from wikiholt.errors import ModelError, ModelMismatch, ModelMissing, ModelUnavailable
from wikiholt.http_client import HttpClient, HttpReply, open_connection

RETRY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
TRANSPORT_ERRORS = (OSError, UnicodeError, http.client.HTTPException)
_SHORT_CODE_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,60}")


class ModelServer:
    """One model of one server. Safe to use from many threads: idle connections are kept and shared."""

    kind = "embedding server"
    prefix = "embedding"
    """The settings begin with it."""
    endpoint = "/embeddings"
    max_reply_bytes = 1 << 28

    def __init__(self, url: str, model: str, get_key: Callable[[], str]) -> None:
        """`url` ends before the endpoint. `get_key` returns the API key, or an empty string."""
        parts = urlsplit(url)
        host, is_https = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_https else 80)
        self.address = f"{host}:{parts.port}" if parts.port else host
        self.model = model
        self._path = f"{parts.path.rstrip('/')}{self.endpoint}"
        self._get_key = get_key
        self._client = HttpClient(
            lambda timeout_s: open_connection(host, port, timeout_s, is_secure=is_https),
            parts.netloc.rpartition("@")[2],
            self.max_reply_bytes,
        )

    def send(self, document: Mapping[str, Any], timeout_s: float) -> HttpReply:
        """Send a request to the endpoint. Raises TRANSPORT_ERRORS."""
        return self._client.send("POST", self._path, *self._prepare(document), timeout_s=timeout_s)

    @contextmanager
    def open_stream(self, document: Mapping[str, Any], timeout_s: float) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Send a request, and yield the status and the parts of the body. Raises TRANSPORT_ERRORS."""
        content, headers = self._prepare(document)
        with self._client.open_stream("POST", self._path, content, headers, timeout_s=timeout_s) as opened:
            yield opened

    def _prepare(self, document: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := self._get_key():
            headers["Authorization"] = f"Bearer {key}"
        return json.dumps({"model": self.model, **document}).encode(), headers

    def make_silence_error(self, failure: str, hint: str = "") -> ModelError:
        """The error for a server that does not answer; `failure` comes from `describe_failure` or is a status."""
        hint = hint or f"start the server, or correct {self.prefix}.url"
        return ModelUnavailable(f"The {self.kind} {self.address} does not answer ({failure})", hint=hint)

    def make_status_error(self, status: int, body: bytes) -> ModelError:
        """The error for a reply that is no success."""
        code = _find_error_code(body)
        code = "" if code == self._get_key() else code
        text = f"The {self.kind} {self.address} replied with status {status}{f' ({code})' if code else ''}"
        if status in (401, 403):
            return ModelUnavailable(text, hint=f"set the variable that {self.prefix}.key_variable names to a valid key")
        if status == 404:
            hint = f"check the name after openai: and {self.prefix}.url, which must end before {self.endpoint}"
            return ModelMissing(f"{text}: it has no model {self.model!r}, or no {self.endpoint}", hint=hint)
        return ModelMismatch(text, hint=f"check {self.prefix}.url; redirects are not followed")


def describe_failure(error: BaseException) -> str:
    """Why there is no reply, without a text of the request."""
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no reply'}"


def _find_error_code(body: bytes) -> str:
    """The server's short error code. Its message is not shown, because it may quote a text or the key."""
    try:
        error = json.loads(body).get("error")
        code = error.get("code") or error.get("type") if isinstance(error, dict) else ""
    except (ValueError, AttributeError, RecursionError):
        return ""
    return str(code) if _SHORT_CODE_PATTERN.fullmatch(str(code or "")) else ""
