"""`wikiholt serve` under mixed load: searches, writes, pushes, reindexes, backups, keys, added and removed wikis,
SIGTERM and SIGKILL.

    python -m bench.soak --minutes 60 --write
    python -m bench.soak --minutes 5 --wikis 200

Two hundred small wikis (small real pages in real git repositories, each with a key for reading and one for everything) behind
one process, with requests over HTTP on loopback at a rate for two cores. In the first part the process is stopped and
killed; then it runs on and is measured at regular points. Exits with 1 on any fault.
"""

import shlex
import sys
from pathlib import Path

from bench.report import DATA, make_parser, publish
from bench.soak.plan import Plan
from bench.soak.report import format_report
from bench.soak.runner import Soak
from bench.soak.wikis import load_pages


def main() -> int:
    parser = make_parser(__doc__, "soak", "collections")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--wikis", type=int, default=200)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two checks of a repository")
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--points", type=int, default=12, help="how often the last life is measured")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, default=DATA / "soak", help="working directory; emptied first")
    parser.add_argument("--program", default="", help="another program instead of wikiholt")
    parser.add_argument("--note", default="", help="a sentence about the circumstances, for the report")
    arguments = parser.parse_args()
    plan = Plan(
        arguments.minutes * 60, arguments.wikis, interval=arguments.interval, restarts=arguments.restarts,
        points=arguments.points, seed=arguments.seed,
    )  # fmt: skip
    home = arguments.home.absolute()  # git is run in other directories
    program = shlex.split(arguments.program) or [str(Path(sys.executable).with_name("wikiholt"))]
    if home.exists() and not (home / "serve.log").exists() and any(home.iterdir()):
        parser.error(f"{home} is not the directory of an earlier soak, and would be emptied")
    outcome = Soak(plan, home, load_pages(arguments.collections), program).run()
    publish("soak", __doc__, format_report(outcome), write=arguments.write, note=arguments.note)
    return 1 if outcome.find_faults() else 0


if __name__ == "__main__":
    sys.exit(main())
