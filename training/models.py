"""The retriever and the reranker in PyTorch, and their weights as dictionaries of arrays."""

import json
import struct
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

from training.packing import FROZEN

HEADS = 12
LAYER_NORM_EPSILON = 1e-12
ROBERTA_POSITION_OFFSET = 2
Weights = dict[str, np.ndarray]


def read_granite(path: Path) -> tuple[Weights, str]:
    """Granite's weights, made float again, and its tokenizer as JSON."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[8:16])[0]
    header = json.loads(data[16 : 16 + size])
    position = 16 + size + header["tokenizer_len"]
    tokenizer = data[16 + size : position].decode()
    weights = {}
    for tensor in header["tensors"]:
        raw, shape = data[position : position + tensor["len"]], tensor["shape"]
        position += tensor["len"]
        name = tensor["name"].replace(".", "_")
        if tensor["dtype"] == "f32":
            weights[name] = np.frombuffer(raw, np.float32).reshape(shape)
            continue
        rows, columns = shape
        codes = np.frombuffer(raw[: rows * columns], np.int8).reshape(rows, -1, 64).astype(np.float32)
        scales = np.frombuffer(raw[rows * columns :], np.float32).reshape(rows, -1, 1)
        weights[name] = (codes * scales).reshape(rows, columns)
    return weights, tokenizer


def read_cross_encoder(path: Path) -> Weights:
    """The weights of a BERT cross-encoder in an int8 ONNX file, under the names that the retriever's have."""
    graph = onnx.load(str(path)).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    raw: Weights = {}
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in arrays:
            base = node.input[1].removesuffix("_quantized")
            zero = arrays.get(base + "_zero_point", np.zeros(1)).astype(np.float32)
            matrix = (arrays[node.input[1]].astype(np.float32) - zero) * arrays[base + "_scale"]
            name = node.name.strip("/").replace("/", ".")
            raw[name.replace(".Gemm_MatMul_quant", "").replace(".MatMul_quant", "") + ".weight"] = matrix.T.copy()
    for name, array in arrays.items():
        if name.startswith(("bert.", "classifier")) and not name.endswith(("_quantized", "_scale", "_zero_point")):
            raw[name] = array.astype(np.float32)
    for kind in ("word", "position", "token_type"):
        base = f"bert.embeddings.{kind}_embeddings.weight"
        if base not in raw:
            zero = arrays[base + "_zero_point"].astype(np.float32)
            raw[base] = (arrays[base + "_quantized"].astype(np.float32) - zero) * arrays[base + "_scale"]
    return _rename_bert(raw)


def _rename_bert(raw: Weights) -> Weights:
    embeddings = "bert.embeddings."
    weights = {
        "word_emb": raw[embeddings + "word_embeddings.weight"],
        "pos_emb": raw[embeddings + "position_embeddings.weight"],
        "type_emb": raw[embeddings + "token_type_embeddings.weight"],
        "emb_ln_w": raw[embeddings + "LayerNorm.weight"],
        "emb_ln_b": raw[embeddings + "LayerNorm.bias"],
        "pooler_w": raw["bert.pooler.dense.weight"],
        "pooler_b": raw["bert.pooler.dense.bias"],
        "classifier_w": raw["classifier.weight"].reshape(1, -1),
        "classifier_b": raw["classifier.bias"].reshape(1),
    }
    layer = 0
    while f"bert.encoder.layer.{layer}.output.dense.weight" in raw:
        bert, own = f"bert.encoder.layer.{layer}.", f"l{layer}_"
        for suffix, kind in (("w", "weight"), ("b", "bias")):
            parts = [raw[f"{bert}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            weights[f"{own}qkv_{suffix}"] = np.concatenate(parts)
            weights[f"{own}ao_{suffix}"] = raw[f"{bert}attention.output.dense.{kind}"]
            weights[f"{own}aln_{suffix}"] = raw[f"{bert}attention.output.LayerNorm.{kind}"]
            weights[f"{own}f1_{suffix}"] = raw[f"{bert}intermediate.dense.{kind}"]
            weights[f"{own}f2_{suffix}"] = raw[f"{bert}output.dense.{kind}"]
            weights[f"{own}fln_{suffix}"] = raw[f"{bert}output.LayerNorm.{kind}"]
        layer += 1
    return weights


def choose_layers(weights: Weights, layers: list[int]) -> Weights:
    """The weights of a model that has only these layers."""
    chosen = {name: array for name, array in weights.items() if not (name[0] == "l" and name[1].isdigit())}
    for new, old in enumerate(layers):
        prefix = f"l{old}_"
        chosen |= {f"l{new}_{name[len(prefix) :]}": a for name, a in weights.items() if name.startswith(prefix)}
    return chosen


class Transformer(nn.Module):
    """A BERT encoder. With a classifier it scores pairs, without one it embeds texts."""

    def __init__(self, weights: Weights, position_offset: int = 0) -> None:
        super().__init__()
        self.position_offset = position_offset
        self.layers = sum(name.endswith("_qkv_w") for name in weights)
        self.p = nn.ParameterDict(
            {k: nn.Parameter(torch.tensor(v), requires_grad=k not in FROZEN) for k, v in weights.items()}
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        p, (count, length) = self.p, ids.shape
        positions = p["pos_emb"][self.position_offset : self.position_offset + length]
        x = p["word_emb"][ids] + positions + (p["type_emb"][0] if types is None else p["type_emb"][types])
        x = self._normalize(x, "emb_ln")
        visible = mask[:, None, None, :]
        for i in range(self.layers):
            key = f"l{i}_"
            qkv = functional.linear(x, p[key + "qkv_w"], p[key + "qkv_b"]).view(count, length, 3, HEADS, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
            attended = attended.transpose(1, 2).reshape(count, length, -1)
            x = self._normalize(x + functional.linear(attended, p[key + "ao_w"], p[key + "ao_b"]), key + "aln")
            hidden = functional.gelu(functional.linear(x, p[key + "f1_w"], p[key + "f1_b"]))
            x = self._normalize(x + functional.linear(hidden, p[key + "f2_w"], p[key + "f2_b"]), key + "fln")
        first = x[:, 0]
        if "classifier_w" not in p:
            return functional.normalize(first.float(), dim=-1)
        pooled = torch.tanh(functional.linear(first, p["pooler_w"], p["pooler_b"]))
        return functional.linear(pooled, p["classifier_w"], p["classifier_b"])[:, 0].float()

    def _normalize(self, x: torch.Tensor, key: str) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.p[key + "_w"], self.p[key + "_b"], LAYER_NORM_EPSILON)

    def get_weights(self) -> Weights:
        return {name: parameter.detach().float().cpu().numpy() for name, parameter in self.p.items()}


def mix_weights(trained: Weights, original: Weights, share: float) -> Weights:
    """The average of a trained model and the one it began as, so that it forgets nothing."""
    return {name: share * array + (1 - share) * original[name] for name, array in trained.items()}
