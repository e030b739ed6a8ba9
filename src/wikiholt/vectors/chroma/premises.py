"""The directory of a child: whose it is, which version of Chroma wrote it, and what is set aside of it."""

import fcntl
import json
import os
import shutil
import time
from importlib import metadata
from pathlib import Path

from wikiholt.vectors.chroma.bound import DATABASE, Bound, is_segment

SOCKET, LOCK, MARKER, RENEW = "wikiholt.sock", "wikiholt.lock", "wikiholt.json", "wikiholt.renew"
ASIDE = "wikiholt-aside"


class Unfit(Exception):
    """The directory cannot be taken up: `state` says why in one word."""

    def __init__(self, state: str, about: str = "") -> None:
        super().__init__(state, about)
        self.state = state
        self.about = about


def taken_up(directory: Path, *, renew: bool) -> Bound:
    """Lock the directory for as long as this process lives, and open it; raises Unfit, OSError, and any panic."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Unfit("taken") from error
    if not _is_ours(directory):
        raise Unfit("foreign")
    try:
        version = metadata.version("chromadb")
        _make_way(directory, version, renew=renew)
        return _opened(directory, version)
    except ImportError as error:
        raise Unfit("uninstalled", str(error)) from error


def _is_ours(directory: Path) -> bool:
    return (directory / MARKER).exists() or not (directory / DATABASE).exists()


def _make_way(directory: Path, version: str, *, renew: bool) -> None:
    """Set aside what another version of Chroma wrote, or what proved damaged."""
    marker, asked = directory / MARKER, directory / RENEW
    try:
        written_by = json.loads(marker.read_text("utf-8"))["chromadb"]
    except (OSError, ValueError, KeyError, TypeError):
        written_by = None
    if (directory / DATABASE).exists() and (renew or asked.exists() or written_by != version):
        set_aside(directory, "damaged" if written_by == version else f"written-by-{written_by or 'unknown'}")
    asked.unlink(missing_ok=True)
    if written_by != version:
        draft = marker.with_suffix(".draft")
        draft.write_text(json.dumps({"chromadb": version}), "utf-8")
        draft.replace(marker)


def _opened(directory: Path, version: str) -> Bound:
    try:
        return Bound(directory)
    except (ImportError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a directory Chroma cannot open is set aside; it is a cache
        set_aside(directory, "unreadable")
        _make_way(directory, version, renew=False)
        return Bound(directory)


def set_aside(directory: Path, why: str) -> None:
    """Move Chroma's files out of the way; of those that were set aside only the last are kept."""
    shutil.rmtree(directory / ASIDE, ignore_errors=True)
    place = directory / ASIDE / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{why}"
    place.mkdir(parents=True, mode=0o700)
    for entry in list(directory.iterdir()):
        if entry.name.startswith(DATABASE) or is_segment(entry):
            entry.rename(place / entry.name)
