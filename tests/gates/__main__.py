"""`python tests/gates --rounds 500 --seed 1`: the crash gate in its long form. `--only 17` plays one round again."""

import argparse
import sys
import tempfile
from pathlib import Path
from random import SystemRandom


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None, metavar="ROUND")
    parser.add_argument("--quiet", action="store_true", help="show the rounds with faults only")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))
    from crash import Gate, figures

    seed = SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="crash-gate-") as directory:
        gate = Gate(Path(directory) / "rounds", seed)
        numbers = range(arguments.rounds) if arguments.only is None else [arguments.only]
        played = []
        for number in numbers:
            played.append(gate.play(number))
            if played[-1].fault or not arguments.quiet:
                say(played[-1])
    say(f"seed {seed}\n{figures(played)}")
    return 1 if any(each.fault for each in played) else 0


if __name__ == "__main__":
    sys.exit(main())
