"""Reads trained weights: an .npz with the names of granite's or BERT's tensors, every matrix with a row per output."""

import re
from pathlib import Path

import numpy as np

from training.encoder_graph import EncoderShape

HEAD_WIDTH = 32
"""Columns of an attention head, in granite and in the MiniLM models."""
_LAYER = re.compile(r"(?:l|encoder_layer_)(\d+)_")
_EMBEDDINGS = {
    "words": ("word_emb", "embeddings_word_embeddings"),
    "positions": ("pos_emb", "embeddings_position_embeddings"),
    "segment": ("type_emb", "embeddings_token_type_embeddings"),
    "embedding_norm": ("emb_ln", "embeddings_LayerNorm"),
    "pooler": ("pooler_dense", "pooler"),
    "classifier": ("classifier", "head"),
}
_LAYER_PARTS = {
    "out": ("ao", "attention_output_dense"),
    "up": ("f1", "intermediate_dense"),
    "down": ("f2", "output_dense"),
    "attention_norm": ("aln", "attention_output_LayerNorm"),
    "norm": ("fln", "output_LayerNorm"),
}
"""Our name of a part → its names in a state."""


class _State:
    """The arrays of a file in fp32, found by any of their names."""

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as arrays:
            self._arrays = {
                name.replace(".", "_").removeprefix("bert_"): arrays[name].astype(np.float32) for name in arrays.files
            }
        numbers = {int(match[1]) for name in self._arrays if (match := _LAYER.match(name))}
        self.layers = sorted(numbers)
        self.is_bert = any(name.startswith("encoder_layer_") for name in self._arrays)

    def get(self, *names: str, bias: bool = False) -> np.ndarray:
        endings = ("_b", "_bias") if bias else ("", "_w", "_weight")
        candidates = [name + ending for name in names for ending in endings]
        found = next((name for name in candidates if name in self._arrays), None)
        if found is None:
            raise SystemExit(f"The weights have none of {', '.join(candidates)}")
        return self._arrays[found]


def read_state(path: Path, *, is_reranker: bool, positions: int) -> tuple[EncoderShape, dict[str, np.ndarray]]:
    """The shape of an encoder with CLS pooling and its tensors in fp32, by the names that the graph has for them."""
    state = _State(path)
    tensors = {name: state.get(*_EMBEDDINGS[name]) for name in ("words", "positions", "segment")}
    # RoBERTa has two positions more, which no text uses, before the first.
    tensors["positions"] = np.ascontiguousarray(tensors["positions"][-positions:])
    if not is_reranker:
        tensors["segment"] = tensors["segment"][0]
    _add_norm(tensors, state, "embedding_norm", *_EMBEDDINGS["embedding_norm"])
    for number, layer in enumerate(state.layers):
        _add_layer(tensors, state, layer, f"layers.{number}", is_last=number == len(state.layers) - 1)
    if is_reranker:
        for name in ("pooler", "classifier"):
            _add_matrix(tensors, name, state.get(*_EMBEDDINGS[name]), state.get(*_EMBEDDINGS[name], bias=True))
    vocabulary, width = tensors["words"].shape
    inner = tensors["layers.0.up"].shape[1]
    shape = EncoderShape(
        len(state.layers), width // HEAD_WIDTH, width, inner, vocabulary, positions, pooling="cls",
        scores_pairs=is_reranker,
    )  # fmt: skip
    return shape, tensors


def _add_layer(tensors: dict[str, np.ndarray], state: _State, layer: int, ours: str, *, is_last: bool) -> None:
    prefix = f"encoder_layer_{layer}_" if state.is_bert else f"l{layer}_"
    names = [f"{prefix}attention_self_{name}" for name in ("query", "key", "value")]
    groups = [[name] for name in names] if state.is_bert else [[f"{prefix}qkv"]]
    weight = np.concatenate([state.get(*group) for group in groups])
    bias = np.concatenate([state.get(*group, bias=True) for group in groups])
    width = weight.shape[1]
    # The last layer needs the queries of the first token only, so they have a matrix of their own.
    parts = [("q", slice(width)), ("kv", slice(width, None))] if is_last else [("qkv", slice(None))]
    for name, rows in parts:
        _add_matrix(tensors, f"{ours}.{name}", weight[rows], bias[rows])
    for name in ("out", "up", "down"):
        sources = [prefix + part for part in _LAYER_PARTS[name]]
        _add_matrix(tensors, f"{ours}.{name}", state.get(*sources), state.get(*sources, bias=True))
    for name in ("attention_norm", "norm"):
        _add_norm(tensors, state, f"{ours}.{name}", *(prefix + part for part in _LAYER_PARTS[name]))


def _add_matrix(tensors: dict[str, np.ndarray], name: str, weight: np.ndarray, bias: np.ndarray) -> None:
    tensors[name], tensors[f"{name}.bias"] = np.ascontiguousarray(weight.T), np.ascontiguousarray(bias)


def _add_norm(tensors: dict[str, np.ndarray], state: _State, ours: str, *names: str) -> None:
    tensors[f"{ours}.scale"], tensors[f"{ours}.shift"] = state.get(*names), state.get(*names, bias=True)
