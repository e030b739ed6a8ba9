"""How alike a query and sentences are by what their words mean, each word taken alone: the model itself is not run.

A model begins by looking each token up in a table of vectors. Compared word by word, these say nearly as well as the
whole model which sentence of a passage is closest to a query, in microseconds (docs/adr/0029-closest-sentence.md).
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.embedding.tokenizer import ModelTokenizer

_FIRST_WORD_ID = 1996
"""Where the words of the vocabulary begin, ordered by how often they are used; signs and letters come before."""

_SIGN_WEIGHT = 0.3
"""What a sign or letter weighs beside the rarest word."""

_REVERSE_WEIGHT = 0.3
"""What it counts that words of a sentence have a counterpart in the query, beside the query's having one in it."""

_MAX_SMALL_PRODUCT = 250_000
"""Multiplications that numpy does in the calling thread; for more it wakes others, which takes longer than the work."""

_SAMPLE_EVERY_ROWS = 16
"""Every which row tells the middle of the table."""


class WordVectors:
    """The table of one model whose vocabulary is that of BERT. Safe to use from many threads."""

    def __init__(self, table: FloatArray, tokenizer: ModelTokenizer) -> None:
        self._table = table
        self._tokenizer = tokenizer

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], list[float]]:
        """What says how close each sentence of a passage is to the query: comparable within the passage, and the same
        whatever else is asked."""
        asked = np.unique(np.array(self._tokenizer.encode_words([query])[0], np.int64))
        vectors, weights = self._get_vectors(asked), self._weights[asked]
        total = float(weights.sum())

        def close(sentences: Sequence[str]) -> list[float]:
            told = self._tokenizer.encode_words(sentences)
            ids = list({number: None for numbers in told for number in numbers})
            if not ids or not len(asked):
                return [0.0] * len(told)
            column = {number: at for at, number in enumerate(ids)}
            likeness = _multiply(vectors, self._get_vectors(np.array(ids, np.int64)))
            rarity = self._weights[ids]
            returned = likeness.max(axis=0) * rarity
            scores: list[float] = []
            for numbers in told:
                own = [column[number] for number in numbers]
                if not own:
                    scores.append(-1.0)
                    continue
                there = float(likeness[:, own].max(axis=1) @ weights) / total
                scores.append(there + _REVERSE_WEIGHT * float(returned[own].sum()) / float(rarity[own].sum()))
            return scores

        return close

    @cached_property
    def _mean(self) -> FloatArray:
        # Every vector of such a table has much the same part in common, which says nothing.
        return np.asarray(self._table[_FIRST_WORD_ID::_SAMPLE_EVERY_ROWS].mean(axis=0), np.float32)

    @cached_property
    def _weights(self) -> FloatArray:
        ranks = np.arange(len(self._table)) - _FIRST_WORD_ID + 6
        rarity = np.square(np.log(np.maximum(ranks, 2)) / np.log(max(len(ranks) - _FIRST_WORD_ID + 6, 3)))
        rarity[:_FIRST_WORD_ID] = _SIGN_WEIGHT
        return np.asarray(rarity, np.float32)

    def _get_vectors(self, ids: IntArray) -> FloatArray:
        vectors = self._table[ids] - self._mean
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        return np.asarray(vectors / np.maximum(norms, 1e-6)[:, None], np.float32)


def _multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """Every row of one by every row of the other, in pieces small enough to stay in this thread."""
    step = max(1, _MAX_SMALL_PRODUCT // left.size)
    return np.concatenate([left @ right[at : at + step].T for at in range(0, len(right), step)], axis=1)
