"""A small disk that a test may fill: a file system in memory that only one child process sees."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.wait import TIMEOUT_S

_MOUNT = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'


def run_on_small_disk(directory: Path, script: str) -> str:
    """Run a Python script with the directory, in which the disk is mounted, and the root of the repository.

    Returns what it writes to standard error. Skips the test where no disk may be mounted.
    """
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(directory)]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("this system allows no mount in a namespace")
    command += [sys.executable, "-c", script, str(directory), str(ROOT)]
    return subprocess.run(command, timeout=TIMEOUT_S, check=True, stderr=subprocess.PIPE, text=True).stderr
