"""Tensors of 4-bit numbers in blocks of 32, each with one scale: the weights of multilingual-e5-small."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import ModelCorrupt

BLOCK_SIZE = 32
_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", BLOCK_SIZE // 2)])
"""A byte contains two numbers, each plus 8: the low bits one of the first 16, the high bits one of the last 16."""


class NibbleTable:
    """A table of 4-bit numbers; rows are converted when they are read."""

    def __init__(self, blocks: NDArray[Any]) -> None:
        self._blocks = blocks

    @classmethod
    def read(cls, weights: memoryview, offset: int, rows: int, columns: int) -> "NibbleTable":
        """The table at this offset, not copied. Raises ModelCorrupt if it is not completely in the weights."""
        count = rows * columns // BLOCK_SIZE
        if offset + count * _BLOCK.itemsize > len(weights):
            raise ModelCorrupt("The weights file is shorter than its layout", hint="reinstall the model's package")
        return cls(np.frombuffer(weights, _BLOCK, count, offset).reshape(rows, -1))

    @property
    def pairs(self) -> NDArray[np.uint8]:
        """A copy of the numbers as they are stored: rows × blocks × 16 bytes."""
        return np.ascontiguousarray(self._blocks["pairs"])

    @property
    def scales(self) -> NDArray[np.float16]:
        """A copy of the scales: rows × blocks × 1."""
        return np.ascontiguousarray(self._blocks["scale"][..., None])

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, rows: IntArray | slice) -> FloatArray:
        blocks = self._blocks[rows]
        pairs = blocks["pairs"]
        numbers = np.concatenate([pairs & 15, pairs >> 4], axis=-1).astype(np.float32) - np.float32(8)
        return np.asarray((numbers * blocks["scale"][..., None]).reshape(len(blocks), -1), np.float32)
