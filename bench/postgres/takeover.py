"""Two nodes share the wikis, and one is killed: the time until the other has all wikis and has indexed them."""

import tempfile
import time
from collections.abc import Set
from pathlib import Path

import psycopg

from bench.collections import DEFAULT
from bench.corpus import BareWiki
from bench.many_wikis.repositories import read_small_pages
from bench.measures import wait_until
from bench.postgres.cluster import Cluster
from bench.postgres.node import Node
from bench.postgres.parts import ReportPart
from bench.postgres.server import run_server
from bench.postgres.shared import Database
from tests.support.postgres_server import PostgresServer

WIKIS = 40
TRIES = 3
LEASES = (5.0, 15.0)


def run(tries: int = TRIES) -> None:
    """Kill a node `tries` times with each lease, and save the result."""
    part = ReportPart("takeover", "A node killed with SIGKILL")
    with run_server() as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        cluster = Cluster(Path(place), read_small_pages(DEFAULT), WIKIS)
        for lease in LEASES:
            run_takeovers(part, cluster, server, lease, tries)
    part.save()


def run_takeovers(part: ReportPart, cluster: Cluster, server: PostgresServer, lease: float, tries: int) -> None:
    """Two nodes share the wikis; one is killed, then a page is committed to each of its wikis."""
    store = server.create_database()
    claimed: list[float] = []
    found: list[tuple[float, float]] = []
    with cluster.start_nodes(2, store, lease=lease) as nodes, psycopg.connect(store, autocommit=True) as database:
        for turn in range(tries):
            # A new process has a new id, which shows which of the two will be killed.
            before = set(_wait_until_shared(database, cluster.wikis))
            nodes[0].stop_if_running()
            nodes[0] = nodes[0].start_again()
            shares = _wait_until_shared(database, cluster.wikis, but=before)
            (lost,) = (shares[node] for node in set(shares) - before)
            word, began = f"quokka{lease:.0f}x{turn}", time.perf_counter()
            nodes[0].kill()
            _commit_pages(cluster, lost, word)
            claimed.append(_wait_until_claimed(database, cluster.wikis) - began)
            found.append(_wait_until_found(nodes[1], lost, word, began))
            nodes[0] = nodes[0].start_again()
    text = ", ".join(f"{each:.1f}" for each in claimed)
    pages = ", ".join(f"{first:.1f} to {last:.1f}" for first, last in found)
    part.add(
        f"Lease {lease:g} s, {tries} times: the other node had all wikis of the killed one after {text} s; pages committed "
        f"to each of them were found through it {pages} s after the kill (first wiki to last; checked every 2 s).",
        "",
    )


def _read_shares(database: Database) -> dict[str, set[str]]:
    """The slugs of the wikis each node has."""
    rows = database.execute(
        "SELECT node, slug FROM wikiholt.work JOIN wikiholt.wikis ON id = wiki_id WHERE node IS NOT NULL"
    )
    shares: dict[str, set[str]] = {}
    for node, name in rows.fetchall():
        shares.setdefault(node, set()).add(name)
    return shares


def _wait_until_shared(database: Database, wikis: int, but: Set[str] = frozenset()) -> dict[str, set[str]]:
    """Wait until two nodes have half of the wikis each, and are not the same two as before."""
    halves = [wikis // 2, wikis - wikis // 2]

    def is_shared() -> bool:
        shares = _read_shares(database)
        return shares.keys() != but and sorted(map(len, shares.values())) == halves

    wait_until(is_shared, 120)
    return _read_shares(database)


def _wait_until_claimed(database: Database, wikis: int) -> float:
    wait_until(lambda: [len(each) for each in _read_shares(database).values()] == [wikis], 120, 0.02)
    return time.perf_counter()


def _commit_pages(cluster: Cluster, wikis: Set[str], word: str) -> None:
    for name in wikis:
        BareWiki(cluster.place / "wikis" / f"{name}.git").write_page(f"{word}.md", f"# News\n\nThe {word} is here.\n")


def _wait_until_found(node: Node, lost: Set[str], word: str, began: float) -> tuple[float, float]:
    """Wait until the page is found in each of these wikis; returns the seconds to the first and to the last."""
    times: list[float] = []
    left = set(lost)

    def has_all() -> bool:
        for name in sorted(left):
            if node.has_page(name, word):
                left.discard(name)
                times.append(time.perf_counter() - began)
        return not left

    wait_until(has_all, 120, 0.05)
    return min(times), max(times)
