"""A mirror that another node's work has outrun, or that was never made here, is brought when somebody needs it.

Nodes that share a wiki each have a mirror of its remote, and only the one that looks after the wiki fetches by
schedule. It tells the others which HEAD it found; whoever is then asked for a page it cannot have read fetches once.
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

_READER_TIMEOUT_S = 20.0
"""Seconds a reader waits for a fetch; the fetch itself goes on, for the next who asks."""
_MIN_FETCH_INTERVAL_S = 10.0
"""Seconds after a fetch in which there is none again for the same reason."""


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SharedHead:
    """What nodes say to each other of a wiki's remote: the HEAD that was fetched last, by whichever of them."""

    read: Callable[[], str | None] = lambda: None
    write: Callable[[str], None] = _ignore


class MirrorRefresher:
    """Fetches in the background, one at a time; those who need it wait for it, for a while."""

    def __init__(self, fetch: Callable[[], object], timeout: float = _READER_TIMEOUT_S) -> None:
        self._fetch = fetch
        self._timeout = timeout
        self._lock = Lock()
        self._done: Event | None = None
        self._requested_head: str | None = None
        self._ended_at = -_MIN_FETCH_INTERVAL_S
        self._error: WikiholtError | None = None

    def refresh(self, head: str | None) -> WikiholtError | None:
        """Have fetched what is wanted, or know soon why that could not be; None when it came or is still coming."""
        with self._lock:
            lately = time.monotonic() - self._ended_at < _MIN_FETCH_INTERVAL_S and self._requested_head == head
            if self._done is None and not lately:
                self._requested_head, self._done = head, Event()
                Thread(target=self._run_fetch, args=(self._done,), name="bring", daemon=True).start()
            done = self._done
        if done is not None and not done.wait(self._timeout):
            return None
        return self._error

    def _run_fetch(self, done: Event) -> None:
        fault: WikiholtError | None = None
        try:
            self._fetch()
        except WikiholtError as error:
            fault = error
        finally:
            with self._lock:
                self._error, self._ended_at, self._done = fault, time.monotonic(), None
            done.set()


# A repository elsewhere as a source of pages: a bare mirror of its default branch, kept beside the wiki's index.
# Nothing in the mirror is named by the remote: whatever its HEAD is comes as the one branch here. The mirror appears
# complete or not at all, and only who holds its lock changes it. It is a cache: one that proves damaged is marked by
# who notices, and the next fetch reads all of it and makes it anew if that is so.


MIRROR_DIRECTORY = "mirror.git"
_MIRROR_BRANCH = "refs/heads/mirror"
_SUSPECT_MARKER = "wikiholt.doubt"
_REMOTE_HEAD_PATTERN = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\tHEAD")


class RemoteSource(GitSource):
    """One wiki's repository elsewhere. Reads come from the mirror; only `fetch` and `prove` use the network.

    Where nodes share the wiki (`word`), reading fetches too, if the mirror is not here yet or another node's is ahead.
    """

    def __init__(
        self,
        url: str,
        directory: Path | None,
        limits: FetchLimits,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        shared_head: SharedHead | None = None,
    ) -> None:
        self._remote_url = parse_remote_url(url, limits.schemes)
        self._display_url = redact_url(url)
        self._limits = limits
        self._directory = (directory or Path("/nonexistent")).absolute()
        self._shared_head = shared_head
        self._refresher = MirrorRefresher(self.fetch)
        super().__init__(self._directory / MIRROR_DIRECTORY, subdirectory=subdirectory, ignore=ignore)

    def get_head(self) -> str:
        """The commit at the mirror's HEAD, which is brought first where another node is known to have a later one."""
        heard = self._shared_head.read() if self._shared_head else None
        if heard is not None and self._path.exists():
            with suppress(NoCommits):
                if super().get_head() == heard:
                    return heard
            self._refresher.refresh(heard)
        return super().get_head()

    def get_last_known_head(self) -> str:
        """The HEAD that was fetched last, by whichever node."""
        if self._shared_head and (heard := self._shared_head.read()) is not None:
            return heard
        if not self._path.exists():
            raise self._make_missing_error()
        return super().get_head()

    def check_readable(self) -> None:
        """Read what was fetched or, before the first fetch, ask the remote for its HEAD; it may be without commits."""
        if self._path.exists():
            super().check_readable()
            return
        self._read_remote_head(RemoteGit(self._remote_url, self._limits), never_stop)

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Bring the remote's HEAD into the mirror, making it the first time; whether something came."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with lock_file(self._directory / "mirror.lock", time.monotonic() + self._limits.timeout):
                came = self._fetch_locked(stop)
                self._publish_head()
                return came
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
        """Refused: a mirror is read-only."""
        raise NotWritable(
            "This wiki lives in a repository elsewhere, and is only read here.",
            hint="Commit and push there; the pages are fetched from it.",
        )

    def _publish_head(self) -> None:
        """Let other nodes know what was found, if they do not."""
        if self._shared_head is not None:
            with suppress(NoCommits, IndexUnavailable):  # what cannot be said now is said after the next fetch
                if (here := super().get_head()) != self._shared_head.read():
                    self._shared_head.write(here)

    def _fetch_locked(self, stop: Callable[[], bool]) -> bool:
        line = RemoteGit(self._remote_url, self._limits)
        theirs = self._read_remote_head(line, stop)
        mirror = self._directory / MIRROR_DIRECTORY
        sound = mirror.exists() and self._is_usable(mirror)
        ours = self._read_mirror_head(mirror) if sound else None
        if theirs is None and ours is not None:
            raise SourceCorrupt(
                f"The repository at {self._display_url} has no default branch any more.",
                hint="What was fetched before is kept. Check where HEAD points there.",
            )
        if sound and ours == theirs:
            return False
        target = mirror
        # One without a tip is empty, or has lost it; and a repository may be of another kind than it was.
        if not sound or ours is None or len(theirs or ours) != len(ours):
            target = self._create_mirror(line, theirs, stop)
        if theirs is not None:
            _remove_stale_files(target)
            try:
                self._fetch_into(line, target, stop)
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
        return theirs is not None

    @contextmanager
    def _mark_suspect_on_error(self) -> Iterator[None]:
        """Mark the mirror if it cannot be read."""
        try:
            yield
        except SourceCorrupt:
            _mark_suspect(self._path)
            raise

    def _is_usable(self, mirror: Path) -> bool:
        """Whether the mirror can be used; one in doubt is read to the last object."""
        git, doubt = _make_mirror_runner(mirror, self._limits.timeout), mirror / _SUSPECT_MARKER
        with suppress(SourceCorrupt):
            if doubt.exists():
                if git.run("fsck", "--no-dangling", "--no-progress").status:
                    return False
                doubt.unlink()
            return (
                git.run("symbolic-ref", "--quiet", "HEAD").stdout.decode("utf-8", "replace").strip() == _MIRROR_BRANCH
            )
        return False

    def _create_mirror(self, remote: RemoteGit, remote_head: str | None, stop: Callable[[], bool]) -> Path:
        """An empty mirror under another name, of the remote's kind."""
        fresh = self._directory / "mirror.new"
        shutil.rmtree(fresh, ignore_errors=True)
        kind = "sha256" if remote_head and len(remote_head) == 64 else "sha1"
        options = ("--quiet", "--bare", "--template=", f"--object-format={kind}", "--initial-branch=mirror")
        remote.run("init", *options, str(fresh), directory=self._directory, stop=stop)
        return fresh

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
        # Packs that came one by one are put together now and then; that it fails costs nothing but room.
        with suppress(SourceCorrupt):
            _make_mirror_runner(mirror, self._limits.timeout).run(
                "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet"
            )

    def _read_remote_head(self, remote: RemoteGit, stop: Callable[[], bool]) -> str | None:
        listed = remote.run(
            "ls-remote", "--quiet", "--end-of-options", remote.url, "HEAD", directory=Path("/"), stop=stop
        )
        found = _REMOTE_HEAD_PATTERN.search(listed)
        return found[1].decode() if found else None

    def _read_mirror_head(self, mirror: Path) -> str | None:
        found = _make_mirror_runner(mirror, self._limits.timeout).run(
            "rev-parse", "--verify", "--quiet", f"{_MIRROR_BRANCH}^{{commit}}"
        )
        return found.stdout.decode().strip() if found.status == 0 else None

    def _find_location(self) -> RepositoryLocation:
        if not self._path.exists() and self._shared_head is not None:
            fault = self._refresher.refresh(self._shared_head.read())
            if fault is not None:
                raise fault
        if not self._path.exists():
            raise self._make_missing_error()
        return find_repository(self._path)

    def _make_missing_error(self) -> SourceMissing:
        hint = "The first sync fetches it: `wikiholt sync`. If it is being fetched now, try again in a moment."
        return SourceMissing(f"Nothing was fetched from {self._display_url} yet.", hint=hint)


def _make_mirror_runner(mirror: Path, timeout: float) -> GitRunner:
    return GitRunner(RepositoryLocation(mirror, mirror), timeout)


def _mark_suspect(mirror: Path) -> None:
    with suppress(OSError):
        (mirror / _SUSPECT_MARKER).touch()


def _remove_stale_files(mirror: Path) -> None:
    """Take away what a fetch that was killed left: the mirror is ours alone, and its lock is held."""
    for pattern in ("*.lock", "refs/heads/*.lock", "objects/pack/tmp_*", "objects/pack/*.lock"):
        for file in mirror.glob(pattern):
            file.unlink(missing_ok=True)
