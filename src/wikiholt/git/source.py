"""A git repository as a source of pages. Reading takes no checkout, no lock and no write; writing makes a commit."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from wikiholt.domain.git import (
    AttachedFile,
    Author,
    Blob,
    Commit,
    FileEdit,
    FileVersion,
    LogEntry,
    TreeChange,
    TreeEntry,
)
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import Busy, InvalidPage, InvalidSource, NoCommits, NotWritable, PageNotFound, SourceCorrupt
from wikiholt.git.commit import CommitWriter
from wikiholt.git.history import find_change_dates, find_old_versions, read_file_history, read_page_log, resolve_commit
from wikiholt.git.journal import has_unfinished_write
from wikiholt.git.objects import PageFiles, find_entry, read_attached_files, read_blobs, read_changes, read_tree
from wikiholt.git.process import GitRunner
from wikiholt.git.refs import HeadReader, resolve_head
from wikiholt.git.repository import RepositoryLocation, find_repository, has_outside_references
from wikiholt.text.ignore_patterns import build_matcher

PAGE_EXTENSIONS = (".md", ".markdown")
_HIDDEN_DIRECTORIES_PATTERN = ".*/"
_COMMIT_ID_PATTERN = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHORT_COMMIT_ID_PATTERN = re.compile(r"[0-9a-f]{7,64}")


class GitSource:
    """One wiki's repository. Making it touches nothing; the repository may come and go. Safe to use from many threads.

    Files are named relative to `subdirectory`. What `ignore` means is written down in `wikiholt.text.ignore_patterns`;
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
        confined_to: Path | None = None,
    ) -> None:
        self._path = path.absolute()
        lowered = tuple(extension.lower() for extension in extensions)
        self._page_files = PageFiles(
            _normalize_subdirectory(subdirectory), lowered, build_matcher((_HIDDEN_DIRECTORIES_PATTERN, *ignore))
        )
        self._timeout = timeout
        self._confined_to = confined_to
        self._head_reader = HeadReader()
        self._known_location: RepositoryLocation | None = None

    def get_head(self) -> str:
        """The commit at HEAD; raises SourceMissing, SourceBroken or NoCommits."""
        known = self._known_location
        if known is not None and (head := self._head_reader.read_head(known)) is not None:
            return head
        location = self._find_location()
        # Where `.git` is a file it may come to lead elsewhere, so only what lies at the path itself is remembered.
        self._known_location = location if location.git_dir in (self._path, self._path / ".git") else None
        return self._head_reader.read_head(location) or resolve_head(GitRunner(location, self._timeout), location)

    def get_last_known_head(self) -> str:
        """HEAD as far as anybody knows it."""
        return self.get_head()

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision with its blob, or what it is instead of a file."""
        return read_tree(self._open_git(), _validate_commit_id(revision), self._page_files)

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions; None when one is gone or a name has two readings."""
        return read_changes(self._open_git(), _validate_commit_id(old), _validate_commit_id(new), self._page_files)

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs, in the order asked for; one larger than `limit` bytes, missing or damaged comes without data."""
        return read_blobs(self._open_git(), blobs, limit)

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file was last changed by a commit; see `wikiholt.git.history` for what that means."""
        names = {self._page_files.to_repository_path(file): file for file in files}
        before = _validate_commit_id(since) if since else None
        found = find_change_dates(self._open_git(), list(names), _validate_commit_id(revision), before)
        return {names[name]: moment for name, moment in found.items()}

    def read_history(self, file: str, limit: int = 50, revision: str | None = None) -> list[Commit]:
        """The commits that changed a file, newest first, its earlier names followed; none for an unknown file."""
        at = _validate_commit_id(revision) if revision else self.get_head()
        return read_file_history(self._open_git(), self._page_files.to_repository_path(file), at, limit)

    def resolve_revision(self, revision: str) -> str:
        """The full id of a commit in the history of HEAD, named by at least 7 digits; raises PageNotFound."""
        digits = revision.lower()
        if not _SHORT_COMMIT_ID_PATTERN.fullmatch(digits):
            raise InvalidPage("That is not a revision.", hint="Give at least 7 of its hexadecimal digits.")
        found = resolve_commit(self._open_git(), digits, self.get_head())
        if found is None:
            raise PageNotFound(
                f"There is no one revision {digits[:12]} in this wiki's history.", hint="Give more of its digits."
            )
        return found

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        """The page file's entry at the revision, or None when there is no such page."""
        return find_entry(self._open_git(), file, _validate_commit_id(revision), self._page_files)

    def list_attached_files(self, folder: str, revision: str) -> Mapping[str, AttachedFile]:
        """The files right in a folder that are no pages, by name."""
        return read_attached_files(self._open_git(), folder, _validate_commit_id(revision), self._page_files)

    def read_log(self, limit: int, skip: int = 0) -> list[LogEntry]:
        """The commits that touched a page, newest first; none in a repository without commits."""
        try:
            head = self.get_head()
        except NoCommits:
            return []
        return read_page_log(self._open_git(), head, self._page_files, max(limit, 0), max(skip, 0)) if limit > 0 else []

    def find_old_versions(self, revision: str, limit: int) -> list[FileVersion]:
        """Former versions of the pages at the revision, newest first, followed through renames."""
        files = frozenset(self.read_tree(revision))
        return find_old_versions(self._open_git(), files, _validate_commit_id(revision), self._page_files, limit)

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Make one commit of these edits on HEAD and return its id, or HEAD's own when they change nothing."""
        return self._make_writer().commit(edits, author, message)

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Nothing comes from elsewhere; but what a killed writer left undone is done."""
        with suppress(NotWritable, Busy):
            if has_unfinished_write(self._find_location().git_dir) and not stop():
                self._make_writer().repair()
        return False

    def check_readable(self) -> None:
        """Read the tree at HEAD; raises whatever keeps it from being read. One without commits is welcome."""
        with suppress(NoCommits):
            self.read_tree(self.get_head())

    def _make_writer(self) -> CommitWriter:
        location = self._find_location()
        return CommitWriter(GitRunner(location, self._timeout), self._path, location, self._page_files, self._timeout)

    def _open_git(self) -> GitRunner:
        return GitRunner(self._find_location(), self._timeout)

    def _find_location(self) -> RepositoryLocation:
        location = find_repository(self._path)
        if self._confined_to is not None and has_outside_references(self._path, self._confined_to, check_objects=True):
            raise SourceCorrupt(
                f"The repository at {self._path} leads out of its own directory.",
                hint="It holds a link to elsewhere, or borrows objects. If that is meant, move it out of the directory"
                " that is served, and register it with `wikiholt add`.",
            )
        return location


def _validate_commit_id(revision: str) -> str:
    if not _COMMIT_ID_PATTERN.fullmatch(revision):
        raise InvalidSource(f"{revision!r} is not a commit id.", hint="Give all 40 (or 64) hexadecimal digits.")
    return revision


def _normalize_subdirectory(text: str) -> str:
    """The sub-directory without slashes around it; one that leads out of the repository is refused."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in text or text.startswith("/"):
        raise InvalidSource(
            f"The sub-directory {text!r} does not lie inside the repository.",
            hint="Name it from the top of the repository, such as docs/wiki.",
        )
    return "/".join(parts)
