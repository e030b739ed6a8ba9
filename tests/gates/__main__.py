"""`python tests/gates --rounds 500 --seed 1`: the crash gate. `--round 17` plays one round of a seed again."""

import argparse
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

_NEW_MOUNTS = 0x00020000


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--round", type=int, default=None, metavar="NUMBER")
    parser.add_argument("--real", action="store_true", help="with the model the product comes with")
    parser.add_argument("--bug", default="", help="put this bug into the product and see whether it is found")
    parser.add_argument("--deed", default="", help="have only this done")
    parser.add_argument("--blow", default="", help="let only this happen")
    parser.add_argument("--quiet", action="store_true", help="show the rounds with faults only")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))
    from crash import Gate
    from crash_round import figures
    from farm import REAL

    _own_mounts()
    seed = SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="crash-gate-") as directory:
        Path(directory).chmod(0o755)
        gate = Gate(
            Path(directory) / "rounds",
            seed,
            model=REAL if arguments.real else "fake",
            pages=10 if arguments.real else 40,
            bug=arguments.bug,
        )
        numbers = range(arguments.rounds) if arguments.round is None else [arguments.round]
        played = []
        for number in numbers:
            played.append(gate.play(number, arguments.deed, arguments.blow))
            if played[-1].fault or not arguments.quiet:
                say(played[-1])
    say(f"seed {seed}\n{figures(played)}")
    return 1 if any(each.fault for each in played) else 0


def _own_mounts() -> None:
    """Small disks that rounds mount are seen by nobody else and go with this process, whatever ends it."""
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
