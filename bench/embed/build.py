"""Make the files of the built-in model that ship with the package: graphs, layout of the weights, smoothing.

    python -m bench.embed.build --carrier DIRECTORY --calibrate FILE…

The directory holds `onnx/model.onnx`, `onnx/model.onnx_data` and `tokenizer.json` of the pinned package; the files are
texts of the kind to be embedded. Needs the `onnx` package; running Wikiholt does not.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from tokenizers import Tokenizer

from bench.embed.graph import Shape, encoder

MINILM = Shape(layers=6, heads=12, width=384, inner=1536, vocabulary=30522, positions=512)
# How much of the activations' unevenness moves into the weights: of .5 to 1 the best by cosine to fp32.
ALPHA = 0.7
SENTENCES = (
    "A wiki page is a file in a git repository.",
    "How do I reset my password?",
    "The mitochondrion turns nutrients into energy that the cell can use.",
    "Überprüfe die Sicherung, bevor du das Gerät öffnest.",
)


def parts(layers: int) -> dict[str, list[str]]:
    """Our name of each tensor → the carrier's names, side by side."""
    tensors = {
        "words": [".model.embeddings.word_embeddings.weight"],
        "positions": [".model.embeddings.position_embeddings.weight"],
        "segment": [".model.embeddings.token_type_embeddings.weight"],
        "embedding_norm.scale": ["model.layers.-1.embeddings_norm_layernorm.weight"],
        "embedding_norm.shift": ["model.layers.-1.embeddings_norm_layernorm.bias"],
    }
    for layer in range(layers):
        ours, theirs = f"layers.{layer}.", f"model.layers.{layer}."
        for name, sources in {
            "qkv": ["attn.q_proj", "attn.k_proj", "attn.v_proj"],
            "out": ["attn.o_proj"],
            "up": ["mlp.fc1"],
            "down": ["mlp.fc2"],
        }.items():
            tensors[ours + name] = [f"{theirs}{source}.MatMul.weight" for source in sources]
            tensors[f"{ours}{name}.bias"] = [f"{theirs}{source}.Add.bias" for source in sources]
        for name, source in {"attention_norm": "attention_output_norm", "norm": "mlp_output_norm"}.items():
            tensors[f"{ours}{name}.scale"] = [f"{theirs}{source}_layernorm.weight"]
            tensors[f"{ours}{name}.shift"] = [f"{theirs}{source}_layernorm.bias"]
    return tensors


def layout(carrier: Path) -> dict[str, list[list[int]]]:
    """The position of each tensor in the carrier's data: [offset, dimensions…] for each part."""
    model = onnx.load(str(carrier / "onnx/model.onnx"), load_external_data=False)
    places = {}
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        places[tensor.name] = [int(entries.get("offset", 0)), *tensor.dims]
    found = {name: [places[source] for source in sources] for name, sources in parts(MINILM.layers).items()}
    found["segment"] = [[found["segment"][0][0], MINILM.width]]  # only the first kind of segment is ever used
    return found


def token_ids(carrier: Path, texts: Sequence[str]) -> Iterator[np.ndarray]:
    tokenizer = Tokenizer.from_file(str(carrier / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    for text in texts:
        yield np.array([tokenizer.encode(text).ids], np.int64)


def largest_inputs(
    carrier: Path, model: onnx.ModelProto, weights: dict[str, np.ndarray], texts: Sequence[str]
) -> dict[str, np.ndarray]:
    """The largest magnitude that each column of each product's input reaches on these texts."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    inputs = {node.input[1]: node.input[0] for node in tapped.graph.node if node.op_type == "MatMul"}
    for name in inputs.values():
        tapped.graph.output.add(name=name)
    options = onnxruntime.SessionOptions()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in weights.values()]
    options.add_external_initializers(list(weights), values)
    session = onnxruntime.InferenceSession(tapped.SerializeToString(), options)
    largest: dict[str, np.ndarray] = {}
    for ids in token_ids(carrier, texts):
        for name, value in zip(inputs, session.run(list(inputs.values()), {"input_ids": ids}), strict=True):
            seen = np.abs(value).max(axis=0)
            largest[name] = np.maximum(largest.get(name, seen), seen)
    return largest


def smoothing(largest: np.ndarray) -> np.ndarray:
    """What each column of the input is multiplied by, so that no column needs a much coarser grid than the others."""
    scale = largest**ALPHA
    return (np.exp(np.log(scale).mean()) / scale).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--carrier", type=Path, required=True)
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True)
    parser.add_argument("--to", type=Path, default=Path("src/wikiholt/embedding/models/all-MiniLM-L6-v2"))
    given = parser.parse_args()
    places = layout(given.carrier)
    data = np.memmap(given.carrier / "onnx/model.onnx_data", np.uint8, mode="r")
    weights = {name: gathered(data, found) for name, found in places.items()}
    fp32 = encoder(MINILM, int8=False)
    texts = [text for file in given.calibrate for text in json.loads(file.read_text())]
    largest = largest_inputs(given.carrier, fp32, weights, texts)
    # The attention's output is even enough as it is.
    smooth = {name: smoothing(largest[name]) for name in largest if not name.endswith(".out")}
    described = {"tensors": places, "rounded": list(largest), "smoothed": list(smooth)}
    (given.to / "fp32.onnx").write_bytes(fp32.SerializeToString())
    (given.to / "int8.onnx").write_bytes(encoder(MINILM, int8=True).SerializeToString())
    (given.to / "layout.json").write_text(json.dumps(described, indent=0) + "\n")
    np.save(given.to / "smooth.npy", np.concatenate(list(smooth.values())))


def gathered(data: np.ndarray, found: list[list[int]]) -> np.ndarray:
    pieces = [
        data[offset : offset + 4 * int(np.prod(shape))].view(np.float32).reshape(shape) for offset, *shape in found
    ]
    return np.ascontiguousarray(np.concatenate(pieces, axis=-1))


if __name__ == "__main__":
    main()
