"""Clients that search without pause, and the CPU time this takes."""

import http.client
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.many_wikis.wiki_server import request_search
from bench.measures import get_percentiles_ms

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Load:
    """Answers to clients within some seconds, and the CPU time of nodes and database in that time."""

    seconds: float
    times: list[float]
    nodes: float = 0.0
    database: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    @staticmethod
    def format_row(name: str, loads: Sequence["Load"], base: float) -> str:
        """A line of the table: medians over rounds, and the rate beside another's."""
        rate = statistics.median(load.rate for load in loads)
        p50, p95 = get_percentiles_ms([each for load in loads for each in load.times])
        count = sum(len(load.times) for load in loads)
        node, database = (sum(each) / count * 1e3 for each in zip(*((load.nodes, load.database) for load in loads), strict=True))  # fmt: skip
        return f"| {name} | {rate:.0f} | {rate / base:.2f} | {p50:.1f} | {p95:.1f} | {node:.2f} | {database:.2f} |"


def run_load(
    ports: Sequence[int], question: Callable[[int], tuple[str, str]], mode: str, seconds: float, clients: int
) -> Load:
    """Run `clients` clients, spread over the ports, each with a persistent connection."""
    times: list[list[float]] = [[] for _ in range(clients)]
    failed: list[BaseException] = []
    until = time.perf_counter() + seconds

    def run_client(number: int) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", ports[number % len(ports)], timeout=60)
            turn = number
            while time.perf_counter() < until:
                slug, text = question(turn)
                status, document, took = request_search(connection, slug, text, mode)
                times[number].append(took)
                assert status == 200, document
                assert document["results"], (slug, text)
                turn += clients
            connection.close()
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            failed.append(error)

    threads = [threading.Thread(target=run_client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return Load(seconds, [each for some in times for each in some])


def read_tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all processes it started, also of ended ones."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid:
            total += sum(int(field) for field in fields[11:15]) / _TICKS
        elif int(fields[1]) == pid:
            total += sum(int(field) for field in fields[11:13]) / _TICKS
    return total
