"""The figures of `python -m bench`: what each is, its goal, its peer, and where in bench/results it is."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report import RESULTS

Reader = Callable[[Path], float | None]
_NUMBER = re.compile(r"-?[\d,]*\.?\d+")


@dataclass(frozen=True)
class Figure:
    """A measured ratio or amount with its goal. `read` returns None if it is not measured."""

    name: str
    goal: float
    lower_is_better: bool
    unit: str
    peer: str
    command: str
    read: Reader

    def compute_reach(self, value: float) -> float:
        """How much of the goal the value reaches; 1 is the goal."""
        return self.goal / value if self.lower_is_better else value / self.goal

    def format(self, value: float) -> str:
        digits = 0 if value >= 100 else 1 if value >= 10 else 2
        return f"{value:,.{digits}f}{' ' if self.unit else ''}{self.unit}"


def from_table(name: str, row: str, column: int, nth: int = 0, number: int = 0) -> Reader:
    """The number in a column of the nth table row (negative: from the end) that contains a pattern."""

    def read(results: Path) -> float | None:
        rows = [line.split("|")[1:-1] for line in _read_lines(results, name) if re.search(row, line)]
        try:
            return float(_NUMBER.findall(rows[nth][column])[number].replace(",", ""))
        except IndexError:
            return None

    return read


def from_values(name: str, key: str) -> Reader:
    """A value of a JSON file."""

    def read(results: Path) -> float | None:
        try:
            value: float | None = json.loads((results / f"{name}.json").read_text()).get(key)
        except OSError:
            return None
        return value

    return read


def make_ratio(one: Reader, other: Reader, factor: float = 1.0) -> Reader:
    """The ratio of two figures."""

    def read(results: Path) -> float | None:
        numerator, denominator = one(results), other(results)
        return factor * numerator / denominator if numerator is not None and denominator else None

    return read


def make_best(readers: Sequence[Reader]) -> Reader:
    """The largest of the figures that are measured."""

    def read(results: Path) -> float | None:
        return max((value for reader in readers if (value := reader(results)) is not None), default=None)

    return read


def _read_lines(results: Path, name: str) -> list[str]:
    file = results / f"{name}.md"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line.startswith("|")]


def _from_quality(collection: str, search: str, column: int = 3) -> Reader:
    return from_table("quality", rf"^\| {re.escape(collection)} \|.*\| {re.escape(search)} \|", column)


_PEERS = ("BM25 (bm25s)", "ChromaDB, its default query", "txtai hybrid over our passages")
_QUALITY = "bench.quality --peers --write"


def _make_ndcg(collection: str) -> Figure:
    best_peer = make_best([_from_quality(collection, peer) for peer in _PEERS])
    ours = _from_quality(collection, "Wikiholt hybrid")
    return Figure(f"nDCG@10, {collection}", 1.0, False, "×", "the best peer", _QUALITY, make_ratio(ours, best_peer))


_START = "it listens"
FIGURES = (
    Figure("embedding, chunks a second", 5, False, "×", "ChromaDB's default", "bench.embed --write",
           from_table("embed", r"^\| Wikiholt int8 \| [\d.]+ \| \*\*", 2)),
    Figure("embedding, share of the int8 limit", 50, False, "%", "the machine", "bench.embed --write",
           from_table("embed", r"^\| Wikiholt int8 \| [\d.]+ \| \*\*", 3)),
    Figure("hybrid search, 1,000 chunks", 1.8, True, "×", "embedding the query", "bench.search --write",
           from_table("search", r"\| hybrid \|", 4)),
    Figure("hybrid search, 10,000 chunks", 1.8, True, "×", "embedding the query", "bench.search --write",
           from_table("search", r"\| hybrid \|", 4, 1)),
    Figure("hybrid search, 177,000 chunks", 2.5, True, "×", "embedding the query", "bench.search --write",
           from_table("search", r"\| hybrid \|", 4, -1)),
    Figure("p95 of a search, scifact", 1, False, "×", "ChromaDB takes", _QUALITY,
           make_ratio(_from_quality("scifact", _PEERS[1], 8), _from_quality("scifact", "Wikiholt hybrid, all-MiniLM-L6-v2", 8))),
    _make_ndcg("scifact"),
    _make_ndcg("cranfield"),
    _make_ndcg("wiki-dendron (links)"),
    _make_ndcg("wiki-k8s-en (links)"),
    Figure("HTTP, 64 clients, throughput", 0.75, False, "×", "two in-process searchers", "bench.http.workers --write",
           from_values("workers", "throughput_ratio")),
    Figure("HTTP at 80 % load, p99 ÷ p50", 5, True, "×", "", "bench.http.workers --write",
           from_values("workers", "p99_to_p50")),
    Figure("HTTP, 64 clients, p50", 1, False, "×", "markdown-vault-mcp takes", "bench.http --peer PYTHON --write",
           make_ratio(from_table("http", r"^\| 64 \| markdown-vault-mcp [\d.]+ \| hybrid", -3),
                  from_table("http", r"^\| 64 \| Wikiholt \| hybrid", -3))),
    Figure("preparing a page, CPU", 2, True, "ms", "", "bench.sync --write",
           from_table("sync", "preparing a page", 1)),
    Figure("first sync, share of the cores", 95, False, "%", "the machine", "bench.sync --write",
           make_ratio(from_table("sync", "first sync of", 1, number=-2), from_table("sync", "first sync of", 1, number=-1), 100)),
    Figure("renaming 8,084 pages", 5, True, "s", "", "bench.sync --write",
           from_table("sync", "renaming a directory", 1, number=-1)),
    Figure("index on disk, kB a chunk", 1.6, True, "kB", "", "bench.sync --write",
           from_table("sync", "size of the index", 1, number=1)),
    Figure("memory, 1,000 chunks", 150, True, "MB", "", "bench.search --write",
           from_table("search", r"\| hybrid \|", 7)),
    Figure("memory, 177,000 chunks", 320, True, "MB", "", "bench.search --write",
           from_table("search", r"\| hybrid \|", 7, -1)),
    Figure("CPU of wikiholt --version", 100, True, "ms", "", "bench.cli --write",
           from_table("cli", "`wikiholt --version`", 1)),
    Figure("CPU of wikiholt --help", 100, True, "ms", "", "bench.cli --write",
           from_table("cli", "`wikiholt --help`", 1)),
    Figure("start with 10,000 wikis", 1.5, True, "×", "one wiki", "bench.many_wikis --write",
           make_ratio(from_table("many_wikis", _START, 1), from_table("many_wikis", _START, 2))),
)  # fmt: skip


def read_figures(results: Path = RESULTS) -> list[tuple[Figure, float | None]]:
    return [(figure, figure.read(results)) for figure in FIGURES]
