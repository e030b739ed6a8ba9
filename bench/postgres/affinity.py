"""Three nodes behind a proxy: logins a search when any node answers, and when a wiki's requests go to one node."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from bench.collections import DEFAULT
from bench.many_wikis.repositories import read_small_pages
from bench.many_wikis.wiki_server import request_search
from bench.measures import read_cpu_s
from bench.postgres.cluster import Cluster
from bench.postgres.load import Load, read_tree_cpu_s, run_load
from bench.postgres.node import Node
from bench.postgres.parts import ReportPart
from bench.postgres.server import get_pid, run_server
from bench.report import make_head
from tests.support.postgres_server import PostgresServer
from tests.support.programs import find_free_port, run_program

NODES = 3
CONNECTIONS = 12
WIKIS = 24
"""More than a node keeps connections, and fewer than all nodes do."""
SECONDS = 6.0
ROUNDS = 2
CLIENTS = 8
_NGINX = """
pid {place}/nginx.pid;
error_log stderr error;
{user}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    map $uri $wiki {{ default $host; "~^/w/(?<slug>[^/]+)" $slug; }}
    upstream any {{ zone any 64k; least_conn; {servers} keepalive 32; }}
    upstream same {{ zone same 64k; hash $wiki consistent; {servers} keepalive 32; }}
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    server {{ listen 127.0.0.1:{any_port}; location / {{ proxy_pass http://any; }} }}
    server {{ listen 127.0.0.1:{same_port}; location / {{ proxy_pass http://same; }} }}
}}
"""
_HAPROXY = """
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
frontend http
    bind 127.0.0.1:{port}
    http-request set-var(txn.wiki) path,field(3,/)
    default_backend nodes
backend nodes
    balance hash var(txn.wiki)
    hash-type consistent
{servers}
"""


def run(seconds: float = SECONDS) -> None:
    """Measure, and save the result."""
    os.environ["WIKIHOLT_POSTGRES_CONNECTIONS"] = str(CONNECTIONS)
    part = ReportPart("affinity", "Three nodes behind a proxy: logins a search")
    pages = read_small_pages(DEFAULT)
    with run_server(log_connections="on") as server, tempfile.TemporaryDirectory(prefix="bench-") as place:
        cluster = Cluster(Path(place), pages, WIKIS)
        with cluster.start_nodes(NODES, server.create_database()) as nodes, _run_proxies(cluster.place, nodes) as ways:
            _measure(part, cluster, server, nodes, ways, seconds)
    part.save()


@contextmanager
def _run_proxies(place: Path, nodes: Sequence[Node]) -> Iterator[dict[str, int]]:
    """nginx and HAProxy before the nodes: their ports by the way in which they choose a node."""
    any_port, same_port, haproxy_port = (find_free_port() for _ in range(3))
    addresses = [f"127.0.0.1:{node.port}" for node in nodes]
    servers = " ".join(f"server {address};" for address in addresses)
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    nginx, haproxy = place / "nginx", place / "haproxy"
    for directory in (nginx, haproxy):
        directory.mkdir()
    text = _NGINX.format(place=nginx, user=f"user {user};", servers=servers, any_port=any_port, same_port=same_port)
    (nginx / "nginx.conf").write_text(text)
    lines = "\n".join(f"    server node{number} {address}" for number, address in enumerate(addresses))
    (haproxy / "haproxy.cfg").write_text(_HAPROXY.format(port=haproxy_port, servers=lines))
    with (
        run_program(
            ["nginx", "-c", str(nginx / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"],
            nginx,
            [any_port, same_port],
        ),
        run_program(["haproxy", "-db", "-f", str(haproxy / "haproxy.cfg")], haproxy, [haproxy_port]),
    ):
        yield {"nginx, least_conn": any_port, "nginx, hash": same_port, "HAProxy, hash": haproxy_port}


def _measure(
    part: ReportPart,
    cluster: Cluster,
    server: PostgresServer,
    nodes: Sequence[Node],
    ways: dict[str, int],
    seconds: float,
) -> None:
    loads: dict[str, list[Load]] = {}
    logins = dict.fromkeys(ways, 0)
    for _ in range(ROUNDS):
        for name, port in ways.items():
            _search_all(cluster, port)
            before = (
                sum(read_cpu_s(node.pid) for node in nodes),
                read_tree_cpu_s(get_pid(server)),
                _count_logins(server),
            )
            load = run_load([port], cluster.get_question, "hybrid", seconds, CLIENTS)
            load.nodes = sum(read_cpu_s(node.pid) for node in nodes) - before[0]
            load.database = read_tree_cpu_s(get_pid(server)) - before[1]
            logins[name] += _count_logins(server) - before[2]
            loads.setdefault(name, []).append(load)
    part.add(f"{WIKIS} small wikis, {NODES} nodes with {CONNECTIONS} connections each, {CLIENTS} clients at once over HTTP for {seconds:.0f} s, {ROUNDS} rounds in turns; clients, proxies, nodes and database share two cores. Before each round every wiki is searched twice in the same way.", "")  # fmt: skip
    part.add(make_head("| hybrid | logins a search | searches/s | ÷ least_conn | p50 ms | p95 ms | CPU ms a search: nodes | database |"))  # fmt: skip
    base = sum(load.rate for load in loads["nginx, least_conn"]) / ROUNDS
    for name, each in loads.items():
        searches = sum(len(load.times) for load in each)
        row = Load.format_row(name, each, base)
        part.add(row.replace(f"| {name} |", f"| {name} | {logins[name] / searches:.2f} |", 1))
    part.add("")


def _search_all(cluster: Cluster, port: int) -> None:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for slug in cluster.slugs * 2:
            status, document, _ = request_search(connection, slug, "the", "keyword")
            assert status == 200, document


def _count_logins(server: PostgresServer) -> int:
    return len(re.findall(r"connection authorized", (server.place / "log").read_text()))
