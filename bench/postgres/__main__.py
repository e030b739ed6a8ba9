"""PostgreSQL as the store, compared with the embedded store and with one table for all wikis.

    python -m bench.postgres shared|roles|small|growth|large|phrases|nodes|affinity|takeover|agreement [--wikis 1000] [--rounds N] [--write]

Every part starts its own servers (fsync on, 1 GB of shared buffers) and removes them; its result is kept in
bench/data/postgres, and `--write` (or `report --write`) joins all parts that were run into bench/results/postgres.md.
Compared ways run in turns. The machine is shared: compare ratios, not milliseconds.
"""

import argparse
from collections.abc import Callable

from bench.postgres import affinity, agreement, growth, large, nodes, phrases, roles, shared, small, takeover
from bench.postgres.parts import write_results


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.postgres", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts: dict[str, Callable[[argparse.Namespace], None]] = {
        "shared": lambda _: shared.run(),
        "roles": lambda _: roles.run(),
        "small": lambda given: small.run(given.wikis, given.rounds),
        "growth": lambda given: growth.run(given.stages),
        "large": lambda given: large.run(given.sizes),
        "phrases": lambda _: phrases.run(),
        "nodes": lambda _: nodes.run(),
        "affinity": lambda _: affinity.run(),
        "takeover": lambda _: takeover.run(),
        "agreement": lambda _: agreement.run(),
    }
    parser.add_argument("part", choices=[*parts, "report"])
    parser.add_argument("--wikis", type=int, default=1_000, help="how many small wikis")
    parser.add_argument("--sizes", type=int, nargs="+", default=large.SIZES, help="chunks of large wikis")
    parser.add_argument("--stages", type=int, nargs="+", default=growth.STAGES, help="wikis of a growing database")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--write", action="store_true", help="write bench/results/postgres.md")
    arguments = parser.parse_args()
    if arguments.part in parts:
        parts[arguments.part](arguments)
    if arguments.write:
        write_results(str(__doc__))


if __name__ == "__main__":
    main()
