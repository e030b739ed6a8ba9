"""`python -m tests.crash --rounds 500 --seed 1`: the crash test. `--round 17` repeats one round of a seed.

`--store postgres` uses a PostgreSQL server that the test starts.
"""

import argparse
import ctypes
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.crash_gate import CrashGate
    from tests.crash.postgres.postgres_gate import PostgresCrashGate

_NEW_MOUNTS = 0x00020000


def print_line(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--round", type=int, default=None, metavar="NUMBER")
    parser.add_argument("--store", choices=("files", "postgres"), default="files", help="where the indexes are")
    parser.add_argument("--bug", default="", help="inject this bug and check that it is found")
    parser.add_argument("--operation", default="", help="run only this operation")
    parser.add_argument("--failure", default="", help="cause only this failure")
    parser.add_argument("--each", action="store_true", help="take operations and failures in turn, not at random")
    parser.add_argument("--until", default="", metavar="FAULT", help="end after a round with this text in its fault")
    parser.add_argument("--quiet", action="store_true", help="show only the rounds with faults")
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print_line(f"seed {seed}")
    return _run_crash_rounds(seed, arguments)


def _run_crash_rounds(seed: int, arguments: argparse.Namespace) -> int:
    from tests.crash.crash_round import format_summary

    with tempfile.TemporaryDirectory(prefix="crash-gate-") as directory, ExitStack() as stack:
        Path(directory).chmod(0o755)
        gate = _make_gate(Path(directory) / "rounds", seed, arguments, stack)
        numbers = range(arguments.rounds) if arguments.round is None else [arguments.round]
        chosen = (arguments.operation, arguments.failure)
        pairs = gate.pair_each(max(numbers) + 1) if arguments.each else [chosen] * (max(numbers) + 1)
        results = []
        for number in numbers:
            results.append(gate.run_round(number, *pairs[number]))
            if results[-1].fault or not arguments.quiet:
                print_line(results[-1])
            if arguments.until and arguments.until in results[-1].fault:
                break
    print_line(f"seed {seed}\n{format_summary(results)}")
    return 1 if any(round_.fault for round_ in results) else 0


def _make_gate(
    directory: Path, seed: int, arguments: argparse.Namespace, stack: ExitStack
) -> "CrashGate | PostgresCrashGate":
    if arguments.store == "postgres":
        from tests.crash.postgres.postgres_gate import PostgresCrashGate
        from tests.crash.postgres.round_server import run_restorable_server

        return PostgresCrashGate(directory, stack.enter_context(run_restorable_server()), seed, bug=arguments.bug)
    from tests.crash.crash_gate import CrashGate

    _unshare_mounts()
    return CrashGate(directory, seed, bug=arguments.bug)


def _unshare_mounts() -> None:
    """Use a private mount namespace: mounts of the rounds are invisible to other processes and end with this one."""
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
