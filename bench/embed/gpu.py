"""Measure embedding on a GPU: chunks a second, beside the machine's own limit for matrix products in one run.

    python -m bench.embed.gpu [--chunks 20000] [--tokens 200]

Needs a GPU and the extra `gpu`. The vectors of real sentences are compared with those of the CPU first.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from bench.embed.limits import count_operations
from bench.report import make_parser
from wikiholt.models import DEFAULT_MODEL
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.models.model_loader import load_model, read_encoder_tensors
from wikiholt.models.torch_encoder import TorchEncoder

SENTENCES = ("A wiki page is a file in a git repository.", "How do I reset my password?", "word " * 180)
MATRIX_SIZE = 8192
ROUNDS = 5


def median_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median time of a call, with the GPU idle before and after."""
    work()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return sorted(times)[rounds // 2]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--tokens", type=int, default=200)
    arguments = parser.parse_args()
    model = load_model(DEFAULT_MODEL, "int8", device="cuda")
    embedder = OnnxEmbedder(model, model=DEFAULT_MODEL, device="cuda")
    on_cpu = OnnxEmbedder(load_model(DEFAULT_MODEL, None), model=DEFAULT_MODEL).embed_passages(SENTENCES)
    cosine = (embedder.embed_passages(SENTENCES) * on_cpu).sum(axis=1).min()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; lowest cosine to the CPU {cosine:.6f}")

    tensors = read_encoder_tensors(DEFAULT_MODEL, "int8")
    encoder = TorchEncoder(tensors, model.card, "cuda")
    random = np.random.default_rng(1)
    lengths = np.clip(random.normal(arguments.tokens, arguments.tokens / 5, arguments.chunks), 16, 512).astype(int)
    equal = [random.integers(5, 50_000, arguments.tokens) for _ in range(arguments.chunks)]
    mixed = [random.integers(5, 50_000, length) for length in lengths]
    words = [model.tokenizer._tokenizer.decode(ids.tolist()) for ids in equal[:4_000]]
    texts = [" ".join(text.split())[:700] for text in words]
    matrix = torch.randn((MATRIX_SIZE, MATRIX_SIZE), device="cuda", dtype=torch.bfloat16)

    limit = 2 * MATRIX_SIZE**3 / median_seconds(lambda: matrix @ matrix, 10)
    seconds = median_seconds(lambda: encoder.embed(equal))
    rate = arguments.chunks / seconds
    used = rate * count_operations(tensors, arguments.tokens)
    print(f"{arguments.tokens} tokens each: {rate:,.0f} chunks/s, {used / 1e12:.0f} of {limit / 1e12:.0f} TFLOP/s")
    print(
        f"lengths about {arguments.tokens}: {arguments.chunks / median_seconds(lambda: encoder.embed(mixed)):,.0f} chunks/s"
    )
    tokens = sum(map(len, model.tokenizer.encode_passages(texts)))
    seconds = median_seconds(lambda: embedder.embed_passages(texts))
    print(f"from text, {tokens / len(texts):.0f} tokens each: {len(texts) / seconds:,.0f} chunks/s")
    seconds = median_seconds(lambda: model.tokenizer.encode_passages(texts))
    print(f"the tokenizer alone: {len(texts) / seconds:,.0f} chunks/s")
    print(f"peak GPU memory {torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()
