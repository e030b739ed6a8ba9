"""A remote repository as a page source: a local bare mirror of its default branch, refreshed when it is behind.

Nodes that share a wiki have a mirror each, and only the assigned node fetches on schedule. It publishes the HEAD it
fetched, so that another node whose mirror is behind fetches once when it needs the pages.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Lock, Thread

from wikiholt.domain.git import Author, Blob, FileEdit, TreeChange, TreeEntry
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import (
    IndexUnavailable,
    NoCommits,
    NotWritable,
    SourceCorrupt,
    SourceMissing,
    StorageError,
    WikiholtError,
)
from wikiholt.git.fetch import FetchLimits, RemoteGit
from wikiholt.git.journal import lock_file
from wikiholt.git.process import GitRunner
from wikiholt.git.remote_url import parse_remote_url, redact_url
from wikiholt.git.repository import RepositoryLocation, find_repository
from wikiholt.git.source import GitSource
from wikiholt.text.page_names import PAGE_EXTENSIONS

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


class MirrorRefresher:
    """Fetches in the background, one fetch at a time. Safe to use from many threads."""

    def __init__(self, fetch: Callable[[], object], timeout: float = _READER_TIMEOUT_S) -> None:
        self._fetch = fetch
        self._timeout = timeout
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
        if done is not None and not done.wait(self._timeout):
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


# The mirror has one local branch, whatever the name of the remote's default branch. It appears complete or not at all,
# and changing it requires its lock. It is a cache: a reader that finds damage marks it as suspect, and the next fetch
# checks it and recreates it if it is damaged.


MIRROR_DIRECTORY = "mirror.git"
_MIRROR_BRANCH = "refs/heads/mirror"
_SUSPECT_MARKER = "wikiholt.doubt"
_REMOTE_HEAD_PATTERN = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\tHEAD")


class RemoteSource(GitSource):
    """A wiki's remote repository. Reads use the mirror; only `fetch` and `check_readable` use the network.

    With `shared_head`, reads also fetch if the mirror does not exist yet or another node's mirror is ahead.
    """

    def __init__(
        self,
        url: str,
        directory: Path | None,
        limits: FetchLimits,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        shared_head: SharedHead | None = None,
    ) -> None:
        self._remote_url = parse_remote_url(url, limits.schemes)
        self._display_url = redact_url(url)
        self._limits = limits
        self._directory = (directory or Path("/nonexistent")).absolute()
        self._shared_head = shared_head
        self._refresher = MirrorRefresher(self.fetch)
        super().__init__(
            self._directory / MIRROR_DIRECTORY, subdirectory=subdirectory, ignore=ignore, extensions=extensions
        )

    def get_head(self) -> str:
        """The commit at the mirror's HEAD; fetches first if another node has a different one."""
        shared = self._shared_head.read() if self._shared_head else None
        if shared is not None and self._path.exists():
            with suppress(NoCommits):
                if super().get_head() == shared:
                    return shared
            self._refresher.refresh(shared)
        return super().get_head()

    def get_last_known_head(self) -> str:
        """The HEAD that any node fetched last."""
        if self._shared_head and (shared := self._shared_head.read()) is not None:
            return shared
        if not self._path.exists():
            raise self._make_missing_error()
        return super().get_head()

    def check_readable(self) -> None:
        """Read the mirror or, before the first fetch, the remote's HEAD; the remote may have no commits."""
        if self._path.exists():
            super().check_readable()
            return
        self._read_remote_head(RemoteGit(self._remote_url, self._limits), never_stop)

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Fetch the remote's HEAD into the mirror, creating it if needed; return whether anything changed."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with lock_file(self._directory / "mirror.lock", time.monotonic() + self._limits.timeout):
                has_changed = self._fetch_locked(stop)
                self._publish_head()
                return has_changed
        except OSError as error:
            raise StorageError(
                f"The mirror of the repository cannot be written ({error.strerror}).",
                hint="Check free disk space and the permissions of the data directory.",
            ) from error

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        with self._mark_suspect_on_error():
            return super().read_tree(revision)

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        with self._mark_suspect_on_error():
            return super().get_changes(old, new)

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        with self._mark_suspect_on_error():
            for blob in super().read_blobs(blobs, limit):
                if blob.size < 0:
                    _mark_suspect(self._path)
                yield blob

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        with self._mark_suspect_on_error():
            return super().get_change_dates(files, revision, since)

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:  # noqa: ARG002
        """Always raises NotWritable: a mirror is read-only."""
        raise NotWritable(
            "This wiki is a mirror of a remote repository and is read-only.",
            hint="Commit and push to the remote; the pages are fetched from it.",
        )

    def _publish_head(self) -> None:
        """Publish the mirror's HEAD to the other nodes if it is new."""
        if self._shared_head is not None:
            with suppress(NoCommits, IndexUnavailable):  # published after the next fetch instead
                if (head := super().get_head()) != self._shared_head.read():
                    self._shared_head.write(head)

    def _fetch_locked(self, stop: Callable[[], bool]) -> bool:
        remote = RemoteGit(self._remote_url, self._limits)
        remote_head = self._read_remote_head(remote, stop)
        mirror = self._directory / MIRROR_DIRECTORY
        is_usable = mirror.exists() and self._is_usable(mirror)
        local_head = self._read_mirror_head(mirror) if is_usable else None
        if remote_head is None and local_head is not None:
            raise SourceCorrupt(
                f"The repository at {self._display_url} no longer has a default branch.",
                hint="The pages fetched before are kept. Check where HEAD points in the remote.",
            )
        if is_usable and local_head == remote_head:
            return False
        target = mirror
        # A mirror without a tip is empty or damaged; and the remote may have changed its hash algorithm.
        if not is_usable or local_head is None or len(remote_head or local_head) != len(local_head):
            target = self._create_mirror(remote, remote_head, stop)
        if remote_head is not None:
            _remove_stale_files(target)
            try:
                self._fetch_into(remote, target, stop)
            except BaseException:
                if target == mirror:
                    _remove_stale_files(mirror)
                    _mark_suspect(mirror)
                else:
                    shutil.rmtree(target, ignore_errors=True)
                raise
        if target != mirror:
            shutil.rmtree(mirror, ignore_errors=True)
            target.rename(mirror)
        return remote_head is not None

    @contextmanager
    def _mark_suspect_on_error(self) -> Iterator[None]:
        """Mark the mirror as suspect if it cannot be read."""
        try:
            yield
        except SourceCorrupt:
            _mark_suspect(self._path)
            raise

    def _is_usable(self, mirror: Path) -> bool:
        """Whether the mirror can be used; a suspect one is checked with fsck."""
        git, marker = _make_mirror_runner(mirror, self._limits.timeout), mirror / _SUSPECT_MARKER
        with suppress(SourceCorrupt):
            if marker.exists():
                if git.run("fsck", "--no-dangling", "--no-progress").status:
                    return False
                marker.unlink()
            return (
                git.run("symbolic-ref", "--quiet", "HEAD").stdout.decode("utf-8", "replace").strip() == _MIRROR_BRANCH
            )
        return False

    def _create_mirror(self, remote: RemoteGit, remote_head: str | None, stop: Callable[[], bool]) -> Path:
        """Create an empty mirror in a temporary directory, with the remote's hash algorithm."""
        temporary = self._directory / "mirror.new"
        shutil.rmtree(temporary, ignore_errors=True)
        kind = "sha256" if remote_head and len(remote_head) == 64 else "sha1"
        options = ("--quiet", "--bare", "--template=", f"--object-format={kind}", "--initial-branch=mirror")
        remote.run("init", *options, str(temporary), directory=self._directory, stop=stop)
        return temporary

    def _fetch_into(self, remote: RemoteGit, mirror: Path, stop: Callable[[], bool]) -> None:
        remote.run(
            f"--git-dir={mirror}",
            "fetch",
            *("--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *("--no-auto-maintenance", "--refmap=", "--update-head-ok", "--end-of-options"),
            remote.url,
            f"+HEAD:{_MIRROR_BRANCH}",
            directory=mirror,
            stop=stop,
            growing_directory=mirror / "objects" / "pack",
        )
        # Combine small packs now and then; a failure only costs disk space.
        with suppress(SourceCorrupt):
            _make_mirror_runner(mirror, self._limits.timeout).run(
                "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet"
            )

    def _read_remote_head(self, remote: RemoteGit, stop: Callable[[], bool]) -> str | None:
        output = remote.run(
            "ls-remote", "--quiet", "--end-of-options", remote.url, "HEAD", directory=Path("/"), stop=stop
        )
        match = _REMOTE_HEAD_PATTERN.search(output)
        return match[1].decode() if match else None

    def _read_mirror_head(self, mirror: Path) -> str | None:
        result = _make_mirror_runner(mirror, self._limits.timeout).run(
            "rev-parse", "--verify", "--quiet", f"{_MIRROR_BRANCH}^{{commit}}"
        )
        return result.stdout.decode().strip() if result.status == 0 else None

    def _find_location(self) -> RepositoryLocation:
        if not self._path.exists() and self._shared_head is not None:
            failure = self._refresher.refresh(self._shared_head.read())
            if failure is not None:
                raise failure
        if not self._path.exists():
            raise self._make_missing_error()
        return find_repository(self._path)

    def _make_missing_error(self) -> SourceMissing:
        hint = "The first sync fetches it: `wikiholt sync`. If a fetch is running, try again in a moment."
        return SourceMissing(f"Nothing has been fetched from {self._display_url} yet.", hint=hint)


def _make_mirror_runner(mirror: Path, timeout: float) -> GitRunner:
    return GitRunner(RepositoryLocation(mirror, mirror), timeout)


def _mark_suspect(mirror: Path) -> None:
    with suppress(OSError):
        (mirror / _SUSPECT_MARKER).touch()


def _remove_stale_files(mirror: Path) -> None:
    """Remove leftovers of a killed fetch. Requires the mirror lock."""
    for pattern in ("*.lock", "refs/heads/*.lock", "objects/pack/tmp_*", "objects/pack/*.lock"):
        for file in mirror.glob(pattern):
            file.unlink(missing_ok=True)
