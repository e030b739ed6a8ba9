"""Speed and recall of the vector caches, on vectors of real text.

    OPENBLAS_NUM_THREADS=1 python -m bench.vectors --pages WIKI [WIKI ...] --keep vectors.npz
    OPENBLAS_NUM_THREADS=1 python -m bench.vectors --vectors vectors.npz --write bench/results/vectors.md

The pages' paragraphs are embedded once and headings, which are held out, are the queries; the first two hundred, on
which the caches were tuned, are left out. Larger sets are real vectors,
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.factory import FaissVectorCache

from bench.measures import measure_seconds, read_memory_mb
from bench.report import make_head
from wikiholt.domain.index import FloatArray, IndexState, IntArray, Recipe, VectorDelta, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.embedding import load_embedder

SIZES = (10_000, 20_000, 50_000, 100_000, 300_000, 1_000_000)
TIMED = 300
DEPTHS = (10, 100, 300)
TUNED = 200
"""Number of queries on which the caches were tuned; they are not used here."""


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


class ReferenceIndex:
    """An index of rows, ten chunks a page, with its history; `replace_page` gives a page new chunk ids."""

    generation = 1

    def __init__(self, vectors: FloatArray) -> None:
        self.vectors = vectors
        self._versions: dict[int, list[tuple[int, IntArray]]] = {}
        """Page → its chunk ids, each with the version from which it has them."""
        self._version = 1

    def get_version(self) -> int:
        return self._version

    def get_state(self) -> IndexState:
        recipe = Recipe("bench", self.vectors.shape[1], "")
        return IndexState(1, self._version, recipe, None, None, len(self.vectors) // 10, len(self.vectors), 0)

    def replace_page(self, page: int) -> None:
        ids = len(self.vectors) + 10 * self._version + np.arange(10)
        self._version += 1
        self._versions.setdefault(page, [(1, page * 10 + np.arange(10))]).append((self._version, ids))

    def get_vector_changes(self, version: int) -> VectorDelta:
        pages = [page for page, versions in self._versions.items() if versions[-1][0] > version]
        gone = [next(ids for at, ids in reversed(self._versions[page]) if at <= version) for page in pages]
        added = [self._versions[page][-1][1] for page in pages]
        rows = [row for page in pages for row in range(page * 10, page * 10 + 10)]
        ids = np.concatenate([*added, np.empty(0, np.int64)]).astype(np.int64)
        page_ids = np.repeat(np.array(pages, np.int64), 10)
        removed = np.concatenate([*gone, np.empty(0, np.int64)]).astype(np.int64)
        return VectorDelta(self._version, VectorRows(ids, page_ids, self.vectors[rows]), removed)

    @contextmanager
    def open_vector_snapshot(self) -> Iterator["ReferenceSnapshot"]:
        yield ReferenceSnapshot(self._version, len(self.vectors), self)

    def iter_blocks(self) -> Iterator[VectorRows]:
        for start in range(0, len(self.vectors), 8_000):
            ids = np.arange(start, min(start + 8_000, len(self.vectors)))
            block = VectorRows(ids.copy(), ids // 10, self.vectors[ids])
            for page in [page for page in self._versions if start <= page * 10 < start + 8_000]:
                block.chunk_ids[page * 10 - start :][:10] = self._versions[page][-1][1]
            yield block

    def to_first_ids(self, chunk_ids: IntArray) -> IntArray:
        """The ids that chunks had before their page was replaced, if pages were replaced in order, one each."""
        moved = chunk_ids - len(self.vectors)
        return np.where(moved >= 0, (moved // 10 - 1) * 10 + moved % 10, chunk_ids)


@dataclass(frozen=True)
class ReferenceSnapshot:
    """All rows at one version."""

    version: int
    count: int
    index: ReferenceIndex

    def iter_blocks(self) -> Iterator[VectorRows]:
        return self.index.iter_blocks()


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


def make_cache_engine(
    name: str, kind: type[ExactVectorCache] | type[FaissVectorCache], vectors: FloatArray, folder: Path
) -> Engine:
    """A cache as it is used: built, closed, opened from its file, updated with one page."""
    reference = ReferenceIndex(vectors)
    folder.mkdir(exist_ok=True)

    def build() -> None:
        cache = kind(cast(WikiIndex, reference), folder, background=False)
        cache.refresh()
        cache.close()

    build_s = measure_seconds(build)
    before, start = read_memory_mb("RssAnon"), time.perf_counter()
    cache = kind(cast(WikiIndex, reference), folder)
    cache.refresh()
    opened = time.perf_counter() - start
    cache.wait_idle()
    memory_mb = read_memory_mb("RssAnon") - before
    updates = []
    for page in range(9):
        reference.replace_page(page)
        updates.append(measure_seconds(cache.refresh))

    def search(query: FloatArray, limit: int) -> IntArray:
        cache.refresh()
        return reference.to_first_ids(cache.search(query, limit, None).chunk_ids)

    def search_pages(query: FloatArray, pages: IntArray) -> object:
        return cache.search(query, 1_000_000, pages)

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
    yield make_cache_engine("**exact**", ExactVectorCache, vectors, folder)
    yield make_cache_engine("**faiss** (PQ, 4 bit, scanned)", FaissVectorCache, vectors, folder / "faiss")
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
    with load_embedder() as embedder:
        found = np.stack([embedder.embed_query(text) for text in passages])
        query_vectors = np.stack([embedder.embed_query(text) for text in queries])
    if arguments.keep:
        np.savez(arguments.keep, passages=found, queries=query_vectors)
    return found, query_vectors


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the vector caches on vectors of real text.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--pages", type=Path, nargs="+", help="folders of Markdown pages to embed")
    source.add_argument("--vectors", type=Path, help="vectors kept from an earlier run")
    parser.add_argument("--keep", type=Path, help="keep the embedded vectors in this file")
    parser.add_argument("--passages", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--ours", action="store_true", help="only our own caches and the two they are compared with")
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
