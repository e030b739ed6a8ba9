"""The latency of warm searches compared with embedding the query alone, at about 1,000, 10,000 and 100,000 chunks.

    python -m bench.search [--corpus BUNDLE] [--sizes mdn-1k,mdn-10k] [--write]

Uses the index that bench.sync makes (run that first) and smaller ones of the same pages, whose vectors are taken from
it; with --sizes only smaller ones, which are embedded. First other queries warm the caches, as those of other people
would. Then every query is sent once to every wiki in turn, and embedded alone in the same turn, so that the ratios hold
on a noisy machine; each kind of search has queries of its own, so that none repeats another. The medians of all queries
count; CPU is the process time. Memory is that of a separate process that opens one wiki and searches it.
"""

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from bench.corpus import BareWiki, make_smaller, open_clone
from bench.embedders import IndexedEmbedder
from bench.measures import read_memory_mb
from bench.report import DATA, make_head, make_parser, publish
from wikiholt.api.backends import open_backend
from wikiholt.api.bootstrap import build_wiki_config, open_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.sync import Syncer
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

WARM_UP_QUERIES = 200
SIZES = {"mdn-1k": 77, "mdn-10k": 770, "mdn-100k": 7600, "mdn": 0}
QUESTIONS = """how to center an element vertically
promise all settled error handling
css grid template areas example
fetch with credentials and cors
local storage quota exceeded
what happens when a service worker is updated
convert string to number in javascript
prevent form submission default
websocket reconnect after close
regular expression named groups
announce a change to screen readers
video element autoplay policy
abort a database transaction
content security policy nonce
animate a shape along a path
typed array from a buffer
lazy loading images below the fold
cache a response for ever
how do closures capture variables
drag and drop file upload""".splitlines()


def main() -> None:
    parser = make_parser(__doc__, "search", "corpus")
    parser.add_argument("--queries", type=int, default=80, help="queries of each kind of search")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=list(SIZES), help="measure only these")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print(read_peak_memory(arguments.memory_of))
        return
    large = open_clone(arguments.corpus, DATA / "mdn.git")
    service = open_service(DATA / "sync")
    for slug in arguments.sizes:
        index_wiki(service, slug, large, SIZES[slug])
    queries = read_titles(large, arguments.queries * len(KINDS) + WARM_UP_QUERIES)
    rows = run_searches(service, arguments.sizes, queries[:WARM_UP_QUERIES], [*QUESTIONS, *queries[WARM_UP_QUERIES:]])
    service.close()
    publish("search", __doc__, rows, write=arguments.write)


def index_wiki(service: WikiService, slug: str, large: BareWiki, pages: int) -> None:
    if slug not in [wiki.slug for wiki in service.list_wikis()]:
        repository = make_smaller(large, DATA / f"{slug}.git", pages) if pages else large
        service.add(slug, str(repository.path.resolve()), {})
    shop, wiki = service.components, service.get_handle(slug).wiki
    has_large = "mdn" in [wiki.slug for wiki in service.list_wikis()]
    known = shop.store.open(service.get_handle("mdn").wiki.id) if has_large and pages else None
    embedder = IndexedEmbedder(shop.embedder(), known) if known is not None else shop.embedder()
    settings = load_settings()
    parts = build_wiki_config(wiki, settings, open_backend(settings, BackupPolicy()))
    Syncer(wiki.id, shop.store, parts.source, embedder, parts.pipeline, 60).sync()
    if known is not None:
        known.close()


def read_titles(wiki: BareWiki, count: int) -> list[str]:
    """Titles of pages as queries, the same ones every time."""
    files = wiki.run_git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    found = []
    for file in random.Random(7).sample(files, count):
        text = wiki.run_git("show", f"HEAD:{file}")
        line = next((line for line in text.splitlines()[:10] if line.startswith("title: ")), "title: element")
        found.append(line.removeprefix("title: ").strip("\"' "))
    return found


class SearchTimes:
    """Wall and CPU times by wiki and kind of search."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def measure(self, slug: str, kind: str, work: Callable[..., object], *arguments: object) -> None:
        began, cpu_began = time.perf_counter(), time.process_time()
        work(*arguments)
        times = time.perf_counter() - began, time.process_time() - cpu_began
        self._times.setdefault((slug, kind), []).append(times)

    def get_medians(self, slug: str, kind: str) -> tuple[float, float]:
        """The medians of wall and CPU time in milliseconds."""
        walls, cpus = zip(*self._times[slug, kind], strict=True)
        return statistics.median(walls) * 1e3, statistics.median(cpus) * 1e3


KINDS = {str(mode): (mode, PageFilter()) for mode in SearchMode}
KINDS["hybrid, in a folder"] = (SearchMode.HYBRID, PageFilter(path_prefix="web"))


def run_searches(service: WikiService, slugs: list[str], warm_up: list[str], queries: list[str]) -> list[str]:
    times = SearchTimes()
    embedder = service.components.embedder()
    for slug in slugs:
        service.get_handle(slug).search(SearchRequest("warm up"))
        service.get_handle(slug).wait_for_caches(600)
        for query in warm_up:
            service.get_handle(slug).search(SearchRequest(query))
    for number, query in enumerate(queries):
        kind = list(KINDS)[number % len(KINDS)]
        mode, where = KINDS[kind]
        times.measure("", "alone", embedder.embed_query, query)
        for slug in slugs:
            request = SearchRequest(query, mode=mode, where=where)
            times.measure(slug, kind, search, service.get_handle(slug), request)
    alone, alone_cpu = times.get_medians("", "alone")
    rows = [
        f"Embedding the query alone: p50 {alone:.2f} ms, CPU {alone_cpu:.2f} ms.",
        "",
        make_head(
            "| chunks | pages | mode | p50 ms | p50 ÷ embedding alone | CPU ms | CPU ÷ embedding alone | peak memory MB |"
        ),
    ]
    for slug in slugs:
        state = service.get_handle(slug).get_status().state
        assert state is not None
        command = [sys.executable, "-m", "bench.search", "--memory-of", slug]
        peak = float(subprocess.run(command, capture_output=True, check=True).stdout)
        for kind in KINDS:
            p50, cpu = times.get_medians(slug, kind)
            rows.append(
                f"| {state.chunks:,} | {state.pages:,} | {kind} | {p50:.2f} | {p50 / alone:.2f} | {cpu:.2f} |"
                f" {cpu / alone_cpu:.2f} | {peak:.0f} |"
            )
    return rows


def search(handle: WikiHandle, request: SearchRequest) -> None:
    answer = handle.search(request)
    assert not answer.degraded, answer.notes


def read_peak_memory(slug: str) -> float:
    """Peak resident memory of a process that opens one wiki and searches it."""
    service = open_service(DATA / "sync")
    for query in QUESTIONS:
        service.get_handle(slug).search(SearchRequest(query))
    # Of this program alone: getrusage would also count the memory of its parent before the exec.
    return read_memory_mb("VmHWM")


if __name__ == "__main__":
    main()
