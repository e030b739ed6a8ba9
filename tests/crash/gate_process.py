"""Runs `python -m tests.crash` in a forked process. A server of forks imports this once for all of them."""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path

# The crash test imports these modules only when it needs them.
import tests.crash.crash_gate
import tests.crash.postgres.postgres_gate
import tests.crash.postgres.round_server  # noqa: F401
from tests.crash.__main__ import main

gc.freeze()


def run_gate_process(options: Sequence[str], out: Path, errors: Path) -> None:
    """Run the crash test with these options, write its output to the files, and exit."""
    with out.open("w") as sys.stdout, errors.open("w") as sys.stderr:
        sys.argv[1:] = options
        code = main()
    sys.exit(code)
