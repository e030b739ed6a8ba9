"""Which tests run when, and how much they do.

A marker names the resource that a test needs. It is set by directory, so nobody marks by hand: a test in a directory
named `postgres` needs PostgreSQL. Tests without a marker are the unit tier (`make quick`).

FULL_TESTS=1 makes every test do as much as it can: more examples, more rounds. `make gate` sets it.
"""

import os
from pathlib import PurePath

RESOURCES = frozenset({"browser", "chroma", "model", "otterwiki", "postgres", "process"})
_SHARED_RESOURCES = RESOURCES - {"model"}
_GATES = frozenset({"crash", "fuzz", "isolation", "malformed"})
_GATE_FILES = frozenset({"security/test_hostile_repositories.py"})
_QUICK_FILES = frozenset({"isolation/test_boundary_types.py", "malformed/test_findings.py"})
IS_FULL = os.environ.get("FULL_TESTS") == "1"
FAST_EXAMPLES = 6
"""Examples of Hypothesis in the short form."""


def get_markers(path: PurePath) -> set[str]:
    """The markers of a test file, given by its path below `tests`."""
    markers = set(path.parts[:-1]) & RESOURCES
    if path.parts[0] == "soak":
        markers.add("process")
    is_gate = path.parts[0] in _GATES or path.as_posix() in _GATE_FILES
    if is_gate and path.as_posix() not in _QUICK_FILES:
        markers.add("gate")
    return markers


def get_group(path: PurePath) -> str | None:
    """The name of the tests that run on one worker, because they share a server, a browser or a fork server.

    None for a file that shares nothing with others.
    """
    folders = path.parts[:-1]
    if "postgres" in folders:  # too many for one worker
        kind = "gate" if folders[0] in _GATES else "index" if folders[0] == "index" else "app"
        return f"postgres {kind}"
    return " ".join(name for name in folders if name in _SHARED_RESOURCES) or None


def choose(full: int, fast: int) -> int:
    """The number of rounds or pages: `full` in the full form, else `fast`."""
    return full if IS_FULL else fast


def limit_examples(full: int) -> int:
    """The number of Hypothesis examples: this number in the full form, else few."""
    return choose(full, min(full, FAST_EXAMPLES))
