"""The time from a command to the first useful answer, cold and warm, in folders of pages.

    python -m bench.first_seconds FOLDER… [--vault PYTHON] [--qmd PROGRAM] [--rounds N] [--write]

*First answer* is the end of the first search in a folder that Wikiholt does not know (`--no-wait`), and *all meaning* when
its background process has embedded every passage. *Later* is the median of further searches from the shell. Peers get the
same question: ripgrep its longest word, markdown-vault-mcp and qmd (by words, which needs no model) with a new index each. Without
ripgrep-all (`rga`), ripgrep itself is measured. CPU is
user and system time of the command, and of the background process for *all meaning*.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import make_head, make_parser, publish

QUESTION = "how do I back up my notes"
_WORDS = QUESTION.split()
_WIKIHOLT = [sys.executable, "-P", "-m", "wikiholt"]


def main() -> None:
    parser = make_parser(__doc__, "first_seconds")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--vault", type=Path, help="the Python of an environment made from requirements-vault.txt")
    parser.add_argument("--qmd", type=Path, help="the program qmd")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    titles = (
        "| folder | pages | first answer s (CPU) | all meaning s (CPU) | later s (CPU) | peers: first, later s (CPU) |"
    )
    rows = [make_head(titles)]
    for folder in arguments.folders:
        with tempfile.TemporaryDirectory() as place:
            own = measure_wikiholt(folder, Path(place), arguments.rounds)
            peers = [measure_ripgrep(folder, arguments.rounds)]
            peers += [measure_qmd(arguments.qmd, folder, Path(place), arguments.rounds)] if arguments.qmd else []
            peers += [measure_vault(arguments.vault, folder, Path(place), arguments.rounds)] if arguments.vault else []
        rows.append(f"| {folder.name} | {own} | {'; '.join(peers)} |")
        print(rows[-1], flush=True)
    load = f"Load of the machine at the end: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."
    publish("first_seconds", __doc__, rows, write=arguments.write, note=load)


def measure_wikiholt(folder: Path, place: Path, rounds: int) -> str:
    command = [*_WIKIHOLT, "--data", str(place / "data"), "--set", "search.keep_warm=10"]
    search = [*command, "search", *_WORDS, "--no-wait", "--json"]
    began = time.monotonic()
    first, first_cpu, answer = run(search, folder)
    assert answer
    assert json.loads(answer)["results"]
    try:
        while json.loads(run(search, folder)[2] or "{}").get("meaning_ready", 0) < 1:
            time.sleep(1)
        ready, ready_cpu = time.monotonic() - began, read_process_cpu(place / "data")
        later = [run(search, folder) for _ in range(rounds)]
        pages = json.loads(run([*command, "status", "--json"], folder)[2] or "")["wikis"][0]["pages"]
    finally:
        run([*command, "stop"], folder)
    wall, cpu = (statistics.median(each[position] for each in later) for position in (0, 1))
    return f"{pages:,} | {first:.1f} ({first_cpu:.1f}) | {ready:.0f} ({ready_cpu:.0f}) | {wall:.2f} ({cpu:.2f})"


def measure_ripgrep(folder: Path, rounds: int) -> str:
    program = shutil.which("rga") or shutil.which("rg")
    if program is None:
        return "ripgrep is not installed"
    command = [program, "-i", "-c", max(_WORDS, key=len), "."]
    return measure_peer(Path(program).name, [command], folder, rounds)


def measure_qmd(program: Path, folder: Path, place: Path, rounds: int) -> str:
    environment = {"XDG_CACHE_HOME": str(place / "qmd"), "XDG_CONFIG_HOME": str(place / "qmd-config")}
    add = [str(program), "collection", "add", str(folder), "--name", "notes"]
    return measure_peer("qmd (words)", [add, [str(program), "search", QUESTION]], folder, rounds, environment)


def measure_vault(python: Path, folder: Path, place: Path, rounds: int) -> str:
    environment = {"MARKDOWN_VAULT_MCP_SOURCE_DIR": str(folder), "MARKDOWN_VAULT_MCP_STATE_PATH": str(place / "vault")}
    search = [str(python.with_name("markdown-vault-mcp")), "search", QUESTION]
    return measure_peer("markdown-vault-mcp (words)", [search], folder, rounds, environment)


def measure_peer(
    name: str,
    commands: Sequence[Sequence[str]],
    folder: Path,
    rounds: int,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The seconds of all commands, and of the last one again."""
    first = [run(command, folder, environment) for command in commands]
    later = [run(commands[-1], folder, environment) for _ in range(rounds)]
    found = "" if later[-1][2].strip() else ", found nothing"
    wall, cpu = (statistics.median(each[position] for each in later) for position in (0, 1))
    first_wall, first_cpu = (sum(each[position] for each in first) for position in (0, 1))
    return f"{name} {first_wall:.2f} ({first_cpu:.2f}), {wall:.2f} ({cpu:.2f}){found}"


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> tuple[float, float, Any]:
    """The elapsed and CPU seconds of a command, and what it printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | (environment or {})
    )
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return elapsed, cpu, done.stdout


def read_process_cpu(data: Path) -> float:
    """The CPU seconds of the background process."""
    process = json.loads((data / "background.lock").read_text())["pid"]
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
