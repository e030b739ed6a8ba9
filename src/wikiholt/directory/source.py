"""A directory of pages as a page source: a vault, a folder of documents, or a checkout with uncommitted edits.

A fetch brings a private mirror to the state on disk; reads use the mirror. A revision is the hash of a tree: the same
files have the same revision, whatever happened before.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from wikiholt.directory.directory_files import (
    FileStamp,
    find_stamp,
    list_ignored_files,
    list_names,
    make_root_error,
    read_file,
)
from wikiholt.directory.directory_mirror import SHA1_SAMPLE, DirectoryMirror, parse_placeholder
from wikiholt.directory.directory_writer import DirectoryWriter
from wikiholt.directory.snapshot import load_table
from wikiholt.domain.git import AttachedFile, Author, Blob, EntryKind, FileEdit, TreeChange, TreeEntry
from wikiholt.errors import Busy, InvalidSource, NoCommits, PageNotFound, SourceMissing
from wikiholt.git.mirror import MirrorSource, SharedHead, make_bare_runner
from wikiholt.git.objects import PageFiles, decode_file_name
from wikiholt.git.tree_editor import validate_page_file
from wikiholt.text.ignore_patterns import count_ignored
from wikiholt.text.page_names import PAGE_EXTENSIONS

_SKIPPED_DIRECTORIES = ("node_modules/",)
"""Patterns of directories that are skipped unless a setting includes them. Hidden directories are skipped too."""
_TIMEOUT_S = 60.0
_GIT_TIMEOUT_S = 5.0
_GIT_POLL_INTERVAL_S = 0.05
_STALE_LOCK_AGE_S = 600.0
"""An older lock of git's index was left behind by a process that was killed."""
_ATTACHMENT_PREFIX = "0" * 16 + "2"
_MAX_KNOWN_ATTACHMENTS = 10_000


class _MirroredFiles(PageFiles):
    """In the mirror, every file is a page or a problem of one: the scan has made the choice."""

    __slots__ = ()

    def is_page(self, file: str) -> bool:  # noqa: ARG002
        return True


class DirectorySource(MirrorSource):
    """The pages in a directory on disk. Only `fetch` and `commit` read its pages, and only `commit` writes there."""

    def __init__(
        self,
        path: Path,
        directory: Path | None,
        *,
        subdirectory: str = "",
        ignore: Sequence[str] = (),
        extensions: Sequence[str] = PAGE_EXTENSIONS,
        max_bytes: int = 10 * 1024 * 1024,
        shared_head: SharedHead | None = None,
    ) -> None:
        """`directory` contains the mirror. Pages larger than `max_bytes` are listed as problems."""
        super().__init__(
            directory,
            timeout_s=_TIMEOUT_S,
            subdirectory=subdirectory,
            ignore=(*_SKIPPED_DIRECTORIES, *ignore),
            extensions=extensions,
            shared_head=shared_head,
        )
        self._top = path.absolute()
        self._root = self._top / self._page_files.subdirectory if self._page_files.subdirectory else self._top
        self._files = replace(self._page_files, subdirectory="")
        self._page_files = _MirroredFiles("", (), lambda _: False)
        # With a pattern that includes again, a file in an ignored directory may be a page.
        has_exceptions = any(pattern.strip().startswith("!") for pattern in ignore)
        self._mirror = DirectoryMirror(
            self._root,
            self._path,
            self._files.is_page,
            (lambda _: False) if has_exceptions else lambda directory: self._files.is_ignored(f"{directory}/"),
            max_bytes,
            _TIMEOUT_S,
        )
        self._known_attachments: OrderedDict[str, tuple[str, FileStamp]] = OrderedDict()

    def get_head(self) -> str:
        """The tree hash of the last snapshot; the first call scans. Raises SourceMissing and NoCommits."""
        self._require_root()
        return super().get_head()

    def get_last_known_head(self) -> str:
        self._require_root()
        return super().get_last_known_head()

    def check_readable(self) -> None:
        """Open the directory. One without pages is accepted, one that is a bare repository is not."""
        self._require_root()
        if all((self._root / name).exists() for name in ("HEAD", "objects", "refs")):
            raise InvalidSource(
                f"{self._root} is a git repository without a work tree.",
                hint="Add it without --worktree: its pages are those at HEAD.",
            )

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Replace the files on disk and return the commit of the snapshot that contains them."""
        self._require_root()
        with self._lock_mirror():
            writer = DirectoryWriter(self._mirror, self._files, self._get_attachment_id)
            writer.write(edits, author, message)
            self._publish_head()
        return self._find_commit(None)

    def check_page_file(self, file: str) -> None:
        validate_page_file(file, self._files)

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        return {file: _to_file_entry(entry) for file, entry in super().read_tree(revision).items()}

    def read_all_files(self, revision: str) -> tuple[Mapping[str, TreeEntry], Sequence[str]]:
        return self.read_tree(revision), self.list_other_files(revision)

    def list_other_files(self, revision: str) -> list[str]:  # noqa: ARG002
        """The files on disk now that are not pages, except ignored ones; of hidden directories only their names."""
        files: list[str] = []
        for prefix, directories, names in self._walk(self._is_left_out):
            files += [_decode_name(f"{prefix}{name}/") for name in directories if name.startswith(".")]
            files += [
                file for file in (_decode_name(f"{prefix}{name}") for name in names) if self._files.is_other(file)
            ]
        depth = len(self._root.parts) - len(self._top.parts)
        for level in range(1, depth + 1):
            files += [f"{'../' * level}{name}" for name in list_names(self._root.parents[level - 1], "")]
        return files

    def count_ignored(self, revision: str) -> Mapping[str, int]:  # noqa: ARG002
        """How many files on disk now each ignore pattern of the wiki excludes; hidden ones do not count."""
        own = self._ignore[len(_SKIPPED_DIRECTORIES) :]
        if not own:
            return {}
        walked = self._walk(lambda directory: f"{directory.split('/')[-2]}/" in _SKIPPED_DIRECTORIES)
        files = (_decode_name(f"{prefix}{name}") for prefix, _, names in walked for name in names)
        return count_ignored(own, filter(self._files.has_page_name, files))

    def _walk(self, is_left_out: Callable[[str], bool]) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each directory on disk that is not hidden, left out or ignored by git: its path, and the names in it."""
        ignored = list_ignored_files(self._root, _TIMEOUT_S)
        for folder, directories, names in os.walk(self._root):
            prefix = os.path.relpath(folder, self._root) + "/" if folder != str(self._root) else ""
            yield prefix, list(directories), [name for name in names if f"{prefix}{name}" not in ignored]
            paths = {name: f"{prefix}{name}/" for name in directories if not name.startswith(".")}
            directories[:] = [
                name for name, path in paths.items() if not {path, path.rstrip("/")} & ignored and not is_left_out(path)
            ]

    def _is_left_out(self, directory: str) -> bool:
        return self._files.is_ignored_by_user(_decode_name(directory))

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        changes = super().get_changes(old, new)
        if changes is None:
            return None
        return [
            TreeChange(
                change.file,
                _to_file_entry(change.old) if change.old else None,
                _to_file_entry(change.new) if change.new else None,
            )
            for change in changes
        ]

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        entry = super().find_file(file, revision)
        return _to_file_entry(entry) if entry is not None and self._files.is_page(file) else None

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs in request order. Attachments are read from the disk."""
        ids = list(blobs)
        elsewhere = {blob for blob in ids if blob.startswith(_ATTACHMENT_PREFIX) or parse_placeholder(blob) is not None}
        mirrored = super().read_blobs([blob for blob in ids if blob not in elsewhere], limit)
        for blob in ids:
            yield self._read_from_disk(blob, limit) if blob in elsewhere else next(mirrored)

    def _find_change_dates(
        self, files: Sequence[str], revision: str, since: str | None
    ) -> tuple[dict[str, datetime], bool]:
        """The modification time that each file had when its content was first seen."""
        rows = {decode_file_name(os.fsencode(path)): row for path, row in load_table(self._path).rows.items()}
        dates = {file: _to_datetime(rows[file].changed_ns) for file in files if file in rows and rows[file].changed_ns}
        for file in files:
            with suppress(OSError):  # in a directory that cannot be read any more
                if file not in dates and (stamp := find_stamp(self._root, file)) is not None:
                    dates[file] = _to_datetime(stamp.mtime_ns)
        missing = [file for file in files if file not in dates]
        commits = [self._find_commit(id_) if id_ else None for id_ in (revision, since)] if missing else []
        if not missing:
            return dates, True
        others, is_complete = super()._find_change_dates(missing, commits[0] or "", commits[1])
        return dates | others, is_complete

    def list_attached_files(self, folder: str, revision: str) -> Mapping[str, AttachedFile]:  # noqa: ARG002
        """The attachable files in a directory on disk now, by name."""
        if "\0" in folder or "\\" in folder or (folder and not {"", ".", ".."}.isdisjoint(folder.split("/"))):
            return {}
        files = {}
        for name in list_names(self._root, folder):
            file = f"{folder}/{name}" if folder else name
            is_text = not any("\ud800" <= char <= "\udfff" for char in name) and "\\" not in name
            if is_text and self._files.is_attachable(file) and (stamp := find_stamp(self._root, file)) is not None:
                blob = self._remember_attachment(file, stamp)
                files[name] = AttachedFile(blob, stamp.size)
        return files

    def resolve_revision(self, revision: str) -> str:
        """The commit of a snapshot, given by at least 7 digits of its id or of its tree hash."""
        try:
            return super().resolve_revision(revision)
        except PageNotFound:
            commits = self._find_commits_of_tree(revision.lower())
            if not commits:
                raise
            return commits[0]

    def _update_mirror(self, stop: Callable[[], bool]) -> bool:
        self._require_root()
        self._wait_for_git(stop)
        DirectoryWriter(self._mirror, self._files, self._get_attachment_id).finish_interrupted()
        return self._mirror.refresh(stop)

    def _wait_for_git(self, stop: Callable[[], bool]) -> None:
        """Wait while git changes the files of the checkout: meanwhile some of them are missing. Raises Busy."""
        lock, deadline = self._top / ".git" / "index.lock", time.monotonic() + _GIT_TIMEOUT_S
        with suppress(OSError):
            while abs(time.time() - lock.stat().st_mtime) < _STALE_LOCK_AGE_S:  # the clock may have been set back
                if stop() or time.monotonic() > deadline:
                    raise Busy(f"Git is changing the files in {self._top}.", hint="The next sync reads them.")
                time.sleep(_GIT_POLL_INTERVAL_S)

    def _read_head(self) -> str:
        commit = self._read_commit()
        with self._mark_suspect_on_error():
            return _read_tree_hash(str(self._path), commit)

    def _read_commit(self) -> str:
        if not self._path.exists():
            self.fetch()
        try:
            return super()._read_head()
        except NoCommits:
            raise NoCommits(
                f"The directory {self._root} has no pages yet.", hint=f"Add a file such as {self._root}/Home.md."
            ) from None

    def _find_commit(self, revision: str | None) -> str:
        """The commit of a revision, which may be a tree hash, or of the last snapshot."""
        commit = self._read_commit()
        if revision is None or revision == commit:
            return commit
        if _read_tree_hash(str(self._path), commit) == revision:
            return commit
        commits = self._find_commits_of_tree(revision)
        return commits[0] if commits else super()._find_commit(revision)

    def _find_commits_of_tree(self, digits: str) -> list[str]:
        """The snapshots whose tree hash begins with these digits, newest first; empty if several trees do."""
        log = self._open_git().run("log", "--format=%T %H", self._read_commit()).stdout.decode()
        found = [line.split() for line in log.splitlines() if line.startswith(digits)]
        return [commit for _, commit in found] if len({tree for tree, _ in found}) == 1 else []

    def _make_missing_error(self) -> SourceMissing:
        return SourceMissing(
            f"The directory {self._root} has not been read yet.", hint="The first sync reads it: `wikiholt sync`."
        )

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

    def _read_from_disk(self, blob: str, limit: int) -> Blob:
        """The content of an attachment, or the size of the file behind a placeholder."""
        size = parse_placeholder(blob)
        if size is not None:
            return Blob(blob, size, None)
        file, stamp = self._known_attachments.get(blob, ("", None))
        if stamp is None:
            return Blob(blob, -1, None)
        if stamp.size > limit:
            return Blob(blob, stamp.size, None)
        data = None
        with suppress(OSError):
            data = read_file(self._root, file, stamp)
        return Blob(blob, -1 if data is None else stamp.size, data)

    def _get_attachment_id(self, file: str) -> str | None:
        """The id of an attachment as it is on disk now; None if there is none."""
        stamp = find_stamp(self._root, file)
        return None if stamp is None else self._remember_attachment(file, stamp)

    def _remember_attachment(self, file: str, stamp: FileStamp) -> str:
        rest = len(SHA1_SAMPLE) - len(_ATTACHMENT_PREFIX)
        blob = _ATTACHMENT_PREFIX + blake2b(repr((file, stamp)).encode()).hexdigest()[:rest]
        self._known_attachments[blob] = (file, stamp)
        if len(self._known_attachments) > _MAX_KNOWN_ATTACHMENTS:
            with suppress(KeyError):
                self._known_attachments.popitem(last=False)
        return blob


@lru_cache(maxsize=4096)
def _read_tree_hash(mirror: str, commit: str) -> str:
    """The tree hash of a commit, which never changes."""
    result = make_bare_runner(Path(mirror), _TIMEOUT_S).run("rev-parse", "--verify", f"{commit}^{{tree}}")
    if result.status != 0:
        raise result.to_error("read the last snapshot of the directory")
    return result.stdout.decode().strip()


def _to_file_entry(entry: TreeEntry) -> TreeEntry:
    """A placeholder as a file, whose content is missing."""
    return replace(entry, kind=EntryKind.FILE) if entry.kind is EntryKind.SUBMODULE else entry


def _decode_name(name: str) -> str:
    return decode_file_name(os.fsencode(name))


def _to_datetime(time_ns: int) -> datetime:
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):  # file systems accept any time
        return datetime.fromtimestamp(0, UTC)
