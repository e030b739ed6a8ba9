"""`python -m tests.fuzz --minutes 30` runs all fuzz targets in turn until the time is over; `--only` selects one."""

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
    parser.add_argument("--examples", type=int, default=300, help="examples of one target before the next one runs")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    from tests.fuzz.runner import ALL_TARGETS, run_target

    names = arguments.only or list(ALL_TARGETS)
    number = SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    print_line(f"seed {number}")
    end = time.monotonic() + 60 * arguments.minutes
    runs = dict.fromkeys(names, 0)
    findings: dict[str, str] = {}
    while time.monotonic() < end and (remaining := [name for name in names if name not in findings]):
        for name in remaining:
            if time.monotonic() >= end:
                break
            found = run_target(name, arguments.examples, number)
            runs[name] += 1
            if found:
                findings[name] = found
                print_line(f"FOUND {found}")
        number += 1
    for name in names:
        print_line(
            f"{name:16} {runs[name] * arguments.examples:>9,} examples  {'FOUND' if name in findings else 'passed'}"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
