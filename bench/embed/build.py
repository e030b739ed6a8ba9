"""Make the files of a model in another package that ship with Wikiholt: graphs, layout, smoothing, references.

    python -m bench.embed.build all-MiniLM-L6-v2 --carrier DIRECTORY --calibrate FILE…
    python -m bench.embed.build multilingual-e5-small --carrier FILE --calibrate FILE…

The directory contains `model.safetensors` and `tokenizer.json` of the pinned package, the file is the weights file of the
other package. Calibration files are JSON lists of texts, or Markdown, of the kind to be embedded. Needs the
`onnx` package; running Wikiholt does not.
"""

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from tokenizers import Tokenizer

from bench.embed.nibble_file import NibbleFile
from bench.report import make_parser
from training.encoder_graph import EncoderShape, build_encoder
from training.export import read_texts
from training.quantization import compute_smoothing, create_session, find_largest_inputs, find_products
from wikiholt.models.tokenizer import build_unigram_tokenizer
from wikiholt.models.weights import NIBBLE_BLOCK_SIZE as BLOCK_SIZE
from wikiholt.models.weights import WeightsLayout, extract_tensors

MINILM = EncoderShape(layers=6, heads=12, width=384, inner=1536, vocabulary=30522, positions=512)
E5 = EncoderShape(12, 12, 384, 1536, vocabulary=250037, positions=512, block=BLOCK_SIZE)
MODELS = Path("src/wikiholt/models/models")
SENTENCES = (
    "A wiki page is a file in a git repository.",
    "How do I reset my password?",
    "The mitochondrion turns nutrients into energy that the cell can use.",
    "Überprüfe die Sicherung, bevor du das Gerät öffnest.",
)


def get_tensor_names(layers: int) -> dict[str, list[str]]:
    """Our name of each tensor → the carrier's names, side by side."""
    tensors = {
        "words": ["embeddings.word_embeddings.weight"],
        "positions": ["embeddings.position_embeddings.weight"],
        "segment": ["embeddings.token_type_embeddings.weight"],
        "embedding_norm.scale": ["embeddings.LayerNorm.weight"],
        "embedding_norm.shift": ["embeddings.LayerNorm.bias"],
    }
    for layer in range(layers):
        ours, theirs = f"layers.{layer}.", f"encoder.layer.{layer}."
        for name, sources in {
            "qkv": ["attention.self.query", "attention.self.key", "attention.self.value"],
            "out": ["attention.output.dense"],
            "up": ["intermediate.dense"],
            "down": ["output.dense"],
        }.items():
            tensors[ours + name] = [f"{theirs}{source}.weight" for source in sources]
            tensors[f"{ours}{name}.bias"] = [f"{theirs}{source}.bias" for source in sources]
        for name, source in {"attention_norm": "attention.output.LayerNorm", "norm": "output.LayerNorm"}.items():
            tensors[f"{ours}{name}.scale"] = [f"{theirs}{source}.weight"]
            tensors[f"{ours}{name}.shift"] = [f"{theirs}{source}.bias"]
    return tensors


def read_layout(weights: Path) -> dict[str, object]:
    """The position of each tensor in a safetensors file: [offset, dimensions…] for each part."""
    with weights.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(length))
    places = {
        name: [8 + length + entry["data_offsets"][0], *entry["shape"]]
        for name, entry in header.items()
        if name != "__metadata__"
    }
    found = {name: [places[source] for source in sources] for name, sources in get_tensor_names(MINILM.layers).items()}
    found["segment"] = [[found["segment"][0][0], MINILM.width]]  # only the first kind of segment is ever used
    return {"tensors": found, "transposed": [name for name in found if name.endswith((".qkv", ".out", ".up", ".down"))]}


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model in its carrier: its size, where its tensors are, and its tokenizer."""

    shape: EncoderShape
    layout: dict[str, object]
    weights: Path
    tokenizer: Tokenizer
    window: int
    prefix: str = ""

    @classmethod
    def from_minilm(cls, carrier: Path) -> "ModelSource":
        weights, tokenizer = carrier / "model.safetensors", Tokenizer.from_file(str(carrier / "tokenizer.json"))
        return cls(MINILM, read_layout(weights), weights, tokenizer, 256)

    @classmethod
    def from_e5(cls, carrier: Path) -> "ModelSource":
        file = NibbleFile.read(carrier)
        start, end = file.tokenizer
        print(f"tokenizer_bytes = [{start}, {end}]")
        tokenizer = build_unigram_tokenizer(carrier.read_bytes()[start:end])
        return cls(E5, file.layout(), carrier, tokenizer, 512, "passage: ")

    def read_tensors(self, quantized: Sequence[str]) -> dict[str, np.ndarray]:
        described = {**self.layout, "rounded": list(quantized), "smoothed": []}
        with self.weights.open("rb") as opened:
            data = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        return extract_tensors(WeightsLayout.parse(json.dumps(described).encode()), data)

    def encode(self, texts: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.window)
        for text in texts:
            yield {"input_ids": np.array([self.tokenizer.encode(self.prefix + text).ids], np.int64)}


SOURCES = {
    "all-MiniLM-L6-v2": ModelSource.from_minilm,
    "multilingual-e5-small": ModelSource.from_e5,
}


def build_references(source: ModelSource, model: onnx.ModelProto, weights: dict[str, np.ndarray]) -> str:
    """The vectors of known sentences, computed in fp32 from the carrier's weights."""
    session = create_session(model, weights)
    vectors = [session.run(None, feed)[0] for feed in source.encode(SENTENCES)]
    rows = [
        {"text": text, "vector": [round(float(number), 5) for number in vector]}
        for text, vector in zip(SENTENCES, vectors, strict=True)
    ]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", choices=SOURCES)
    parser.add_argument("--carrier", type=Path, required=True)
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True)
    parser.add_argument("--to", type=Path, help="default: the model's directory in the package")
    arguments = parser.parse_args()
    to = arguments.to or MODELS / arguments.model
    to.mkdir(parents=True, exist_ok=True)
    source = SOURCES[arguments.model](arguments.carrier)
    fp32 = build_encoder(source.shape, int8=False)
    weights = source.read_tensors(list(find_products(fp32)))
    largest = find_largest_inputs(fp32, weights, source.encode(list(read_texts(arguments.calibrate))))
    # The attention's output is even enough as it is.
    smooth = {name: compute_smoothing(largest[name]) for name in largest if not name.endswith(".out")}
    described = {**source.layout, "rounded": list(largest), "smoothed": list(smooth)}
    (to / "fp32.onnx").write_bytes(fp32.SerializeToString())
    (to / "int8.onnx").write_bytes(build_encoder(source.shape, int8=True).SerializeToString())
    (to / "layout.json").write_text(json.dumps(described, indent=0) + "\n")
    np.save(to / "smooth.npy", np.concatenate(list(smooth.values())))
    if source.shape != MINILM:  # those of MiniLM were made by its authors' code
        (to / "references.json").write_text(build_references(source, fp32, weights))


if __name__ == "__main__":
    main()
