"""One-bit codes of vectors: for every dimension whether a row lies above the mean, 64 dimensions to a word.

A row's score is guessed by the signs on which it differs from the query. Only the dimensions that weigh most in the
query are compared: the others add more noise than knowledge (see the bench).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import FloatArray

CodeWords = NDArray[np.uint64]
BitDifferences = NDArray[np.uint8]

CODE_BLOCK_ROWS = 32_768
EXCLUDED_DIFFERENCE = 255
"""More differences than any row can have: marks rows that must not be found."""


def count_code_words(dimensions: int) -> int:
    """How many words hold the code of one row."""
    return -(-dimensions // 64)


def pack_bits(bits: NDArray[np.bool_]) -> CodeWords:
    """The codes of rows of bits, one row of words each; missing bits are zero."""
    missing = 64 * count_code_words(bits.shape[1]) - bits.shape[1]
    return np.packbits(np.pad(bits, ((0, 0), (0, missing))), axis=1).view(np.uint64)


def encode_signs(vectors: FloatArray, mean: FloatArray) -> Iterator[CodeWords]:
    """The codes block by block, each block word by word, so that a scan reads every word in one run."""
    for start in range(0, len(vectors), CODE_BLOCK_ROWS):
        yield np.ascontiguousarray(pack_bits(vectors[start : start + CODE_BLOCK_ROWS] > mean).T)


def count_differences(codes: CodeWords, count: int, vector: FloatArray) -> BitDifferences:
    """For each row on how many of the query's weightiest dimensions its sign differs."""
    weights = np.abs(vector)
    weighty = min(max(1, len(vector) // 2), EXCLUDED_DIFFERENCE - 1)
    chosen = np.zeros(len(vector), np.bool_)
    chosen[np.argpartition(weights, -weighty)[-weighty:]] = True
    signs, mask = pack_bits((vector > 0)[None])[0], pack_bits(chosen[None])[0]
    found: BitDifferences = np.empty(count, np.uint8)
    differing, counted = np.empty(min(CODE_BLOCK_ROWS, count), np.uint64), np.empty(min(CODE_BLOCK_ROWS, count), np.uint8)
    for start in range(0, count, CODE_BLOCK_ROWS):
        length = min(CODE_BLOCK_ROWS, count - start)
        block = codes[start * len(signs) : (start + length) * len(signs)].reshape(len(signs), length)
        total, here, number = found[start : start + length], differing[:length], counted[:length]
        for at, word in enumerate(block):
            np.bitwise_xor(word, signs[at], out=here)
            np.bitwise_and(here, mask[at], out=here)
            np.bitwise_count(here, out=number if at else total)
            if at:
                np.add(total, number, out=total)
    return found


def select_closest(differences: BitDifferences, count: int) -> NDArray[np.bool_]:
    """Which rows differ least: so many, and all that differ as little as the last of them; never one marked."""
    if count >= len(differences):
        return differences < EXCLUDED_DIFFERENCE
    # Words of sixteen bits are partitioned ten times faster than bytes.
    most = int(np.partition(differences.astype(np.uint16), count - 1)[count - 1]) if count > 0 else -1
    return differences <= min(most, EXCLUDED_DIFFERENCE - 1)
