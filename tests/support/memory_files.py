"""Puts the temporary files of the tests in memory, because many tests mostly wait for commits to a disk."""

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_MIN_FREE_BYTES = 2 << 30
"""Containers often have only 64 MB there."""


def use_memory_files() -> None:
    """Let this process and its children create temporary files in memory, unless `TMPDIR` names a directory.

    Nothing changes where the machine has too little memory for files, or does not run programs from there.
    """
    if "TMPDIR" in os.environ or not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return
    if os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC or shutil.disk_usage(_MEMORY).free < _MIN_FREE_BYTES:
        return
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)
