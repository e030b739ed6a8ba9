"""The directory of a child: whose it is, which version of Chroma wrote it, and what is set aside of it."""

import fcntl
import json
import os
import shutil
import time
from importlib import metadata
from pathlib import Path

from wikiholt.vectors.chroma.bound import DATABASE_FILE, EmbeddedChroma, is_segment_directory

SOCKET_FILE, LOCK_FILE, MARKER_FILE, RESET_FILE = "wikiholt.sock", "wikiholt.lock", "wikiholt.json", "wikiholt.renew"
QUARANTINE_DIRECTORY = "wikiholt-aside"


class UnusableDirectory(Exception):
    """The directory cannot be taken up: `state` says why in one word."""

    def __init__(self, state: str, detail: str = "") -> None:
        super().__init__(state, detail)
        self.state = state
        self.detail = detail


def open_directory(directory: Path, *, reset: bool) -> EmbeddedChroma:
    """Lock the directory for as long as this process lives, and open it; raises Unfit, OSError, and any panic."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UnusableDirectory("taken") from error
    if not _is_ours(directory):
        raise UnusableDirectory("foreign")
    try:
        version = metadata.version("chromadb")
        _quarantine_incompatible(directory, version, reset=reset)
        return _open_or_quarantine(directory, version)
    except ImportError as error:
        raise UnusableDirectory("uninstalled", str(error)) from error


def _is_ours(directory: Path) -> bool:
    return (directory / MARKER_FILE).exists() or not (directory / DATABASE_FILE).exists()


def _quarantine_incompatible(directory: Path, version: str, *, reset: bool) -> None:
    """Set aside what another version of Chroma wrote, or what proved damaged."""
    marker, asked = directory / MARKER_FILE, directory / RESET_FILE
    try:
        written_by = json.loads(marker.read_text("utf-8"))["chromadb"]
    except (OSError, ValueError, KeyError, TypeError):
        written_by = None
    if (directory / DATABASE_FILE).exists() and (reset or asked.exists() or written_by != version):
        quarantine_files(directory, "damaged" if written_by == version else f"written-by-{written_by or 'unknown'}")
    asked.unlink(missing_ok=True)
    if written_by != version:
        draft = marker.with_suffix(".draft")
        draft.write_text(json.dumps({"chromadb": version}), "utf-8")
        draft.replace(marker)


def _open_or_quarantine(directory: Path, version: str) -> EmbeddedChroma:
    try:
        return EmbeddedChroma(directory)
    except (ImportError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a directory Chroma cannot open is set aside; it is a cache
        quarantine_files(directory, "unreadable")
        _quarantine_incompatible(directory, version, reset=False)
        return EmbeddedChroma(directory)


def quarantine_files(directory: Path, reason: str) -> None:
    """Move Chroma's files out of the way; of those that were set aside only the last are kept."""
    shutil.rmtree(directory / QUARANTINE_DIRECTORY, ignore_errors=True)
    place = directory / QUARANTINE_DIRECTORY / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{reason}"
    place.mkdir(parents=True, mode=0o700)
    for entry in list(directory.iterdir()):
        if entry.name.startswith(DATABASE_FILE) or is_segment_directory(entry):
            entry.rename(place / entry.name)
