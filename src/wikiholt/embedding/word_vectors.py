"""Scores how close sentences are to a query by the vectors of their words, without running the model.

A model begins by looking up each token in a table of vectors. Compared word by word, these tell nearly as well as the
full model which sentence of a passage is closest to a query, in microseconds (docs/adr/0029-closest-sentence.md).
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.embedding.nibbles import NibbleTable
from wikiholt.embedding.tokenizer import ModelTokenizer

_SIGN_WEIGHT = 0.3
"""The weight of punctuation or a letter, relative to the rarest word."""

_REVERSE_WEIGHT = 0.3
"""The weight of matching the sentence's words to the query, relative to matching the query's words to the sentence."""

_MAX_SMALL_PRODUCT = 250_000
"""Multiplications that numpy does in the calling thread; for more it wakes other threads, which takes longer."""

_SAMPLE_EVERY_ROWS = 16
"""Every 16th row is used to estimate the mean of the table."""


class BlockTable:
    """A table of int8 numbers in blocks with one scale each; rows are converted when they are read."""

    def __init__(self, numbers: NDArray[Any], scales: FloatArray) -> None:
        self._numbers = numbers
        self._scales = scales
        self._width = numbers.shape[1] * numbers.shape[2]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, rows: IntArray | slice) -> FloatArray:
        blocks = self._numbers[rows] * self._scales[rows]
        return np.asarray(blocks.reshape(len(blocks), self._width), np.float32)


class WordVectors:
    """The vector table of one model whose vocabulary is ordered by frequency. Safe to use from many threads."""

    def __init__(self, table: FloatArray | BlockTable | NibbleTable, tokenizer: ModelTokenizer) -> None:
        self._table = table
        self._tokenizer = tokenizer
        self._first = tokenizer.first_word_id

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], list[float]]:
        """A function that scores how close each sentence of a passage is to the query; scores are comparable within one
        passage and do not depend on other queries."""
        query_ids = np.unique(np.array(self._tokenizer.encode_words([query])[0], np.int64))
        vectors, weights = self._get_vectors(query_ids), self._weights[query_ids]
        total = float(weights.sum())

        def score(sentences: Sequence[str]) -> list[float]:
            sentence_ids = self._tokenizer.encode_words(sentences)
            ids = list({token_id: None for token_ids in sentence_ids for token_id in token_ids})
            if not ids or not len(query_ids):
                return [0.0] * len(sentence_ids)
            column_by_id = {token_id: index for index, token_id in enumerate(ids)}
            similarities = _multiply(vectors, self._get_vectors(np.array(ids, np.int64)))
            rarity = self._weights[ids]
            reverse = similarities.max(axis=0) * rarity
            scores: list[float] = []
            for token_ids in sentence_ids:
                columns = [column_by_id[token_id] for token_id in token_ids]
                if not columns:
                    scores.append(-1.0)
                    continue
                forward = float(similarities[:, columns].max(axis=1) @ weights) / total
                scores.append(forward + _REVERSE_WEIGHT * float(reverse[columns].sum()) / float(rarity[columns].sum()))
            return scores

        return score

    @cached_property
    def _mean(self) -> FloatArray:
        # All vectors of such a table share a large common component, which carries no information.
        return np.asarray(self._table[slice(self._first, None, _SAMPLE_EVERY_ROWS)].mean(axis=0), np.float32)

    @cached_property
    def _weights(self) -> FloatArray:
        ranks = np.arange(len(self._table)) - self._first + 6
        rarity = np.square(np.log(np.maximum(ranks, 2)) / np.log(max(len(ranks) - self._first + 6, 3)))
        rarity[: self._first] = _SIGN_WEIGHT
        return np.asarray(rarity, np.float32)

    def _get_vectors(self, ids: IntArray) -> FloatArray:
        vectors = self._table[ids] - self._mean
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        return np.asarray(vectors / np.maximum(norms, 1e-6)[:, None], np.float32)


def _multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """The product of all rows of both, in parts small enough to stay in the calling thread."""
    step = max(1, _MAX_SMALL_PRODUCT // left.size)
    return np.concatenate([left @ right[start : start + step].T for start in range(0, len(right), step)], axis=1)
