"""Results of each part, kept until they are written to bench/results/postgres.md."""

import os
from datetime import UTC, datetime

from bench.report import DATA, describe_machine, format_load, write_result

SAVED_RESULTS = DATA / "postgres"
ORDER = ("shared", "roles", "small", "growth", "large", "phrases", "nodes", "affinity", "takeover", "agreement")
"""Files of a part begin with its name; `small` has one for each number of wikis."""


class ReportPart:
    """One running part of the benchmark: its text, and the load of the machine."""

    def __init__(self, name: str, title: str) -> None:
        self._name = name
        self._lines = [f"## {title}", ""]
        self._load = [os.getloadavg()[0]]

    def add(self, *lines: str) -> None:
        """Add lines and show them; an empty one ends a paragraph."""
        self._lines += lines
        self._load.append(os.getloadavg()[0])
        print("\n".join(lines), flush=True)

    def save(self) -> None:
        """Save the text for `report`; replaces the earlier text of this part."""
        note = f"*{datetime.now(UTC).date().isoformat()}. {format_load(self._load)}*"
        SAVED_RESULTS.mkdir(parents=True, exist_ok=True)
        (SAVED_RESULTS / f"{self._name}.md").write_text("\n".join([*self._lines, "", note, ""]))


def write_results(about: str) -> str:
    """The text of every saved part, in order; written to the results."""
    files = [
        file for name in ORDER for file in sorted(SAVED_RESULTS.glob(f"{name}*.md"), key=lambda file: len(file.name))
    ]
    found = [file.read_text().strip() for file in files]
    text = f"{about.strip()}\n\n{describe_machine()}\n\n" + "\n\n".join(found)
    write_result("postgres", text)
    return text
