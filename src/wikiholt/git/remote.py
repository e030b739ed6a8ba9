"""A remote repository as a page source: a local mirror of its default branch, refreshed when it is behind."""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from wikiholt.domain.git import Author, FileEdit
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import NotWritable, SourceCorrupt, SourceMissing
from wikiholt.git.fetch import FetchLimits, RemoteGit
from wikiholt.git.mirror import (
    MIRROR_BRANCH,
    MIRROR_DIRECTORY,
    MirrorSource,
    SharedHead,
    combine_packs,
    is_usable,
    mark_suspect,
    read_mirror_tip,
    remove_stale_files,
)
from wikiholt.git.remote_url import parse_remote_url, redact_url
from wikiholt.text.page_names import PAGE_EXTENSIONS

_REMOTE_HEAD_PATTERN = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\tHEAD")


class RemoteSource(MirrorSource):
    """A wiki's remote repository. Reads use the mirror; only `fetch` and `check_readable` use the network."""

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
        super().__init__(
            directory,
            timeout=limits.timeout,
            subdirectory=subdirectory,
            ignore=ignore,
            extensions=extensions,
            shared_head=shared_head,
        )

    def check_readable(self) -> None:
        """Read the mirror or, before the first fetch, the remote's HEAD; the remote may have no commits."""
        if self._path.exists():
            super().check_readable()
            return
        self._read_remote_head(RemoteGit(self._remote_url, self._limits), never_stop)

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:  # noqa: ARG002
        """Always raises NotWritable: a mirror is read-only."""
        raise NotWritable(
            "This wiki is a mirror of a remote repository and is read-only.",
            hint="Commit and push to the remote; the pages are fetched from it.",
        )

    def _update_mirror(self, stop: Callable[[], bool]) -> bool:
        remote = RemoteGit(self._remote_url, self._limits)
        remote_head = self._read_remote_head(remote, stop)
        mirror = self._directory / MIRROR_DIRECTORY
        usable = is_usable(mirror, self._limits.timeout)
        local_head = read_mirror_tip(mirror, self._limits.timeout) if usable else None
        if remote_head is None and local_head is not None:
            raise SourceCorrupt(
                f"The repository at {self._display_url} no longer has a default branch.",
                hint="The pages fetched before are kept. Check where HEAD points in the remote.",
            )
        if usable and local_head == remote_head:
            return False
        target = mirror
        # A mirror without a tip is empty or damaged; and the remote may have changed its hash algorithm.
        if not usable or local_head is None or len(remote_head or local_head) != len(local_head):
            target = self._create_mirror(remote, remote_head, stop)
        if remote_head is not None:
            remove_stale_files(target)
            try:
                self._fetch_into(remote, target, stop)
            except BaseException:
                if target == mirror:
                    remove_stale_files(mirror)
                    mark_suspect(mirror)
                else:
                    shutil.rmtree(target, ignore_errors=True)
                raise
        if target != mirror:
            shutil.rmtree(mirror, ignore_errors=True)
            target.rename(mirror)
        return remote_head is not None

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
            f"+HEAD:{MIRROR_BRANCH}",
            directory=mirror,
            stop=stop,
            growing_directory=mirror / "objects" / "pack",
        )
        combine_packs(mirror, self._limits.timeout)

    def _read_remote_head(self, remote: RemoteGit, stop: Callable[[], bool]) -> str | None:
        output = remote.run(
            "ls-remote", "--quiet", "--end-of-options", remote.url, "HEAD", directory=Path("/"), stop=stop
        )
        match = _REMOTE_HEAD_PATTERN.search(output)
        return match[1].decode() if match else None

    def _make_missing_error(self) -> SourceMissing:
        hint = "The first sync fetches it: `wikiholt sync`. If a fetch is running, try again in a moment."
        return SourceMissing(f"Nothing has been fetched from {self._display_url} yet.", hint=hint)
