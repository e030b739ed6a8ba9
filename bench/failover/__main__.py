"""Parts of a highly available service are killed and frozen while clients use it.

    python -m bench.failover [--programs DIR] [--wikis 200] [--faults NAME …] [--pace 1.0] [--write]

Two PostgreSQL servers under Patroni, three etcd members, three nodes and HAProxy run on this machine, with the
configuration of deploy/failover. Clients write and find pages, make and revoke keys and create wikis. Nothing that was
acknowledged may be lost, no revoked key may work, no index may have two writers or go back, and no wiki may answer for
another. Seconds are those in which requests of a kind failed, from the first failure to the last.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.failover.audit import Audit
from bench.failover.clients import Clients, Wiki, create_wiki
from bench.failover.database import DatabaseCluster
from bench.failover.faults import FAULTS, Bench, run_fault
from bench.failover.programs import find_programs
from bench.failover.service import Service
from bench.report import make_head, make_parser, publish

SKIPPED = 77
_CREATING_THREADS = 6
_HEAD = "| fault | promotions | etcd elections | search s | write s | key s | 503 | broken | requests ok |"


@contextmanager
def run_bench(programs: dict[str, Path], wikis: int, pace: float) -> Iterator[Bench]:
    """Everything started, with wikis and clients."""
    place = Path(tempfile.mkdtemp(prefix="failover-"))
    place.chmod(0o755)
    cluster = DatabaseCluster(place, programs)
    service = Service(place, programs, cluster.address)
    try:
        cluster.start()
        service.start()
        clients = Clients(service, _create_wikis(service, wikis), pace)
        audit = Audit(cluster.get_superuser_address())
        audit.install()
        clients.start()
        yield Bench(cluster, service, clients, audit)
    except BaseException:
        for log in sorted(place.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
        raise
    finally:
        service.stop()
        cluster.stop()
        shutil.rmtree(place, ignore_errors=True)


def _create_wikis(service: Service, count: int) -> list[Wiki]:
    def create(number: int) -> Wiki:
        wiki = create_wiki(service, f"wiki{number:04d}", lambda _, answer: answer.status in (200, 201))
        assert wiki is not None, number
        return wiki

    with ThreadPoolExecutor(_CREATING_THREADS) as threads:
        return list(threads.map(create, range(count)))


def main() -> int:
    parser = make_parser(__doc__, "failover")
    parser.add_argument("--programs", type=Path, help="directory of etcd and patroni; else PATH")
    parser.add_argument("--wikis", type=int, default=200)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--pace", type=float, default=1.0, help="pauses between requests, as a multiple")
    arguments = parser.parse_args()
    try:
        programs = find_programs(arguments.programs)
    except LookupError as error:
        print(f"skipped: {error}")
        return SKIPPED
    return _measure(arguments, programs)


def _measure(arguments: argparse.Namespace, programs: dict[str, Path]) -> int:
    lines = [make_head(_HEAD)]
    with run_bench(programs, arguments.wikis, arguments.pace) as bench:
        for name in arguments.faults:
            lines.append(run_fault(bench, name))
            print(lines[-1], flush=True)
        bench.clients.stop()
        lost = bench.clients.count_lost()
        outcome, writers = bench.clients.outcome, bench.audit.find_double_writers()
        lines += [
            "",
            f"{len(bench.clients.wikis)} wikis. Requests by result: "
            + ", ".join(f"{kind} {result} {count:,}" for (kind, result), count in sorted(outcome.counts.items()))
            + ".",
            "",
            f"Acknowledged and lost: {dict(lost) or 0}. Double writers: {len(writers)} of {bench.audit.count():,} "
            f"transactions of writers. Wrong answers: {len(outcome.wrong)}. Failures other than 503 and broken "
            f"connections: {dict(outcome.unexpected) or 0}.",
            "",
            "Failures by cause: "
            + ", ".join(f"{name} {count}" for name, count in sorted(outcome.reasons.items()))
            + ".",
        ]
    publish("failover", __doc__, lines, write=arguments.write)
    return int(bool(lost or writers or outcome.wrong or outcome.unexpected))


if __name__ == "__main__":
    sys.exit(main())
