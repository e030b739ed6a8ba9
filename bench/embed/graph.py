"""Write the computation of a BERT encoder as a small ONNX file without weights, for one text a call.

The weights stay where they are, in the pinned package; the names of this graph's initialisers say which are wanted.
Three things make it faster on a CPU than a general export: no padding and so no mask, one product for query, key and
value, and layer normalisation in elementary steps (the fused kernel of onnxruntime is not vectorised).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a BERT encoder."""

    layers: int
    heads: int
    width: int
    inner: int
    vocabulary: int
    positions: int
    epsilon: float = 1e-12
    pooling: str = "mean"
    """`mean` of all tokens, or `cls`: the first one, so that the last layer needs no other."""
    block: int = 0
    """Numbers that share a scale, where the table of words stays in int8 or 4 bits; 0 where it is in fp32."""
    bits: int = 8


@dataclass(slots=True)
class Graph:
    """A graph under construction."""

    int8: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initialisers: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def op(
        self, kind: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: object
    ) -> list[str]:
        number = len(self.nodes)
        names = [f"{kind}.{number}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}.{number}", domain=domain, **attributes))
        return names

    def one(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        return self.op(kind, inputs, 1, domain, **attributes)[0]

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initialisers[name] = numpy_helper.from_array(value, name)
        return name

    def weight(self, name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> str:
        """An initialiser that is handed to the session when it is made."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights")
        self.initialisers[name] = tensor
        return name

    def linear(self, x: str, name: str, rows: int, columns: int, *, smooth: bool = True) -> str:
        bias = self.weight(f"{name}.bias", [columns])
        if not self.int8:
            return self.one("Add", self.one("MatMul", x, self.weight(name, [rows, columns])), bias)
        even = self.one("Mul", x, self.weight(f"{name}.smooth", [rows])) if smooth else x
        matrix = self.weight(f"{name}.int8", [rows, columns], TensorProto.INT8)
        scale = self.weight(f"{name}.scale", [columns])
        return self.one("DynamicQuantizeMatMul", even, matrix, scale, "", bias, domain=MICROSOFT)

    def normalised(self, x: str, name: str, shape: Shape) -> str:
        last = self.constant("last", np.array([-1], np.int64))
        centred = self.one("Sub", x, self.one("ReduceMean", x, last, keepdims=1))
        variance = self.one("ReduceMean", self.one("Mul", centred, centred), last, keepdims=1)
        spread = self.one("Sqrt", self.one("Add", variance, self.constant("epsilon", np.float32(shape.epsilon))))
        scaled = self.one("Mul", self.one("Div", centred, spread), self.weight(f"{name}.scale", [shape.width]))
        return self.one("Add", scaled, self.weight(f"{name}.shift", [shape.width]))


def _embedded(g: Graph, shape: Shape) -> str:
    first = g.constant("first", np.array([0], np.int64))
    ids = g.one("Squeeze", "input_ids", first)
    words = _words(g, ids, shape)
    places = g.one("Slice", g.weight("positions", [shape.positions, shape.width]), first, g.one("Shape", ids))
    x = g.one("Add", g.one("Add", words, places), g.weight("segment", [shape.width]))
    return g.normalised(x, "embedding_norm", shape)


def _words(g: Graph, ids: str, shape: Shape) -> str:
    if not shape.block:
        return g.one("Gather", g.weight("words", [shape.vocabulary, shape.width]), ids)
    blocks = [shape.vocabulary, shape.width // shape.block]
    flat = np.array([0, -1], np.int64)
    if shape.bits == 4:
        pairs = g.one("Gather", g.weight("words.pairs", [*blocks, shape.block // 2], TensorProto.UINT8), ids)
        low = g.one("BitwiseAnd", pairs, g.constant("low_bits", np.array([15], np.uint8)))
        high = g.one("BitShift", pairs, g.constant("four", np.array([4], np.uint8)), direction="RIGHT")
        numbers = g.one("Cast", g.one("Concat", low, high, axis=-1), to=TensorProto.FLOAT)
        centred = g.one("Sub", numbers, g.constant("eight", np.float32(8)))
        scales = g.one("Gather", g.weight("words.scale", [*blocks, 1], TensorProto.FLOAT16), ids)
        return g.one(
            "Reshape", g.one("Mul", centred, g.one("Cast", scales, to=TensorProto.FLOAT)), g.constant("flat", flat)
        )
    rows = g.one("Gather", g.weight("words.int8", [*blocks, shape.block], TensorProto.INT8), ids)
    scales = g.one("Gather", g.weight("words.scale", [*blocks, 1]), ids)
    scaled = g.one("Mul", g.one("Cast", rows, to=TensorProto.FLOAT), scales)
    return g.one("Reshape", scaled, g.constant("flat", flat))


def _attention(g: Graph, x: str, at: str, shape: Shape, *, last: bool) -> tuple[str, str]:
    """What each token sees of the others, and the tokens that are left: in the last layer of `cls` only the first."""
    scale = float((shape.width // shape.heads) ** -0.5)
    if last and shape.pooling == "cls":
        parts = g.op("Split", [g.linear(x, f"{at}.kv", shape.width, 2 * shape.width)], 2, axis=1, num_outputs=2)
        x = g.one("Slice", x, "first", g.constant("second", np.array([1], np.int64)))
        parts = [g.linear(x, f"{at}.q", shape.width, shape.width), *parts]
    else:
        parts = g.op("Split", [g.linear(x, f"{at}.qkv", shape.width, 3 * shape.width)], 3, axis=1, num_outputs=3)
    q, k, v = (g.one("Unsqueeze", part, "first") for part in parts)
    return g.one("MultiHeadAttention", q, k, v, domain=MICROSOFT, num_heads=shape.heads, scale=scale), x


def _layer(g: Graph, x: str, at: str, shape: Shape, *, last: bool) -> str:
    seen, x = _attention(g, x, at, shape, last=last)
    out = g.linear(g.one("Squeeze", seen, "first"), f"{at}.out", shape.width, shape.width, smooth=False)
    x = g.normalised(g.one("Add", out, x), f"{at}.attention_norm", shape)
    up = g.one("Gelu", g.linear(x, f"{at}.up", shape.width, shape.inner), approximate="none")
    down = g.linear(up, f"{at}.down", shape.inner, shape.width)
    return g.normalised(g.one("Add", down, x), f"{at}.norm", shape)


def encoder(shape: Shape, *, int8: bool) -> onnx.ModelProto:
    """Token ids [1, n] → the unit vector of their text."""
    g = Graph(int8)
    x = _embedded(g, shape)
    for layer in range(shape.layers):
        x = _layer(g, x, f"layers.{layer}", shape, last=layer == shape.layers - 1)
    pooled = g.one("Squeeze", x, "first") if shape.pooling == "cls" else g.one("ReduceMean", x, "first", keepdims=0)
    g.nodes.append(helper.make_node("LpNormalization", [pooled], ["vector"], "unit", axis=-1, p=2))
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])]
    outputs = [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [shape.width])]
    graph = helper.make_graph(g.nodes, "encoder", inputs, outputs, list(g.initialisers.values()))
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="wikiholt")
