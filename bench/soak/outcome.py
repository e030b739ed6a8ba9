"""The result of a soak, and whether it passed."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.soak.client import Ledger
from bench.soak.final_checks import FinalResult
from bench.soak.growth import Point, Trend
from bench.soak.plan import Plan
from bench.soak.process import ServiceProcess

_LINE = re.compile(r"(?P<level>WARNING|ERROR|CRITICAL) (?P<rest>.*)")
_VARIABLE = re.compile(r"[0-9a-f]{7,}|\d+|'[^']*'|\S*/\S*")
"""The parts that differ between lines of the same kind: ids, numbers, names, paths."""
_MAX_BLOAT = 2.0


@dataclass(slots=True)
class SoakOutcome:
    """The result of a soak."""

    plan: Plan
    ledger: Ledger
    service: ServiceProcess
    points: list[Point] = field(default_factory=list)
    trends: list[Trend] = field(default_factory=list)
    unexpected: Counter[str] = field(default_factory=Counter)
    log: Counter[str] = field(default_factory=Counter)
    ending: FinalResult = field(default_factory=FinalResult)
    lasted: float = 0.0

    def find_faults(self) -> list[str]:
        """Why this soak failed; empty if it passed."""
        found = list(self.ledger.unexplained)
        found += [f"{t.name} grew from {t.before:.1f} to {t.after:.1f}" for t in self.trends if t.grows]
        found += [f"{count} × unexpected on disk: {what}" for what, count in self.unexpected.items()]
        found += [f"{count} × in the log: {line}" for line, count in self.log.items() if _is_error(line)]
        found += self.ending.faults
        if self.ending.bloat > _MAX_BLOAT:
            found.append(f"index files are {self.ending.bloat:.1f} times as large as after a rebuild")
        return found


def _is_error(line: str) -> bool:
    return line.startswith(("ERROR", "CRITICAL", "Traceback"))


def read_log(log: Path) -> Counter[str]:
    """The warnings, errors and tracebacks of a log, by kind."""
    found: Counter[str] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        match = _LINE.search(line)
        if match or line.startswith("Traceback"):
            document = f"{match['level']} {match['rest']}" if match else line
            found[_VARIABLE.sub("…", document)[:200]] += 1
    return found
