"""Speed and recall of vector search, on vectors of real text.

    OPENBLAS_NUM_THREADS=1 python -m bench.vectors --pages WIKI [WIKI ...] --keep vectors.npz
    OPENBLAS_NUM_THREADS=1 python -m bench.vectors --vectors vectors.npz --write bench/results/vectors.md

The pages' paragraphs are embedded once and headings, which are held out, are the queries; the first two hundred, on
which the codes were tuned, are left out. Larger sets are real vectors,
then mixtures of pairs of them with a little noise: dense like real text, and not in clear clusters. Every engine
answers every query in turn, so that other load affects all of them; compare ratios.
"""

import argparse
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.measures import measure_seconds, read_memory_mb
from bench.report import make_head
from wikiholt.domain.index import FloatArray, IndexChange, IntArray, PageEntry, Recipe
from wikiholt.index.sqlite.faiss_codes import make_codes_choice
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.models import load_embedder
from wikiholt.testing.fakes import FakeEmbedder, make_entry

SIZES = (10_000, 20_000, 50_000, 100_000, 300_000, 1_000_000)
TIMED = 300
DEPTHS = (10, 100, 300)
TUNED = 200
"""Number of queries on which the codes were tuned; they are not used here."""
VectorsKind = Literal["exact", "faiss"]
_ID = "benchbenchbenchbench"
_PAGES_PER_CHANGE = 400


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────


def read_texts(folders: list[Path], most: int) -> tuple[list[str], list[str]]:
    """Passages of about a hundred words, and headings."""
    passages: list[str] = []
    headings: set[str] = set()
    for folder in folders:
        files = sorted(folder.rglob("*.md"))
        random.Random(1).shuffle(files)
        mine: list[str] = []
        for file in files:
            body = re.sub(r"\A---.*?\n---\n", "", file.read_text("utf-8", "replace"), flags=re.S)
            headings.update(re.findall(r"^#+ (.{6,80})$", body, flags=re.M))
            words = body.split()
            mine += [f"{file.stem} " + " ".join(words[at : at + 110]) for at in range(0, len(words), 110)]
        passages += mine[: most // len(folders)]
    queries = sorted(headings)
    random.Random(1).shuffle(queries)
    return passages, queries[:500]


def make_larger(real: FloatArray, size: int) -> FloatArray:
    """`size` unit vectors: the real ones first, then noisy mixtures of two of them."""
    rng = np.random.default_rng(0)
    out = np.empty((size, real.shape[1]), np.float32)
    out[: len(real)] = real[:size]
    for start in range(len(real), size, 50_000):
        count = min(50_000, size - start)
        first, second = real[rng.integers(len(real), size=count)], real[rng.integers(len(real), size=count)]
        share = rng.uniform(0.5, 0.9, size=(count, 1)).astype(np.float32)
        noise = rng.standard_normal(first.shape, np.float32) * np.float32(0.3 / np.sqrt(real.shape[1]))
        mixed = share * first + (1 - share) * second + noise
        out[start : start + count] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return out


class BenchIndex:
    """An index of these vectors, ten chunks a page; `replace_page` gives a page new chunk ids."""

    def __init__(self, vectors: FloatArray, folder: Path, kind: VectorsKind = "exact") -> None:
        self.vectors = vectors
        self._store = SqliteStore(folder, make_codes_choice(kind, 0))
        self._replaced = 0
        index = self._store.create(_ID, Recipe("bench", vectors.shape[1], ""))
        for start in range(0, len(vectors), _PAGES_PER_CHANGE * 10):
            pages = range(start // 10, min(len(vectors), start + _PAGES_PER_CHANGE * 10) // 10)
            index.apply(IndexChange(tuple(self._make_page(page) for page in pages)))
        index.apply(IndexChange(revision="bench"))
        index.close()
        self.index = self.open()

    def open(self) -> SqliteIndex:
        self.index = self._store.open(_ID)
        return self.index

    def replace_page(self, page: int) -> None:
        """Replace the pages in order, one each."""
        self._replaced += 1
        self.index.apply(IndexChange((self._make_page(page),)))

    def _make_page(self, page: int) -> PageEntry:
        texts = [f"page {page} {number} {self._replaced}" for number in range(10)]
        entry = make_entry(f"{page}.md", texts, FakeEmbedder())
        return replace(entry, vectors=self.vectors[page * 10 : page * 10 + 10])

    def to_rows(self, chunk_ids: IntArray) -> IntArray:
        """The rows of the vectors of these chunks."""
        moved = chunk_ids - 1 - len(self.vectors) // 10 * 10
        return np.where(moved >= 0, moved, chunk_ids - 1)


# ── engines ──────────────────────────────────────────────────────────────────────────────────────

Search = Callable[[FloatArray, int], IntArray]
OfPages = Callable[[FloatArray, IntArray], object]


@dataclass
class Engine:
    """An engine under test, its costs and its answers."""

    name: str
    search: Search
    build: float
    resident: float
    opened: float | None = None
    updated: float | None = None
    of_pages: OfPages | None = None
    page_times: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    recalls: dict[int, list[float]] = field(default_factory=dict)


def measure_engine(name: str, make: Callable[[], Search]) -> Engine:
    before, start = read_memory_mb("RssAnon"), time.perf_counter()
    search = make()
    return Engine(name, search, time.perf_counter() - start, read_memory_mb("RssAnon") - before)


def make_index_engine(name: str, kind: VectorsKind, vectors: FloatArray, folder: Path) -> Engine:
    """An index as it is used: built, closed, opened, updated with one page."""
    folder.mkdir(exist_ok=True)
    start = time.perf_counter()
    bench_index = BenchIndex(vectors, folder, kind)
    build_s = time.perf_counter() - start
    bench_index.index.close()
    before, start = read_memory_mb("RssAnon"), time.perf_counter()
    index = bench_index.open()
    opened = time.perf_counter() - start
    memory_mb = read_memory_mb("RssAnon") - before
    updates = []
    for page in range(9):
        bench_index.replace_page(page)
        updates.append(measure_seconds(index.get_page_vectors, [page + 1]))

    def search(query: FloatArray, limit: int) -> IntArray:
        return bench_index.to_rows(index.search_vectors(query, limit, None).chunk_ids)

    def search_pages(query: FloatArray, pages: IntArray) -> object:
        return index.search_vectors(query, 1_000_000, pages + 1)

    return Engine(name, search, build_s, memory_mb, opened, statistics.median(updates), search_pages)


def make_plain_search(vectors: FloatArray) -> Search:
    def search(query: FloatArray, limit: int) -> IntArray:
        scores = vectors @ query
        return np.argpartition(-scores, limit - 1)[:limit]

    return search


def make_rescored_search(vectors: FloatArray, guess: Callable[[FloatArray, int], IntArray]) -> Search:
    """The nearest by exact scores among the guessed."""

    def search(query: FloatArray, limit: int) -> IntArray:
        rows = guess(query, min(len(vectors), max(300, 4 * limit)))
        scores = np.vecdot(vectors[rows], query)
        return rows[np.argpartition(-scores, min(limit, len(rows)) - 1)[:limit]]

    return search


def make_bit_search(vectors: FloatArray) -> Search:
    codes = np.ascontiguousarray(np.packbits(vectors > 0, axis=1).view(np.uint64).T)

    def find_rows(query: FloatArray, count: int) -> IntArray:
        code = np.packbits(query > 0).view(np.uint64)
        distances = np.zeros(codes.shape[1], np.uint16)
        for word, own in zip(codes, code, strict=True):
            distances += np.bitwise_count(word ^ own)
        return np.argpartition(distances, count - 1)[:count]

    return make_rescored_search(vectors, find_rows)


def make_faiss_search(vectors: FloatArray, factory: str, **settings: int) -> Search:
    import faiss

    faiss.omp_set_num_threads(1)
    index: Any = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // 50_000)]))
    index.add(vectors)
    space = faiss.ParameterSpace()
    for name, value in settings.items():
        space.set_index_parameter(index, name, value)

    def find_rows(query: FloatArray, count: int) -> IntArray:
        rows: IntArray = index.search(query[None], count)[1][0]
        return rows[rows >= 0]

    return make_rescored_search(vectors, find_rows)


def make_engines(vectors: FloatArray, folder: Path, *, all_kinds: bool) -> Iterator[Engine]:
    size = len(vectors)
    yield measure_engine("numpy float32", lambda: make_plain_search(vectors))
    yield make_index_engine("**exact**", "exact", vectors, folder / "exact")
    yield make_index_engine("**faiss** (PQ, 4 bit, scanned)", "faiss", vectors, folder / "faiss")
    yield measure_engine("one-bit codes + rescoring", lambda: make_bit_search(vectors))
    if not all_kinds:
        return
    yield measure_engine("FAISS fp16 flat", lambda: make_faiss_search(vectors, "SQfp16"))
    if 10_000 <= size <= 100_000:
        lists = int(2 * size**0.5)
        yield measure_engine("FAISS SQ8 flat + rescoring", lambda: make_faiss_search(vectors, "SQ8"))
        yield measure_engine(
            "FAISS IVF-SQ8, 1/16 probed", lambda: make_faiss_search(vectors, f"IVF{lists},SQ8", nprobe=lists // 16)
        )
        yield measure_engine("FAISS HNSW32, ef 128", lambda: make_faiss_search(vectors, "HNSW32,Flat", efSearch=128))


# ── measuring ────────────────────────────────────────────────────────────────────────────────────


def measure(vectors: FloatArray, queries: FloatArray, folder: Path, *, all_kinds: bool) -> list[Engine]:
    engines = list(make_engines(vectors, folder, all_kinds=all_kinds))
    for query in queries:
        exact = np.argsort(-np.vecdot(vectors, query), kind="stable")
        for engine in engines:
            for depth in DEPTHS:
                found = engine.search(query, depth)
                if depth == TIMED:
                    engine.times.append(measure_seconds(engine.search, query, depth))
                share = len(set(found.tolist()) & set(exact[:depth].tolist())) / depth
                engine.recalls.setdefault(depth, []).append(share)
            if engine.of_pages is not None:
                pages = np.unique(exact[:TIMED] // 10)[:70]
                engine.of_pages(query, pages)
                engine.page_times.append(measure_seconds(engine.of_pages, query, pages))
    return engines


def format_table(size: int, engines: list[Engine]) -> str:
    head = (
        "engine | p50 ms | p10 ms | p50 to numpy | recall@10 | @100 | @300 | 700 rows ms | resident MB | build s "
        "| open ms | page ms"
    )
    lines = [f"### {size:,} chunks", "", make_head(f"| {head} |")]
    against = statistics.median(engines[0].times)
    for engine in engines:
        middle, early = statistics.median(engine.times), float(np.quantile(engine.times, 0.1))
        recalls = " | ".join(f"{np.mean(engine.recalls[depth]):.3f}" for depth in DEPTHS)
        opened = "" if engine.opened is None else f"{engine.opened * 1e3:.1f}"
        updated = "" if engine.updated is None else f"{engine.updated * 1e3:.2f}"
        some = f"{statistics.median(engine.page_times) * 1e3:.2f}" if engine.page_times else ""
        lines.append(
            f"| {engine.name} | {middle * 1e3:.2f} | {early * 1e3:.2f} | {middle / against:.2f} | {recalls} "
            f"| {some} | {max(0, engine.resident):.0f} | {engine.build:.2f} | {opened} | {updated} |"
        )
    return "\n".join(lines) + "\n"


def load_vectors(arguments: argparse.Namespace) -> tuple[FloatArray, FloatArray]:
    if arguments.vectors:
        stored = np.load(arguments.vectors)
        return stored["passages"], stored["queries"]
    passages, queries = read_texts(arguments.pages, arguments.passages)
    embedder = load_embedder()
    found = np.stack([embedder.embed_query(text) for text in passages])
    query_vectors = np.stack([embedder.embed_query(text) for text in queries])
    if arguments.keep:
        np.savez(arguments.keep, passages=found, queries=query_vectors)
    return found, query_vectors


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure vector search on vectors of real text.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--pages", type=Path, nargs="+", help="folders of Markdown pages to embed")
    source.add_argument("--vectors", type=Path, help="vectors kept from an earlier run")
    parser.add_argument("--keep", type=Path, help="keep the embedded vectors in this file")
    parser.add_argument("--passages", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--ours", action="store_true", help="only our own engines and the two they are compared with")
    parser.add_argument("--write", type=Path, help="write the tables to this file too")
    arguments = parser.parse_args()
    real, queries = load_vectors(arguments)
    parts = []
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            query_vectors, all_kinds = queries[TUNED : TUNED + arguments.queries], not arguments.ours
            parts.append(
                format_table(size, measure(make_larger(real, size), query_vectors, Path(folder), all_kinds=all_kinds))
            )
        print(parts[-1], flush=True)
    if arguments.write:
        arguments.write.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
