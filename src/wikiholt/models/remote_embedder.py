"""Embeds texts with a model that another process serves over HTTP.

Nothing guarantees that a server still runs the model that an index was built with. Therefore the vectors of known texts
are stored at first use, every request contains one of these texts, and a reply whose known vector differs is an error.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.errors import InvalidInput, ModelError, ModelMismatch, ModelMissing, ModelSelfTestFailed, ModelUnavailable
from wikiholt.models.embedding_server import EmbeddingServer
from wikiholt.models.remote_references import (
    CANARY_TEXT,
    REMOTE_PREFIX,
    ReferenceKey,
    RemoteOptions,
    RemoteReferences,
    TextKind,
    find_references,
    get_references_path,
    list_reference_texts,
    write_references,
)
from wikiholt.models.self_test import check_similarity, compute_cosine

if TYPE_CHECKING:
    from wikiholt.models.embedder import OnnxEmbedder

_log = logging.getLogger(__name__)

_ATTEMPTS = 4
_MIN_COSINE = 0.99
"""Between a stored vector and the same text now. Batches and other hardware change the cosine by less than .001."""
_MIN_LOCAL_COSINE = 0.97
"""Between a stored vector and that of the same model on this machine, which may have another precision."""
_TOO_LONG_HINT = "set embedding.max_tokens to the number of tokens that the server accepts"
_SELF_TEST_TTL_S = 600.0
_UNAVAILABLE_TTL_S = 10.0
"""How long queries do not wait for a server that did not answer."""
_SPECIAL_TOKENS = 2
_CHARS_PER_TOKEN = 4
_TOKEN_PATTERN = re.compile(rf"[^\W_]{{1,{_CHARS_PER_TOKEN}}}|[^\w\s]|_")
_LATIN_END = 0x250


class RemoteEmbedder:
    """One model of a server. `local` is the same model on this machine: its tokenizer counts tokens, and it embeds
    queries while the server does not answer."""

    precision = "remote"

    def __init__(
        self, model: str, options: RemoteOptions, server: EmbeddingServer, local: "OnnxEmbedder | None" = None
    ) -> None:
        self.model = model
        self._options = options
        self._server = server
        self._local = local
        self._prefixes: dict[TextKind, str] = {"query": options.query_prefix, "passage": options.passage_prefix}
        self._tested_at: float | None = None
        self._retry_at = 0.0
        self._references = self._open_references()
        self.fingerprint = self._references.fingerprint
        self.dimensions = self._references.dimensions
        if local is not None:
            self._check_local(local)

    @property
    def scale(self) -> CosineScale:
        return self._local.scale if self._local is not None else self._references.scale

    @property
    def max_tokens(self) -> int:
        overhead = _SPECIAL_TOKENS + len(self.get_token_spans(self._options.passage_prefix))
        accepted = max(1, self._options.max_tokens - overhead)
        return accepted if self._local is None else min(accepted, self._local.max_tokens)

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token: of the local model's tokenizer, else estimated."""
        return self._local.get_token_spans(text) if self._local is not None else estimate_tokens(text)

    def is_known_word(self, word: str) -> bool:
        """Whether the word is a single token; without a local model no word is known."""
        return self._local is not None and self._local.is_known_word(word)

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        """One unit vector per text. Raises InvalidInput if the server refuses a text."""
        size = max(1, self._options.batch - 1)  # one place is for the known text
        batches = [self._request("passage", texts[start : start + size]) for start in range(0, len(texts), size)]
        return np.concatenate(batches) if batches else np.empty((0, self.dimensions), np.float32)

    def embed_query(self, text: str) -> FloatArray:
        """The unit vector of a query. While the server does not answer, the local model computes it."""
        if time.monotonic() >= self._retry_at:
            try:
                vector: FloatArray = self._request("query", [self._truncate(text)])[0]
            except ModelUnavailable as error:
                self._retry_at = time.monotonic() + _UNAVAILABLE_TTL_S
                if self._local is None:
                    raise
                _log.warning("Queries are embedded by the local model: %s", error.message)
            except InvalidInput as error:
                raise ModelMismatch(error.message, hint=error.hint) from error
            else:
                return vector
        if self._local is None:
            hint = "the server is asked again after a few seconds"
            raise ModelUnavailable(f"The embedding server {self._server.address} did not answer", hint=hint)
        return self._local.embed_query(text)

    def run_self_test(self) -> None:
        """Raise ModelMismatch unless the server returns the stored vectors, ModelSelfTestFailed if they make no sense.

        A passed test is valid for ten minutes, or until a request fails; every reply is checked in between.
        """
        tested = self._tested_at
        if tested is not None and time.monotonic() - tested < _SELF_TEST_TTL_S:
            return
        lowest = self._references.find_lowest_cosine(self._measure())
        if lowest < _MIN_COSINE:
            raise self._make_changed_error(lowest)
        check_similarity(self.model, lambda text: self._request("passage", [text])[0])
        self._tested_at = time.monotonic()

    def _open_references(self) -> RemoteReferences:
        """The stored references, or else those of the server, which are then stored."""
        stored = find_references(self.model, self._options)
        if stored is None:
            name = self.model.removeprefix(REMOTE_PREFIX)
            path = get_references_path(self._options.directory, name, self._options.prefixes)
            write_references(path, RemoteReferences(name, self._options.prefixes, self._measure()))
            # Rounded by writing: the fingerprint is the same in every process.
            stored = find_references(self.model, self._options)
        assert stored is not None
        return stored

    def _measure(self) -> Mapping[ReferenceKey, FloatArray]:
        """The vectors that the server returns for the reference texts now."""
        vectors: dict[ReferenceKey, FloatArray] = {}
        for kind, text in list_reference_texts():
            # One text per request: some servers compute slightly different vectors in a batch.
            vectors[kind, text] = self._send([self._prefixes[kind] + text], self._options.timeout_s, _ATTEMPTS)[0]
        return vectors

    def _check_local(self, local: "OnnxEmbedder") -> None:
        """Raise ModelMismatch unless the local model is the one that the server runs."""
        vectors: dict[ReferenceKey, FloatArray] = {}
        for kind, text in list_reference_texts():
            vectors[kind, text] = local.embed_query(text) if kind == "query" else local.embed_passages([text])[0]
        lowest = self._references.find_lowest_cosine(vectors)
        if lowest < _MIN_LOCAL_COSINE:
            raise ModelMismatch(
                f"embedding.local_model is not the model of the server: the lowest cosine is {lowest:.3f}",
                hint="set embedding.query_prefix and embedding.passage_prefix as in its card, or leave it out",
            )

    def _request(self, kind: TextKind, texts: Sequence[str]) -> FloatArray:
        """The checked unit vectors of these texts. Every request also contains the canary."""
        is_query = kind == "query"
        timeout_s = self._options.query_timeout_s if is_query else self._options.timeout_s
        sent = [*(self._prefixes[kind] + text for text in texts), self._prefixes["passage"] + CANARY_TEXT]
        try:
            vectors = self._send(sent, timeout_s, 1 if is_query else _ATTEMPTS)
            has_dimensions = vectors.shape[1] == self.dimensions
            cosine = compute_cosine(vectors[-1], self._references.canary) if has_dimensions else -1.0
            if cosine < _MIN_COSINE:
                raise self._make_changed_error(cosine)
        except ModelUnavailable as error:
            self._tested_at = None
            if not is_query and self._answers():
                raise InvalidInput(f"The server fails for a text: {error.message}", hint=_TOO_LONG_HINT) from error
            raise
        except Exception:
            self._tested_at = None
            raise
        return vectors[:-1]

    def _answers(self) -> bool:
        """Whether the server embeds a known text. Some servers fail with status 500 for a text that is too long."""
        with suppress(ModelError):
            self._send([self._prefixes["passage"] + CANARY_TEXT], self._options.timeout_s, 1)
            return True
        return False

    def _send(self, texts: Sequence[str], timeout_s: float, attempts: int) -> FloatArray:
        """The unit vectors of these texts, as the server returns them now."""
        vectors = self._server.embed(texts, timeout_s=timeout_s, attempts=attempts)
        norms = np.linalg.norm(vectors, axis=1)
        if not np.all(np.isfinite(norms)) or not np.all(norms > 0):
            hint = "nothing was indexed; check the server"
            raise ModelSelfTestFailed(f"{self.model} returned a vector of zeros, or not finite", hint=hint)
        return np.asarray(vectors / norms[:, None], np.float32)

    def _make_changed_error(self, cosine: float) -> ModelMismatch:
        return ModelMismatch(
            f"The server now runs another model as {self.model}: a known text has cosine {cosine:.3f} to its vector",
            hint=f"start the former model, or run `wikiholt model remove --force {self.model}`: the next sync then "
            "builds every index again",
        )

    def _truncate(self, text: str) -> str:
        spans = self.get_token_spans(text)
        return text if len(spans) <= self.max_tokens else text[: spans[self.max_tokens - 1][1]]


def open_remote_embedder(
    model: str, options: RemoteOptions, load_local: "Callable[[str], OnnxEmbedder]"
) -> RemoteEmbedder:
    """The embedder of a remote model. The server is asked unless its references are stored. Raises ModelError."""
    if not options.url:
        hint = "set it to the address before /embeddings, such as http://127.0.0.1:11434/v1"
        raise ModelMissing(f"model = {model} needs embedding.url", hint=hint)
    variable = options.key_variable
    server = EmbeddingServer(options.url, model.removeprefix(REMOTE_PREFIX), lambda: os.environ.get(variable, ""))
    return RemoteEmbedder(model, options, server, load_local(options.local_model) if options.local_model else None)


def estimate_tokens(text: str) -> list[tuple[int, int]]:
    """Character ranges that estimate the tokens of an unknown tokenizer: up to four Latin letters or digits, one sign,
    one character of another script. For English this counts about a quarter too many, so that a chunk fits."""
    spans: list[tuple[int, int]] = []
    for match in _TOKEN_PATTERN.finditer(text):
        start, end = match.span()
        if all(ord(char) < _LATIN_END for char in match[0]):
            spans.append((start, end))
        else:
            spans += [(position, position + 1) for position in range(start, end)]
    return spans
