"""What is killed and frozen, and how long requests fail for it."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.failover.audit import Audit
from bench.failover.clients import Clients
from bench.failover.database import DatabaseCluster, DatabaseServer
from bench.failover.programs import Program
from bench.failover.service import Service
from bench.measures import wait_until

_FROZEN_S = 40.0
"""Longer than Patroni's ttl, so that a frozen primary is replaced and comes back as a former one."""
_CALM_S = 5.0
_RECOVERED_S = 180.0
_KINDS = {"search": ("search", "at_least", "status"), "write": ("write",), "key": ("key", "wiki")}


@dataclass
class Bench:
    """Everything that runs."""

    cluster: DatabaseCluster
    service: Service
    clients: Clients
    audit: Audit


def run_fault(bench: Bench, name: str) -> str:
    """Cause a fault, undo it, wait until all is well; returns a row of the report."""
    outcome = bench.clients.outcome
    time.sleep(_CALM_S)
    timeline, term = bench.cluster.read_timeline(), bench.cluster.read_etcd_term()
    counts, began = outcome.counts.copy(), time.monotonic()
    FAULTS[name](bench)
    wait_until(bench.cluster.is_synchronous, _RECOVERED_S)
    wait_until(lambda: all(_is_answering(bench.service, port) for port in bench.service.ports), _RECOVERED_S)
    time.sleep(_CALM_S)
    new = outcome.counts - counts
    results = [sum(count for (_, result), count in new.items() if result == each) for each in ("503", "broken", "ok")]
    spans = [f"{_measure_failures(bench.clients, kinds, began):.1f}" for kinds in _KINDS.values()]
    promotions = bench.cluster.read_timeline() - timeline
    elections = bench.cluster.read_etcd_term() - term
    return f"| {name} | {promotions} | {elections} | {' | '.join(spans)} | {' | '.join(map(str, results))} |"


def _measure_failures(clients: Clients, kinds: tuple[str, ...], since: float) -> float:
    """Seconds from the first failure of these kinds to the last."""
    times = [at for at, kind in list(clients.outcome.failures) if at >= since and kind in kinds]
    return times[-1] - times[0] if times else 0.0


def _is_answering(service: Service, port: int) -> bool:
    return service.ask("GET", "/readyz", port=port).status == 200


def _find(server: DatabaseServer | None) -> DatabaseServer:
    assert server is not None
    return server


def _kill_primary(bench: Bench) -> None:
    """The whole machine."""
    server, timeline = _find(bench.cluster.find_primary()), bench.cluster.read_timeline()
    server.kill()
    wait_until(lambda: bench.cluster.read_timeline() > timeline, _RECOVERED_S)
    time.sleep(_CALM_S)
    server.recover()


def _kill_postgres(bench: Bench) -> None:
    """PostgreSQL alone: Patroni starts it again or promotes the standby."""
    _find(bench.cluster.find_primary()).kill(patroni=False)
    time.sleep(_CALM_S)


def _kill_patroni(bench: Bench) -> None:
    """Patroni alone: its PostgreSQL goes on as a former primary, because nothing demotes it."""
    server, timeline = _find(bench.cluster.find_primary()), bench.cluster.read_timeline()
    server.kill(postgres=False)
    wait_until(lambda: bench.cluster.read_timeline() > timeline, _RECOVERED_S)
    time.sleep(20)
    server.recover()


def _freeze_primary(bench: Bench) -> None:
    _freeze_server(_find(bench.cluster.find_primary()))


def _kill_standby(bench: Bench) -> None:
    server = _find(bench.cluster.find_standby())
    server.kill()
    time.sleep(_FROZEN_S)
    server.recover()


def _freeze_standby(bench: Bench) -> None:
    _freeze_server(_find(bench.cluster.find_standby()))


def _freeze_server(server: DatabaseServer) -> None:
    server.send(signal.SIGSTOP)
    time.sleep(_FROZEN_S)
    server.recover()


def _list_leader_first(bench: Bench) -> list[Program]:
    leader = bench.cluster.find_etcd_leader() or 0
    return bench.cluster.members[leader:] + bench.cluster.members[:leader]


def _kill_etcd_leader(bench: Bench) -> None:
    member = _list_leader_first(bench)[0]
    member.kill()
    time.sleep(20)
    member.start()


def _freeze_etcd_leader(bench: Bench) -> None:
    member = _list_leader_first(bench)[0]
    member.send(signal.SIGSTOP)
    time.sleep(20)
    member.send(signal.SIGCONT)


def _kill_etcd(bench: Bench) -> None:
    """All members: Patroni's failsafe mode keeps the primary."""
    for member in bench.cluster.members:
        member.kill()
    time.sleep(_FROZEN_S)
    for member in bench.cluster.members:
        member.start()


def _kill_node(bench: Bench) -> None:
    node = bench.service.nodes[1]
    node.kill()
    time.sleep(20)
    node.start()


def _replace_node(bench: Bench) -> None:
    """End a node as an operator does, and start one with an empty data directory."""
    node = bench.service.nodes[0]
    node.stop()
    time.sleep(_CALM_S)
    bench.service.empty_data(node)
    node.start()
    wait_until(lambda: _is_answering(bench.service, bench.service.ports[1]), _RECOVERED_S)
    time.sleep(_CALM_S)


def _freeze_node(bench: Bench) -> None:
    node = bench.service.nodes[2]
    node.send(signal.SIGSTOP)
    time.sleep(25)
    node.send(signal.SIGCONT)


FAULTS: dict[str, Callable[[Bench], None]] = {
    "primary killed": _kill_primary,
    "primary frozen 40 s": _freeze_primary,
    "primary's PostgreSQL killed": _kill_postgres,
    "primary's Patroni killed": _kill_patroni,
    "standby killed": _kill_standby,
    "standby frozen 40 s": _freeze_standby,
    "etcd leader killed": _kill_etcd_leader,
    "etcd leader frozen": _freeze_etcd_leader,
    "all of etcd killed 40 s": _kill_etcd,
    "node killed": _kill_node,
    "node frozen 25 s": _freeze_node,
    "node replaced": _replace_node,
}
