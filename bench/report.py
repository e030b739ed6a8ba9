"""Writes results, with a description of the machine."""

import os
import platform
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """A description of the machine in one line."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return f"Machine: {len(os.sched_getaffinity(0))} cores of {model}, shared; Python {platform.python_version()}."


def write(name: str, text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(f"# {name}\n\n{text.strip()}\n")


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
