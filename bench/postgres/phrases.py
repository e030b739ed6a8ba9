"""Quoted phrases in a large wiki: by the database alone, by the node's copy, and by files."""

import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

from bench.corpus import open_clone
from bench.embedders import CachingEmbedder
from bench.measures import get_percentiles_ms, wait_until
from bench.postgres.load import read_tree_cpu_s
from bench.postgres.parts import ReportPart
from bench.postgres.server import get_pid, run_server
from bench.postgres.sides import Side
from bench.report import DATA
from tests.support.postgres_server import PostgresServer
from wikiholt.api.store_migration import StoreMigration
from wikiholt.domain.search import SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder

SLUG = "mdn"
RARE, COMMON = 40, 6
"""Phrases of two to four words from random pages, and the pairs that the most pages contain."""
SIDES = ("database alone", "node's copy", "files")
_WORD = re.compile(r"[a-z]{3,}")


def run() -> None:
    part = ReportPart("phrases", "Phrases in a large wiki")
    embedder = CachingEmbedder(FakeEmbedder(16))  # type: ignore[arg-type]
    with run_server() as server, tempfile.TemporaryDirectory(prefix="bench-") as place, ExitStack() as stack:
        files = Side("files", DATA / "phrases", embedder)
        stack.callback(files.close)
        if not files.service.list_wikis():
            files.service.add(SLUG, str(open_clone().path.resolve()), {})
            files.service.get_handle(SLUG).sync()
        address = server.create_database()
        sides = [
            Side(name, Path(place) / str(at), embedder, address, vectors=vectors)
            for at, (name, vectors) in enumerate(zip(SIDES, ("store", "auto"), strict=False))
        ]
        for side in sides:
            stack.callback(side.close)
        StoreMigration(files.service, sides[0].service, Path(place) / "moving").run()
        sides[0].build_indexes(files.service.list_wikis()[0].id)
        with closing(files.store.open(files.service.list_wikis()[0].id)) as index:
            groups = {"two to four words of a page": pick_runs(index), "pairs on the most pages": pick_pairs(index)}
            pages = index.get_state().pages
        part.add(
            f"{pages:,} pages of a real wiki; keyword search through the service, every phrase twice in turns, the second time measured."
        )
        build_copy(part, sides[1])
        compare(part, server, [*sides, files], groups)
    part.save()


def pick_runs(index: WikiIndex) -> list[str]:
    """Runs of words from random chunks."""
    rng, runs = random.Random(1), list[str]()
    page_ids = rng.sample(range(1, index.get_state().pages), RARE * 2)
    for page_id in page_ids:
        chunks = index.get_page_chunks([page_id], 1).get(page_id, ())
        words = [word for chunk in chunks for word in _WORD.findall(chunk.text.lower())]
        size = rng.randint(2, 4)
        if len(words) > size and len(runs) < RARE:
            start = rng.randrange(len(words) - size)
            runs.append(" ".join(words[start : start + size]))
    return runs


def pick_pairs(index: WikiIndex) -> list[str]:
    """The pairs of words on the most of a thousand pages, as terms."""
    counts: Counter[str] = Counter()
    with index.open_keywords() as keywords:
        for _, (_, terms) in zip(range(1_000), keywords.iter_terms(), strict=False):
            words = terms.body.split()
            counts.update({f"{a} {b}" for a, b in pairwise(words) if a.isalpha() and b.isalpha()})
    return [pair for pair, _ in counts.most_common(COMMON)]


def build_copy(part: ReportPart, side: Side) -> None:
    """Search until the copy answers, and say how large it is."""
    handle = side.service.get_handle(SLUG)
    began = time.perf_counter()
    handle.search(SearchRequest("first", mode=SearchMode.KEYWORD))
    wait_until(lambda: list(side.data.rglob("copy-*.sqlite")), 600)
    found = list(side.data.rglob("copy-*.sqlite"))
    took = time.perf_counter() - began
    handle.search(SearchRequest("first", mode=SearchMode.KEYWORD))
    part.add(
        f"The node's copy takes {sum(f.stat().st_size for f in found) / 1e6:.0f} MB and was built in {took:.0f} s.", ""
    )


def compare(part: ReportPart, server: PostgresServer, sides: Sequence[Side], groups: dict[str, list[str]]) -> None:
    times: dict[tuple[str, str], list[float]] = {}
    cpu: Counter[tuple[str, str]] = Counter()
    answers, differ = 0, 0
    for turn in range(2):
        for group, phrases in groups.items():
            for phrase in phrases:
                hits = []
                for side in sides:
                    request = SearchRequest(f'"{phrase}"', mode=SearchMode.KEYWORD)
                    handle = side.service.get_handle(SLUG)
                    below = read_tree_cpu_s(get_pid(server))
                    used, began = time.process_time(), time.perf_counter()
                    result = handle.search(request)
                    used, took = time.process_time() - used, time.perf_counter() - began
                    if turn:
                        times.setdefault((group, side.name), []).append(took)
                        cpu[group, side.name] += used + read_tree_cpu_s(get_pid(server)) - below
                    hits.append((result.considered, [(hit.path, hit.score) for hit in result.hits]))
                answers += 1
                differ += any(hit != hits[0] for hit in hits[1:])
    part.add("| phrases | " + " | ".join(f"{side.name}, CPU; p50 / p95 / least ms" for side in sides) + " |")
    part.add("|---" * (len(sides) + 1) + "|")
    for group in groups:
        cells = []
        for side in sides:
            taken = times[group, side.name]
            p50, p95 = get_percentiles_ms(taken)
            mean = cpu[group, side.name] / len(taken) * 1e3
            cells.append(f"{mean:.1f}; {p50:.1f} / {p95:.1f} / {min(taken) * 1e3:.1f}")
        part.add(f"| {group} | " + " | ".join(cells) + " |")
    part.add(
        "",
        f"Of {answers} answers, {differ} differ between the three. CPU is the mean of this process and the database.",
    )
