"""Other engines for the default model, in turns with the product: OpenVINO, CTranslate2, options of onnxruntime.

    python -m bench.embed.runtimes [--corpus BUNDLE] [--rounds 6] [--only NAME …]

Needs the packages openvino, nncf and ctranslate2 beside Wikiholt. Every engine embeds the same texts of 150 to 250
tokens, one text a call, in a thread per core. Prints a table, with the cosines to the product's vectors; compare CPU time if other programs run meanwhile.
"""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.embed import passages
from bench.report import make_parser
from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.models.model_card import EMBEDDER
from wikiholt.models.model_files import ModelFiles, find_model, get_variant
from wikiholt.models.model_loader import _make_options, read_encoder_tensors
from wikiholt.processor import count_available_cores

Engine = Callable[[np.ndarray], np.ndarray]
"""Token ids → a vector of any length."""
TURN = 16
TURNS = 6
CALIBRATION = 32
CORES = count_available_cores()
LAYERS, HEADS = 6, 12


def start_onnx(
    change: Callable[[onnx.ModelProto], None], outputs: Sequence[str] = (), *, spins: bool = True, **options: object
) -> Engine:
    """The product's int8 graph, changed, with other options; a vector, or the values of `outputs`."""
    directory, card = find_model(DEFAULT_MODEL, EMBEDDER)
    model = onnx.ModelProto.FromString(ModelFiles(directory, card).read_verified(get_variant(card, "int8").graph))
    change(model)
    settings = _make_options()
    for name, value in options.items():
        setattr(settings, name, value)
    settings.add_session_config_entry("session.intra_op.allow_spinning", "1" if spins else "0")
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, disabled_optimizers=["LayerNormFusion"])
    if outputs:
        return lambda ids: session.run(outputs, {"input_ids": ids[None]})
    return lambda ids: session.run(None, {"input_ids": ids[None]})[0]


def set_opset_23(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 23


def start_static(texts: Sequence[np.ndarray]) -> Engine:
    """The ranges of the activations come from these texts instead of each text."""
    names: list[str] = []

    def add_outputs(model: onnx.ModelProto) -> None:
        names.extend(node.input[0] for node in model.graph.node if node.op_type == "DynamicQuantizeMatMul")
        model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)

    measure = start_onnx(add_outputs, names)
    extremes = np.array([[(min(x.min(), 0), max(x.max(), 0)) for x in measure(ids)] for ids in texts])
    ranges = dict(zip(names, np.column_stack([extremes[..., 0].min(0), extremes[..., 1].max(0)]), strict=True))

    def use_ranges(model: onnx.ModelProto) -> None:
        nodes = list(model.graph.node)
        del model.graph.node[:]
        for node in nodes:
            if node.op_type != "DynamicQuantizeMatMul":
                model.graph.node.append(node)
                continue
            x, matrix, scale, _, bias = node.input
            low, high = ranges[x]
            step, rounded, grid = (high - low) / 255, f"{matrix}.x", [f"{matrix}.step", f"{matrix}.zero"]
            model.graph.initializer.append(numpy_helper.from_array(np.array(step, np.float32), grid[0]))
            model.graph.initializer.append(numpy_helper.from_array(np.array(round(-low / step), np.uint8), grid[1]))
            inputs = [rounded, matrix, grid[0], scale, grid[1], "", bias]
            product = helper.make_node("MatMulIntegerToFloat", inputs, node.output, domain=node.domain)
            model.graph.node.extend([helper.make_node("QuantizeLinear", [x, *grid], [rounded]), product])

    return start_onnx(use_ranges)


def start_openvino(texts: Sequence[np.ndarray] = (), precision: str = "f32") -> Engine:
    """In fp32 or bf16, or in int8 as quantized by NNCF with these texts."""
    import openvino

    model = build_openvino_model(read_encoder_tensors(DEFAULT_MODEL, "int8"))
    if texts:
        import nncf

        data = nncf.Dataset(list(texts), lambda ids: {0: ids})
        mixed = nncf.QuantizationPreset.MIXED
        model = nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, preset=mixed, subset_size=len(texts))
    settings = {"NUM_STREAMS": CORES, "INFERENCE_NUM_THREADS": CORES, "ENABLE_CPU_PINNING": False}
    settings["INFERENCE_PRECISION_HINT"] = precision
    compiled, local = openvino.Core().compile_model(model, "CPU", settings), threading.local()

    def embed(ids: np.ndarray) -> np.ndarray:
        if not hasattr(local, "request"):
            local.request = compiled.create_infer_request()
        return local.request.infer({0: ids})[0][0]

    return embed


def build_openvino_model(tensors: dict[str, np.ndarray]) -> object:
    import openvino
    from openvino import opset13 as op

    def make_integers(*values: int) -> object:
        return op.constant(np.array(values, np.int64))

    def get_weights(name: str) -> object:
        return op.constant(np.asarray(tensors[name], np.float32))

    def add_linear(x: object, name: str) -> object:
        transposed = op.constant(np.ascontiguousarray(tensors[name].T, np.float32))
        return op.add(op.matmul(x, transposed, False, True), get_weights(f"{name}.bias"))

    def add_norm(x: object, name: str) -> object:
        even = op.mvn(x, make_integers(-1), True, 1e-12, "inside_sqrt")
        return op.add(op.multiply(even, get_weights(f"{name}.scale")), get_weights(f"{name}.shift"))

    def split_heads(x: object) -> object:
        return op.transpose(op.reshape(x, make_integers(1, -1, HEADS, 32), False), make_integers(0, 2, 1, 3))

    ids = op.parameter([-1], np.int64, name="input_ids")
    places = op.slice(get_weights("positions"), make_integers(0), op.shape_of(ids), make_integers(1))
    words = op.gather(get_weights("words"), ids, op.constant(np.int64(0)))
    x = add_norm(op.add(op.add(words, places), get_weights("segment")), "embedding_norm")
    for at in (f"layers.{layer}" for layer in range(LAYERS)):
        if f"{at}.q" in tensors:
            keys, values = op.split(add_linear(x, f"{at}.kv"), 1, 2).outputs()
            x = op.slice(x, make_integers(0), make_integers(1), make_integers(1))
            queries = add_linear(x, f"{at}.q")
        else:
            queries, keys, values = op.split(add_linear(x, f"{at}.qkv"), 1, 3).outputs()
        seen = op.scaled_dot_product_attention(split_heads(queries), split_heads(keys), split_heads(values))
        seen = op.reshape(op.transpose(seen, make_integers(0, 2, 1, 3)), make_integers(-1, HEADS * 32), False)
        x = add_norm(op.add(add_linear(seen, f"{at}.out"), x), f"{at}.attention_norm")
        inner = op.gelu(add_linear(x, f"{at}.up"), "erf")
        x = add_norm(op.add(add_linear(inner, f"{at}.down"), x), f"{at}.norm")
    return openvino.Model([x], [ids], "encoder")


def start_ctranslate2(precision: str) -> Engine:
    import ctranslate2

    with tempfile.TemporaryDirectory() as directory:
        spec = build_ctranslate2_spec(read_encoder_tensors(DEFAULT_MODEL, "int8"))
        spec.validate()
        spec.optimize(quantization=None if precision == "float32" else precision)
        spec.save(directory)
        encoder = ctranslate2.Encoder(directory, compute_type=precision, inter_threads=CORES, intra_threads=1)
    return lambda ids: np.asarray(encoder.forward_batch([ids.tolist()]).last_hidden_state)[0, 0]


def build_ctranslate2_spec(tensors: dict[str, np.ndarray]) -> object:
    from ctranslate2.specs import common_spec, transformer_spec

    kinds = {"activation": common_spec.Activation.GELU, "embeddings_merge": common_spec.EmbeddingsMerge.ADD}
    encoder = transformer_spec.TransformerEncoderSpec(
        LAYERS, HEADS, pre_norm=False, layernorm_embedding=True, num_source_embeddings=2, **kinds
    )
    every = {name: np.array(value, np.float32) for name, value in tensors.items()}
    last = f"layers.{LAYERS - 1}"
    for end in ("", ".bias"):  # this engine computes all tokens of the last layer
        every[f"{last}.qkv{end}"] = np.concatenate([every[f"{last}.q{end}"], every[f"{last}.kv{end}"]], axis=-1)

    def set_linear(spec: object, name: str) -> None:
        spec.weight, spec.bias = np.ascontiguousarray(every[name].T), every[f"{name}.bias"]

    def set_norm(spec: object, name: str) -> None:
        spec.gamma, spec.beta = every[f"{name}.scale"], every[f"{name}.shift"]

    encoder.scale_embeddings = False
    encoder.embeddings[0].weight, encoder.embeddings[1].weight = every["words"], every["segment"][None]
    encoder.position_encodings.encodings = every["positions"]
    set_norm(encoder.layernorm_embedding, "embedding_norm")
    for number, layer in enumerate(encoder.layer):
        at = f"layers.{number}"
        set_linear(layer.self_attention.linear[0], f"{at}.qkv")
        set_linear(layer.self_attention.linear[1], f"{at}.out")
        set_norm(layer.self_attention.layer_norm, f"{at}.attention_norm")
        set_linear(layer.ffn.linear_0, f"{at}.up")
        set_linear(layer.ffn.linear_1, f"{at}.down")
        set_norm(layer.ffn.layer_norm, f"{at}.norm")
    spec = transformer_spec.TransformerEncoderModelSpec(encoder)
    spec.config.layer_norm_epsilon = 1e-12
    spec.register_vocabulary([str(number) for number in range(len(every["words"]))])
    return spec


def list_engines(texts: Sequence[np.ndarray]) -> dict[str, Callable[[], Engine]]:
    same = lambda _: None  # noqa: E731
    unoptimized = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return {
        "product, int8": lambda: load_embedder()._compute_vector,
        "onnxruntime, static int8": lambda: start_static(texts),
        "onnxruntime, graph not optimized": lambda: start_onnx(same, graph_optimization_level=unoptimized),
        "onnxruntime, opset 23": lambda: start_onnx(set_opset_23),
        "onnxruntime, threads in a call": lambda: start_onnx(same, intra_op_num_threads=CORES),
        "… threads that do not spin": lambda: start_onnx(same, intra_op_num_threads=CORES, spins=False),
        "OpenVINO fp32": start_openvino,
        "OpenVINO bf16": lambda: start_openvino(precision="bf16"),
        "OpenVINO int8": lambda: start_openvino(texts),
        "OpenVINO int8 and bf16": lambda: start_openvino(texts, "bf16"),
        "CTranslate2 fp32": lambda: start_ctranslate2("float32"),
        "CTranslate2 int8": lambda: start_ctranslate2("int8"),
    }


def get_token_ids(embedder: OnnxEmbedder, pages: Sequence[str], count: int) -> list[np.ndarray]:
    """The token ids of the beginnings of pages, 150 to 250 tokens each."""
    chance, found = random.Random(3), []
    for page in pages:
        spans, length = embedder.get_token_spans(page), chance.randint(150, 250)
        if len(spans) >= length:
            found.append(embedder._model.tokenizer.encode_passage(page[: spans[length - 1][1]]))
    return found[:count]


def measure_times(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of the process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = make_parser(__doc__, "", "corpus")
    parser.add_argument("--rounds", type=int, default=TURNS)
    parser.add_argument("--only", nargs="*", default=[""])
    arguments = parser.parse_args()
    product = load_embedder()
    pages = passages.sample_pages(arguments.corpus, 1_000)
    texts = get_token_ids(product, pages, CALIBRATION + TURN * arguments.rounds)
    calibration, texts = texts[:CALIBRATION], texts[CALIBRATION:]
    queries = [
        product._model.tokenizer.encode_query(text) for text in passages.find_headings(pages, 10 * arguments.rounds)
    ]
    known = np.stack([product._compute_vector(ids) for ids in texts[: 2 * TURN]])
    makers = list_engines(calibration)
    engines = {name: make() for name, make in makers.items() if any(part in name for part in arguments.only)}
    spent = {name: ([], []) for name in engines}
    cosines = {}
    for name, engine in engines.items():
        vectors = np.stack([np.ravel(engine(ids)) for ids in texts[: len(known)]])
        cosines[name] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * known).sum(axis=1)
    with ThreadPoolExecutor(CORES) as pool:
        for turn in range(arguments.rounds):
            for name, engine in engines.items():
                part, some_queries = texts[turn * TURN :][:TURN], queries[turn * 10 :][:10]
                spent[name][0].append(measure_times(lambda e=engine, p=part: list(pool.map(e, p))))
                spent[name][1].extend(measure_times(lambda e=engine, ids=ids: e(ids)) for ids in some_queries)
    first = next(iter(spent.values()))
    print("| | chunks/s | ratio, wall | ratio, CPU | query p50 ms | CPU ms | mean cosine | lowest |\n|" + "---|" * 8)
    for name, (bulk, single) in spent.items():
        wall, cpu = np.median(np.array(first[0]) / np.array(bulk), axis=0)
        latency = np.median(single, axis=0) * 1e3
        rate = TURN / np.median(bulk, axis=0)[0]
        cosine = cosines[name]
        print(f"| {name} | {rate:.1f} | {wall:.2f} | {cpu:.2f} | {latency[0]:.1f} | {latency[1]:.1f} "
              f"| {cosine.mean():.4f} | {cosine.min():.4f} |")  # fmt: skip


if __name__ == "__main__":
    main()
