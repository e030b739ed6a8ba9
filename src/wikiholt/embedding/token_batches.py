"""Groups texts into batches for a GPU, where a call with many texts takes about as long as a call with one."""

from collections.abc import Iterator, Sequence

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray

MAX_BATCH_TEXTS = 64
_MAX_BATCH_TOKENS = 16_384
"""Tokens of a batch, with padding: a few hundred megabytes of GPU memory for a small model."""


def plan_batches(lengths: Sequence[int], *, can_pad: bool, max_texts: int = MAX_BATCH_TEXTS) -> Iterator[list[int]]:
    """The positions of the texts of each batch, ordered by length. Without padding a batch has texts of one length."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[position]
        is_full = len(batch) >= max_texts or (len(batch) + 1) * length > _MAX_BATCH_TOKENS
        if batch and (is_full or (not can_pad and length != lengths[batch[-1]])):
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def pad(sequences: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """The token ids and attention mask of a batch."""
    ids = np.zeros((len(sequences), max(map(len, sequences))), np.int64)
    mask = np.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return ids, mask


def pool_batch(output: FloatArray, mask: IntArray, pooling: str) -> FloatArray:
    """One vector per text from the states of its tokens, without those of the padding."""
    if pooling == "none":
        return np.asarray(output, np.float32).reshape(len(mask), -1)
    if pooling == "cls":
        return np.asarray(output[:, 0], np.float32)
    weights = mask[:, :, None].astype(np.float32)
    return np.asarray((output * weights).sum(axis=1) / weights.sum(axis=1), np.float32)
