"""A git repository as a source of pages. Reading takes no checkout, no lock and no write; writing makes a commit."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from wikiholt.errors import Busy, InvalidPage, InvalidSource, NoCommits, NotWritable, PageNotFound, SourceBroken
from wikiholt.model import AttachedFile, Author, Blob, Commit, FileEdit, LogEntry, TreeChange, TreeEntry, Version
from wikiholt.sources.command import Git
from wikiholt.sources.confines import leads_out
from wikiholt.sources.history import file_history, last_changed, page_log, resolve_commit
from wikiholt.sources.location import Location, locate
from wikiholt.sources.objects import read_blobs
from wikiholt.sources.pending import left_behind
from wikiholt.sources.refs import Refs, ask_head
from wikiholt.sources.trees import PageFiles, find_entry, read_attached, read_changes, read_tree
from wikiholt.sources.versions import page_versions
from wikiholt.sources.writing import Writer
from wikiholt.text.patterns import matching

PAGE_EXTENSIONS = (".md", ".markdown")
_HIDDEN_DIRECTORIES = ".*/"
_COMMIT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED = re.compile(r"[0-9a-f]{7,64}")


def never() -> bool:
    return False


class GitSource:
    """One wiki's repository. Making it touches nothing; the repository may come and go. Safe to use from many threads.

    Files are named relative to `subdirectory`. What `ignore` means is written down in `wikiholt.text.patterns`;
    directories whose name starts with a dot are left out too, unless taken back: `!.github/`.
    One that is `confined` may take nothing from outside that directory, whatever its owner makes of it later.
    """

    def __init__(
        self,
        path: Path,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        timeout: float = 60.0,
        confined: Path | None = None,
    ) -> None:
        self._path = path.absolute()
        lowered = tuple(extension.lower() for extension in extensions)
        self._pages = PageFiles(_inner_directory(subdirectory), lowered, matching((_HIDDEN_DIRECTORIES, *ignore)))
        self._timeout = timeout
        self._confined = confined
        self._refs = Refs()
        self._known: Location | None = None

    def head(self) -> str:
        """The commit at HEAD; raises SourceMissing, SourceBroken or NoCommits."""
        known = self._known
        if known is not None and (head := self._refs.head(known)) is not None:
            return head
        location = self._locate()
        # Where `.git` is a file it may come to lead elsewhere, so only what lies at the path itself is remembered.
        self._known = location if location.git_dir in (self._path, self._path / ".git") else None
        return self._refs.head(location) or ask_head(Git(location, self._timeout), location)

    def seen(self) -> str:
        """HEAD as far as anybody knows it."""
        return self.head()

    def tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision with its blob, or what it is instead of a file."""
        return read_tree(self._git(), _commit_id(revision), self._pages)

    def changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions; None when one is gone or a name has two readings."""
        return read_changes(self._git(), _commit_id(old), _commit_id(new), self._pages)

    def read(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs, in the order asked for; one larger than `limit` bytes, missing or damaged comes without data."""
        return read_blobs(self._git(), blobs, limit)

    def last_changed(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file was last changed by a commit; see `wikiholt.sources.history` for what that means."""
        names = {self._pages.full_name(file): file for file in files}
        before = _commit_id(since) if since else None
        found = last_changed(self._git(), list(names), _commit_id(revision), before)
        return {names[name]: moment for name, moment in found.items()}

    def history(self, file: str, limit: int = 50, revision: str | None = None) -> list[Commit]:
        """The commits that changed a file, newest first, its earlier names followed; none for an unknown file."""
        at = _commit_id(revision) if revision else self.head()
        return file_history(self._git(), self._pages.full_name(file), at, limit)

    def resolve(self, revision: str) -> str:
        """The full id of a commit in the history of HEAD, named by at least 7 digits; raises PageNotFound."""
        digits = revision.lower()
        if not _ABBREVIATED.fullmatch(digits):
            raise InvalidPage("That is not a revision.", hint="Give at least 7 of its hexadecimal digits.")
        found = resolve_commit(self._git(), digits, self.head())
        if found is None:
            raise PageNotFound(
                f"There is no one revision {digits[:12]} in this wiki's history.", hint="Give more of its digits."
            )
        return found

    def find(self, file: str, revision: str) -> TreeEntry | None:
        """The page file's entry at the revision, or None when there is no such page."""
        return find_entry(self._git(), file, _commit_id(revision), self._pages)

    def attached(self, folder: str, revision: str) -> Mapping[str, AttachedFile]:
        """The files right in a folder that are no pages, by name."""
        return read_attached(self._git(), folder, _commit_id(revision), self._pages)

    def log(self, limit: int, skip: int = 0) -> list[LogEntry]:
        """The commits that touched a page, newest first; none in a repository without commits."""
        try:
            head = self.head()
        except NoCommits:
            return []
        return page_log(self._git(), head, self._pages, max(limit, 0), max(skip, 0)) if limit > 0 else []

    def versions(self, revision: str, limit: int) -> list[Version]:
        """Former versions of the pages at the revision, newest first, followed through renames."""
        files = frozenset(self.tree(revision))
        return page_versions(self._git(), files, _commit_id(revision), self._pages, limit)

    def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Make one commit of these edits on HEAD and return its id, or HEAD's own when they change nothing."""
        return self._writer().write(edits, author, message)

    def fetch(self, stop: Callable[[], bool] = never) -> bool:
        """Nothing comes from elsewhere; but what a killed writer left undone is done."""
        with suppress(NotWritable, Busy):
            if left_behind(self._locate().git_dir) and not stop():
                self._writer().heal()
        return False

    def prove(self) -> None:
        """Read the tree at HEAD; raises whatever keeps it from being read. One without commits is welcome."""
        with suppress(NoCommits):
            self.tree(self.head())

    def _writer(self) -> Writer:
        location = self._locate()
        return Writer(Git(location, self._timeout), self._path, location, self._pages, self._timeout)

    def _git(self) -> Git:
        return Git(self._locate(), self._timeout)

    def _locate(self) -> Location:
        location = locate(self._path)
        if self._confined is not None and leads_out(self._path, self._confined, deep=True):
            raise SourceBroken(
                f"The repository at {self._path} leads out of its own directory.",
                hint="It holds a link to elsewhere, or borrows objects. If that is meant, move it out of the directory"
                " that is served, and register it with `wikiholt add`.",
            )
        return location


def _commit_id(revision: str) -> str:
    if not _COMMIT_ID.fullmatch(revision):
        raise InvalidSource(f"{revision!r} is not a commit id.", hint="Give all 40 (or 64) hexadecimal digits.")
    return revision


def _inner_directory(text: str) -> str:
    """The sub-directory without slashes around it; one that leads out of the repository is refused."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in text or text.startswith("/"):
        raise InvalidSource(
            f"The sub-directory {text!r} does not lie inside the repository.",
            hint="Name it from the top of the repository, such as docs/wiki.",
        )
    return "/".join(parts)
