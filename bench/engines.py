"""Vector engines side by side: exact, FAISS, Chroma in a child process, Chroma as a server.

    OPENBLAS_NUM_THREADS=1 python -m bench.engines [--sizes 1000 10000 100000] [--write]

The vectors are real: those of the index that bench.sync made, in random order. Every engine is the cache that
Wikiholt uses, built from the same rows; every query is sent to every engine in turn, so that what disturbs one
disturbs all. Compare ratios, not milliseconds. Chroma's memory is that of the process it runs in and of the rows that
are kept beside it.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from bench.corpus import DATA
from bench.measures import count_disk_bytes, read_memory_mb
from bench.report import describe_machine, make_parser, write_result
from bench.search import QUESTIONS
from bench.vectors import ReferenceIndex
from tests.support.chroma_server import RunningChroma
from wikiholt.caches.cache_file import CacheNotReady
from wikiholt.caches.chroma.engine import ChromaConfig, ChromaEngine
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.factory import FaissVectorCache
from wikiholt.domain.index import FloatArray, IntArray, VectorDelta, VectorRows
from wikiholt.domain.protocols import VectorCache
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.embedding import load_embedder
from wikiholt.storage.sqlite.store import SqliteStore

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
    make: Callable[[ReferenceIndex], VectorCache]
    folder: Path
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


class Rows(ReferenceIndex):
    """An index of rows whose history is known from any version on; ten chunks a page."""

    def __init__(self, vectors: FloatArray) -> None:
        super().__init__(vectors)
        self._lives: dict[int, list[tuple[int, IntArray]]] = {}
        """Page → the version from which it had these chunk ids."""

    def edit(self, page: int) -> None:
        super().edit(page)
        first = [(1, page * 10 + np.arange(10))]
        self._lives.setdefault(page, first).append((self.get_version(), self.edits[-1][1].chunk_ids))

    def get_vector_changes(self, version: int) -> VectorDelta:
        pages = [page for page, lives in self._lives.items() if lives[-1][0] > version]
        gone = [next(ids for at, ids in reversed(self._lives[page]) if at <= version) for page in pages]
        added = [self._rows(page) for page in pages]
        none = np.empty(0, np.int64)
        return VectorDelta(self.get_version(), _merge_rows(added, self.vectors), np.concatenate(gone) if gone else none)

    def _rows(self, page: int) -> VectorRows:
        return VectorRows(self._lives[page][-1][1], np.full(10, page), self.vectors[page * 10 : page * 10 + 10])

    @contextmanager
    def open_vector_snapshot(self) -> Iterator["Snapshot"]:  # type: ignore[override]
        yield Snapshot(self.get_version(), self)

    def iter_blocks(self) -> Iterator[VectorRows]:
        for start in range(0, len(self.vectors), 8_000):
            ids = np.arange(start, min(start + 8_000, len(self.vectors)))
            whole = VectorRows(ids, ids // 10, self.vectors[ids])
            for page in [page for page in self._lives if start <= page * 10 < start + 8_000]:
                whole.chunk_ids[page * 10 - start : page * 10 - start + 10] = self._lives[page][-1][1]
            yield whole


@dataclass(frozen=True)
class Snapshot:
    """All rows at one version."""

    version: int
    rows: Rows

    @property
    def count(self) -> int:
        return len(self.rows.vectors)

    def iter_blocks(self) -> Iterator[VectorRows]:
        return self.rows.iter_blocks()


def _merge_rows(rows: Sequence[VectorRows], like: FloatArray) -> VectorRows:
    none = np.empty(0, np.int64)
    if not rows:
        return VectorRows(none, none, like[:0])
    parts = zip(*((each.chunk_ids, each.page_ids, each.vectors) for each in rows), strict=True)
    return VectorRows(*(np.concatenate(part) for part in parts))


def load_vectors(most: int) -> FloatArray:
    """The vectors of the largest index of bench.sync, in random order."""
    store = SqliteStore(DATA / "sync" / "wikis")
    largest: FloatArray = np.empty((0, 0), np.float32)
    for wiki_id in store.list_wiki_ids():
        index = store.open(wiki_id)
        try:
            with index.open_vector_snapshot() as snapshot:
                if snapshot.count > len(largest):
                    largest = np.concatenate([block.vectors for block in snapshot.iter_blocks()])
        finally:
            index.close()
    if len(largest) < most:
        sys.exit(f"there are {len(largest):,} vectors, and {most:,} are wanted: run `python -m bench.sync` first")
    return np.ascontiguousarray(largest[np.random.default_rng(7).permutation(len(largest))[:most]])


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

    def __init__(self, stack: ExitStack, place: Callable[[], ChromaConfig], folder: Path) -> None:
        self._stack = stack
        self._place = place
        self._folder = folder
        self._open: ChromaEngine | None = None
        stack.callback(self.close)

    def open_cache(self, reference: ReferenceIndex) -> VectorCache:
        self._open = self._open or ChromaEngine(self._place(), self._folder / "owner", lambda: [_ID])
        return self._open.open_cache(cast(WikiIndex, reference), self._folder, _ID, "bench")

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None


def make_trials(root: Path, stack: ExitStack) -> list[EngineTrial]:
    def make_file_trial(name: str, kind: type[ExactVectorCache] | type[FaissVectorCache]) -> EngineTrial:
        folder = root / name
        folder.mkdir()
        return EngineTrial(name, lambda reference: kind(cast(WikiIndex, reference), folder, background=False), folder)

    def make_chroma_trial(name: str, place: Callable[[Path], ChromaConfig]) -> EngineTrial:
        folder = root / name.replace(" ", "-")
        (folder / "db").mkdir(parents=True)
        wanted = place(folder / "db")
        chroma = RestartingChroma(stack, lambda: wanted, folder)
        return EngineTrial(name, chroma.open_cache, folder, chroma.close)

    def start_server(folder: Path) -> ChromaConfig:
        return ChromaConfig(
            url=stack.enter_context(RunningChroma(folder)).url, timeout_s=60.0, background_timeout_s=TIMEOUT_S
        )

    return [
        make_file_trial("exact", ExactVectorCache),
        make_file_trial("faiss", FaissVectorCache),
        make_chroma_trial(
            "chroma in a child",
            lambda folder: ChromaConfig(path=folder, timeout_s=60.0, background_timeout_s=TIMEOUT_S),
        ),
        make_chroma_trial("chroma as a server", start_server),
    ]


# ── measuring ────────────────────────────────────────────────────────────────────────────────────


def wait_for_engine(cache: VectorCache, query: FloatArray) -> bool:
    """Wait until the engine itself answers."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        cache.refresh()
        with suppress(CacheNotReady):
            if not cache.search(query, LIMIT, None).degraded:
                return True
        cache.wait_idle(TIMEOUT_S)
    return False


def prepare_cache(trial: EngineTrial, vectors: FloatArray, query: FloatArray) -> tuple[ReferenceIndex, VectorCache]:
    """Build, close and reopen a cache, and update it with some pages."""
    reference = Rows(vectors)
    start = time.perf_counter()
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
        reference.edit(page)
        start = time.perf_counter()
        cache.refresh()
        seen.append(time.perf_counter() - start)
        cache.wait_idle(TIMEOUT_S)
        followed.append(time.perf_counter() - start)
    trial.seen, trial.followed = statistics.median(seen), statistics.median(followed)
    trial.disk = count_disk_bytes(trial.folder) / 1e6
    return reference, cache


def run_query(trial: EngineTrial, cache: VectorCache, query: FloatArray, expected: set[int], count: int) -> None:
    start = time.perf_counter()
    cache.refresh()
    found = cache.search(query, LIMIT, None)
    trial.times.append(time.perf_counter() - start)
    trial.degraded += found.degraded
    # The edited pages have the same vectors as before, with new ids.
    ids = found.chunk_ids[:10]
    moved = ids >= count
    same = np.where(moved, ((ids - count) // 10 - 1) * 10 + (ids - count) % 10, ids)
    trial.recalls.append(len(set(same.tolist()) & expected) / 10)


def measure(vectors: FloatArray, queries: FloatArray, root: Path, rounds: int) -> list[EngineTrial]:
    with ExitStack() as stack:
        tested = make_trials(root, stack)
        caches = []
        for trial in tested:
            _, cache = prepare_cache(trial, vectors, queries[0])
            caches.append(cache)
            stack.callback(cache.close)
            print(f"  {trial.name}: built in {trial.build:.1f} s, opened in {trial.opened * 1e3:.0f} ms", flush=True)
        for _ in range(rounds):
            for query in queries:
                expected = set(np.argsort(-(vectors @ query), kind="stable")[:10].tolist())
                for trial, cache in zip(tested, caches, strict=True):
                    run_query(trial, cache, query, expected, len(vectors))
    return tested


def format_table(size: int, tested: Sequence[EngineTrial]) -> str:
    head = "engine | p50 ms | p95 ms | p50 to exact | recall@10 | build s | open ms | page found ms | followed ms | MB | disk MB"
    lines = [f"### {size:,} chunks", "", f"| {head} |", "|" + "---|" * 11]
    against = statistics.median(tested[0].times)
    for trial in tested:
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
    with load_embedder() as embedder:
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
        print(parts[-1], flush=True)
    cores = len(os.sched_getaffinity(0))
    said = f"Load while measuring: {min(busy):.1f} to {max(busy):.1f} on {cores} cores."
    if max(busy) > cores:
        said += " **The machine was busy**: others were at work on it, so trust ratios, and those roughly."
    if arguments.write:
        write_result(
            "engines",
            f"{describe_machine()} {said}\n\n{len(QUESTIONS)} questions, {arguments.rounds} rounds, {LIMIT} neighbours each.\n\n"
            + "\n".join(parts),
        )


if __name__ == "__main__":
    main()
