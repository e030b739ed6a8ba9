"""A git repository as a page source. Reading needs no checkout, lock or write access; writing creates a commit."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from wikiholt.domain.git import (
    AttachedFile,
    Author,
    Blob,
    Commit,
    FileEdit,
    FileHistories,
    FileVersion,
    LaterFile,
    LogEntry,
    PastCommit,
    TreeChange,
    TreeEntry,
)
from wikiholt.domain.protocols import Source, never_stop
from wikiholt.errors import (
    Busy,
    InvalidPage,
    InvalidSource,
    NoCommits,
    NotWritable,
    PageNotFound,
    SourceCorrupt,
)
from wikiholt.git.commit import CommitWriter
from wikiholt.git.head import GitHeadProbe, HeadReader, list_stamped_paths, resolve_head
from wikiholt.git.history import (
    Ancestry,
    RenameHistory,
    find_change_dates,
    find_former_files,
    find_names_since,
    find_old_versions,
    read_file_history,
    read_page_log,
    read_renames,
    resolve_commit,
)
from wikiholt.git.journal import has_unfinished_write
from wikiholt.git.objects import (
    OBJECT_ID_PATTERN,
    PageFiles,
    find_entry,
    read_all_files,
    read_attached_files,
    read_blobs,
    read_changes,
    read_names,
    read_other_files,
    read_tree,
)
from wikiholt.git.past import find_commit, trace_file
from wikiholt.git.process import GitRunner, WaitLimit
from wikiholt.git.repository import (
    CheckedObjects,
    RepositoryLocation,
    find_repository,
    get_file_type,
    has_outside_references,
    has_written_links,
    make_unreadable_error,
    take_stamp,
)
from wikiholt.git.tree_editor import validate_page_file
from wikiholt.text.ignore_patterns import build_matcher, count_ignored
from wikiholt.text.page_names import PAGE_EXTENSIONS

_HEAD_TIMEOUT_S = 10.0
_HIDDEN_DIRECTORIES_PATTERN = ".*/"
_MAX_TRACED_FILES = 1000
_SHORT_COMMIT_ID_PATTERN = re.compile(r"[0-9a-f]{7,64}")


class GitSource:
    """One wiki's repository, a `Source`. The constructor does not access it; it may appear and disappear later.

    File names are relative to `subdirectory`. `ignore` has the syntax of `wikiholt.text.ignore_patterns`; directories
    whose name starts with a dot are ignored too, unless re-included: `!.github/`. With `confined_to`, a repository
    that references anything outside that directory is refused. Safe to use from many threads.
    """

    def __init__(
        self,
        path: Path,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        timeout_s: float = 60.0,
        confined_to: Path | None = None,
    ) -> None:
        self._path = path.absolute()
        self._page_files = make_page_files(subdirectory, extensions, ignore)
        self._ignore = tuple(ignore)
        self._timeout_s = timeout_s
        self._confined_to = confined_to
        self._wait_limit = WaitLimit()
        self._head_reader = HeadReader()
        self._known_location: RepositoryLocation | None = None
        self._checked_objects = CheckedObjects()
        self._renames: RenameHistory | None = None
        self._ancestry = Ancestry()

    def get_head(self) -> str:
        known = self._known_location
        if known is not None and (head := self._head_reader.read_head(known)) is not None:
            return head
        location = self._find_location()
        # A `.git` or `commondir` file may change its target, so only a git directory at the path itself is cached.
        is_at_path = location.git_dir in (self._path, self._path / ".git")
        is_fixed = is_at_path and not os.path.lexists(location.git_dir / "commondir")
        self._known_location = location if is_fixed else None
        return self._head_reader.read_head(location) or self._resolve_head(location)

    def _resolve_head(self, location: RepositoryLocation) -> str:
        """HEAD, if the files are not conclusive."""
        # One thread reads HEAD of all wikis: it must not wait long for one of them.
        git = GitRunner(location, min(self._timeout_s, _HEAD_TIMEOUT_S), self._wait_limit)
        return resolve_head(git, location)

    def get_head_and_probe(self) -> tuple[str, GitHeadProbe | None]:
        git_dir = self._path / ".git" if (self._path / ".git").is_dir() else self._path
        names = str(self._path), str(git_dir)
        stamp = take_stamp(list_stamped_paths(*names), time.time_ns())  # first, to notice a change during the rest
        self._known_location = None
        head, location = self.get_head(), RepositoryLocation(git_dir, git_dir)
        # Other ref formats and linked work trees have more files than a probe knows.
        if stamp is None or self._known_location != location or self._head_reader.read_head(location) != head:
            return head, None
        probe = GitHeadProbe(*names, stamp, head)
        return head, probe if probe.read_head() == head else None

    def get_last_known_head(self) -> str:
        return self.get_head()

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """All page files at the revision with their blob, or their kind if they are not regular files."""
        return read_tree(self._open_git(), _validate_commit_id(revision), self._page_files)

    def list_other_files(self, revision: str) -> list[str]:
        return read_other_files(self._open_git(), _validate_commit_id(revision), self._page_files)

    def count_ignored(self, revision: str) -> Mapping[str, int]:
        """How many files that are named like a page each ignore pattern of the wiki excludes."""
        if not self._ignore:
            return {}
        return count_ignored(
            self._ignore, read_names(self._open_git(), _validate_commit_id(revision), self._page_files)
        )

    def read_all_files(self, revision: str) -> tuple[Mapping[str, TreeEntry], Sequence[str]]:
        return read_all_files(self._open_git(), _validate_commit_id(revision), self._page_files)

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions; None if one is gone or a name is ambiguous."""
        return read_changes(self._open_git(), _validate_commit_id(old), _validate_commit_id(new), self._page_files)

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs in request order; one larger than `limit` bytes, missing or damaged has no data."""
        return read_blobs(self._open_git(), blobs, limit)

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file last changed; `wikiholt.git.history` defines that."""
        return self._find_change_dates(files, revision, since)[0]

    def get_former_files(self, files: Sequence[str], revision: str) -> Mapping[str, Sequence[str]]:
        """The former names of page files; `wikiholt.git.history` defines which are found."""
        return self._find_former_files(files, revision)[0]

    def read_file_histories(self, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        dates, has_all_dates = self._find_change_dates(files, revision, since)
        former, has_all_names = self._find_former_files(files, revision)
        return FileHistories(dates, former, self._find_history_fault(is_complete=has_all_dates and has_all_names))

    def _find_change_dates(
        self, files: Sequence[str], revision: str, since: str | None
    ) -> tuple[dict[str, datetime], bool]:
        """When each file last changed, and whether the history is complete as far as needed."""
        names = {self._page_files.to_repository_path(file): file for file in files}
        before = _validate_commit_id(since) if since else None
        dates, is_complete = find_change_dates(
            self._open_git(), list(names), _validate_commit_id(revision), before, self._ancestry
        )
        return {names[name]: date for name, date in dates.items()}, is_complete

    def _find_former_files(self, files: Sequence[str], revision: str) -> tuple[Mapping[str, Sequence[str]], bool]:
        """The former names of page files, and whether the history is complete as far as needed."""
        if not files:
            return {}, True
        git, pages = self._open_git(), self._page_files
        is_shallow = self._is_shallow()
        history = read_renames(git, self._find_commit(revision), self._renames, self._ancestry)
        self._renames = None if is_shallow or not history.is_complete else history
        found = find_former_files(history, map(pages.to_repository_path, files))
        prefix = f"{pages.subdirectory}/" if pages.subdirectory else ""
        inside = (
            (file.removeprefix(prefix), [name.removeprefix(prefix) for name in names if name.startswith(prefix)])
            for file, names in found.items()
        )
        return {file: names for file, names in inside if names}, history.is_complete

    def _is_shallow(self) -> bool:
        return bool(get_file_type(self._find_location().common_dir / "shallow"))

    def _find_history_fault(self, *, is_complete: bool) -> str:
        """Why the history is not complete, and how to complete it; empty if it is."""
        if self._is_shallow():
            return "this clone is shallow, and older commits are missing; `git fetch --unshallow` fetches them"
        if is_complete:
            return ""
        partial = self._open_git().run("config", "--get-regexp", r"^remote\..*\.promisor$")
        if partial.status == 0:
            return (
                "this clone is partial (`--filter`), and old versions of files are missing;"
                " `git fetch --refetch --no-filter` fetches them"
            )
        return "commits or files in it are missing or damaged; `git fsck` lists them"

    def read_history(self, file: str, limit: int = 50, revision: str | None = None) -> list[Commit]:
        at = self._find_commit(revision)
        return read_file_history(self._open_git(), self._page_files.to_repository_path(file), at, limit)

    def resolve_revision(self, revision: str) -> str:
        """The full id of a commit in the history of HEAD, from at least 7 digits. Raises InvalidPage, PageNotFound."""
        digits = revision.lower()
        if not _SHORT_COMMIT_ID_PATTERN.fullmatch(digits):
            raise InvalidPage("That is not a revision.", hint="Give at least 7 hexadecimal digits.")
        commit = resolve_commit(self._open_git(), digits, self._find_commit(None))
        if commit is None:
            raise PageNotFound(f"No unique revision {digits[:12]} in this wiki's history.", hint="Give more digits.")
        return commit

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        return find_entry(self._open_git(), file, _validate_commit_id(revision), self._page_files)

    def list_attached_files(self, folder: str, revision: str, *, hidden: bool = False) -> Mapping[str, AttachedFile]:
        commit = _validate_commit_id(revision)
        return read_attached_files(self._open_git(), folder, commit, self._page_files, hidden=hidden)

    def read_log(self, limit: int, skip: int = 0, *, all_commits: bool = False) -> list[LogEntry]:
        """The commits that touched a page, or all of them, newest first; empty in a repository without commits."""
        try:
            head = self._find_commit(None)
        except NoCommits:
            return []
        if limit <= 0:
            return []
        return read_page_log(self._open_git(), head, self._page_files, limit, max(skip, 0), all_commits=all_commits)

    def find_old_versions(self, revision: str, limit: int) -> list[FileVersion]:
        files = frozenset(self.read_tree(revision))
        return find_old_versions(self._open_git(), files, self._find_commit(revision), self._page_files, limit)

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Commit these edits on HEAD and return the commit id, or the id of HEAD when they change nothing."""
        return self._make_writer().commit(edits, author, message)

    def check_page_file(self, file: str) -> None:
        validate_page_file(file, self._page_files)

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Finish the write of a killed process; a local repository has nothing to fetch."""
        with suppress(NotWritable, Busy):
            if has_unfinished_write(self._find_location().git_dir) and not stop():
                self._make_writer().repair()
        return False

    def check_readable(self) -> None:
        """Read the tree at HEAD; raises the error that prevents it. A repository without commits is fine."""
        with suppress(NoCommits):
            self.read_tree(self.get_head())

    def _find_commit(self, revision: str | None) -> str:
        """The commit of a revision, or of HEAD."""
        return self.get_head() if revision is None else _validate_commit_id(revision)

    def _make_writer(self) -> CommitWriter:
        location = self._find_location()
        try:
            if self._confined_to is not None and has_written_links(location):
                raise NotWritable(
                    "The repository's git directory contains a symbolic link.", hint="Replace it by a real file."
                )
        except OSError as error:
            raise make_unreadable_error(self._path, error) from error
        return CommitWriter(self._make_runner(location), self._path, location, self._page_files, self._timeout_s)

    def _open_git(self) -> GitRunner:
        return self._make_runner(self._find_location())

    def _make_runner(self, location: RepositoryLocation) -> GitRunner:
        return GitRunner(location, self._timeout_s, self._wait_limit)

    def _find_location(self) -> RepositoryLocation:
        location = find_repository(self._path)
        if self._confined_to is not None and self._has_outside_references(self._confined_to):
            raise SourceCorrupt(
                f"The repository at {self._path} references files outside its own directory.",
                hint="It contains a link, or borrows objects. If that is intended, move it out of the served directory"
                " and register it with `wikiholt add`.",
            )
        return location

    def _has_outside_references(self, root: Path) -> bool:
        try:
            return has_outside_references(self._path, root, self._checked_objects)
        except OSError as error:
            raise make_unreadable_error(self._path, error) from error


class PinnedSource(GitSource):
    """A repository with another commit as HEAD, to read it there."""

    def __init__(self, source: GitSource, commit: str) -> None:
        vars(self).update(vars(source))
        self._commit = _validate_commit_id(commit)

    def get_head(self) -> str:
        return self._commit


class GitPast:
    """The past of a repository. Safe to use from many threads."""

    def __init__(self, source: Source) -> None:
        """Raises InvalidSource for a source that is no repository: nobody keeps what its files were before."""
        if not isinstance(source, GitSource):
            raise InvalidSource(
                "This wiki is a directory without git, so it has no past.",
                hint="Put it under version control with `git init`, commit the pages, and add it again.",
            )
        self._source = source
        self._find_changes = lru_cache(1)(self._read_changes)
        self._find_later = lru_cache(_MAX_TRACED_FILES)(self._trace_removed)

    def find_commit(self, name: str) -> PastCommit:
        """The commit of a tag, a branch, a commit id or a date. Raises RevisionNotFound."""
        source = self._source
        return find_commit(source._open_git(), name, source.get_head(), is_shallow=source._is_shallow())

    def pin(self, commit: str) -> PinnedSource:
        return PinnedSource(self._source, commit)

    def find_former_files(self, files: Sequence[str], commit: str) -> set[str]:
        """All other names of these files of HEAD since a commit, by the renames that `trace_files` follows."""
        source, pages = self._source, self._source._page_files
        names = map(pages.to_repository_path, files)
        found = find_names_since(source._open_git(), names, commit, source.get_head()) if files else ()
        return {file for file in map(pages.to_page_file, found) if file is not None}

    def trace_files(self, files: Sequence[str], commit: str) -> Mapping[str, LaterFile]:
        """What became of those of these files of a commit that differ at HEAD."""
        head = self._source.get_head()
        changes = self._find_changes(commit, head)
        return {
            file: LaterFile(file) if changes[file].new is not None else self._find_later(file, commit, head)
            for file in files
            if file in changes
        }

    def _read_changes(self, commit: str, head: str) -> Mapping[str, TreeChange]:
        """The page files that differ between a commit and HEAD."""
        changes = self._source.get_changes(commit, head)
        if changes is None:  # a name is ambiguous
            old, new = self._source.read_tree(commit), self._source.read_tree(head)
            changes = [TreeChange(f, old[f], new.get(f)) for f in old if new.get(f) != old[f]]
        return {change.file: change for change in changes}

    def _trace_removed(self, file: str, commit: str, head: str) -> LaterFile:
        pages = self._source._page_files
        name, removal = trace_file(self._source._open_git(), pages.to_repository_path(file), commit, head)
        return LaterFile(pages.to_page_file(name) if name is not None else None, removal)


def make_page_files(subdirectory: str, extensions: Sequence[str], ignore: Sequence[str]) -> PageFiles:
    """Which files are pages, by the settings of a wiki. Raises InvalidSource for a subdirectory that is outside."""
    return PageFiles(
        _normalize_subdirectory(subdirectory),
        tuple(extension.lower() for extension in extensions),
        build_matcher((_HIDDEN_DIRECTORIES_PATTERN, *ignore)),
        build_matcher(ignore),
    )


def _validate_commit_id(revision: str) -> str:
    if not OBJECT_ID_PATTERN.fullmatch(revision):
        raise InvalidSource(f"{revision!r} is not a commit id.", hint="Give all 40 (or 64) hexadecimal digits.")
    return revision


def _normalize_subdirectory(text: str) -> str:
    """The subdirectory without slashes around it. Raises InvalidSource if it is outside the repository."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in text or text.startswith("/"):
        raise InvalidSource(
            f"The subdirectory {text!r} is not inside the repository.",
            hint="Give the path from the repository root, such as docs/wiki.",
        )
    return "/".join(parts)
