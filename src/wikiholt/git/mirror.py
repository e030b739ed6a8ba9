"""Copies of sources in the directories of wikis: bare repositories with one branch, and tables of files.

A mirror appears complete or not at all, and changing it requires its lock. It is a cache: a reader that finds damage
marks it as suspect, and the next fetch checks it and recreates it if it is damaged.

Nodes that share a wiki have a copy each, and only the assigned node fetches on schedule. It publishes the HEAD it
fetched, so that another node whose copy is behind fetches once when it needs the pages.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.errors import IndexUnavailable, NoCommits, SourceCorrupt, StorageError, WikiholtError
from wikiholt.git.journal import lock_file
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import RepositoryLocation

MIRROR_DIRECTORY = "mirror.git"
_HEAD_NOTE = "head"
MIRROR_BRANCH = "refs/heads/mirror"
_SUSPECT_MARKER = "wikiholt.doubt"
_READER_TIMEOUT_S = 20.0
"""How long a reader waits for a fetch. The fetch continues in the background."""
_MIN_FETCH_INTERVAL_S = 10.0
"""No second fetch for the same HEAD within this time."""


@dataclass(frozen=True, slots=True)
class SharedHead:
    """The HEAD that any node fetched last: a note with the wiki's index. Without a store, there are no other nodes."""

    store: IndexStore | None = None
    wiki_id: str = ""

    def read(self) -> str | None:
        return self.store.get_note(self.wiki_id, _HEAD_NOTE) if self.store is not None else None

    def publish(self, get_head: Callable[[], str]) -> None:
        """Publish this node's HEAD to the other nodes if it is new."""
        with suppress(NoCommits, IndexUnavailable):  # published after the next fetch instead
            if self.store is not None and (head := get_head()) != self.read():
                self.store.set_note(self.wiki_id, _HEAD_NOTE, head, create=True)


NO_OTHER_NODES = SharedHead()


@contextmanager
def lock_copy(directory: Path, name: str, timeout_s: float) -> Iterator[None]:
    """Hold the lock of a wiki's copy of its source. Raises Busy, and StorageError if the copy cannot be written."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_file(directory / name, time.monotonic() + timeout_s):
            yield
    except OSError as error:
        raise StorageError(
            f"The copy of the wiki's source cannot be written ({error.strerror}).",
            hint="Check free disk space and the permissions of the data directory.",
        ) from error


class MirrorRefresher:
    """Fetches in the background, one fetch at a time. Safe to use from many threads."""

    def __init__(self, fetch: Callable[[], object], timeout_s: float = _READER_TIMEOUT_S) -> None:
        self._fetch = fetch
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._done: Event | None = None
        self._requested_head: str | None = None
        self._ended_at = -_MIN_FETCH_INTERVAL_S
        self._error: WikiholtError | None = None

    def refresh(self, head: str | None) -> WikiholtError | None:
        """Fetch `head` and wait for it up to the timeout; return the error, or None on success or while fetching."""
        with self._lock:
            is_recent = time.monotonic() - self._ended_at < _MIN_FETCH_INTERVAL_S and self._requested_head == head
            if self._done is None and not is_recent:
                self._requested_head, self._done = head, Event()
                Thread(target=self._run_fetch, args=(self._done,), name="mirror-fetch", daemon=True).start()
            done = self._done
        if done is not None and not done.wait(self._timeout_s):
            return None
        return self._error

    def _run_fetch(self, done: Event) -> None:
        failure: WikiholtError | None = None
        try:
            self._fetch()
        except WikiholtError as error:
            failure = error
        finally:
            with self._lock:
                self._error, self._ended_at, self._done = failure, time.monotonic(), None
            done.set()


def make_bare_runner(path: Path, timeout_s: float) -> GitRunner:
    """Runs git in a mirror, or in another bare repository."""
    return GitRunner(RepositoryLocation(path, path), timeout_s)


def is_usable(mirror: Path, timeout_s: float) -> bool:
    """Whether the mirror can be used; a suspect one is checked with fsck."""
    if not mirror.exists():
        return False
    git, marker = make_bare_runner(mirror, timeout_s), mirror / _SUSPECT_MARKER
    with suppress(SourceCorrupt):
        if marker.exists():
            if git.run("fsck", "--no-dangling", "--no-progress").status:
                return False
            marker.unlink()
        return git.run("symbolic-ref", "--quiet", "HEAD").stdout.decode("utf-8", "replace").strip() == MIRROR_BRANCH
    return False


def read_mirror_tip(mirror: Path, timeout_s: float) -> str | None:
    """The commit at the tip of the mirror; None if it has none."""
    result = make_bare_runner(mirror, timeout_s).run("rev-parse", "--verify", "--quiet", f"{MIRROR_BRANCH}^{{commit}}")
    return result.stdout.decode().strip() if result.status == 0 else None


def combine_packs(mirror: Path, timeout_s: float) -> None:
    """Combine small packs now and then; a failure only costs disk space."""
    with suppress(SourceCorrupt):
        make_bare_runner(mirror, timeout_s).run("-c", "gc.autoDetach=false", "gc", "--auto", "--quiet")


def mark_suspect(mirror: Path) -> None:
    """Let the next fetch check the mirror."""
    with suppress(OSError):
        (mirror / _SUSPECT_MARKER).touch()


def remove_stale_files(mirror: Path) -> None:
    """Remove leftovers of a killed writer. Requires the mirror lock."""
    for pattern in ("*.lock", "refs/heads/*.lock", "objects/pack/tmp_*", "objects/pack/*.lock"):
        for file in mirror.glob(pattern):
            file.unlink(missing_ok=True)
