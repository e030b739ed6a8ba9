"""Searches over HTTP: rate and latency with 1, 8 and 64 concurrent clients on loopback.

    python -m bench.http [--peer PYTHON] [--write]

Beside markdown-vault-mcp (PYTHON of an environment made from bench/requirements-vault.txt; its MCP tool `search` over
streamable HTTP, the same pages, the same queries; its model is all-MiniLM-L6-v2), beside a handler of the same web framework
that searches nothing, and beside the search itself in one process. All get requests in turns of a few seconds, so that the
ratios hold on a noisy machine. The wiki is wiki-dendron, 1,017 pages; the queries are its old titles.
"""

import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.collections import read_queries, write_repository
from bench.http.clients import BareClient, Client, VaultClient, WikiholtClient, run_clients
from bench.measures import measure_seconds, wait_until
from bench.peers import find_carrier
from bench.report import DATA, make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.search.request import SearchRequest

COLLECTION = "wiki-dendron"
CLIENTS = (1, 8, 64)
HOME = DATA / "http"
SERVE = [str(Path(sys.executable).with_name("wikiholt")), "--data", str(HOME / "ours"), "serve"]
Target = tuple[str, str, Callable[[], Client]]


def main() -> None:
    parser = make_parser(__doc__, "http", "collections")
    parser.add_argument("--peer", type=Path, help="the Python that markdown-vault-mcp is installed in")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a turn lasts")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    repository, queries = prepare_collection(arguments.collections)
    rows = [f"Load of the machine at the start: {os.getloadavg()[0]:.1f}. {len(queries)} queries.", ""]
    rows += run_in_process(repository, queries)
    with ExitStack() as stack:
        targets = start_targets(stack, arguments.peer, repository)
        for _, mode, make in targets:  # warm
            run_clients(make, 2, 2.0, queries, mode)
        rows += run_rounds(targets, queries, arguments.seconds, arguments.rounds)
    publish("http", __doc__, rows, write=arguments.write)


def prepare_collection(collections: Path) -> tuple[Path, list[str]]:
    """The repository of the collection, and its queries."""
    repository = DATA / "collections" / f"{COLLECTION}.git"
    write_repository(collections / COLLECTION, repository)
    kinds = read_queries(collections / COLLECTION)
    return repository, [text for kind in kinds if kind.kind == "oldtitle" for text in kind.texts.values()]


def run_in_process(repository: Path, queries: list[str]) -> list[str]:
    """Index the wiki, unless that was done, and search it without any network between."""
    service = open_service(HOME / "ours")
    if not service.list_wikis():
        service.add(COLLECTION, str(repository.resolve()), {})
    service.get_handle(COLLECTION).sync()
    figures = []
    for mode in (SearchMode.HYBRID, SearchMode.KEYWORD):
        times = []
        for query in [*queries[:20], *queries]:
            request = SearchRequest(query, 5, mode)
            times.append(measure_seconds(service.get_handle(COLLECTION).search, request))
        figures.append(f"{mode} p50 {statistics.median(times[20:]) * 1e3:.2f} ms")
    service.close()
    return [f"The search itself, in one process, one at a time: {', '.join(figures)}.", ""]


def start_targets(stack: ExitStack, peer: Path | None, repository: Path) -> list[Target]:
    ours, bare = get_free_port(), get_free_port()
    stack.enter_context(run_server([*SERVE, "--port", str(ours)], ours))
    stack.enter_context(run_server([sys.executable, "-m", "bench.http.empty_handler", str(bare), "6000"], bare))
    targets: list[Target] = [
        ("Wikiholt", "hybrid", lambda: WikiholtClient(ours)),
        ("Wikiholt", "keyword", lambda: WikiholtClient(ours)),
        ("a handler that searches nothing", "", lambda: BareClient(bare)),
    ]
    if peer is not None:
        vault = get_free_port()
        stack.enter_context(run_server(_make_peer_command(peer, repository, vault), vault))
        targets += [
            ("markdown-vault-mcp 5.1", "hybrid", lambda: VaultClient(vault)),
            ("markdown-vault-mcp 5.1", "keyword", lambda: VaultClient(vault)),
        ]
    return targets


def _make_peer_command(peer: Path, repository: Path, port: int) -> list[str]:
    """The peer's command, once its own index of the same pages is made."""
    pages, state = (HOME / name for name in ("pages", "vault"))
    if not pages.exists():
        subprocess.run(["git", "clone", "-q", str(repository), str(pages)], check=True)
    here = Path(__file__).with_name("vault_peer.py")
    state.mkdir(parents=True, exist_ok=True)
    command = [str(peer), str(here), str(pages.resolve()), str(state.resolve()), str(find_carrier())]
    if not (state / "index.db").exists():
        subprocess.run([*command, "index"], check=True)
    return [*command, "serve", str(port)]


@contextmanager
def run_server(command: list[str], port: int) -> Iterator["subprocess.Popen[bytes]"]:
    with (HOME / "servers.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"WIKIHOLT_LIMIT_ADDRESS_PER_MINUTE": "0"}
        )
        try:
            wait_until(lambda: _is_listening(port, process), 120, 0.2)
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _is_listening(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it ended; see bench/data/http/servers.log"
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def get_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def run_rounds(targets: list[Target], queries: list[str], seconds: float, rounds: int) -> list[str]:
    rows = [make_head("| clients | service | mode | requests/s | p50 ms | p95 ms | p99 ms |")]
    ratios = []
    for clients in CLIENTS:
        times: dict[tuple[str, str], list[float]] = {}
        lasted: dict[tuple[str, str], float] = {}
        for _ in range(rounds):
            for name, mode, make in targets:
                taken, wall = run_clients(make, clients, seconds, queries, mode)
                times.setdefault((name, mode), []).extend(taken)
                lasted[name, mode] = lasted.get((name, mode), 0.0) + wall
        rates = {target: len(taken) / lasted[target] for target, taken in times.items()}
        for (name, mode), taken in times.items():
            spread = statistics.quantiles(taken, n=100)
            p50, p95, p99 = (spread[at] * 1e3 for at in (49, 94, 98))
            rate = rates[name, mode]
            rows.append(f"| {clients} | {name} | {mode} | {rate:,.0f} | {p50:.1f} | {p95:.1f} | {p99:.1f} |")
        for mode in ("hybrid", "keyword"):
            peer = rates.get(("markdown-vault-mcp 5.1", mode))
            if peer:
                ratio = rates["Wikiholt", mode] / peer
                ratios.append(f"{clients} clients, {mode}: {ratio:.1f} × the requests a second of markdown-vault-mcp")
    return [*rows, "", *(f"- {ratio}" for ratio in ratios)]


if __name__ == "__main__":
    main()
