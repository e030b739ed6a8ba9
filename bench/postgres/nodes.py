"""Two nodes over two databases beside one: searches a second, and what a search costs."""

import statistics
import tempfile
from pathlib import Path

from bench.collections import DEFAULT
from bench.many_wikis.repositories import read_small_pages
from bench.measures import read_cpu_s
from bench.postgres.cluster import Cluster
from bench.postgres.load import Load, read_tree_cpu_s, run_load
from bench.postgres.parts import ReportPart
from bench.postgres.server import get_pid, run_server
from bench.report import make_head
from tests.support.postgres_server import PostgresServer

WIKIS = 24
"""Fewer than a node keeps connections, so that no search has to log in."""
SECONDS = 8.0
ROUNDS = 3
CLIENTS = 8


def run(seconds: float = SECONDS) -> None:
    """Measure, and save the result."""
    part = ReportPart("nodes", "Nodes and databases on one machine: searches")
    pages = read_small_pages(DEFAULT)
    with run_server() as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        run_throughput(part, Cluster(Path(place), pages, WIKIS), server, seconds)
    part.save()


def run_throughput(part: ReportPart, cluster: Cluster, server: PostgresServer, seconds: float) -> None:
    """All kinds of clusters run at the same time, with one under load at a time, in turns."""
    one, first, second = (server.create_database() for _ in range(3))
    loads: dict[tuple[str, str], list[Load]] = {}
    with (
        cluster.start_nodes(1, "") as embedded,
        cluster.start_nodes(1, one) as single,
        cluster.start_nodes(2, first, [second]) as double,
    ):
        kinds = {"files, one node": embedded, "one node, one database": single, "one of two nodes, two databases": double[:1], "two nodes, two databases": double}  # fmt: skip
        for nodes in kinds.values():
            run_load([node.port for node in nodes], cluster.get_question, "hybrid", 1.0, CLIENTS)
        for _ in range(ROUNDS):
            for mode in ("hybrid", "keyword"):
                for name, nodes in kinds.items():
                    before = sum(read_cpu_s(node.pid) for node in nodes), read_tree_cpu_s(get_pid(server))
                    load = run_load([node.port for node in nodes], cluster.get_question, mode, seconds, CLIENTS)
                    load.nodes = sum(read_cpu_s(node.pid) for node in nodes) - before[0]
                    load.database = read_tree_cpu_s(get_pid(server)) - before[1]
                    loads.setdefault((mode, name), []).append(load)
    part.add(f"{WIKIS} small wikis, {CLIENTS} clients at once over HTTP for {seconds:.0f} s, {ROUNDS} rounds in turns; clients, nodes and databases share two cores.", "")  # fmt: skip
    for mode in ("hybrid", "keyword"):
        part.add(make_head(f"| {mode} | searches/s | ÷ one node, one database | p50 ms | p95 ms | CPU ms a search: node | database |"))  # fmt: skip
        base = statistics.median(each.rate for each in loads[mode, "one node, one database"])
        for name in kinds:
            part.add(Load.format_row(name, loads[mode, name], base))
        part.add("")
