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

from wikiholt.embedding.embedder import available_cores
from wikiholt.embedding.opening import OpenModel
from wikiholt.embedding.proof import prove_pairs
from wikiholt.errors import ModelError, ModelMismatch, ModelUnproven

READ = 128
"""Tokens of a pair that are read. The time goes with them: twice as many take a little over twice as long."""

_WORKERS = 2
"""Pairs that are read at a time: as many searches as there are may ask, and two cores are all that they get."""

_WAITING = 0.5
"""The part of its time that a search waits for its turn: with less than the rest of it, reading would be in vain."""


@dataclass(frozen=True, slots=True)
class _Crew:
    """The workers of one process, for one search at a time."""

    pool: ThreadPoolExecutor
    pid: int = field(default_factory=os.getpid)
    turn: threading.Lock = field(default_factory=threading.Lock)


class OnnxReranker:
    """Scores with one verified model; made by `wikiholt.embedding.load_reranker`."""

    def __init__(self, opened: OpenModel, *, threads: int | None = None) -> None:
        self._model = opened
        self._workers = max(1, min(_WORKERS, threads if threads is not None else available_cores()))
        self._crew: _Crew | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._model.card.name

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> Sequence[float] | None:
        """How well each text answers the query, as logits; None when that takes longer than so many seconds.

        What has not begun by then is never read. Raises ModelError when the model fails.
        """
        until = time.monotonic() + seconds
        crew = self._todays()
        if not crew.turn.acquire(timeout=max(0.0, seconds * _WAITING)):
            return None
        try:
            if time.monotonic() >= until:
                return None
            reading = [crew.pool.submit(self._score, query, text) for text in texts]
            try:
                done, late = wait(reading, until - time.monotonic(), FIRST_EXCEPTION)
                for each in done:
                    each.result()
                return None if late else [each.result() for each in reading]
            finally:
                for each in reading:
                    each.cancel()
        finally:
            crew.turn.release()

    def prove(self) -> None:
        """Raise ModelUnproven unless known pairs get the known scores."""
        prove_pairs(self._model.card, self._model.variant.tolerance, self._model.pairs, self._score)

    def _todays(self) -> _Crew:
        with self._lock:
            # Threads do not survive a fork, so workers belong to the process that made them.
            if self._crew is None or self._crew.pid != os.getpid():
                self._crew = _Crew(ThreadPoolExecutor(self._workers, thread_name_prefix="wikiholt-rerank"))
            return self._crew

    def _score(self, query: str, text: str) -> float:
        hint = "run `wikiholt doctor`; install the model again, or choose another as rerank.model"
        try:
            ids, types = self._model.tokens.pair(query, text, READ)
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
            raise ModelUnproven(f"{self.name} cannot read a pair: {error}", hint=hint) from error
        if not np.isfinite(score):
            raise ModelUnproven(f"{self.name} gave a score that is not finite", hint=hint)
        return score
