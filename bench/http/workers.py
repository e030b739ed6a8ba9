"""`serve --workers 2` with 64 clients beside two processes that search without a network, and latency at 80 % load.

    python -m bench.http.workers [--seconds 5] [--rounds 6] [--write]

Both get the same hybrid queries, and name near-duplicates, in turns of a few seconds, so that the ratio holds on a noisy machine. The clients, one
thread, run on the same cores as the service, and their share of the time counts against it. On a busy machine more processes get more of the
cores; `throughput_ratio` is therefore the lower of the ratio by the clock and the ratio by CPU time. At 80 % load requests are sent at random times,
at .8 of the rate that the 64 clients reached in the turn before; latency counts from the time at which a request was due.
The wiki is wiki-dendron, 1,017 pages; the queries are its old titles.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.http.__main__ import COLLECTION, HOME, SERVE, get_free_port, prepare_collection, run_in_process, run_server
from bench.http.clients import HITS, ClientGroup, WikiholtClient, run_clients
from bench.measures import read_cpu_s
from bench.report import make_head, make_parser, publish, write_values
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.search.request import SearchRequest

CLIENTS, WORKERS, LOAD = 64, 2, 0.8


class Searchers:
    """Two processes that search as fast as they can on request."""

    def __init__(self, stack: ExitStack, collections: Path) -> None:
        command = [sys.executable, "-m", "bench.http.workers", "--searcher", "--collections", str(collections)]
        self._processes = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            )
            for _ in range(WORKERS)
        ]
        for process in self._processes:
            stack.callback(process.terminate)
        self.run(1.0)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def run(self, seconds: float) -> float:
        """Searches a second of both together."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
        return sum(float(process.stdout.readline()) for process in self._processes if process.stdout is not None)


def search_on_request(queries: list[str]) -> None:
    """Search for as long as each line of standard input says, and print the searches a second."""
    service = open_service(HOME / "ours")
    handle = service.get_handle(COLLECTION)
    for line in sys.stdin:
        seconds, number, began = float(line), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            handle.search(SearchRequest(queries[number * 7 % len(queries)], HITS, SearchMode.HYBRID, collapse=True))
            number += 1
        print(number / (time.perf_counter() - began), flush=True)


def send_at_rate(port: int, queries: list[str], rate: float, seconds: float) -> list[float]:
    """Send requests at random times with this rate; returns the seconds from when each was due to its answer."""
    rng, at = random.Random(3), time.perf_counter()
    end, due_times = at + seconds, []
    while at < end:
        at += rng.expovariate(rate)
        due_times.append(at)
    group = ClientGroup(lambda: WikiholtClient(port), CLIENTS)
    try:
        return group.send_at(due_times, queries, "hybrid")
    finally:
        group.close()


def measure(
    port: int, service: Sequence[int], searchers: Searchers, queries: list[str], seconds: float, rounds: int
) -> dict[str, float]:
    """`service` are its processes; the clients are this one."""
    served, alone, by_cpu, spreads = [], [], [], []
    for _ in range(rounds):
        before = sum(map(read_cpu_s, searchers.pids))
        alone.append(searchers.run(seconds))
        alone_per_cpu_s = alone[-1] * seconds / (sum(map(read_cpu_s, searchers.pids)) - before)
        before = sum(map(read_cpu_s, (*service, os.getpid())))
        taken, wall = run_clients(lambda: WikiholtClient(port), CLIENTS, seconds, queries, "hybrid")
        by_cpu.append(len(taken) / (sum(map(read_cpu_s, (*service, os.getpid()))) - before) / alone_per_cpu_s)
        served.append(len(taken) / wall)
        spread = statistics.quantiles(send_at_rate(port, queries, LOAD * served[-1], seconds), n=100)
        spreads.append((spread[49], spread[98]))
    median = statistics.median
    by_clock = median(one / other for one, other in zip(served, alone, strict=True))
    return {
        "in_process_per_s": median(alone),
        "served_per_s": median(served),
        "ratio_by_clock": by_clock,
        "ratio_by_cpu_time": median(by_cpu),
        "throughput_ratio": min(by_clock, median(by_cpu)),
        "p50_ms": median(p50 for p50, _ in spreads) * 1e3,
        "p99_ms": median(p99 for _, p99 in spreads) * 1e3,
        "p99_to_p50": median(p99 / p50 for p50, p99 in spreads),
    }


def main() -> None:
    parser = make_parser(__doc__, "workers", "collections")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a turn lasts")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--searcher", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    repository, queries = prepare_collection(arguments.collections)
    if arguments.searcher:
        search_on_request(queries)
        return
    load = os.getloadavg()[0]
    run_in_process(repository, queries)
    port = get_free_port()
    command = [*SERVE, "--port", str(port), "--workers", str(WORKERS)]
    with ExitStack() as stack:
        server = stack.enter_context(run_server(command, port))
        searchers = Searchers(stack, arguments.collections)
        run_clients(lambda: WikiholtClient(port), 8, 3.0, queries, "hybrid")  # warm
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        values = measure(port, [int(pid) for pid in children], searchers, queries, arguments.seconds, arguments.rounds)
    rows = [make_head("| what | value |")]
    rows += [f"| {name} | {value:.2f} |" for name, value in values.items()]
    note = f"{arguments.rounds} rounds of {arguments.seconds:.0f} s; load of the machine at the start: {load:.1f}."
    publish("workers", __doc__, rows, write=arguments.write, note=note)
    if arguments.write:
        write_values("workers", values)


if __name__ == "__main__":
    main()
