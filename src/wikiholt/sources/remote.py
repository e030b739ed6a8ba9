"""A repository elsewhere as a source of pages: a bare mirror of its default branch, kept beside the wiki's index.

Nothing in the mirror is named by the remote: whatever its HEAD is comes as the one branch here. The mirror appears
complete or not at all, and only who holds its lock changes it. It is a cache: one that proves damaged is marked by who
notices, and the next fetch reads all of it and makes it anew if that is so.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from wikiholt.errors import IndexFault, NoCommits, NotWritable, SourceBroken, SourceMissing, StorageRefused
from wikiholt.model import Author, Blob, FileEdit, TreeChange, TreeEntry
from wikiholt.sources.address import parse, shown
from wikiholt.sources.bringing import Bringing, Word
from wikiholt.sources.claims import holding
from wikiholt.sources.command import Git
from wikiholt.sources.git import GitSource, never
from wikiholt.sources.location import Location, locate
from wikiholt.sources.transfer import Costs, Line

MIRROR = "mirror.git"
_BRANCH = "refs/heads/mirror"
_DOUBT = "wikiholt.doubt"
_HEAD = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\tHEAD")


class RemoteSource(GitSource):
    """One wiki's repository elsewhere. Reads come from the mirror; only `fetch` and `prove` use the network.

    Where nodes share the wiki (`word`), reading fetches too, if the mirror is not here yet or another node's is ahead.
    """

    def __init__(
        self,
        url: str,
        directory: Path | None,
        costs: Costs,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        word: Word | None = None,
    ) -> None:
        self._address = parse(url, costs.schemes)
        self._shown = shown(url)
        self._costs = costs
        self._directory = (directory or Path("/nonexistent")).absolute()
        self._word = word
        self._bringing = Bringing(self.fetch)
        super().__init__(self._directory / MIRROR, subdirectory=subdirectory, ignore=ignore)

    def head(self) -> str:
        """The commit at the mirror's HEAD, which is brought first where another node is known to have a later one."""
        heard = self._word.heard() if self._word else None
        if heard is not None and self._path.exists():
            with suppress(NoCommits):
                if super().head() == heard:
                    return heard
            self._bringing.bring(heard)
        return super().head()

    def seen(self) -> str:
        """The HEAD that was fetched last, by whichever node."""
        if self._word and (heard := self._word.heard()) is not None:
            return heard
        if not self._path.exists():
            raise self._missing()
        return super().head()

    def prove(self) -> None:
        """Read what was fetched or, before the first fetch, ask the remote for its HEAD; it may be without commits."""
        if self._path.exists():
            super().prove()
            return
        self._remote_head(Line(self._address, self._costs), never)

    def fetch(self, stop: Callable[[], bool] = never) -> bool:
        """Bring the remote's HEAD into the mirror, making it the first time; whether something came."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with holding(self._directory / "mirror.lock", time.monotonic() + self._costs.timeout):
                came = self._fetch(stop)
                self._say()
                return came
        except OSError as error:
            raise StorageRefused(
                f"The mirror of the repository cannot be written ({error.strerror}).",
                hint="Check free disk space and the permissions of the data directory.",
            ) from error

    def tree(self, revision: str) -> Mapping[str, TreeEntry]:
        with self._doubting():
            return super().tree(revision)

    def changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        with self._doubting():
            return super().changes(old, new)

    def read(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        with self._doubting():
            for blob in super().read(blobs, limit):
                if blob.size < 0:
                    _doubt(self._path)
                yield blob

    def last_changed(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        with self._doubting():
            return super().last_changed(files, revision, since)

    def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:  # noqa: ARG002
        """Refused: a mirror is read-only."""
        raise NotWritable(
            "This wiki lives in a repository elsewhere, and is only read here.",
            hint="Commit and push there; the pages are fetched from it.",
        )

    def _say(self) -> None:
        """Let other nodes know what was found, if they do not."""
        if self._word is not None:
            with suppress(NoCommits, IndexFault):  # what cannot be said now is said after the next fetch
                if (here := super().head()) != self._word.heard():
                    self._word.say(here)

    def _fetch(self, stop: Callable[[], bool]) -> bool:
        line = Line(self._address, self._costs)
        theirs = self._remote_head(line, stop)
        mirror = self._directory / MIRROR
        sound = mirror.exists() and self._sound(mirror)
        ours = self._tip(mirror) if sound else None
        if theirs is None and ours is not None:
            raise SourceBroken(
                f"The repository at {self._shown} has no default branch any more.",
                hint="What was fetched before is kept. Check where HEAD points there.",
            )
        if sound and ours == theirs:
            return False
        target = mirror
        # One without a tip is empty, or has lost it; and a repository may be of another kind than it was.
        if not sound or ours is None or len(theirs or ours) != len(ours):
            target = self._begin(line, theirs, stop)
        if theirs is not None:
            _clear(target)
            try:
                self._bring(line, target, stop)
            except BaseException:
                if target == mirror:
                    _clear(mirror)
                    _doubt(mirror)
                else:
                    shutil.rmtree(target, ignore_errors=True)
                raise
        if target != mirror:
            shutil.rmtree(mirror, ignore_errors=True)
            target.rename(mirror)
        return theirs is not None

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Mark the mirror if it cannot be read."""
        try:
            yield
        except SourceBroken:
            _doubt(self._path)
            raise

    def _sound(self, mirror: Path) -> bool:
        """Whether the mirror can be used; one in doubt is read to the last object."""
        git, doubt = _git(mirror, self._costs.timeout), mirror / _DOUBT
        with suppress(SourceBroken):
            if doubt.exists():
                if git.run("fsck", "--no-dangling", "--no-progress").status:
                    return False
                doubt.unlink()
            return git.run("symbolic-ref", "--quiet", "HEAD").out.decode("utf-8", "replace").strip() == _BRANCH
        return False

    def _begin(self, line: Line, theirs: str | None, stop: Callable[[], bool]) -> Path:
        """An empty mirror under another name, of the remote's kind."""
        fresh = self._directory / "mirror.new"
        shutil.rmtree(fresh, ignore_errors=True)
        kind = "sha256" if theirs and len(theirs) == 64 else "sha1"
        options = ("--quiet", "--bare", "--template=", f"--object-format={kind}", "--initial-branch=mirror")
        line.run("init", *options, str(fresh), inside=self._directory, stop=stop)
        return fresh

    def _bring(self, line: Line, mirror: Path, stop: Callable[[], bool]) -> None:
        line.run(
            f"--git-dir={mirror}",
            "fetch",
            *("--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *("--no-auto-maintenance", "--refmap=", "--update-head-ok", "--end-of-options"),
            line.url,
            f"+HEAD:{_BRANCH}",
            inside=mirror,
            stop=stop,
            grows=mirror / "objects" / "pack",
        )
        # Packs that came one by one are put together now and then; that it fails costs nothing but room.
        with suppress(SourceBroken):
            _git(mirror, self._costs.timeout).run("-c", "gc.autoDetach=false", "gc", "--auto", "--quiet")

    def _remote_head(self, line: Line, stop: Callable[[], bool]) -> str | None:
        listed = line.run("ls-remote", "--quiet", "--end-of-options", line.url, "HEAD", inside=Path("/"), stop=stop)
        found = _HEAD.search(listed)
        return found[1].decode() if found else None

    def _tip(self, mirror: Path) -> str | None:
        found = _git(mirror, self._costs.timeout).run("rev-parse", "--verify", "--quiet", f"{_BRANCH}^{{commit}}")
        return found.out.decode().strip() if found.status == 0 else None

    def _locate(self) -> Location:
        if not self._path.exists() and self._word is not None:
            fault = self._bringing.bring(self._word.heard())
            if fault is not None:
                raise fault
        if not self._path.exists():
            raise self._missing()
        return locate(self._path)

    def _missing(self) -> SourceMissing:
        hint = "The first sync fetches it: `wikiholt sync`. If it is being fetched now, try again in a moment."
        return SourceMissing(f"Nothing was fetched from {self._shown} yet.", hint=hint)


def _git(mirror: Path, timeout: float) -> Git:
    return Git(Location(mirror, mirror), timeout)


def _doubt(mirror: Path) -> None:
    with suppress(OSError):
        (mirror / _DOUBT).touch()


def _clear(mirror: Path) -> None:
    """Take away what a fetch that was killed left: the mirror is ours alone, and its lock is held."""
    for pattern in ("*.lock", "refs/heads/*.lock", "objects/pack/tmp_*", "objects/pack/*.lock"):
        for file in mirror.glob(pattern):
            file.unlink(missing_ok=True)
