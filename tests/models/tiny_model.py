"""A model of a few hundred bytes, written to a directory with its card, for tests of everything around the weights."""

import hashlib
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

DIMENSIONS = 4
VOCABULARY = ["[UNK]", "[CLS]", "[SEP]", "the", "cat", "sleeps", "on", "a", "is", "sleeping", "sofa", "couch", "bank"]


def make_embedding_table(seed: int = 7) -> np.ndarray:
    """A vector for each word; synonyms get the same vector."""
    rows = np.random.default_rng(seed).normal(size=(len(VOCABULARY), DIMENSIONS)).astype(np.float32)
    rows[VOCABULARY.index("sleeping")] = rows[VOCABULARY.index("sleeps")]
    rows[VOCABULARY.index("couch")] = rows[VOCABULARY.index("sofa")]
    rows[0] = -4 * rows[VOCABULARY.index("cat")]
    return rows


def build_onnx_graph(
    rows: np.ndarray, *, pooled: bool = False, external: str | None = None, extra_input: str = ""
) -> bytes:
    """input_ids → the table row of each token, or the mean of the rows."""
    tensor = numpy_helper.from_array(rows, "rows")
    if external is not None:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": external, "offset": "0", "length": str(rows.nbytes)}.items():
            tensor.external_data.add(key=key, value=value)
    out = "states" if pooled else "out"
    nodes = [helper.make_node("Gather", ["rows", "input_ids"], [out])]
    shape: list[int | str] = [1, "n", rows.shape[1]]
    initialisers = [tensor]
    if pooled:
        initialisers.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
        nodes.append(helper.make_node("ReduceMean", ["states", "axes"], ["out"], keepdims=0))
        shape = [1, rows.shape[1]]
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "n"])]
    inputs += [helper.make_tensor_value_info(extra_input, TensorProto.INT64, [1, "n"])] if extra_input else []
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)]
    made = helper.make_graph(nodes, "tiny", inputs, outputs, initialisers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def build_tokenizer() -> bytes:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    # Like real files: truncation and padding to a fixed length.
    made.enable_truncation(3)
    made.enable_padding(length=3, pad_id=0, pad_token="[UNK]")
    return made.to_str().encode()


def write_model(directory: Path, *, files: dict[str, bytes] | None = None, **changes: object) -> Path:
    """Write a working model with the given changes to this directory. The digests are right."""
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        "model.onnx": build_onnx_graph(make_embedding_table()),
        "tokenizer.json": build_tokenizer(),
        **(files or {}),
    }
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    fields: dict[str, object] = {
        "name": "tiny",
        "licence": "CC0-1.0",
        "dimensions": DIMENSIONS,
        "window": 12,
        "pooling": "mean",
        "precision": "fp32",
        "tokenizer": "tokenizer.json",
    }
    weights = changes.pop("weights", None)
    fields.update(changes)
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items() if value is not None]
    lines += ["[variants.fp32]", 'graph = "model.onnx"', *([f'weights = "{weights}"'] if weights else []), "[files]"]
    lines += [f'"{name}" = "{hashlib.sha256(data).hexdigest()}"' for name, data in contents.items()]
    (directory / "card.toml").write_text("\n".join(lines) + "\n")
    return directory
