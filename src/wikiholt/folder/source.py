"""A directory of pages as a page source: a vault, a folder of documents, or a checkout with uncommitted edits.

`fetch` scans the directory into a table. A revision is the hash of the table: the same files have the same revision,
whatever happened before. Only the present state is known, so there is no history. Contents are read from the disk: a
page that has changed after the scan is read as it is now, with the hash of that content, so it does not stop a sync.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from wikiholt.domain.git import (
    AttachedFile,
    Author,
    Blob,
    Commit,
    FileEdit,
    FileHistories,
    FileVersion,
    LogEntry,
    TreeChange,
    TreeEntry,
)
from wikiholt.domain.protocols import never_stop
from wikiholt.errors import (
    Busy,
    InvalidSource,
    NoCommits,
    PageNotFound,
    SourceMissing,
)
from wikiholt.folder.directory_scanner import DirectoryScanner
from wikiholt.folder.directory_writer import DirectoryWriter
from wikiholt.folder.file_table import TABLE_FILE, FileRow, FileTable
from wikiholt.folder.files_on_disk import (
    UNREAD_PREFIX,
    FileStamp,
    find_stamp,
    leads_to_directory,
    list_files,
    list_ignored_files,
    list_names,
    make_attachment_id,
    make_root_error,
    parse_attachment_id,
    read_current_file,
    read_file,
)
from wikiholt.git.mirror import NO_OTHER_NODES, MirrorRefresher, SharedHead, lock_copy
from wikiholt.git.objects import decode_file_name, find_free_name
from wikiholt.git.source import make_page_files
from wikiholt.git.tree_editor import validate_page_file
from wikiholt.text.ignore_patterns import build_matcher, count_ignored
from wikiholt.text.page_names import PAGE_EXTENSIONS

FILE_AUTHOR = Author("Wikiholt", "wikiholt@localhost")
"""The author of every file: a directory does not say who wrote it."""
_FILE_MESSAGE = "Files changed on disk"
_SKIPPED_DIRECTORIES = ("node_modules/",)
"""Patterns of directories that are skipped unless a setting includes them. Hidden directories are skipped too."""
_LOCK_FILE = "files.lock"
_TIMEOUT_S = 60.0
_GIT_TIMEOUT_S = 5.0
_GIT_POLL_INTERVAL_S = 0.05
_STALE_LOCK_AGE_S = 600.0
"""An older lock of git's index was left behind by a process that was killed."""


class DirectorySource:
    """The pages in a directory on disk, a `Source`. Only `commit` writes there. Safe to use from many threads."""

    def __init__(
        self,
        path: Path,
        data_directory: Path | None,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        max_bytes: int = 10 * 1024 * 1024,
        shared_head: SharedHead = NO_OTHER_NODES,
    ) -> None:
        """`data_directory` contains the table; it is None while the wiki is only validated.

        Pages larger than `max_bytes` are listed as problems.
        """
        self._data = (data_directory or Path("/nonexistent")).absolute()
        self._top = path.absolute()
        self._ignore = tuple(ignore)
        named = make_page_files(subdirectory, extensions, (*_SKIPPED_DIRECTORIES, *ignore))
        self._root = self._top / named.subdirectory
        self._files = files = replace(named, subdirectory="")
        self._table = FileTable(self._data / TABLE_FILE)
        has_exceptions = any(pattern.strip().startswith("!") for pattern in ignore)
        self._scanner = DirectoryScanner(self._root, self._table, files, has_exceptions, max_bytes, _TIMEOUT_S)
        self._shared_head = shared_head
        self._refresher = MirrorRefresher(self.fetch)

    # Revisions.

    def get_head(self) -> str:
        """The revision of the last scan; the first call scans, and one that misses what another node has seen.

        Raises SourceMissing and NoCommits.
        """
        self._require_root()
        known, shared = self._table.get_revision(), self._shared_head.read()
        if known is None:
            self.fetch()
        elif shared not in (None, known):
            self._refresher.refresh(shared)
        return self._read_head()

    def get_head_and_probe(self) -> tuple[str, None]:
        return self.get_head(), None

    def get_last_known_head(self) -> str:
        self._require_root()
        shared = self._shared_head.read()
        return shared if shared is not None else self._read_head()

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Scan the directory; return whether anything changed."""
        with lock_copy(self._data, _LOCK_FILE, _TIMEOUT_S):
            self._require_root()
            self._wait_for_git(stop)
            DirectoryWriter(self._scanner).finish_interrupted()
            has_changed = self._scanner.scan(stop)
            self._shared_head.publish(self._read_head)
            return has_changed

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Replace the files on disk and return the revision that contains them."""
        self._require_root()
        with lock_copy(self._data, _LOCK_FILE, _TIMEOUT_S):
            DirectoryWriter(self._scanner).write(edits, author, message)
            self._shared_head.publish(self._read_head)
            return self._read_head()

    def resolve_revision(self, revision: str) -> str:
        """The present revision, given by at least 7 digits: there is no other one."""
        head = self.get_head()
        if len(revision) < 7 or not head.startswith(revision.lower()):
            raise PageNotFound("A directory has no earlier revisions.", hint="Read the page without a revision.")
        return head

    def _read_head(self) -> str:
        revision = self._table.get_revision()
        if revision is None:
            raise SourceMissing(
                f"The directory {self._root} has not been read yet.", hint="The first sync reads it: `wikiholt sync`."
            )
        if not revision:
            raise NoCommits(
                f"The directory {self._root} has no pages yet.", hint=f"Add a file such as {self._root}/Home.md."
            )
        return revision

    def _wait_for_git(self, stop: Callable[[], bool]) -> None:
        """Wait while git changes the files of the checkout: meanwhile some of them are missing. Raises Busy."""
        lock, deadline = self._top / ".git" / "index.lock", time.monotonic() + _GIT_TIMEOUT_S
        with suppress(OSError):
            while abs(time.time() - lock.stat().st_mtime) < _STALE_LOCK_AGE_S:  # the clock may have been set back
                if stop() or time.monotonic() > deadline:
                    raise Busy(f"Git is changing the files in {self._top}.", hint="The next sync reads them.")
                time.sleep(_GIT_POLL_INTERVAL_S)

    # Files.

    def read_tree(self, revision: str) -> dict[str, TreeEntry]:  # noqa: ARG002
        """The files of the last scan, whatever the revision."""
        tree: dict[str, TreeEntry] = {}
        for path, row in (self._table.read_rows() or {}).items():
            tree[find_free_name(_decode_path(path), tree)] = TreeEntry(row.blob, row.kind)
        return tree

    def read_all_files(self, revision: str) -> tuple[dict[str, TreeEntry], list[str]]:
        return self.read_tree(revision), self.list_other_files(revision)

    def get_changes(self, old: str, new: str) -> list[TreeChange] | None:
        """Nothing between equal revisions. Older ones are forgotten."""
        return [] if old == new else None

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        if "\\" in file:  # may replace a byte that is not UTF-8; only the full tree tells
            return self.read_tree(revision).get(file)
        row = self._find_row(file)
        return TreeEntry(row.blob, row.kind) if row else None

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The contents in request order. One that has changed since the scan comes with its present hash."""
        wanted = list(blobs)
        paths = self._table.find_paths(wanted)
        for blob in wanted:
            if blob.startswith(UNREAD_PREFIX):
                yield Blob(blob, int(blob.removeprefix(UNREAD_PREFIX)), None)
            elif attachment := parse_attachment_id(blob):
                yield self._read_attachment(blob, *attachment, limit)
            else:
                yield self._read_page(blob, paths.get(blob, ()), limit)

    def list_other_files(self, revision: str) -> list[str]:  # noqa: ARG002
        """The files on disk now that are not pages, except ignored ones; of hidden directories only their names."""
        files = []
        for file, entry in self._walk(self._files.is_ignored_by_user):
            if not leads_to_directory(entry):
                files += [file] if self._files.is_other(file) else []
            elif not entry.is_symlink() and entry.name.startswith("."):
                files.append(f"{file}/")
        depth = len(self._root.parts) - len(self._top.parts)
        for level in range(1, depth + 1):
            files += [f"{'../' * level}{name}" for name in list_names(self._root.parents[level - 1], "")]
        return files

    def count_ignored(self, revision: str) -> Mapping[str, int]:  # noqa: ARG002
        """How many files on disk now each ignore pattern of the wiki excludes; hidden ones do not count."""
        if not self._ignore:
            return {}
        files = (file for file, _ in self._walk(build_matcher(_SKIPPED_DIRECTORIES)))
        return count_ignored(self._ignore, filter(self._files.has_page_name, files))

    def list_attached_files(
        self,
        folder: str,
        revision: str,  # noqa: ARG002
        *,
        hidden: bool = False,
    ) -> dict[str, AttachedFile]:
        """The attachable files in a directory on disk now, by name."""
        if "\0" in folder or "\\" in folder or (folder and not {"", ".", ".."}.isdisjoint(folder.split("/"))):
            return {}
        files = {}
        for name in list_names(self._root, folder):
            file = f"{folder}/{name}" if folder else name
            is_text = not any("\ud800" <= char <= "\udfff" for char in name) and "\\" not in name
            if not is_text or not self._files.is_attachable(file, hidden=hidden):
                continue
            if (stamp := find_stamp(self._root, file)) is not None:
                files[name] = AttachedFile(make_attachment_id(stamp, file), stamp.size)
        return files

    def check_page_file(self, file: str) -> None:
        validate_page_file(file, self._files)

    def check_readable(self) -> None:
        """Open the directory. One without pages is accepted, one that is a bare repository is not."""
        self._require_root()
        if all((self._root / name).exists() for name in ("HEAD", "objects", "refs")):
            raise InvalidSource(
                f"{self._root} is a git repository without a work tree.",
                hint="Add it without --worktree: its pages are those at HEAD.",
            )

    def _find_row(self, file: str) -> FileRow | None:
        with suppress(UnicodeEncodeError):
            return self._table.find_row(file)
        return None

    def _read_page(self, blob: str, paths: Sequence[str], limit: int) -> Blob:
        """The content with this hash, or what its only file contains now."""
        changed = Blob(blob, -1, None)
        for path in paths:
            with suppress(OSError):
                found = read_current_file(self._root, path, self._scanner.max_bytes)
                if found and found.data is not None and (found.id == blob or len(paths) == 1):
                    changed = replace(found, data=found.data if found.size <= limit else None)
                if changed.id == blob and changed.size >= 0:
                    break
        return changed

    def _read_attachment(self, blob: str, stamp: FileStamp, file: str, limit: int) -> Blob:
        if stamp.size > limit:
            return Blob(blob, stamp.size, None)
        data = None
        with suppress(OSError):
            data = read_file(self._root, file, stamp)
        return Blob(blob, -1 if data is None else stamp.size, data)

    def _walk(self, is_left_out: Callable[[str], bool]) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        """The files on disk that git does not ignore, and the directories that are hidden or left out."""
        ignored = list_ignored_files(self._root, _TIMEOUT_S)

        def is_pruned(path: str) -> bool:
            is_hidden = path.rpartition("/")[2].startswith(".")
            return is_hidden or not ignored.isdisjoint((path, f"{path}/")) or is_left_out(f"{_decode_path(path)}/")

        listing = list_files(self._root, is_pruned)
        return ((_decode_path(path), entry) for path, entry in listing.entries.items() if path not in ignored)

    def _require_root(self) -> None:
        """Raise SourceMissing or SourceCorrupt unless the directory can be opened; InvalidSource if it is a file."""
        try:
            os.close(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except NotADirectoryError:
            raise InvalidSource(f"{self._root} is a file.", hint="Use the directory that contains it.") from None
        except OSError as error:
            if self._root != self._top and self._top.is_dir() and not self._root.exists():
                raise InvalidSource(
                    f"There is no directory {self._root.relative_to(self._top)} in {self._top}.",
                    hint="Check the setting `subdirectory`.",
                ) from error
            raise make_root_error(self._root, error) from error

    # History: what a directory has of it is when its present files were modified.

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> dict[str, datetime]:  # noqa: ARG002
        """The modification time that each file had when its content was first seen."""
        rows = {_decode_path(path): row for path, row in (self._table.read_rows() or {}).items()}
        times = {file: rows[file].changed_ns for file in files if file in rows}
        for file in files:
            with suppress(OSError):  # in a directory that cannot be read any more
                if file not in times and (stamp := find_stamp(self._root, file)) is not None:
                    times[file] = stamp.mtime_ns
        return {file: _to_datetime(time_ns) for file, time_ns in times.items()}

    def read_file_histories(self, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        return FileHistories(self.get_change_dates(files, revision, since))

    def get_former_files(self, files: Sequence[str], revision: str) -> Mapping[str, Sequence[str]]:  # noqa: ARG002
        return {}

    def find_old_versions(self, revision: str, limit: int) -> list[FileVersion]:  # noqa: ARG002
        return []

    def read_history(self, file: str, limit: int = 50, revision: str | None = None) -> list[Commit]:  # noqa: ARG002
        """The last change of a file."""
        row = self._find_row(file)
        return [_make_commit(row)] if row and limit > 0 else []

    def read_log(self, limit: int, skip: int = 0, *, all_commits: bool = False) -> list[LogEntry]:  # noqa: ARG002
        """The last change of each file, newest first; files that were last changed by the same scan together."""
        groups: dict[str, list[tuple[str, FileRow]]] = {}
        for path, row in (self._table.read_rows() or {}).items():
            groups.setdefault(row.revision, []).append((_decode_path(path), row))
        entries = [
            LogEntry(
                _make_commit(max((row for _, row in group), key=lambda row: row.changed_ns)),
                tuple(file for file, _ in group),
            )
            for group in groups.values()
        ]
        entries.sort(key=lambda entry: entry.commit.date, reverse=True)
        return entries[max(skip, 0) :][: max(limit, 0)]


def _make_commit(row: FileRow) -> Commit:
    return Commit(row.revision, FILE_AUTHOR.name, FILE_AUTHOR.email, _to_datetime(row.changed_ns), _FILE_MESSAGE)


def _decode_path(path: str) -> str:
    return decode_file_name(os.fsencode(path))


def _to_datetime(time_ns: int) -> datetime:
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):  # file systems accept any time
        return datetime.fromtimestamp(0, UTC)
