"""Scores how close sentences are to a query by the vectors of their words, without running the model.

A model begins by looking up each token in a table of vectors. Compared word by word, these tell nearly as well as the
full model which sentence of a passage is closest to a query, in microseconds (docs/adr/0035-snippets-that-answer.md).
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.models.tokenizer import ModelTokenizer
from wikiholt.models.weights import NibbleTable

_SIGN_WEIGHT = 0.3
"""The weight of punctuation or a letter, relative to the rarest word."""

_REVERSE_WEIGHT = 0.3
"""The weight of matching the sentence's words to the query, relative to matching the query's words to the sentence."""

_MAX_SMALL_PRODUCT = 250_000
"""Multiplications that numpy does in the calling thread; for more it wakes other threads, which takes longer."""

_SAMPLE_EVERY_ROWS = 16
"""Every 16th row is used to estimate the mean of the table."""


WordTable = FloatArray | NibbleTable
"""A row per token; rows in 4 bits are converted when they are read."""


class WordVectors:
    """The vector table of one model whose vocabulary is ordered by frequency. Safe to use from many threads."""

    def __init__(self, table: WordTable, tokenizer: ModelTokenizer) -> None:
        self._table = table
        self._tokenizer = tokenizer
        self._first = tokenizer.first_word_id
        # All vectors of such a table share a large common component, which carries no information.
        sample = table[slice(self._first, None, _SAMPLE_EVERY_ROWS)]
        self._mean: FloatArray = np.asarray(sample.mean(axis=0), np.float32)

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], list[float]]:
        """A function that scores how close each sentence is to the query; a score does not depend on the other
        sentences and queries."""
        query_ids = np.unique(np.array(self._tokenizer.encode_words([query])[0], np.int64))
        vectors, weights = self._get_vectors(query_ids), self._weights[query_ids]
        offsets = vectors @ self._mean
        total = float(weights.sum())

        def score(sentences: Sequence[str]) -> list[float]:
            sentence_ids = self._tokenizer.encode_words(sentences)
            if not len(query_ids) or not any(sentence_ids):
                return [0.0] * len(sentence_ids)
            ids, rows = np.unique(np.fromiter(chain.from_iterable(sentence_ids), np.int64), return_inverse=True)
            similarities = (_multiply(self._table[ids], vectors) - offsets) / self._get_norms(ids)[:, None]
            rarity = self._weights[ids]
            reverse = similarities.max(axis=1) * rarity
            lengths = np.fromiter(map(len, sentence_ids), np.int64, len(sentence_ids))
            has_words = lengths > 0
            starts = (np.cumsum(lengths) - lengths)[has_words]
            # `vecdot` and `reduceat` sum every sentence in the same order, so equal sentences have equal scores.
            forward = np.vecdot(np.maximum.reduceat(similarities[rows], starts), weights) / total
            reverse_means = np.add.reduceat(reverse[rows], starts) / np.add.reduceat(rarity[rows], starts)
            scores = np.full(len(sentence_ids), -1.0)
            scores[has_words] = forward + _REVERSE_WEIGHT * reverse_means
            return scores.tolist()

        return score

    @cached_property
    def _weights(self) -> FloatArray:
        ranks = np.arange(len(self._table)) - self._first + 6
        rarity = np.square(np.log(np.maximum(ranks, 2)) / np.log(max(len(ranks) - self._first + 6, 3)))
        rarity[: self._first] = _SIGN_WEIGHT
        return np.asarray(rarity, np.float32)

    @cached_property
    def _norms(self) -> FloatArray:
        """The lengths of vectors without the mean; not a number until they are needed."""
        return np.full(len(self._table), np.nan, np.float32)

    def _get_norms(self, ids: IntArray) -> FloatArray:
        norms = self._norms[ids]
        missing = ids[np.isnan(norms)]
        if len(missing):
            self._norms[missing] = np.maximum(np.linalg.norm(self._table[missing] - self._mean, axis=1), 1e-6)
            norms = self._norms[ids]
        return norms

    def _get_vectors(self, ids: IntArray) -> FloatArray:
        vectors = (self._table[ids] - self._mean) / self._get_norms(ids)[:, None]
        return np.asarray(vectors, np.float32)


def _multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """The product of all rows of both, in parts small enough to stay in the calling thread."""
    step = max(1, _MAX_SMALL_PRODUCT // right.size)
    return np.concatenate([left[start : start + step] @ right.T for start in range(0, len(left), step)])
