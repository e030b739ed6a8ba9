"""HTTP client for servers with an OpenAI-compatible `/embeddings`: Ollama, vLLM, text-embeddings-inference, infinity.

Failed requests are repeated with increasing delays.
"""

import json
import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.errors import InvalidInput, ModelMismatch
from wikiholt.http_client import HttpReply
from wikiholt.models.model_server import RETRY_STATUSES, TRANSPORT_ERRORS, ModelServer, describe_failure

_FIRST_RETRY_DELAY_S = 0.5
_MAX_RETRY_DELAY_S = 30.0
_TEXT_STATUSES = frozenset({400, 413, 422})
"""A text may have caused these; the other texts of the request can be sent without it."""


class EmbeddingServer(ModelServer):
    """One embedding model of one server. Safe to use from many threads."""

    def __init__(
        self, url: str, model: str, get_key: Callable[[], str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`url` ends before `/embeddings`. `get_key` returns the API key, or an empty string."""
        super().__init__(url, model, get_key)
        self._sleep = sleep

    def embed(self, texts: Sequence[str], *, timeout_s: float, attempts: int) -> FloatArray:
        """One vector per text, as the server returns it.

        Raises ModelUnavailable after `attempts` requests of at most `timeout_s` each, ModelMissing if the server does
        not have the model, ModelMismatch for an invalid reply, InvalidInput if the server refuses a text.
        """
        delay_s = _FIRST_RETRY_DELAY_S
        for left in range(attempts - 1, -1, -1):
            reply: HttpReply | None = None
            try:
                reply = self.send({"input": list(texts), "encoding_format": "float"}, timeout_s)
            except TRANSPORT_ERRORS as error:
                failure = describe_failure(error)
            else:
                if reply.status not in RETRY_STATUSES:
                    return self._parse(reply, len(texts))
                failure = f"status {reply.status}"
            if left:
                wanted_s = _get_wanted_delay_s(reply)
                wanted_s = delay_s if wanted_s is None else wanted_s
                self._sleep(min(_MAX_RETRY_DELAY_S, wanted_s) * random.uniform(1.0, 1.25))  # noqa: S311 - no secret
                delay_s *= 2
        hint = "start the server, or correct embedding.url; the next sync continues where this one stopped"
        raise self.make_silence_error(failure, hint)

    def _parse(self, reply: HttpReply, count: int) -> FloatArray:
        if reply.status // 100 != 2:
            error = self.make_status_error(reply.status, reply.body)
            if reply.status in _TEXT_STATUSES:
                hint = "set embedding.max_tokens to the number of tokens that the server accepts"
                raise InvalidInput(error.message, hint=hint)
            raise error
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


def _get_wanted_delay_s(reply: HttpReply | None) -> float | None:
    """The delay that the server asks for."""
    wanted = reply.headers.get("Retry-After", "") if reply is not None else ""
    return float(wanted) if wanted.isdecimal() and wanted.isascii() else None
