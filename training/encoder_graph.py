"""The computation of a BERT encoder as an ONNX graph, for one text, or one pair of query and text, a call.

The initializers have names and no values: `fill_weights` adds them, or a session receives them when it is created.
It is faster on a CPU than a general export for three reasons: no padding and so no mask, one product for query, key and
value, and layer normalization in elementary steps (the fused kernel of onnxruntime is not vectorized).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class EncoderShape:
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
    """Numbers that share a scale, where the table of words is in 4 bits; 0 where it is in fp32."""
    scores_pairs: bool = False
    """Whether it is a reranker: it reads which tokens belong to the text, and returns a score instead of a vector."""


@dataclass(slots=True)
class GraphBuilder:
    """A graph under construction."""

    int8: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def add_nodes(
        self, kind: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: object
    ) -> list[str]:
        number = len(self.nodes)
        names = [f"{kind}.{number}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}.{number}", domain=domain, **attributes))
        return names

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        return self.add_nodes(kind, inputs, 1, domain, **attributes)[0]

    def add_constant(self, name: str, value: np.ndarray) -> str:
        self.initializers[name] = numpy_helper.from_array(value, name)
        return name

    def add_weight(self, name: str, shape: Sequence[int], kind: int = TensorProto.FLOAT) -> str:
        """An initializer that the session receives when it is created."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights")
        self.initializers[name] = tensor
        return name

    def add_linear(self, x: str, name: str, rows: int, columns: int, *, smooth: bool = True) -> str:
        bias = self.add_weight(f"{name}.bias", [columns])
        if not self.int8:
            return self.add("Add", self.add("MatMul", x, self.add_weight(name, [rows, columns])), bias)
        even = self.add("Mul", x, self.add_weight(f"{name}.smooth", [rows])) if smooth else x
        matrix = self.add_weight(f"{name}.int8", [rows, columns], TensorProto.INT8)
        scale = self.add_weight(f"{name}.scale", [columns])
        return self.add("DynamicQuantizeMatMul", even, matrix, scale, "", bias, domain=MICROSOFT)

    def add_norm(self, x: str, name: str, shape: EncoderShape) -> str:
        last = self.add_constant("last", np.array([-1], np.int64))
        centered = self.add("Sub", x, self.add("ReduceMean", x, last, keepdims=1))
        variance = self.add("ReduceMean", self.add("Mul", centered, centered), last, keepdims=1)
        spread = self.add("Sqrt", self.add("Add", variance, self.add_constant("epsilon", np.float32(shape.epsilon))))
        scaled = self.add("Mul", self.add("Div", centered, spread), self.add_weight(f"{name}.scale", [shape.width]))
        return self.add("Add", scaled, self.add_weight(f"{name}.shift", [shape.width]))


def _add_embeddings(g: GraphBuilder, shape: EncoderShape) -> str:
    first = g.add_constant("first", np.array([0], np.int64))
    ids = g.add("Squeeze", "input_ids", first)
    words = _add_words(g, ids, shape)
    places = g.add("Slice", g.add_weight("positions", [shape.positions, shape.width]), first, g.add("Shape", ids))
    segments = g.add_weight("segment", [2, shape.width] if shape.scores_pairs else [shape.width])
    if shape.scores_pairs:
        segments = g.add("Gather", segments, g.add("Squeeze", "token_type_ids", first))
    x = g.add("Add", g.add("Add", words, places), segments)
    return g.add_norm(x, "embedding_norm", shape)


def _add_words(g: GraphBuilder, ids: str, shape: EncoderShape) -> str:
    if not shape.block:
        return g.add("Gather", g.add_weight("words", [shape.vocabulary, shape.width]), ids)
    blocks = [shape.vocabulary, shape.width // shape.block]
    flat = np.array([0, -1], np.int64)
    pairs = g.add("Gather", g.add_weight("words.pairs", [*blocks, shape.block // 2], TensorProto.UINT8), ids)
    low = g.add("BitwiseAnd", pairs, g.add_constant("low_bits", np.array([15], np.uint8)))
    high = g.add("BitShift", pairs, g.add_constant("four", np.array([4], np.uint8)), direction="RIGHT")
    numbers = g.add("Cast", g.add("Concat", low, high, axis=-1), to=TensorProto.FLOAT)
    centered = g.add("Sub", numbers, g.add_constant("eight", np.float32(8)))
    scales = g.add("Gather", g.add_weight("words.scale", [*blocks, 1], TensorProto.FLOAT16), ids)
    scaled = g.add("Mul", centered, g.add("Cast", scales, to=TensorProto.FLOAT))
    return g.add("Reshape", scaled, g.add_constant("flat", flat))


def _add_attention(g: GraphBuilder, x: str, at: str, shape: EncoderShape, *, last: bool) -> tuple[str, str]:
    """The attention of each token to the others, and the remaining tokens: in the last layer of `cls` only the first."""
    scale = float((shape.width // shape.heads) ** -0.5)
    if last and shape.pooling == "cls":
        parts = g.add_nodes(
            "Split", [g.add_linear(x, f"{at}.kv", shape.width, 2 * shape.width)], 2, axis=1, num_outputs=2
        )
        x = g.add("Slice", x, "first", g.add_constant("second", np.array([1], np.int64)))
        parts = [g.add_linear(x, f"{at}.q", shape.width, shape.width), *parts]
    else:
        parts = g.add_nodes(
            "Split", [g.add_linear(x, f"{at}.qkv", shape.width, 3 * shape.width)], 3, axis=1, num_outputs=3
        )
    q, k, v = (g.add("Unsqueeze", part, "first") for part in parts)
    return g.add("MultiHeadAttention", q, k, v, domain=MICROSOFT, num_heads=shape.heads, scale=scale), x


def _add_layer(g: GraphBuilder, x: str, at: str, shape: EncoderShape, *, last: bool) -> str:
    seen, x = _add_attention(g, x, at, shape, last=last)
    out = g.add_linear(g.add("Squeeze", seen, "first"), f"{at}.out", shape.width, shape.width, smooth=False)
    x = g.add_norm(g.add("Add", out, x), f"{at}.attention_norm", shape)
    up = g.add("Gelu", g.add_linear(x, f"{at}.up", shape.width, shape.inner), approximate="none")
    down = g.add_linear(up, f"{at}.down", shape.inner, shape.width)
    return g.add_norm(g.add("Add", down, x), f"{at}.norm", shape)


def _add_score(g: GraphBuilder, first_token: str, shape: EncoderShape) -> None:
    """The pooler, and the classifier with one output; both are small and stay in fp32."""
    pooler, classifier = (
        g.add_weight("pooler", [shape.width, shape.width]),
        g.add_weight("classifier", [shape.width, 1]),
    )
    pooled = g.add("Add", g.add("MatMul", first_token, pooler), g.add_weight("pooler.bias", [shape.width]))
    score = g.add("MatMul", g.add("Tanh", pooled), classifier)
    g.nodes.append(helper.make_node("Add", [score, g.add_weight("classifier.bias", [1])], ["score"], "bias"))


def _add_vector(g: GraphBuilder, x: str, shape: EncoderShape) -> None:
    pooled = g.add("Squeeze", x, "first") if shape.pooling == "cls" else g.add("ReduceMean", x, "first", keepdims=0)
    g.nodes.append(helper.make_node("LpNormalization", [pooled], ["vector"], "unit", axis=-1, p=2))


def build_encoder(shape: EncoderShape, *, int8: bool) -> onnx.ModelProto:
    """Token ids [1, n] → the unit vector of their text [width]; with type ids [1, n] → the score of the pair [1, 1]."""
    g = GraphBuilder(int8)
    x = _add_embeddings(g, shape)
    for layer in range(shape.layers):
        x = _add_layer(g, x, f"layers.{layer}", shape, last=layer == shape.layers - 1)
    (_add_score if shape.scores_pairs else _add_vector)(g, x, shape)
    names = ["input_ids", "token_type_ids"] if shape.scores_pairs else ["input_ids"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [1, "tokens"]) for name in names]
    output, size = ("score", [1, 1]) if shape.scores_pairs else ("vector", [shape.width])
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, size)]
    graph = helper.make_graph(g.nodes, "encoder", inputs, outputs, list(g.initializers.values()))
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="wikiholt")


def fill_weights(model: onnx.ModelProto, tensors: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with the values of its weights inside."""
    for weight in model.graph.initializer:
        if weight.data_location == TensorProto.EXTERNAL:
            value = tensors[weight.name]
            assert list(value.shape) == list(weight.dims), (weight.name, value.shape)
            weight.CopyFrom(numpy_helper.from_array(value, weight.name))
    onnx.checker.check_model(model)
    return model
