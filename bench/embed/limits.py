"""The limit of the machine: multiplications in onnxruntime, with the shapes of the model, on all cores."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROWS, INNER, COLUMNS = 200, 384, 1536
REPEATS = 60


def count_operations(tensors: dict[str, np.ndarray], tokens: int) -> float:
    """Multiplications and additions for one chunk: matrix products and attention."""
    total = 0.0
    for name, tensor in tensors.items():
        if not name.startswith("layers.") or tensor.ndim != 2:
            continue
        layer = name.rsplit(".", 1)[0]
        # With a matrix of its own for queries, only keys and values of the last layer need every token.
        is_first_only = f"{layer}.q" in tensors and not name.endswith(".kv")
        total += 2.0 * tensor.size * (1 if is_first_only else tokens)
        if name.endswith((".qkv", ".q")):
            total += 4.0 * tensor.shape[0] * tokens * (1 if is_first_only else tokens)
    return total


def _make_session(kind: str, left: int, matrix: np.ndarray) -> onnxruntime.InferenceSession:
    result = TensorProto.INT32 if kind == "MatMulInteger" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(kind, ["a", "b"], ["c"])],
        "product",
        [helper.make_tensor_value_info("a", left, [ROWS, INNER])],
        [helper.make_tensor_value_info("c", result, [ROWS, COLUMNS])],
        [numpy_helper.from_array(matrix, "b")],
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def _measure_rate(session: onnxruntime.InferenceSession, left: np.ndarray, cores: int) -> float:
    def run_products(_: int) -> None:
        for _ in range(REPEATS):
            session.run(None, {"a": left})

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(run_products, range(cores)))
        started = time.perf_counter()
        list(pool.map(run_products, range(cores)))
        seconds = time.perf_counter() - started
    return 2 * ROWS * INNER * COLUMNS * REPEATS * cores / seconds / 1e9


class Limits:
    """Measures the machine's rates in thousand million operations a second."""

    def __init__(self, cores: int) -> None:
        rng = np.random.default_rng(1)
        self._cores = cores
        self._floats = rng.normal(size=(ROWS, INNER)).astype(np.float32)
        self._bytes = rng.integers(0, 255, (ROWS, INNER), dtype=np.uint8)
        matrix = rng.normal(size=(INNER, COLUMNS)).astype(np.float32)
        self._fp32 = _make_session("MatMul", TensorProto.FLOAT, matrix)
        self._int8 = _make_session("MatMulInteger", TensorProto.UINT8, (matrix * 30).astype(np.int8))

    def measure_fp32(self) -> float:
        return _measure_rate(self._fp32, self._floats, self._cores)

    def measure_int8(self) -> float:
        return _measure_rate(self._int8, self._bytes, self._cores)
