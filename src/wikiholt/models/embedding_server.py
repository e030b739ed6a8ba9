"""HTTP client for servers with an OpenAI-compatible `/embeddings`: Ollama, vLLM, text-embeddings-inference, infinity.

Failed requests are repeated with increasing delays. Messages contain neither the key nor a text: only the status and
the server's short error code.
"""

import http.client
import json
import random
import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidInput, ModelMismatch, ModelMissing, ModelUnavailable
from wikiholt.http_client import HttpClient, HttpReply, open_connection

_FIRST_RETRY_DELAY_S = 0.5
_MAX_RETRY_DELAY_S = 30.0
_MAX_REPLY_BYTES = 1 << 28
_SHORT_CODE_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_RETRY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_TEXT_STATUSES = frozenset({400, 413, 422})
"""A text may have caused these; the other texts of the request can be sent without it."""


class EmbeddingServer:
    """One model of one server. Safe to use from many threads: idle connections are kept and shared."""

    def __init__(
        self, url: str, model: str, get_key: Callable[[], str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`url` ends before `/embeddings`. `get_key` returns the API key, or an empty string."""
        parts = urlsplit(url)
        host, is_https = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_https else 80)
        self.address = f"{host}:{parts.port}" if parts.port else host
        self._path = f"{parts.path.rstrip('/')}/embeddings"
        self._model = model
        self._get_key = get_key
        self._sleep = sleep
        self._client = HttpClient(
            lambda timeout_s: open_connection(host, port, timeout_s, is_secure=is_https),
            parts.netloc.rpartition("@")[2],
            _MAX_REPLY_BYTES,
        )

    def embed(self, texts: Sequence[str], *, timeout_s: float, attempts: int) -> FloatArray:
        """One vector per text, as the server returns it.

        Raises ModelUnavailable after `attempts` requests of at most `timeout_s` each, ModelMissing if the server does
        not have the model, ModelMismatch for an invalid reply, InvalidInput if the server refuses a text.
        """
        body = json.dumps({"model": self._model, "input": list(texts), "encoding_format": "float"}).encode()
        delay_s = _FIRST_RETRY_DELAY_S
        for left in range(attempts - 1, -1, -1):
            reply: HttpReply | None = None
            try:
                reply = self._send(body, timeout_s)
            except (OSError, UnicodeError, http.client.HTTPException) as error:
                failure = f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no reply'}"
            else:
                if reply.status not in _RETRY_STATUSES:
                    return self._parse(reply, len(texts))
                failure = f"status {reply.status}"
            if left:
                wanted_s = _get_wanted_delay_s(reply)
                wanted_s = delay_s if wanted_s is None else wanted_s
                self._sleep(min(_MAX_RETRY_DELAY_S, wanted_s) * random.uniform(1.0, 1.25))  # noqa: S311 - no secret
                delay_s *= 2
        hint = "start the server, or correct embedding.url; the next sync continues where this one stopped"
        raise ModelUnavailable(f"The embedding server {self.address} does not answer ({failure})", hint=hint)

    def _send(self, body: bytes, timeout_s: float) -> HttpReply:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := self._get_key():
            headers["Authorization"] = f"Bearer {key}"
        return self._client.send("POST", self._path, body, headers, timeout_s=timeout_s)

    def _parse(self, reply: HttpReply, count: int) -> FloatArray:
        if reply.status // 100 != 2:
            raise self._make_error(reply)
        hint = "embedding.url must be the address before /embeddings of an OpenAI-compatible server, such as …/v1"
        try:
            rows = json.loads(reply.body)["data"]
            by_index = {int(row["index"]): row["embedding"] for row in rows}
            vectors = np.array([by_index[index] for index in range(count)], np.float32)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelMismatch(f"The reply of {self.address} is not a list of embeddings", hint=hint) from error
        if vectors.ndim != 2 or len(rows) != count:
            message = f"{self.address} returned {len(rows)} embeddings for {count} texts, or of different lengths"
            raise ModelMismatch(message, hint=hint)
        return vectors

    def _make_error(self, reply: HttpReply) -> Exception:
        status, code = reply.status, _find_error_code(reply.body)
        code = "" if code == self._get_key() else code
        text = f"The embedding server {self.address} replied with status {status}{f' ({code})' if code else ''}"
        if status in (401, 403):
            return ModelUnavailable(text, hint="set the variable that embedding.key_variable names to a valid key")
        if status == 404:
            hint = "check the name after openai: and embedding.url, which must end before /embeddings"
            return ModelMissing(f"{text}: it has no model {self._model!r}, or no /embeddings", hint=hint)
        if status in _TEXT_STATUSES:
            return InvalidInput(text, hint="set embedding.max_tokens to the number of tokens that the server accepts")
        return ModelMismatch(text, hint="check embedding.url; redirects are not followed")


def _get_wanted_delay_s(reply: HttpReply | None) -> float | None:
    """The delay that the server asks for."""
    wanted = reply.headers.get("Retry-After", "") if reply is not None else ""
    return float(wanted) if wanted.isdecimal() and wanted.isascii() else None


def _find_error_code(body: bytes) -> str:
    """The server's short error code. Its message is not shown, because it may quote a text or the key."""
    try:
        error = json.loads(body).get("error")
        code = error.get("code") or error.get("type") if isinstance(error, dict) else ""
    except (ValueError, AttributeError, RecursionError):
        return ""
    return str(code) if _SHORT_CODE_PATTERN.fullmatch(str(code or "")) else ""
