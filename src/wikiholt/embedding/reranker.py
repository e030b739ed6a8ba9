"""The reranker that runs ONNX cross-encoders on the CPU.

One pair of query and text a call, one thread a call: nothing is padded, and a score depends on its pair alone. A few
workers read for the whole process, and for one search at a time; the others wait for their turn, and not for long.
Safe to use from many threads. After a fork the child makes its own workers; the weights are shared.
"""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from wikiholt.embedding.embedder import count_available_cores
from wikiholt.embedding.model_loader import LoadedModel
from wikiholt.embedding.self_test import check_pairs
from wikiholt.errors import ModelError, ModelMismatch, ModelSelfTestFailed

MAX_PAIR_TOKENS = 128
"""Tokens of a pair that are read. The time goes with them: twice as many take a little over twice as long."""

_MAX_WORKERS = 2
"""Pairs that are read at a time: as many searches as there are may ask, and two cores are all that they get."""

_MAX_WAIT_SHARE = 0.5
"""The part of its time that a search waits for its turn: with less than the rest of it, reading would be in vain."""


@dataclass(frozen=True, slots=True)
class _RerankWorkers:
    """The workers of one process, for one search at a time."""

    pool: ThreadPoolExecutor
    pid: int = field(default_factory=os.getpid)
    search_lock: threading.Lock = field(default_factory=threading.Lock)


class OnnxReranker:
    """Scores with one verified model; made by `wikiholt.embedding.load_reranker`."""

    def __init__(self, loaded: LoadedModel, *, threads: int | None = None) -> None:
        self._model = loaded
        self._workers = max(1, min(_MAX_WORKERS, threads if threads is not None else count_available_cores()))
        self._worker_pool: _RerankWorkers | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._model.card.name

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        """How well each text answers the query, as logits; None when that takes longer than so many seconds.

        What has not begun by then is never read. Raises ModelError when the model fails.
        """
        until = time.monotonic() + timeout_s
        crew = self._get_workers()
        if not crew.search_lock.acquire(timeout=max(0.0, timeout_s * _MAX_WAIT_SHARE)):
            return None
        try:
            if time.monotonic() >= until:
                return None
            reading = [crew.pool.submit(self._score_pair, query, text) for text in texts]
            try:
                done, late = wait(reading, until - time.monotonic(), FIRST_EXCEPTION)
                for each in done:
                    each.result()
                return None if late else [each.result() for each in reading]
            finally:
                for each in reading:
                    each.cancel()
        finally:
            crew.search_lock.release()

    def run_self_test(self) -> None:
        """Raise ModelUnproven unless known pairs get the known scores."""
        check_pairs(self._model.card, self._model.variant.tolerance, self._model.pairs, self._score_pair)

    def _get_workers(self) -> _RerankWorkers:
        with self._lock:
            # Threads do not survive a fork, so workers belong to the process that made them.
            if self._worker_pool is None or self._worker_pool.pid != os.getpid():
                self._worker_pool = _RerankWorkers(
                    ThreadPoolExecutor(self._workers, thread_name_prefix="wikiholt-rerank")
                )
            return self._worker_pool

    def _score_pair(self, query: str, text: str) -> float:
        hint = "run `wikiholt doctor`; install the model again, or choose another as rerank.model"
        try:
            ids, types = self._model.tokenizer.encode_pair(query, text, MAX_PAIR_TOKENS)
            feed = {"input_ids": ids[None, :]}
            if "attention_mask" in self._model.inputs:
                feed["attention_mask"] = np.ones((1, len(ids)), np.int64)
            if "token_type_ids" in self._model.inputs:
                feed["token_type_ids"] = types[None, :]
            output = self._model.session.run(None, feed)[0]
            if output.size != 1:
                raise ModelMismatch(f"{self.name} gave {output.size} numbers for a pair instead of one", hint=hint)
            score = float(output.reshape(-1)[0])
        except ModelError:
            raise
        except Exception as error:  # onnxruntime and tokenizers raise their own kinds, without a common parent
            raise ModelSelfTestFailed(f"{self.name} cannot read a pair: {error}", hint=hint) from error
        if not np.isfinite(score):
            raise ModelSelfTestFailed(f"{self.name} gave a score that is not finite", hint=hint)
        return score
