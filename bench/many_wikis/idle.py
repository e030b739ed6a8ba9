"""CPU time of idle services, with the code of two checkouts: many wikis and one wiki, all at the same time.

    python -m bench.many_wikis.idle --before CHECKOUT [--wikis 1000] [--minutes 4]

Both services of many wikis have the same repositories and an index of their own. Backups and full checks are off, because
they do not run while a service is idle. Prints the CPU seconds per minute of each service, in turns of one minute.
"""

import os
import statistics
import time
from pathlib import Path

from bench.many_wikis.indexing import index_wikis
from bench.many_wikis.repositories import read_small_pages
from bench.many_wikis.wiki_server import WikiServer
from bench.measures import read_cpu_s
from bench.report import DATA, make_parser

MINUTE_S = 60
REST_S = 150
"""Every wiki has had its first check and a second one then."""
QUIET = {"WIKIHOLT_BACKUP_INTERVAL": "0", "WIKIHOLT_CHECK_INTERVAL": "0"}


def main() -> None:
    parser = make_parser(__doc__, "", "collections")
    parser.add_argument("--before", type=Path, required=True, help="another checkout, whose code is measured too")
    parser.add_argument("--wikis", type=int, default=1000)
    parser.add_argument("--minutes", type=int, default=4)
    parser.add_argument("--only-index", action="store_true", help="make the wikis and indexes, and measure nothing")
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before, "after": Path()}
    pages = read_small_pages(arguments.collections)
    places = {
        (name, count): (DATA / "many_wikis" / str(count) / "wikis", DATA / "many_wikis" / str(count) / f"data-{name}")
        for count in (arguments.wikis, 1)
        for name in checkouts
    }
    for (_, count), (wikis, data) in places.items():
        index_wikis(pages, wikis, data, count)
    if not arguments.only_index:
        measure(places, checkouts, arguments.minutes)


def measure(places: dict[tuple[str, int], tuple[Path, Path]], checkouts: dict[str, Path], minutes: int) -> None:
    """Run all services, and print what each uses per minute while idle."""
    print(f"load at the start: {os.getloadavg()[0]:.1f}", flush=True)
    servers: dict[tuple[str, int], WikiServer] = {}
    try:
        for key, (wikis, data) in places.items():
            environment = QUIET | {"PYTHONPATH": str((checkouts[key[0]] / "src").resolve())}
            servers[key] = WikiServer(data, [wikis], data.parent / "idle.log", environment)
        time.sleep(REST_S)
        used: dict[tuple[str, int], list[float]] = {key: [] for key in servers}
        for _ in range(minutes):
            before = {key: read_cpu_s(server.pid) for key, server in servers.items()}
            time.sleep(MINUTE_S)
            for key, server in servers.items():
                used[key].append(read_cpu_s(server.pid) - before[key])
    finally:
        for server in servers.values():
            server.stop()
    (many,) = {count for _, count in places if count > 1}
    for (name, count), seconds in used.items():
        print(f"{name}, {count:,} wikis: {statistics.mean(seconds):.3f} s per minute {[round(s, 2) for s in seconds]}")
    for name in checkouts:
        more = statistics.mean(used[name, many]) - statistics.mean(used[name, 1])
        print(f"{name}: {more / many * 1e3:.3f} ms per wiki and minute, without what a service of one wiki uses")


if __name__ == "__main__":
    main()
