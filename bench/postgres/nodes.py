"""Two nodes over two databases beside one: searches a second, and what a search costs."""

import statistics
import tempfile
from pathlib import Path

from bench.collections import DEFAULT
from bench.many_wikis.wikis import small_pages
from bench.postgres.cluster import Cluster
from bench.postgres.load import Load, cpu_below, run_load
from bench.postgres.parts import Part
from bench.postgres.server import pid_of, started
from tests.support.postgres_server import PostgresServer

WIKIS = 24
"""Fewer than a node keeps connections, so that no search has to log in."""
SECONDS = 8.0
ROUNDS = 3
CLIENTS = 8


def main(seconds: float = SECONDS) -> None:
    """Measure, and save the result."""
    part = Part("nodes", "Nodes and databases on one machine: searches")
    pages = small_pages(DEFAULT)
    with started() as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        throughput(part, Cluster(Path(place), pages, WIKIS), server, seconds)
    part.keep()


def throughput(part: Part, cluster: Cluster, server: PostgresServer, seconds: float) -> None:
    """All kinds of clusters run at the same time, with one under load at a time, in turns."""
    one, first, second = (server.create_database() for _ in range(3))
    loads: dict[tuple[str, str], list[Load]] = {}
    with (
        cluster.nodes(1, "") as embedded,
        cluster.nodes(1, one) as single,
        cluster.nodes(2, first, [second]) as double,
    ):
        kinds = {"files, one node": embedded, "one node, one database": single, "one of two nodes, two databases": double[:1], "two nodes, two databases": double}  # fmt: skip
        for nodes in kinds.values():
            run_load([node.port for node in nodes], cluster.question, "hybrid", 1.0, CLIENTS)
        for _ in range(ROUNDS):
            for mode in ("hybrid", "keyword"):
                for name, nodes in kinds.items():
                    before = sum(node.cpu() for node in nodes), cpu_below(pid_of(server))
                    load = run_load([node.port for node in nodes], cluster.question, mode, seconds, CLIENTS)
                    load.nodes = sum(node.cpu() for node in nodes) - before[0]
                    load.database = cpu_below(pid_of(server)) - before[1]
                    loads.setdefault((mode, name), []).append(load)
    part.say(f"{WIKIS} small wikis, {CLIENTS} clients at once over HTTP for {seconds:.0f} s, {ROUNDS} rounds in turns; clients, nodes and databases share two cores.", "")  # fmt: skip
    for mode in ("hybrid", "keyword"):
        part.say(f"| {mode} | searches/s | ÷ one node, one database | p50 ms | p95 ms | CPU ms a search: node | database |", "|---|---|---|---|---|---|---|")  # fmt: skip
        base = statistics.median(each.rate for each in loads[mode, "one node, one database"])
        for name in kinds:
            part.say(Load.row(name, loads[mode, name], base))
        part.say("")
