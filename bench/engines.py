"""Vector engines side by side: exact, FAISS, Chroma in a child process, Chroma as a server.

    OPENBLAS_NUM_THREADS=1 python -m bench.engines [--sizes 1000 10000 100000] [--write]

The vectors are real: those of the index that bench.sync made, in random order. Every engine is the cache that
Wikiholt uses, built from the same rows; every query is sent to every engine in turn, so that other load affects
all of them. Compare ratios, not milliseconds. Chroma's memory is that of the process it runs in and of the rows that
are kept beside it.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.corpus import open_large_index
from bench.measures import count_disk_bytes, read_memory_mb
from bench.report import format_load, make_head, make_parser, publish
from bench.search import QUESTIONS
from bench.vectors import BenchIndex, VectorsKind
from tests.support.chroma_server import RunningChroma
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import VectorCache
from wikiholt.errors import IndexUnavailable
from wikiholt.index.chroma.engine import ChromaConfig, ChromaEngine
from wikiholt.models import load_embedder

SIZES = (1_000, 10_000, 100_000)
LIMIT = 30
"""Number of requested neighbours, as for the first page of an answer."""
EDITS = 5
TIMEOUT_S = 900.0
_ID = "benchbenchbenchbench"


@dataclass
class EngineTrial:
    """One engine at one size: its costs and answers."""

    name: str
    make: Callable[[BenchIndex], VectorCache]
    folder: Path
    kind: VectorsKind = "exact"
    before_opening: Callable[[], None] = lambda: None
    build: float = 0.0
    opened: float = 0.0
    seen: float = 0.0
    """Until an edited page is found."""
    followed: float = 0.0
    """Until the engine itself contains it."""
    memory: float = 0.0
    disk: float = 0.0
    times: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    degraded: int = 0


# ── test data ────────────────────────────────────────────────────────────────────────


def load_vectors(count: int) -> FloatArray:
    """Vectors of an index of bench.sync, in random order."""
    with open_large_index(count) as index, index.open_vector_snapshot() as snapshot:
        vectors = np.concatenate([block.vectors for block in snapshot.iter_blocks()])
    return np.ascontiguousarray(vectors[np.random.default_rng(7).permutation(len(vectors))[:count]])


def get_memory_mb(folder: Path) -> float:
    """Memory without mapped files of the other processes that were started with this directory."""
    total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes() and int(process.name) != os.getpid():
                total += read_memory_mb("RssAnon", process.name)
    return total


class RestartingChroma:
    """A Chroma that is reopened for every cache, as by a new process."""

    def __init__(self, config: ChromaConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._engine: ChromaEngine | None = None

    def open_cache(self, reference: BenchIndex) -> VectorCache:
        self._engine = self._engine or ChromaEngine(self._config, self._folder / "owner", lambda: [_ID])
        return self._engine.open_searcher(reference.open(), self._folder, _ID, "bench")

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None


class IndexSearch:
    """The index itself, as a cache that is always ready."""

    version = 0

    def __init__(self, reference: BenchIndex) -> None:
        self.search = reference.open().search_vectors

    def refresh(self) -> None:
        pass

    def verify(self) -> None:
        pass

    def wait_idle(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002
        return True

    def close(self) -> None:
        pass


def make_trials(root: Path, stack: ExitStack) -> list[EngineTrial]:
    def make_index_trial(kind: VectorsKind) -> EngineTrial:
        folder = root / kind
        folder.mkdir()
        return EngineTrial(kind, IndexSearch, folder, kind)

    def make_chroma_trial(name: str, *, is_server: bool) -> EngineTrial:
        folder = root / name.replace(" ", "-")
        (folder / "db").mkdir(parents=True)
        url = stack.enter_context(RunningChroma(folder / "db")).url if is_server else ""
        path = None if is_server else folder / "db"
        config = ChromaConfig(url, path, timeout_s=60.0, write_timeout_s=TIMEOUT_S)
        chroma = RestartingChroma(config, folder)
        stack.callback(chroma.close)
        return EngineTrial(name, chroma.open_cache, folder, before_opening=chroma.close)

    return [
        make_index_trial("exact"),
        make_index_trial("faiss"),
        make_chroma_trial("chroma in a child", is_server=False),
        make_chroma_trial("chroma as a server", is_server=True),
    ]


# ── measuring ────────────────────────────────────────────────────────────────────────────────────


def wait_for_engine(cache: VectorCache, query: FloatArray) -> bool:
    """Wait until the engine itself answers."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        cache.refresh()
        with suppress(IndexUnavailable):
            if not cache.search(query, LIMIT, None).degraded:
                return True
        cache.wait_idle(TIMEOUT_S)
    return False


def prepare_cache(trial: EngineTrial, vectors: FloatArray, query: FloatArray) -> tuple[BenchIndex, VectorCache]:
    """Build, close and reopen a cache, and update it with some pages."""
    start = time.perf_counter()
    reference = BenchIndex(vectors, trial.folder, trial.kind)
    cache = trial.make(reference)
    wait_for_engine(cache, query)
    trial.build = time.perf_counter() - start
    cache.close()
    trial.before_opening()
    before, start = read_memory_mb("RssAnon"), time.perf_counter()
    cache = trial.make(reference)
    wait_for_engine(cache, query)
    trial.opened = time.perf_counter() - start
    for _ in range(3):
        cache.search(query, LIMIT, None)
    trial.memory = max(0.0, read_memory_mb("RssAnon") - before) + get_memory_mb(trial.folder)
    seen, followed = [], []
    for page in range(EDITS):
        reference.replace_page(page)
        start = time.perf_counter()
        cache.refresh()
        seen.append(time.perf_counter() - start)
        cache.wait_idle(TIMEOUT_S)
        followed.append(time.perf_counter() - start)
    trial.seen, trial.followed = statistics.median(seen), statistics.median(followed)
    trial.disk = count_disk_bytes(trial.folder) / 1e6
    return reference, cache


def run_query(trial: EngineTrial, index: BenchIndex, cache: VectorCache, query: FloatArray, expected: set[int]) -> None:
    start = time.perf_counter()
    cache.refresh()
    found = cache.search(query, LIMIT, None)
    trial.times.append(time.perf_counter() - start)
    trial.degraded += found.degraded
    ids = index.to_rows(found.chunk_ids[:10])
    trial.recalls.append(len(set(ids.tolist()) & expected) / 10)


def measure(vectors: FloatArray, queries: FloatArray, root: Path, rounds: int) -> list[EngineTrial]:
    with ExitStack() as stack:
        trials = make_trials(root, stack)
        opened = []
        for trial in trials:
            opened.append(prepare_cache(trial, vectors, queries[0]))
            stack.callback(opened[-1][1].close)
            print(f"  {trial.name}: built in {trial.build:.1f} s, opened in {trial.opened * 1e3:.0f} ms", flush=True)
        for _ in range(rounds):
            for query in queries:
                expected = set(np.argsort(-(vectors @ query), kind="stable")[:10].tolist())
                for trial, (index, cache) in zip(trials, opened, strict=True):
                    run_query(trial, index, cache, query, expected)
    return trials


def format_table(size: int, trials: Sequence[EngineTrial]) -> str:
    head = "engine | p50 ms | p95 ms | p50 to exact | recall@10 | build s | open ms | page found ms | followed ms | MB | disk MB"
    lines = [f"### {size:,} chunks", "", make_head(f"| {head} |")]
    against = statistics.median(trials[0].times)
    for trial in trials:
        middle, late = statistics.median(trial.times), float(np.quantile(trial.times, 0.95))
        lines.append(
            f"| {trial.name} | {middle * 1e3:.2f} | {late * 1e3:.2f} | {middle / against:.1f} | {np.mean(trial.recalls):.3f} "
            f"| {trial.build:.2f} | {trial.opened * 1e3:.0f} | {trial.seen * 1e3:.1f} | {trial.followed * 1e3:.0f} "
            f"| {trial.memory:.0f} | {trial.disk:.1f} |"
        )
        if trial.degraded:
            lines.append(f"| … {trial.degraded} of its {len(trial.times)} answers were exact search's |" + " |" * 10)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = make_parser(__doc__, "engines")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    vectors = load_vectors(max(arguments.sizes))
    embedder = load_embedder()
    queries = np.stack([embedder.embed_query(question) for question in QUESTIONS])
    parts = []
    busy = [os.getloadavg()[0]]
    for size in arguments.sizes:
        root = Path(tempfile.mkdtemp(prefix="engines-"))
        try:
            parts.append(format_table(size, measure(vectors[:size], queries, root, arguments.rounds)))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        busy.append(os.getloadavg()[0])
    note = f"{len(QUESTIONS)} questions, {arguments.rounds} rounds, {LIMIT} neighbours each. {format_load(busy)}"
    publish("engines", __doc__, parts, write=arguments.write, note=note)


if __name__ == "__main__":
    main()
