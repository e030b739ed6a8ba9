"""A private bare repository in the wiki's own directory, from which the pages of a wiki are read.

The mirror has one branch. It appears complete or not at all, and changing it requires its lock. It is a cache: a reader
that finds damage marks it as suspect, and the next fetch checks it and recreates it if it is damaged.

Nodes that share a wiki have a mirror each, and only the assigned node fetches on schedule. It publishes the HEAD it
fetched, so that another node whose mirror is behind fetches once when it needs the pages.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Lock, Thread

from wikiholt.domain.git import Blob, FileHistories, TreeChange, TreeEntry
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import IndexUnavailable, NoCommits, SourceCorrupt, SourceMissing, StorageError, WikiholtError
from wikiholt.git.journal import lock_file
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import RepositoryLocation, find_repository
from wikiholt.git.source import GitSource
from wikiholt.text.page_names import PAGE_EXTENSIONS

MIRROR_DIRECTORY = "mirror.git"
MIRROR_BRANCH = "refs/heads/mirror"
_SUSPECT_MARKER = "wikiholt.doubt"
_READER_TIMEOUT_S = 20.0
"""How long a reader waits for a fetch. The fetch continues in the background."""
_MIN_FETCH_INTERVAL_S = 10.0
"""No second fetch for the same HEAD within this time."""


def _ignore(_: str) -> None:
    """Default for `SharedHead.write` where there are no other nodes."""


@dataclass(frozen=True, slots=True)
class SharedHead:
    """Reads and publishes the HEAD that any node fetched last."""

    read: Callable[[], str | None] = lambda: None
    write: Callable[[str], None] = _ignore

    def publish(self, get_head: Callable[[], str]) -> None:
        """Publish this node's HEAD to the other nodes if it is new."""
        with suppress(NoCommits, IndexUnavailable):  # published after the next fetch instead
            if (head := get_head()) != self.read():
                self.write(head)


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


class MirrorSource(GitSource):
    """A source that reads from a mirror. A subclass updates the mirror in `_update_mirror`.

    With `shared_head`, reads also fetch if the mirror does not exist yet or another node's mirror is ahead.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        timeout_s: float,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        shared_head: SharedHead | None = None,
    ) -> None:
        """`directory` contains the mirror. It is None while the wiki is only validated."""
        self._directory = (directory or Path("/nonexistent")).absolute()
        self._lock_timeout_s = timeout_s
        self._shared_head = shared_head
        self._refresher = MirrorRefresher(self.fetch)
        super().__init__(
            self._directory / MIRROR_DIRECTORY, subdirectory=subdirectory, ignore=ignore, extensions=extensions
        )

    def get_head(self) -> str:
        """The mirror's HEAD; fetches first if another node has a different one."""
        shared = self._shared_head.read() if self._shared_head else None
        if shared is not None and self._path.exists():
            with suppress(NoCommits):
                if self._read_head() == shared:
                    return shared
            self._refresher.refresh(shared)
        return self._read_head()

    def get_head_and_probe(self) -> tuple[str, None]:
        return self.get_head(), None  # another node may have a newer one

    def get_last_known_head(self) -> str:
        """The HEAD that any node fetched last."""
        if self._shared_head and (shared := self._shared_head.read()) is not None:
            return shared
        if not self._path.exists():
            raise self._make_missing_error()
        return self._read_head()

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Update the mirror, creating it if needed; return whether anything changed."""
        with lock_copy(self._directory, "mirror.lock", self._lock_timeout_s):
            has_changed = self._update_mirror(stop)
            if self._shared_head is not None:
                self._shared_head.publish(self._read_head)
            return has_changed

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        with self._mark_suspect_on_error():
            return super().read_tree(revision)

    def read_all_files(self, revision: str) -> tuple[Mapping[str, TreeEntry], Sequence[str]]:
        with self._mark_suspect_on_error():
            return super().read_all_files(revision)

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        with self._mark_suspect_on_error():
            return super().get_changes(old, new)

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        with self._mark_suspect_on_error():
            for blob in super().read_blobs(blobs, limit):
                if blob.size < 0:
                    mark_suspect(self._path)
                yield blob

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        with self._mark_suspect_on_error():
            return super().get_change_dates(files, revision, since)

    def get_former_files(self, files: Sequence[str], revision: str) -> Mapping[str, Sequence[str]]:
        with self._mark_suspect_on_error():
            return super().get_former_files(files, revision)

    def read_file_histories(self, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        with self._mark_suspect_on_error():
            histories = super().read_file_histories(files, revision, since)
        if histories.fault and not self._is_shallow():
            mark_suspect(self._path)
        return histories

    def _update_mirror(self, stop: Callable[[], bool]) -> bool:
        """Bring the mirror up to date, with its lock held; return whether anything changed."""
        raise NotImplementedError

    def _make_missing_error(self) -> SourceMissing:
        """The error for a source that was never fetched."""
        raise NotImplementedError

    def _read_head(self) -> str:
        """The revision of the mirror."""
        return super().get_head()

    @contextmanager
    def _mark_suspect_on_error(self) -> Iterator[None]:
        """Mark the mirror as suspect if it cannot be read."""
        try:
            yield
        except SourceCorrupt:
            mark_suspect(self._path)
            raise

    def _find_location(self) -> RepositoryLocation:
        if not self._path.exists() and self._shared_head is not None:
            failure = self._refresher.refresh(self._shared_head.read())
            if failure is not None:
                raise failure
        if not self._path.exists():
            raise self._make_missing_error()
        return find_repository(self._path)


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
