"""`python -m tests.fuzz --minutes 30`: all fuzz targets in turn, until the time is over. `--only NAME` takes one,
`--coverage` lets atheris (if it is installed) look for inputs that reach new code."""

import argparse
import sys
import time
from random import SystemRandom


def print_line(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--examples", type=int, default=300, help="of one target before the next one's turn")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--coverage", action="store_true")
    arguments = parser.parse_args()
    if arguments.coverage:
        from tests.fuzz.coverage_guided import run_coverage_guided

        return run_coverage_guided((arguments.only or ["markdown"])[0], arguments.minutes)
    from tests.fuzz.runner import ALL_TARGETS, make_campaign

    names = arguments.only or list(ALL_TARGETS)
    number = SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    print_line(f"seed {number}")
    end = time.monotonic() + 60 * arguments.minutes
    turns = dict.fromkeys(names, 0)
    findings: dict[str, str] = {}
    while time.monotonic() < end and (waiting := [name for name in names if name not in findings]):
        for name in waiting:
            if time.monotonic() >= end:
                break
            found = make_campaign(name, arguments.examples, number)
            turns[name] += 1
            if found:
                findings[name] = found
                print_line(f"FOUND {found}")
        number += 1
    for name in names:
        print_line(
            f"{name:16} {turns[name] * arguments.examples:>9,} examples  {'FOUND' if name in findings else 'held'}"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
