"""Codes of the first rows of a file of vectors, which find candidates for the nearest without reading all vectors.

Candidates are scored exactly, so codes never make a score wrong, and only their recall matters. Rows of a file never
change, so its codes stay right: the writer makes them again when many rows follow that have none. They are in one file
beside the vectors, which may be lost.

One-bit codes of every row select thousands of candidates, one-byte codes select hundreds of those. The one-bit codes
can be scanned in a millisecond. Alone they lose neighbours, because the vectors of real text are close together, and
many rows pass. One byte per dimension is nearly exact.
"""

import json
import math
import mmap
import os
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.index.sqlite.vector_file import VectorFile, VectorFileHeader
from wikiholt.regular_files import fsync_path, is_irregular, move_away, open_regular

CodeWords = NDArray[np.uint64]
BitDifferences = NDArray[np.uint8]
Array = NDArray[Any]

CODED_MIN_ROWS = 50_000
"""Up to this number of rows a search compares all vectors, which takes a millisecond or two."""
_MAX_UNCODED_SHARE = 0.1
"""The share of rows without codes above which codes are made again."""
CODE_BLOCK_ROWS = 32_768
EXCLUDED_DIFFERENCE = 255
"""Marks excluded rows; no row can differ in this many dimensions."""

MIN_PASS_FACTOR = 1.25
"""Sufficient for queries unlike any row; the rows of a sample need less (see the bench)."""
MAX_PASS_FACTOR = 4.0
"""Above this factor the one-bit codes are not used."""

_BASE_CANDIDATES, _CANDIDATE_FACTOR = 50, 1.1
"""How many rows pass the bytes: a number, and this many times the limit."""
_MIN_PASSED_ROWS = 300
_THRESHOLD_SAMPLE_EVERY_ROWS = 37
"""An odd number, so that the sample does not follow the structure of pages."""
_SAMPLE_ROWS, _SAMPLE_QUERIES = 8_000, 40
_TARGET_RECALL = 0.995
_READ_ROWS = 16_384
_SCORE_BLOCK_ROWS = 256


def select_best(scores: FloatArray, count: int) -> IntArray:
    """The positions of the `count` highest scores and of all ties with the last. Scores of -inf are excluded."""
    if count >= len(scores):
        return np.flatnonzero(scores > -np.inf)
    if count <= 0:
        return np.empty(0, np.int64)
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least) if least > -np.inf else np.flatnonzero(scores > -np.inf)


class VectorCodes(Protocol):
    """The codes of the first rows of one file of vectors."""

    kind: ClassVar[str]
    """The suffix of their file."""

    @property
    def row_count(self) -> int:
        """The number of rows with codes."""

    @property
    def is_useful(self) -> bool:
        """Whether a search with them takes less time than comparing all vectors."""

    def is_complete(self) -> bool:
        """Whether they can be read: reading a map behind the end of a truncated file would end the process (SIGBUS)."""

    def find(self, vector: FloatArray, limit: int, allowed: IntArray | None, excluded: IntArray) -> IntArray:
        """Slots that likely include the `limit` nearest rows, without `excluded`.

        If `allowed` is given, only those are returned; it contains no excluded row.
        """

    @classmethod
    def encode(cls, vectors: VectorFile, count: int, chunks: IntArray) -> dict[str, Array]:
        """Make the arrays of the file for the first `count` rows, of which `chunks` can be found."""

    @classmethod
    def decode(cls, file: "MappedFile", count: int, dimensions: int) -> "VectorCodes":
        """Open the arrays of a file. Raises ValueError."""


# The file: one NumPy array with a field for each array. It is written under another name, and renamed.


@dataclass(frozen=True, slots=True)
class MappedFile:
    """The arrays of a file of codes, and what they are mapped from."""

    arrays: Mapping[str, Array]
    content: mmap.mmap

    def is_complete(self) -> bool:
        """Whether the file still has all that is mapped."""
        return self.content.size() >= len(self.content)


class CodesFile:
    """The file with the codes of one file of vectors, of one kind."""

    def __init__(self, vectors: Path, header: VectorFileHeader, codes: type[VectorCodes]) -> None:
        self.path = vectors.with_suffix(f".{codes.kind}")
        self._header = header
        self._codes = codes
        self._owner = json.dumps(asdict(header)).encode()

    def open(self, count: int) -> VectorCodes | None:
        """The codes of at most the first `count` rows; None if there are none or they are damaged."""
        try:
            file = self._map()
            rows, owner = int(file.arrays["rows"]), file.arrays["owner"].tobytes()
            if owner != self._owner or not 0 < rows <= count:
                return None
            return self._codes.decode(file, rows, self._header.dimensions)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_needed(self, count: int) -> bool:
        """Whether to make codes of the first `count` rows: there are none, or too many rows have none."""
        codes = self.open(count)
        return codes is None or count - codes.row_count > count * _MAX_UNCODED_SHARE

    def write(self, vectors: VectorFile, count: int, chunks: IntArray) -> None:
        """Make the codes of the first `count` rows, of which `chunks` can be found. Raises OSError."""
        arrays = {"rows": np.array(count), "owner": np.frombuffer(self._owner, np.uint8)}
        arrays |= self._codes.encode(vectors, count, chunks)
        arrays["crc"] = np.array(_compute_checksum(arrays), np.uint32)
        draft = self.path.with_name(f"{self.path.name}.writing")
        layout = np.dtype([(name, array.dtype, array.shape) for name, array in arrays.items()])
        try:
            with draft.open("wb") as file:  # not through a map, where a full disk would end the process (SIGBUS)
                descr = np.lib.format.dtype_to_descr(layout)
                header = {"descr": descr, "fortran_order": False, "shape": ()}
                np.lib.format.write_array_header_1_0(file, header)
                for array in arrays.values():
                    file.write(np.ascontiguousarray(array).data)
            fsync_path(draft)
            if is_irregular(self.path):
                move_away(self.path)
            draft.replace(self.path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise

    def remove_damaged(self) -> None:
        """Compare the checksum, and remove the file if it is damaged."""
        with suppress(OSError):
            try:
                arrays = self._map().arrays
                if _compute_checksum(arrays) == arrays["crc"]:
                    return
            except FileNotFoundError:
                return
            except (ValueError, KeyError, TypeError):
                pass
            move_away(self.path)

    def _map(self) -> MappedFile:
        """Map the file. Raises OSError and ValueError."""
        with os.fdopen(open_regular(self.path), "rb") as file:
            np.lib.format.read_magic(file)
            _, _, layout = np.lib.format.read_array_header_1_0(file)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            fields = np.ndarray((), layout, data, file.tell())
        return MappedFile({name: fields[name] for name in layout.names or ()}, data)


def _compute_checksum(arrays: Mapping[str, Array]) -> int:
    crc = 0
    for name in sorted(arrays.keys() - {"crc"}):
        crc = zlib.crc32(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data, crc)
    return crc


# One-bit codes: one bit per dimension, set if the value is above the mean, 64 per word. The score of a row is
# estimated by the number of bits that differ from the query. Only the dimensions with the largest magnitudes in the
# query are compared: the others add more noise than information (see the bench).


def count_code_words(dimensions: int) -> int:
    """Return the number of words in the code of one row."""
    return -(-dimensions // 64)


def pack_bits(bits: NDArray[np.bool_]) -> CodeWords:
    """Pack rows of bits into rows of words, padded with zeros."""
    padding = 64 * count_code_words(bits.shape[1]) - bits.shape[1]
    return np.packbits(np.pad(bits, ((0, 0), (0, padding))), axis=1).view(np.uint64)


def encode_signs(blocks: Iterable[FloatArray], mean: FloatArray) -> CodeWords:
    """The codes of blocks of `CODE_BLOCK_ROWS` vectors, each transposed so that a scan reads word after word."""
    return np.concatenate([pack_bits(block > mean).T.reshape(-1) for block in blocks])


def count_differences(codes: CodeWords, count: int, vector: FloatArray) -> BitDifferences:
    """Return for each row the number of differing signs in the query's largest dimensions."""
    weights = np.abs(vector)
    compared_count = min(max(1, len(vector) // 2), EXCLUDED_DIFFERENCE - 1)
    compared = np.zeros(len(vector), np.bool_)
    compared[np.argpartition(weights, -compared_count)[-compared_count:]] = True
    signs, mask = pack_bits((vector > 0)[None])[0], pack_bits(compared[None])[0]
    differences: BitDifferences = np.empty(count, np.uint8)
    block_rows = min(CODE_BLOCK_ROWS, count)
    bit_buffer, count_buffer = np.empty(block_rows, np.uint64), np.empty(block_rows, np.uint8)
    for start in range(0, count, CODE_BLOCK_ROWS):
        length = min(CODE_BLOCK_ROWS, count - start)
        block = codes[start * len(signs) : (start + length) * len(signs)].reshape(len(signs), length)
        total, bits, word_total = differences[start : start + length], bit_buffer[:length], count_buffer[:length]
        for position, word in enumerate(block):
            np.bitwise_xor(word, signs[position], out=bits)
            np.bitwise_and(bits, mask[position], out=bits)
            np.bitwise_count(bits, out=word_total if position else total)
            if position:
                np.add(total, word_total, out=total)
    return differences


def select_closest(differences: BitDifferences, count: int) -> NDArray[np.bool_]:
    """Return a mask of the `count` rows that differ least and all ties with the last, without excluded rows."""
    if count >= len(differences):
        return differences < EXCLUDED_DIFFERENCE
    if count <= 0:
        return np.zeros(len(differences), np.bool_)
    # There are few different values: counting the rows up to one takes a tenth of the time of a partition. A sample
    # tells where to begin.
    sample = np.bincount(differences[::_THRESHOLD_SAMPLE_EVERY_ROWS])
    wanted = count * int(sample.sum()) // len(differences)
    most = int(np.searchsorted(np.cumsum(sample), wanted, side="right"))
    mask: NDArray[np.bool_] = differences <= most
    if np.count_nonzero(mask) >= count:
        while most and np.count_nonzero(smaller := differences <= most - 1) >= count:
            mask, most = smaller, most - 1
    else:
        while np.count_nonzero(mask) < count:
            most += 1
            mask = differences <= most
    return mask if most < EXCLUDED_DIFFERENCE else differences < EXCLUDED_DIFFERENCE


# The number of rows that must pass the one-bit codes for the target recall. Measured on real text, it grows with the
# square root of the limit and of the row count. The factor depends on the vectors, so it is estimated from a sample
# when codes are made. If a few dimensions dominate, the codes carry too little information, and are not used.


def count_candidates(factor: float, limit: int, count: int) -> int:
    """Return how many of `count` rows must pass to include the `limit` nearest."""
    return max(count // 50, _MIN_PASSED_ROWS + int(factor * math.sqrt(limit * count)))


def estimate_pass_factor(sample: FloatArray, mean: FloatArray) -> float:
    """Estimate the factor at which the rows of a sample find their nearest 10 and 100 rows."""
    codes = encode_signs([sample], mean)
    if not len(sample):
        return MIN_PASS_FACTOR
    depths = [min(depth, len(sample)) for depth in (10, 100)]
    needed: list[list[int]] = [[] for _ in depths]
    for vector in sample[:: -(-len(sample) // _SAMPLE_QUERIES)]:
        nearest = np.argsort(-np.vecdot(sample, vector), kind="stable")
        differences = count_differences(codes, len(sample), vector)
        passed_counts = np.cumsum(np.bincount(differences))
        for depth, rows in zip(depths, needed, strict=True):
            rows.extend(passed_counts[differences[nearest[:depth]]].tolist())
    factors = [
        (float(np.quantile(rows, _TARGET_RECALL)) - _MIN_PASSED_ROWS) / math.sqrt(depth * len(sample))
        for depth, rows in zip(depths, needed, strict=True)
    ]
    return max(MIN_PASS_FACTOR, *factors)


class QuantizedCodes:
    """The codes of `exact`: bits, and bytes. The mean adds a constant to every score, so it is not subtracted."""

    kind: ClassVar[str] = "exact"

    def __init__(self, file: MappedFile, count: int, dimensions: int) -> None:
        self.row_count = count
        self._file, arrays = file, file.arrays
        self._factor = float(arrays["factor"])
        self.is_useful = self._factor <= MAX_PASS_FACTOR
        self._scales, self._signs, self._bytes = arrays["scales"], arrays["signs"], arrays["bytes"]
        if self._bytes.shape != (count, dimensions) or len(self._signs) != count * count_code_words(dimensions):
            raise ValueError("the number of rows and codes differs")

    @classmethod
    def decode(cls, file: MappedFile, count: int, dimensions: int) -> "QuantizedCodes":
        return cls(file, count, dimensions)

    @classmethod
    def encode(cls, vectors: VectorFile, count: int, chunks: IntArray) -> dict[str, Array]:
        mean, largest = _compute_mean_and_max(vectors, count)
        scales = largest / np.float32(127)
        # Not means of pages, which are close to each other.
        sample = vectors.sample(chunks[:: max(1, -(-len(chunks) // _SAMPLE_ROWS))])
        quantized = np.empty((count, vectors.dimensions), np.int8)
        for start, block in zip(range(0, count, _READ_ROWS), vectors.iter_vectors(count, _READ_ROWS), strict=True):
            quantized[start : start + len(block)] = np.rint(block / scales)
        return {
            "factor": np.array(estimate_pass_factor(sample, mean), np.float32),
            "scales": scales,
            "signs": encode_signs(vectors.iter_vectors(count, CODE_BLOCK_ROWS), mean),
            "bytes": quantized,
        }

    def is_complete(self) -> bool:
        return self._file.is_complete()

    def find(self, vector: FloatArray, limit: int, allowed: IntArray | None, excluded: IntArray) -> IntArray:
        differences = count_differences(self._signs, self.row_count, vector)
        differences[excluded] = EXCLUDED_DIFFERENCE
        if allowed is not None:
            differences = differences[allowed]
        pass_count = count_candidates(self._factor, limit, len(differences))
        passed = np.flatnonzero(select_closest(differences, pass_count))
        if allowed is not None:
            passed = allowed[passed]
        candidate_count = _BASE_CANDIDATES + int(_CANDIDATE_FACTOR * limit)
        return passed[select_best(self._score_approximately(vector, passed), candidate_count)]

    def _score_approximately(self, vector: FloatArray, slots: IntArray) -> FloatArray:
        """The approximate cosines of these rows, computed in blocks that fit the processor cache."""
        weights = vector * self._scales
        scores: FloatArray = np.empty(len(slots), np.float32)
        block_rows = min(_SCORE_BLOCK_ROWS, len(slots))
        byte_buffer = np.empty((block_rows, len(vector)), np.int8)
        float_buffer = np.empty((block_rows, len(vector)), np.float32)
        for start in range(0, len(slots), _SCORE_BLOCK_ROWS):
            block = slots[start : start + _SCORE_BLOCK_ROWS]
            quantized, rows = byte_buffer[: len(block)], float_buffer[: len(block)]
            # In half of the time of `self._bytes[block]`; with "clip", into the buffer without another copy.
            np.take(self._bytes, block, axis=0, out=quantized, mode="clip")
            rows[...] = quantized
            np.dot(rows, weights, out=scores[start : start + len(block)])
        return scores


def _compute_mean_and_max(vectors: VectorFile, count: int) -> tuple[FloatArray, FloatArray]:
    """The mean and the largest magnitude (never zero) of each dimension."""
    total = np.zeros(vectors.dimensions)
    largest = np.full(vectors.dimensions, np.finfo(np.float32).tiny * 127, np.float32)
    for block in vectors.iter_vectors(count, _READ_ROWS):
        total += block.sum(axis=0, dtype=np.float64)
        np.maximum(largest, np.abs(block).max(axis=0), out=largest)
    return (total / count).astype(np.float32), largest
