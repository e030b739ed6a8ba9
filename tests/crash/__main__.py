"""`python tests/gates --rounds 500 --seed 1`: the crash gate. `--round 17` plays one round of a seed again.

With `--store postgres` the same over a PostgreSQL that the gate starts. With `--damage` nothing is killed: each round
damages one file of a data directory, and judges the answers before the next sync and after it.
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
    parser.add_argument("--real", action="store_true", help="with the model the product comes with")
    parser.add_argument("--bug", default="", help="put this bug into the product and see whether it is found")
    parser.add_argument("--operation", default="", help="have only this done")
    parser.add_argument("--failure", default="", help="let only this happen")
    parser.add_argument("--damage", action="store_true", help="play rounds of damage to files instead")
    parser.add_argument("--quiet", action="store_true", help="show the rounds with faults only")
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print_line(f"seed {seed}")
    return _play_damage(seed, arguments) if arguments.damage else _play(seed, arguments)


def _play(seed: int, arguments: argparse.Namespace) -> int:
    from tests.crash.crash_round import format_summary

    with tempfile.TemporaryDirectory(prefix="crash-gate-") as directory, ExitStack() as stack:
        Path(directory).chmod(0o755)
        gate = _make_gate(Path(directory) / "rounds", seed, arguments, stack)
        numbers = range(arguments.rounds) if arguments.round is None else [arguments.round]
        played = []
        for number in numbers:
            played.append(gate.run_round(number, arguments.operation, arguments.failure))
            if played[-1].fault or not arguments.quiet:
                print_line(played[-1])
    print_line(f"seed {seed}\n{format_summary(played)}")
    return 1 if any(each.fault for each in played) else 0


def _play_damage(seed: int, arguments: argparse.Namespace) -> int:
    from tests.crash.damage_rounds import DamageRounds, count_faults

    with tempfile.TemporaryDirectory(prefix="damage-") as directory:
        rounds = DamageRounds(Path(directory) / "rounds", seed)
        numbers = range(arguments.rounds) if arguments.round is None else [arguments.round]
        played = []
        for number in numbers:
            played.append(rounds.play(number))
            if played[-1].fault or not arguments.quiet:
                print_line(played[-1])
    print_line(f"seed {seed}\n{count_faults(played)}; {rounds.cases} kinds of damage")
    return 1 if any(each.fault for each in played) else 0


def _make_gate(
    place: Path, seed: int, arguments: argparse.Namespace, stack: ExitStack
) -> "CrashGate | PostgresCrashGate":
    if arguments.store == "postgres":
        from tests.crash.postgres.postgres_gate import PostgresCrashGate
        from tests.crash.postgres.round_server import run_restorable_server

        return PostgresCrashGate(place, stack.enter_context(run_restorable_server()), seed, bug=arguments.bug)
    from tests.crash.crash_gate import CrashGate
    from tests.support.services import REAL_MODEL

    _unshare_mounts()
    model, pages = (REAL_MODEL, 10) if arguments.real else ("fake", 40)
    return CrashGate(place, seed, model=model, pages=pages, bug=arguments.bug)


def _unshare_mounts() -> None:
    """Small disks that rounds mount are seen by nobody else and go with this process, whatever ends it."""
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
