"""Scores pairs of query and text with ONNX cross-encoders on the CPU.

Each call runs one pair in one thread: pairs are not padded, and a score depends on its pair alone. A few workers serve
the process, one search at a time; other searches wait for a limited time. Safe to use from many threads. After a fork
the child creates its own workers; the weights are shared.
"""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from wikiholt.errors import ModelError, ModelMismatch, ModelSelfTestFailed
from wikiholt.models.model_loader import LoadedModel
from wikiholt.models.self_test import check_pairs
from wikiholt.processor import count_available_cores

MAX_PAIR_TOKENS = 192
"""Tokens of a pair that the model reads. Twice as many take slightly more than twice as long."""

_MAX_WORKERS = 2
"""Pairs scored in parallel. However many searches there are, reranking uses at most two cores."""

_MAX_WAIT_SHARE = 0.5
"""The share of its time that a search waits for the workers; with less time left, scoring would not finish."""


@dataclass(frozen=True, slots=True)
class _RerankWorkers:
    """The workers of one process; `search_lock` admits one search at a time."""

    pool: ThreadPoolExecutor
    pid: int = field(default_factory=os.getpid)
    search_lock: threading.Lock = field(default_factory=threading.Lock)


class OnnxReranker:
    """Scores with one verified model; created by `wikiholt.models.load_reranker`."""

    def __init__(self, loaded: LoadedModel, *, threads: int | None = None) -> None:
        self._model = loaded
        self.name, self.fingerprint = loaded.card.name, loaded.fingerprint
        self._threads = max(1, min(_MAX_WORKERS, threads if threads is not None else count_available_cores()))
        self._workers: _RerankWorkers | None = None
        self._lock = threading.Lock()

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        """How well each text answers the query, as logits; None if that takes longer than `timeout_s`.

        Pairs not started by then are cancelled. Raises ModelError if the model fails.
        """
        deadline = time.monotonic() + timeout_s
        workers = self._get_workers()
        if not workers.search_lock.acquire(timeout=max(0.0, timeout_s * _MAX_WAIT_SHARE)):
            return None
        try:
            if time.monotonic() >= deadline:
                return None
            futures = [workers.pool.submit(self._score_pair, query, text) for text in texts]
            try:
                done, pending = wait(futures, deadline - time.monotonic(), FIRST_EXCEPTION)
                for future in done:
                    future.result()
                return None if pending else [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()
        finally:
            workers.search_lock.release()

    def run_self_test(self) -> None:
        """Raise ModelSelfTestFailed unless known pairs get the known scores."""
        check_pairs(self._model.card, self._model.variant.tolerance, self._model.pairs, self._score_pair)

    def _get_workers(self) -> _RerankWorkers:
        with self._lock:
            # Threads do not survive a fork, so workers belong to the process that created them.
            if self._workers is None or self._workers.pid != os.getpid():
                self._workers = _RerankWorkers(ThreadPoolExecutor(self._threads, thread_name_prefix="wikiholt-rerank"))
            return self._workers

    def _score_pair(self, query: str, text: str) -> float:
        hint = "run `wikiholt doctor`; reinstall the model, or set another rerank.model"
        try:
            output = self._model.run(*self._model.tokenizer.encode_pair(query, text, MAX_PAIR_TOKENS))
            if output.size != 1:
                raise ModelMismatch(f"{self.name} returned {output.size} numbers for a pair, not one", hint=hint)
            score = float(output.reshape(-1)[0])
        except ModelError:
            raise
        except Exception as error:  # the exceptions of onnxruntime and tokenizers have no common base class
            raise ModelSelfTestFailed(f"{self.name} cannot score a pair: {error}", hint=hint) from error
        if not np.isfinite(score):
            raise ModelSelfTestFailed(f"{self.name} returned a score that is not finite", hint=hint)
        return score
