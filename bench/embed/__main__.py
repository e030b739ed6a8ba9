"""Embedding beside ChromaDB's default: chunks a second, query latency, share of the machine's limit, loss by rounding.

    python -m bench.embed --peers PYTHON [--corpus BUNDLE] [--collections DIRECTORY]

PYTHON is the interpreter of an environment made from bench/requirements-peers.txt. All runs alternate, so that other
load affects all of them; ratios are medians over turns of 32 chunks, the batch of ChromaDB. Writes bench/results/embed.md.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.embed import passages
from bench.embed.limits import Limits, count_operations
from bench.embed.precision_loss import format_rows, rank_documents
from bench.measures import measure_seconds
from bench.peers import find_carrier
from bench.report import describe_machine, make_head, make_parser
from wikiholt.models import DEFAULT_MODEL, load_embedder
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.models.model_loader import read_encoder_tensors
from wikiholt.processor import count_available_cores

BATCH = 32
MODEL = "all-MiniLM-L6-v2"
"""The model that ChromaDB uses by default."""
DEFAULT_ROW = "int8, default model"


def count_giga_operations(embedder: OnnxEmbedder, texts: list[str]) -> float:
    """Thousand million operations of the mean text."""
    tensors = read_encoder_tensors(embedder.model, embedder.precision)
    lengths = [len(embedder._model.tokenizer.encode_passage(text)) for text in texts]
    return float(np.mean([count_operations(tensors, length) for length in lengths])) / 1e9


class EmbeddingPeer:
    """ChromaDB's embedding code in its own process."""

    def __init__(self, python: str, carrier: Path, scratch: Path) -> None:
        script = Path(__file__).with_name("chroma_embedder.py")
        self._process = subprocess.Popen(
            [python, str(script), str(carrier), str(scratch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "ready\n"

    def measure(self, texts: list[str], kind: str = "kept") -> float:
        self._process.stdin.write(json.dumps([kind, texts]) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def measure_throughput(
    embedders: dict[str, OnnxEmbedder], peer: EmbeddingPeer, texts: list[str], rounds: int
) -> list[str]:
    limits = Limits(count_available_cores())
    work = {name: count_giga_operations(embedder, texts) for name, embedder in embedders.items()}
    seen: dict[str, list[float]] = {name: [] for name in ("peer", "fp32 limit", "int8 limit", *embedders)}
    slices = [texts[at : at + BATCH] for at in range(0, len(texts), BATCH)]
    for number, part in enumerate(slices * rounds):
        seen["peer"].append(len(part) / peer.measure(part))
        for name, embedder in embedders.items():
            seen[name].append(len(part) / measure_seconds(embedder.embed_passages, part))
        seen["fp32 limit"].append(limits.measure_fp32())
        seen["int8 limit"].append(limits.measure_int8())
        print(f"turn {number + 1}: " + ", ".join(f"{name} {values[-1]:.1f}" for name, values in seen.items()))
    lines = [
        make_head("| | chunks/s | × ChromaDB (median, middle half of the turns) | share of the limit |"),
        f"| ChromaDB's default embedding code, session kept | {np.median(seen['peer']):.1f} | 1.0 | |",
    ]
    for name, embedder in embedders.items():
        ratios = np.array(seen[name]) / np.array(seen["peer"])
        share = np.median(np.array(seen[name]) * work[name] / np.array(seen[f"{embedder.precision} limit"]))
        lines.append(
            f"| Wikiholt {name} | {np.median(seen[name]):.1f} | **{np.median(ratios):.2f}** "
            f"({np.percentile(ratios, 25):.2f}–{np.percentile(ratios, 75):.2f}) | {share:.0%} |"
        )
    rates = [
        f"{np.median(seen[f'{kind} limit']):.0f} thousand million operations/s in {kind}" for kind in ("int8", "fp32")
    ]
    return [*lines, "", f"The machine's limit, all cores, measured in the same rounds: {', '.join(rates)}."]


def measure_latency(embedders: dict[str, OnnxEmbedder], peer: EmbeddingPeer, texts: list[str]) -> list[str]:
    seen: dict[str, list[float]] = {}
    for text in texts:
        seen.setdefault("ChromaDB, session kept", []).append(peer.measure([text]))
        seen.setdefault("ChromaDB, as a collection calls it", []).append(peer.measure([text], "default"))
        for name, embedder in embedders.items():
            seen.setdefault(f"Wikiholt {name}", []).append(measure_seconds(embedder.embed_query, text))
    rows = [
        f"| {name} | {np.percentile(values, 50) * 1e3:.1f} | {np.percentile(values, 95) * 1e3:.1f} |"
        for name, values in seen.items()
    ]
    return [make_head("| | p50 ms | p95 ms |"), *rows]


def measure_start(rounds: int) -> list[str]:
    """Cold starts in new processes; the files are in the page cache."""
    script = (
        "import time; a = time.perf_counter(); import numpy; b = time.perf_counter()\n"
        "import onnxruntime, tokenizers, wikiholt.models; c = time.perf_counter()\n"
        "e = wikiholt.models.load_embedder({!r}, precision={!r}); d = time.perf_counter(); e.embed_query('x')\n"
        "print(b - a, c - b, d - c, time.perf_counter() - d)"
    )
    lines = [
        make_head("| | import numpy | import onnxruntime, tokenizers | load and verify | first query |"),
    ]
    for precision in ("int8", "fp32"):
        runs = []
        for _ in range(rounds):
            done = subprocess.run(
                [sys.executable, "-c", script.format(MODEL, precision)], check=True, capture_output=True, text=True
            )
            runs.append([float(value) * 1e3 for value in done.stdout.split()])
        lines.append(f"| {precision} | " + " | ".join(f"{value:.0f} ms" for value in np.median(runs, axis=0)) + " |")
    return lines


def measure_loss(embedders: dict[str, OnnxEmbedder], directories: list[Path]) -> list[str]:
    lines = [
        make_head("| collection | nDCG@10 fp32 | int8 | loss | best ten in common | mean cosine |"),
    ]
    for directory in directories:
        rounded, exact = (rank_documents(embedders[name], directory) for name in ("int8", "fp32"))
        lines += format_rows(directory.name, exact, rounded)
        print(lines[-1])
    return lines


def main() -> None:
    parser = make_parser(__doc__, "", "collections", "corpus")
    parser.add_argument("--peers", required=True)
    parser.add_argument("--names", nargs="*", default=["scifact", "cranfield", "wiki-dendron"])
    parser.add_argument("--chunks", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--to", type=Path, default=Path("bench/results/embed.md"))
    arguments = parser.parse_args()
    embedders = {name: load_embedder(MODEL, precision=name) for name in ("int8", "fp32")}
    embedders[DEFAULT_ROW] = load_embedder(DEFAULT_MODEL, precision="int8")
    pages = passages.sample_pages(arguments.corpus, 40 * arguments.chunks)
    texts = passages.make_chunks(embedders["fp32"], pages, arguments.chunks)
    with tempfile.TemporaryDirectory() as scratch:
        peer = EmbeddingPeer(arguments.peers, find_carrier(), Path(scratch) / "models")
        speed = measure_throughput(embedders, peer, texts, arguments.rounds)
        queries = measure_latency(embedders, peer, passages.find_headings(pages, 60))
        peer.close()
    quality = measure_loss(embedders, [arguments.collections / name for name in arguments.names])
    sections = {
        f"Throughput: {len(texts)} chunks of 200 tokens, in turns of {BATCH}, {arguments.rounds} rounds": speed,
        "Query latency: 60 headings, one at a time": queries,
        "Starting: medians of new processes": measure_start(arguments.rounds),
        "What int8 costs: documents cut to one vector each, ranked by cosine alone": quality,
    }
    head = [
        "# Embedding beside ChromaDB's default",
        "",
        describe_machine(),
        "Repeat: `python -m bench.embed --peers PYTHON`, PYTHON from an environment made of bench/requirements-peers.txt.",
        "",
    ]
    body = [line for title, lines in sections.items() for line in (f"## {title}", "", *lines, "")]
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    arguments.to.write_text("\n".join(head + body))


if __name__ == "__main__":
    main()
