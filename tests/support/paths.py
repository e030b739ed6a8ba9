"""The repository directory, and the PYTHONPATH for child processes."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
PYTHON_PATH = os.pathsep.join([str(SOURCES), str(ROOT)])
"""PYTHONPATH of a child process: the package and the tests of this repository."""
