"""Two nodes over two databases beside one: searches a second, what a search costs, and who goes on after a kill."""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from bench.collections import DEFAULT
from bench.corpus import BareWiki
from bench.farm.wikis import SmallPage, chosen, slug, small_pages, write_repositories
from bench.postgres.load import Load, cpu_below, hammered
from bench.postgres.node import Node
from bench.postgres.parts import Part
from bench.postgres.server import pid_of, started
from bench.postgres.shared import Database
from tests.postgres.pg_server import PgServer

WIKIS = 40
SECONDS = 8.0
ROUNDS = 3
CLIENTS = 8
TRIES = 3
LEASES = (5.0, 15.0)


class Farm:
    """Wikis, their repositories, and what nodes are started with."""

    def __init__(self, place: Path, pages: Sequence[SmallPage], wikis: int) -> None:
        self.place, self.pages, self.wikis = place, pages, wikis
        self.repositories = list(write_repositories(pages, place / "wikis", wikis))
        self._made = 0

    @contextmanager
    def nodes(self, count: int, store: str, others: Sequence[str] = (), lease: float = 15.0) -> Iterator[list[Node]]:
        """So many nodes over a store that holds all wikis at their HEAD."""
        with ExitStack() as stack:
            data = [self._data(store, lease) for _ in range(count)]
            for number, other in enumerate(others):
                Node.run(data[0], "database", "add", f"db{number}", other)
            nodes: list[Node] = []
            stack.callback(lambda: [node.end() for node in nodes])
            for each in data:
                nodes.append(Node(each, [self.place / "wikis"], self.place / "log"))
                nodes[-1].until_all(self.slugs)
            yield nodes

    @property
    def slugs(self) -> list[str]:
        return [slug(number) for number in range(self.wikis)]

    def question(self, number: int) -> tuple[str, str]:
        """A wiki and a question it answers."""
        wiki = number % self.wikis
        mine = chosen(self.pages, wiki)
        return slug(wiki), mine[number % len(mine)].title

    def _data(self, store: str, lease: float) -> Path:
        self._made += 1
        data = self.place / f"node{self._made}"
        data.mkdir()
        lines = [f'store = "{store}"', "[postgres]", f"lease = {lease}"] if store else []
        (data / "wikiholt.toml").write_text("\n".join([*lines, "[sync]", "interval = 2.0", ""]))
        return data


def main(seconds: float = SECONDS, tries: int = TRIES) -> None:
    """Measure throughput, then take-overs, and keep what was found."""
    part = Part("nodes", "Nodes and databases on one machine")
    pages = small_pages(DEFAULT)
    with started() as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        throughput(part, Farm(Path(place), pages, WIKIS), server, seconds)
        for lease in LEASES:
            takeovers(part, Farm(Path(place), pages, WIKIS), server, lease, tries)
    part.keep()


def throughput(part: Part, farm: Farm, server: PgServer, seconds: float) -> None:
    """All kinds of farm at the same time, one under load at a time, in turns."""
    one, first, second = (server.new_database() for _ in range(3))
    loads: dict[tuple[str, str], list[Load]] = {}
    with (
        farm.nodes(1, "") as embedded,
        farm.nodes(1, one) as single,
        farm.nodes(2, first, [second]) as double,
    ):
        kinds = {"files, one node": embedded, "one node, one database": single, "one of two nodes, two databases": double[:1], "two nodes, two databases": double}  # fmt: skip
        for nodes in kinds.values():
            hammered([node.port for node in nodes], farm.question, "hybrid", 1.0, CLIENTS)
        for _ in range(ROUNDS):
            for mode in ("hybrid", "keyword"):
                for name, nodes in kinds.items():
                    before = sum(node.cpu() for node in nodes), cpu_below(pid_of(server))
                    load = hammered([node.port for node in nodes], farm.question, mode, seconds, CLIENTS)
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


def takeovers(part: Part, farm: Farm, server: PgServer, lease: float, tries: int) -> None:
    """Two nodes share the wikis; one is killed, then a page is committed to every wiki that was its."""
    store = server.new_database()
    claimed: list[float] = []
    found: list[tuple[float, float]] = []
    with farm.nodes(2, store, lease=lease) as nodes, psycopg.connect(store, autocommit=True) as database:
        for turn in range(tries):
            # Which of the two ids is the one that will die shows when its process is new.
            before = set(_until_shared(database, farm.wikis))
            nodes[0].end()
            nodes[0] = nodes[0].again()
            shares = _until_shared(database, farm.wikis, but=before)
            (lost,) = (shares[node] for node in set(shares) - before)
            word, began = f"quokka{lease:.0f}x{turn}", time.perf_counter()
            nodes[0].kill()
            _commit(farm, lost, word)
            claimed.append(_until_claimed(database, farm.wikis) - began)
            found.append(_until_found(nodes[1], lost, word, began))
            nodes[0] = nodes[0].again()
    told = ", ".join(f"{each:.1f}" for each in claimed)
    pages = ", ".join(f"{first:.1f} to {last:.1f}" for first, last in found)
    part.say(
        f"Lease {lease:g} s, {tries} times: all wikis of a killed node were the other's after {told} s; pages committed "
        f"to each of them were found through it {pages} s after the kill (first wiki to last; looked at every 2 s).",
        "",
    )


def _shares(database: Database) -> dict[str, set[str]]:
    """The slugs of the wikis each node has."""
    rows = database.execute(
        "SELECT node, slug FROM wikiholt.work JOIN wikiholt.wikis ON id = wiki_id WHERE node IS NOT NULL"
    )
    shares: dict[str, set[str]] = {}
    for node, name in rows.fetchall():
        shares.setdefault(node, set()).add(name)
    return shares


def _until_shared(database: Database, wikis: int, but: Set[str] = frozenset()) -> dict[str, set[str]]:
    """Until two nodes have half of the wikis each, and these two are not the same as before."""
    until = time.monotonic() + 120
    while (shares := _shares(database)).keys() == but or sorted(map(len, shares.values())) != [
        wikis // 2,
        wikis - wikis // 2,
    ]:
        assert time.monotonic() < until, shares
        time.sleep(0.1)
    return shares


def _until_claimed(database: Database, wikis: int) -> float:
    until = time.monotonic() + 120
    while [len(each) for each in _shares(database).values()] != [wikis]:
        assert time.monotonic() < until
        time.sleep(0.02)
    return time.perf_counter()


def _commit(farm: Farm, wikis: Set[str], word: str) -> None:
    for name in wikis:
        BareWiki(farm.place / "wikis" / f"{name}.git").edit(f"{word}.md", f"# News\n\nThe {word} is here.\n")


def _until_found(node: Node, lost: Set[str], word: str, began: float) -> tuple[float, float]:
    """Until the page is found in each of these wikis; seconds to the first and to the last."""
    times: list[float] = []
    left, until = set(lost), time.monotonic() + 120
    while left:
        for name in sorted(left):
            if node.finds(name, word):
                left.discard(name)
                times.append(time.perf_counter() - began)
        assert time.monotonic() < until, left
        time.sleep(0.05)
    return min(times), max(times)
