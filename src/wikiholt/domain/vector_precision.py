"""The precision of stored vectors: 16 bits for each number, and one exponent for the vector."""

import numpy as np
from numpy.typing import NDArray

_FloatArray = NDArray[np.float32]
_ShortArray = NDArray[np.int16]

_NUMBER_BITS = 15
_MAX_NUMBER = 2**_NUMBER_BITS - 1
_MIN_EXPONENT = -100
"""Powers of two from here on are normal float32 numbers, before and after the shift by the bits of a number."""


def split_vectors(vectors: _FloatArray) -> tuple[_ShortArray, _ShortArray]:
    """Split each vector into whole numbers and an exponent: a value is its number times 2 ** (exponent - 15)."""
    _, exponents = np.frexp(np.abs(vectors).max(axis=1, initial=0))
    exponents = np.maximum(exponents, _MIN_EXPONENT)
    numbers = np.rint(vectors * _get_power(_NUMBER_BITS - exponents))
    return np.clip(numbers, -_MAX_NUMBER, _MAX_NUMBER).astype(np.int16), exponents.astype(np.int16)


def join_vectors(numbers: _ShortArray, exponents: _ShortArray) -> _FloatArray:
    """Inverse of `split_vectors`. Exact: a number has fewer bits than the fraction of a float32."""
    vectors = numbers.astype(np.float32)
    vectors *= _get_power(exponents.astype(np.int32) - _NUMBER_BITS)
    return vectors


def round_vectors(vectors: _FloatArray) -> _FloatArray:
    """Round vectors to the stored precision. Rounded vectors stay as they are."""
    return join_vectors(*split_vectors(np.asarray(vectors, np.float32)))


def _get_power(exponents: NDArray[np.int32]) -> _FloatArray:
    """Powers of two as a column. Multiplying by one is exact."""
    return np.ldexp(np.float32(1), exponents)[:, None]
