"""Ten thousand small wikis behind one `wikiholt serve`, beside one wiki alone behind another.

    python -m bench.many_wikis [--wikis 10000] [--collections DIRECTORY] [--write]

The wikis are made and indexed the first time (minutes) and kept in bench/data/many_wikis. Both services run at the same time
and are queried in turns over HTTP on loopback, so that the ratios hold on a noisy machine. Files are in the page cache.
"""

import os
import random
import statistics
import time
from pathlib import Path

from bench.many_wikis.indexing import index_wikis
from bench.many_wikis.repositories import SmallPage, make_slug, pick_pages, read_small_pages
from bench.many_wikis.wiki_server import WikiServer
from bench.measures import count_disk_bytes, read_cpu_s, read_memory_mb, read_private_mb
from bench.report import DATA, make_head, make_parser, publish

WIKIS_IN_USE, SEARCHED_WIKIS = 50, 1000
"""Wikis in use at the same time, and wikis searched at least once."""
IDLE_S = 60
STARTS = 3


def main() -> None:
    parser = make_parser(__doc__, "many_wikis", "collections")
    parser.add_argument("--wikis", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--timeout", type=float, default=900, help="seconds to wait until the service is idle")
    arguments = parser.parse_args()
    home = DATA / "many_wikis"
    pages = read_small_pages(arguments.collections)
    places = [home / str(count) for count in (arguments.wikis, 1)]
    for place, count in zip(places, (arguments.wikis, 1), strict=True):
        index_wikis(pages, place / "wikis", place / "data", count)
    bench = WikiCountBench(pages, arguments.wikis, *places)
    rows = bench.run(arguments.rounds, arguments.timeout)
    publish("many_wikis", __doc__, rows, write=arguments.write)


class WikiCountBench:
    """Both services, measured in turns."""

    def __init__(self, pages: list[SmallPage], count: int, many: Path, alone: Path) -> None:
        self._pages = pages
        self._count = count
        self._places = {"many": many, "alone": alone}
        self._rng = random.Random(11)
        self._log = many / "serve.log"

    def run(self, rounds: int, timeout: float) -> list[str]:
        load = os.getloadavg()[0]
        rows = [f"Load of the machine at the start: {load:.1f}. {self._count:,} wikis of 2 to 5 pages.", ""]
        rows += self._measure_starts()
        many, alone = (self._start(name) for name in ("many", "alone"))
        try:
            rows += self._measure_memory(many, alone, timeout)
            rows += self._measure_searches(many, alone, rounds)
            rows += self._measure_idle(many, alone)
        finally:
            ended = {"many": many.stop(), "alone": alone.stop()}
        rows += ["", f"SIGTERM to exit: {ended['many']:.2f} s (one wiki: {ended['alone']:.2f} s).", ""]
        return rows + self._format_disk()

    def _start(self, name: str) -> WikiServer:
        place = self._places[name]
        return WikiServer(place / "data", [place / "wikis"], self._log)

    def _pick_query(self, number: int) -> str:
        return self._rng.choice(pick_pages(self._pages, number)).title

    def _measure_starts(self) -> list[str]:
        listening: dict[str, list[float]] = {"many": [], "alone": []}
        answered: dict[str, list[float]] = {"many": [], "alone": []}
        for _ in range(STARTS):
            for name in ("many", "alone"):
                server = self._start(name)
                answered[name].append(server.wait_for_answer(make_slug(0), self._pick_query(0)))
                listening[name].append(server.listening)
                server.stop()
        rows = [make_head("| from the start of the process until | many wikis | one wiki |")]
        for what, figures in (("it listens", listening), ("the first search is answered", answered)):
            many, alone = (statistics.median(figures[name]) for name in ("many", "alone"))
            rows.append(f"| {what} | {many:.2f} s | {alone:.2f} s |")
        return rows

    def _measure_memory(self, many: WikiServer, alone: WikiServer, timeout: float) -> list[str]:
        quiet = [
            f"{found:.0f} s" if (found := server.wait_until_idle(timeout)) else f"not within {timeout:.0f} s"
            for server in (many, alone)
        ]
        rows = [f"| it has checked every repository and is idle | {quiet[0]} | {quiet[1]} |", ""]
        rows += [make_head("| memory, MB (its own, without mapped files) | many wikis | one wiki |")]
        first = 0
        for count in (0, 1, 100, SEARCHED_WIKIS):
            for number in range(first, min(count, self._count)):
                many.search(make_slug(number), self._pick_query(number))
                alone.search(make_slug(0), self._pick_query(0))
            first = max(first, count)
            seen = [
                f"{read_memory_mb(pid=server.pid):.0f} ({read_private_mb(server.pid):.0f})" for server in (many, alone)
            ]
            rows.append(f"| after searching {count:,} wikis once | {seen[0]} | {seen[1]} |")
        rows.append(f"| open files then | {many.count_files()} | {alone.count_files()} |")
        return rows

    def _measure_searches(self, many: WikiServer, alone: WikiServer, rounds: int) -> list[str]:
        kinds = (
            "one wiki alone",
            "the same wiki among many",
            f"{WIKIS_IN_USE} wikis in turn",
            f"{SEARCHED_WIKIS:,} wikis at random",
        )
        kinds = (*kinds, "a wiki that was never searched")
        rows = []
        for mode in ("hybrid", "keyword"):
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            others = range(min(SEARCHED_WIKIS, self._count), self._count)
            fresh = iter(self._rng.sample(others, min(rounds, len(others))))
            for number in range(-WIKIS_IN_USE, rounds):
                picks = (
                    0,
                    0,
                    1 + number % WIKIS_IN_USE,
                    self._rng.randrange(min(SEARCHED_WIKIS, self._count)),
                    next(fresh, None),
                )
                for kind, server, wiki in zip(kinds, (alone, *[many] * 4), picks, strict=True):
                    if wiki is None or (number < 0 and kind == kinds[-1]):
                        continue
                    took = server.search(make_slug(wiki), self._pick_query(wiki), mode)
                    if number >= 0:
                        times[kind].append(took)
            rows += ["", make_head(f"| {mode} search over HTTP | p50 ms | p95 ms | p50 ÷ one wiki alone |")]
            base = statistics.median(times[kinds[0]])
            for kind, taken in times.items():
                if len(taken) > 1:
                    p50, p95 = statistics.median(taken), statistics.quantiles(taken, n=20)[18]
                    rows.append(f"| {kind} | {p50 * 1e3:.2f} | {p95 * 1e3:.2f} | {p50 / base:.2f} |")
        return rows

    def _measure_idle(self, many: WikiServer, alone: WikiServer) -> list[str]:
        before = [read_cpu_s(server.pid) for server in (many, alone)]
        time.sleep(IDLE_S)
        used = [
            (read_cpu_s(server.pid) - then) / IDLE_S * 100 for server, then in zip((many, alone), before, strict=True)
        ]
        return ["", f"CPU of one core without requests, over {IDLE_S} s: {used[0]:.2f} % (one wiki: {used[1]:.2f} %)."]

    def _format_disk(self) -> list[str]:
        place = self._places["many"]
        taken = {"index": count_disk_bytes(place / "data" / "wikis"), "repository": count_disk_bytes(place / "wikis")}
        text = ", ".join(f"{what} {size / self._count / 1024:.0f} kB" for what, size in taken.items())
        registry = (place / "data" / "registry.sqlite").stat().st_size / 2**20
        return [f"Disk per wiki: {text} (blocks of the file system). Registry: {registry:.1f} MB."]


if __name__ == "__main__":
    main()
