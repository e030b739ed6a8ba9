"""The options, the output and the result files of benchmarks."""

import argparse
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DATA = Path("bench/data")
COLLECTIONS = Path("../shared/collections")
CORPUS = Path("../shared/corpora/mdn.bundle")
OPTIONS: dict[str, dict[str, Any]] = {
    "collections": {"type": Path, "default": COLLECTIONS, "help": "directory of the collections"},
    "corpus": {"type": Path, "default": CORPUS, "help": "git bundle of the large wiki"},
    "data": {"type": Path, "default": DATA, "help": "directory of repositories, indexes and computed signals"},
    "model": {"default": "", "help": "use the indexes of this model instead of the default one"},
}
"""Options that several benchmarks have."""


def make_parser(about: str | None, result: str = "", *options: str) -> argparse.ArgumentParser:
    """A parser with these of `OPTIONS`, and with `--write` if there is a result file."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in options:
        parser.add_argument(f"--{name}", **OPTIONS[name])
    if result:
        parser.add_argument("--write", action="store_true", help=f"write bench/results/{result}.md")
    return parser


def publish(name: str, about: str | None, text: str | Sequence[str], *, write: bool, note: str = "") -> None:
    """Print the text or lines. With `write`, write them below the description of the benchmark and the machine."""
    text = text if isinstance(text, str) else "\n".join(text)
    print(text)
    if write:
        write_result(name, f"{about}\n{describe_machine()} {note}".rstrip() + f"\n\n{text}")


def make_head(titles: str) -> str:
    """The head of a Markdown table, from the row of its titles."""
    return f"{titles}\n{'|---' * (titles.count('|') - 1)}|"


def write_result(name: str, text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(f"# {name}\n\n{text.strip()}\n")


def write_values(name: str, values: Mapping[str, float]) -> None:
    """Write figures for `python -m bench`, beside the text."""
    rounded = {key: float(f"{value:.4g}") for key, value in values.items()}
    (RESULTS / f"{name}.json").write_text(json.dumps(rounded, indent=1) + "\n")


def describe_machine() -> str:
    """A description of the machine in one line."""
    file = Path("/proc/cpuinfo")
    info = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line) if file.exists() else {}
    info = {name.strip(): value.strip() for name, value in info.items()}
    flags = [flag for flag in ("avx2", "avx512_vnni", "amx_int8") if flag in info.get("flags", "").split()]
    model = f"{info.get('model name', platform.machine())} ({', '.join(flags)})"
    return f"Machine: {len(os.sched_getaffinity(0))} cores of {model}, shared; Python {platform.python_version()}."


def format_load(loads: Sequence[float]) -> str:
    """The load of the machine during a benchmark, with a warning if it was busy."""
    cores = len(os.sched_getaffinity(0))
    warning = " The machine was busy, so only ratios are meaningful." if max(loads) > cores + 1 else ""
    return f"Load: {min(loads):.1f} to {max(loads):.1f} on {cores} cores.{warning}"
