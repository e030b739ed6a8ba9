"""PostgreSQL as the store: beside the embedded one, and beside one table for all wikis.

    python -m bench.postgres shared|roles [--write]

Every part starts servers of its own (fsync on, 1 GB of shared buffers) and removes them; what it found is kept in
bench/data/postgres, and `--write` (or `report --write`) joins all parts that were run into bench/results/postgres.md.
Ways that are compared are asked in turns. The machine is shared: compare ratios, not milliseconds.
"""

import argparse

from bench.postgres import roles, shared
from bench.postgres.parts import joined


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.postgres", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"shared": shared.main, "roles": roles.main}
    parser.add_argument("part", choices=[*parts, "report"])
    parser.add_argument("--write", action="store_true", help="write bench/results/postgres.md")
    arguments = parser.parse_args()
    if arguments.part in parts:
        parts[arguments.part]()
    if arguments.write:
        joined(str(__doc__))


if __name__ == "__main__":
    main()
