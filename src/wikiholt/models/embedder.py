"""Embeds texts with ONNX models.

On the CPU each call runs one text in one thread, with several calls in parallel: texts are not padded, and a vector
depends on its text alone. A GPU may embed passages in batches. Safe to use from many threads, and after a fork.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.protocols import PageTokenizer
from wikiholt.errors import ModelError, ModelMismatch, ModelSelfTestFailed
from wikiholt.models.model_card import ModelCard
from wikiholt.models.model_loader import AUTO, CPU, CUDA, LoadedModel, load_tokenizer, read_encoder_tensors
from wikiholt.models.self_test import SELF_TEST_HINT, check_references
from wikiholt.processor import count_available_cores

if TYPE_CHECKING:
    from wikiholt.models.torch_encoder import TorchEncoder

_log = logging.getLogger(__name__)

_UNIT_TOLERANCE = 1e-3
_SELF_TEST_TTL_S = 600.0
"""How long a passed self-test stays valid; a self-test takes as long as embedding a page."""


class OnnxEmbedder:
    """Embeds with one verified model; created by `wikiholt.models.load_embedder`."""

    def __init__(self, loaded: LoadedModel, *, threads: int | None = None, model: str = "", device: str = CPU) -> None:
        self._model = loaded
        self._device = device
        self._encoder: TorchEncoder | None = None
        self._encoder_lock = threading.Lock()
        self._uses_gpu = loaded.device == CUDA
        self.name = loaded.card.name
        self.model = model or self.name
        self.precision, self.fingerprint = loaded.variant.precision, loaded.fingerprint
        self.dimensions, self.scale = loaded.card.dimensions, loaded.card.scale
        self.max_tokens = loaded.tokenizer.max_tokens
        self._threads = max(1, threads if threads is not None else count_available_cores())
        # A second thread for one search in two cores: more would only compete with other searches.
        self._free_query_threads = threading.Semaphore(self._threads // 2)
        self._query_pools: dict[int, ThreadPoolExecutor] = {}
        """The threads by process id: they do not survive a fork."""
        self._tested_at: tuple[int, float] | None = None
        """Process id and time of the last passed self-test."""

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token of the text, in order, without special tokens, not truncated."""
        return self._model.tokenizer.get_token_spans(text)

    def is_known_word(self, word: str) -> bool:
        """Whether the word is a single token."""
        return self._model.tokenizer.is_token(word)

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        """One unit vector per text. Raises InvalidInput if a text exceeds the window; then none is returned."""
        if len(texts) == 0:
            return np.empty((0, self.dimensions), np.float32)
        encoder = self._get_encoder()
        if encoder is not None:
            return self._embed_on_gpu(encoder, texts)
        if len(texts) == 1 or self._threads == 1:
            return np.stack([self._embed_passage(text) for text in texts])
        # The longest first: otherwise one thread may still embed a long text when the others have nothing left.
        order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="wikiholt-embed")
        try:
            vectors[order] = list(pool.map(self._embed_passage, [texts[position] for position in order]))
        finally:
            pool.shutdown(cancel_futures=True)
        return vectors

    def embed_query(self, text: str) -> FloatArray:
        """The unit vector of a query, computed in the calling thread; a query that exceeds the window is truncated."""
        return self._compute_vector(self._model.tokenizer.encode_query(text))

    def start_query(self, text: str) -> Callable[[], FloatArray] | None:
        """Start to embed a query in another thread; None if enough of them run, or if there is only one core."""
        if not self._free_query_threads.acquire(blocking=False):
            return None
        pool = self._query_pools.get(os.getpid()) or ThreadPoolExecutor(self._threads // 2, "wikiholt-query")
        try:
            future = self._query_pools.setdefault(os.getpid(), pool).submit(self.embed_query, text)
        except RuntimeError:  # the interpreter ends
            self._free_query_threads.release()
            return None
        future.add_done_callback(lambda _: self._free_query_threads.release())
        return future.result

    @property
    def uses_gpu(self) -> bool:
        """Whether a GPU embeds the passages. Does not wait for it, so that other processes start while it does."""
        return self._uses_gpu

    def get_tokenizer_factory(self) -> Callable[[], PageTokenizer]:
        """A function that loads the tokenizer alone in another process."""
        return partial(load_tokenizer, self.model)

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], Sequence[float]] | None:
        """A function that scores sentences by how close their words are to the query; None if this model has none."""
        return self._model.word_vectors.make_sentence_scorer(query) if self._model.word_vectors is not None else None

    def run_self_test(self) -> None:
        """Raise ModelSelfTestFailed unless known sentences give the known vectors.

        A passed test is valid for ten minutes in this process, or until the model raises any error.
        """
        now, tested = time.monotonic(), self._tested_at
        if tested is not None and tested[0] == os.getpid() and now - tested[1] < _SELF_TEST_TTL_S:
            return
        check_references(self._model.card, self._model.variant.fidelity, self._model.references, self._embed_passage)
        if self._encoder is not None:
            self._test_encoder(self._encoder)
        self._tested_at = (os.getpid(), now)

    def release_memory(self) -> None:
        """Release the memory that long texts needed. Takes as long as a query."""
        self._model.release_memory()

    def _get_encoder(self) -> "TorchEncoder | None":
        """The encoder on the GPU, started at its first use and tested; None if passages are embedded on the CPU.

        With `device = auto`, a GPU that does not start is reported once, and the CPU is used.
        """
        if not self._uses_gpu:
            return None
        with self._encoder_lock:
            if self._encoder is None and self._uses_gpu:
                try:
                    self._encoder = self._start_encoder()
                except (ModelError, RuntimeError, ImportError) as error:
                    if self._device != AUTO:
                        hint = "set device to auto or cpu"
                        raise ModelMismatch(f"The GPU cannot run {self.name}: {error}", hint=hint) from error
                    _log.warning("The GPU cannot run %s (%s). The CPU is used; set device to cpu.", self.name, error)
                    self._uses_gpu = False
            return self._encoder

    def _start_encoder(self) -> "TorchEncoder":
        from wikiholt.models.torch_encoder import TorchEncoder  # noqa: PLC0415 - takes seconds, and may be missing

        tensors = read_encoder_tensors(self.model, self.precision)
        encoder = TorchEncoder(tensors, self._model.card, CUDA)
        self._test_encoder(encoder)
        return encoder

    def _test_encoder(self, encoder: "TorchEncoder") -> None:
        """Raise ModelSelfTestFailed unless the GPU gives the known vectors as precisely as the CPU must."""
        model = self._model
        embed = lambda text: self._embed_on_gpu(encoder, [text])[0]  # noqa: E731
        check_references(model.card, model.variant.fidelity, model.references, embed)

    def _embed_on_gpu(self, encoder: "TorchEncoder", texts: Sequence[str]) -> FloatArray:
        with self._forgetting_test():
            vectors: FloatArray = encoder.embed(self._model.tokenizer.encode_passages(texts))
            # All at once; only a suspicious vector is checked on its own, for the message.
            for position in np.flatnonzero(~(np.abs(np.einsum("ij,ij->i", vectors, vectors) - 1) < _UNIT_TOLERANCE)):
                _check_vector(vectors[position], self._model.card)
            return vectors

    def _embed_passage(self, text: str) -> FloatArray:
        return self._compute_vector(self._model.tokenizer.encode_passage(text))

    def _compute_vector(self, ids: IntArray) -> FloatArray:
        with self._forgetting_test():
            return self._finish_vector(self._pool_output(self._model.run(ids)))

    @contextmanager
    def _forgetting_test(self) -> Iterator[None]:
        """After any error the model must pass its self-test again."""
        try:
            yield
        except Exception:
            self._tested_at = None
            raise

    def _finish_vector(self, vector: FloatArray) -> FloatArray:
        """Apply the layers after the pooling, normalize and check a vector."""
        for layer in self._model.dense:
            vector = layer.apply(vector)
        if self._model.card.normalise:
            length = np.float32(np.sqrt(np.dot(vector, vector)))
            # A vector that cannot be normalized is left as it is, for `_check_vector` to report.
            vector = vector / length if np.isfinite(length) and length > 0 else vector
        _check_vector(vector, self._model.card)
        return vector

    def _pool_output(self, output: FloatArray) -> FloatArray:
        pooling, width = self._model.card.pooling, self._model.card.width
        if output.shape[-1] != width or (pooling == "none") != (output.size == width and output.ndim < 3):
            message = f"{self.name} gave an output of shape {output.shape}; its card says {width} and {pooling!r}"
            raise ModelMismatch(message, hint="correct dimensions and pooling in the model's card")
        if pooling == "none":
            return output.reshape(width).astype(np.float32, copy=False)
        states = output[0]
        pooled: FloatArray = states[0] if pooling == "cls" else states.mean(axis=0, dtype=np.float32)
        return pooled.astype(np.float32, copy=False)


def _check_vector(vector: FloatArray, card: ModelCard) -> None:
    """Raise ModelSelfTestFailed unless this vector can be indexed."""
    if vector.shape != (card.dimensions,):
        raise ModelSelfTestFailed(
            f"{card.name} returned shape {vector.shape} instead of {card.dimensions} numbers", hint=SELF_TEST_HINT
        )
    length = float(np.sqrt(np.dot(vector, vector)))
    if not np.isfinite(length):
        raise ModelSelfTestFailed(
            f"{card.name} returned a vector with numbers that are not finite", hint=SELF_TEST_HINT
        )
    if length == 0:
        raise ModelSelfTestFailed(f"{card.name} returned a vector of zeros", hint=SELF_TEST_HINT)
    if card.normalise and abs(length - 1) > 1e-3:
        raise ModelSelfTestFailed(
            f"{card.name} returned a vector of length {length:.4f} instead of 1", hint=SELF_TEST_HINT
        )
