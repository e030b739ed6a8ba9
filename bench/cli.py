"""The cost of starting a command: CPU time (user and system, with child processes) and elapsed time.

    python -m bench.cli [--rounds N] [--write]

Every command runs once per round, in turns with `python -c pass` and `git --version`, so that the ratios hold on a noisy
machine. The figures are medians. `search` runs in the folder of an indexed wiki with nothing to sync: in the process
itself, and through a running `serve` of the same data directory.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import make_head, make_parser, publish
from wikiholt.interfaces.cli.demo_command import write_demo_wikis

PYTHON = [sys.executable]
WIKIHOLT = [*PYTHON, "-c", "import sys; from wikiholt.interfaces.cli.main import main; sys.exit(main())"]
QUERY = ["search", "when", "may", "I", "light", "a", "fire", "-n", "1"]


def main() -> None:
    parser = make_parser(__doc__, "cli")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    subprocess.run([*PYTHON, "-m", "compileall", "-q", str(Path(__file__).parents[1] / "src")], check=True)
    with tempfile.TemporaryDirectory() as place:
        rows = measure(Path(place), arguments.rounds)
    publish("cli", __doc__, rows, write=arguments.write)


def measure(place: Path, rounds: int) -> list[str]:
    """The table of all commands."""
    folder = write_demo_wikis(place / "wikis")["allotment"]
    data = ["--data", str(place / "data"), "--set", "search.keep_warm=0"]
    subprocess.run([*WIKIHOLT, *data, *QUERY], cwd=folder, check=True, capture_output=True)
    commands = {
        "`git --version`": ["git", "--version"],
        "`python -c pass`": [*PYTHON, "-c", "pass"],
        "`wikiholt --version`": [*WIKIHOLT, "--version"],
        "`wikiholt --help`": [*WIKIHOLT, "--help"],
        "`wikiholt list`": [*WIKIHOLT, *data, "list"],
        "`wikiholt search …`, in the process": [*WIKIHOLT, *data, *QUERY],
        "the same, `--mode keyword`": [*WIKIHOLT, *data, *QUERY, "--mode", "keyword"],
    }
    figures = run_in_turns(commands, folder, rounds)
    with run_service(data):
        served = {"`wikiholt search …`, through `serve`": [*WIKIHOLT, *data, *QUERY]}
        figures |= run_in_turns({"`python -c pass`": commands["`python -c pass`"], **served}, folder, rounds)
    base = figures["`python -c pass`"][0]
    head = [make_head("| command | CPU ms | ÷ `python -c pass` | elapsed ms |")]
    return head + [
        f"| {name} | {cpu:.0f} | {cpu / base:.1f} | {elapsed:.0f} |" for name, (cpu, elapsed) in figures.items()
    ]


def run_in_turns(commands: dict[str, list[str]], folder: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """The median CPU and elapsed milliseconds of each command."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(run_once(command, folder))
    return {
        name: (statistics.median(cpu for cpu, _ in taken), statistics.median(elapsed for _, elapsed in taken))
        for name, taken in times.items()
    }


def run_once(command: list[str], folder: Path) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, elapsed * 1000


@contextmanager
def run_service(data: list[str]) -> Iterator[None]:
    """A running service of the data directory, with its model loaded."""
    command = [*WIKIHOLT, *data, "serve", "--json", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
