"""Writes results, with a description of the machine."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def describe_machine() -> str:
    """A description of the machine in one line."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return f"Machine: {len(os.sched_getaffinity(0))} cores of {model}, shared; Python {platform.python_version()}."


def write_result(name: str, text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(f"# {name}\n\n{text.strip()}\n")


def write_values(name: str, values: Mapping[str, float]) -> None:
    """Write figures for `python -m bench`, beside the text."""
    rounded = {key: float(f"{value:.4g}") for key, value in values.items()}
    (RESULTS / f"{name}.json").write_text(json.dumps(rounded, indent=1) + "\n")


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
