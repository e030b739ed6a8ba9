"""Writes pages and attachments to a directory: each file is replaced atomically, several files through a journal.

The expected content is compared with the files on disk, not with the last snapshot. The journal is in the mirror. A
write of several files that was interrupted is finished by the next scan or write, unless somebody changed a file since.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from wikiholt.directory.directory_files import TEMPORARY_PREFIX, find_ignored_names, find_stamp, list_names, read_file
from wikiholt.directory.directory_mirror import PLACEHOLDER_MODE, SHA1_SAMPLE, DirectoryMirror, make_placeholder
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import InvalidPage, NotWritable, RevisionMismatch
from wikiholt.git.commit import validate_commit, write_blobs
from wikiholt.git.journal import PlannedChange, WriteJournal, translate_write_errors
from wikiholt.git.mirror import make_bare_runner
from wikiholt.git.objects import PageFiles, hash_object
from wikiholt.git.tree_editor import FILE_MODE, GitEntry, check_distinct
from wikiholt.git.worktree import is_writable, open_parent, remove_empty_directories, replace_file

_READ_TRIES = 3


class DirectoryWriter:
    """Writes files of one directory. Requires the mirror's lock."""

    def __init__(
        self, mirror: DirectoryMirror, files: PageFiles, get_attachment_id: Callable[[str], str | None]
    ) -> None:
        self._mirror = mirror
        self._root = mirror.root
        self._files = files
        self._get_attachment_id = get_attachment_id
        self._journal = WriteJournal(mirror.mirror, mirror.mirror)

    def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> None:
        """Write these edits to the disk, then into the mirror.

        Raises InputTooLarge, InvalidPage, NotWritable, RevisionMismatch.
        """
        validate_commit(edits, author, message, self._files)
        files = [edit.file for edit in edits if not edit.is_attachment]
        if ignored := find_ignored_names(self._root, files, self._mirror.timeout_s):
            raise InvalidPage(
                f"{ignored[0]} would not be a page of this wiki.", hint="The checkout's .gitignore excludes it."
            )
        with translate_write_errors("directory"):
            self._mirror.prepare()
            self.finish_interrupted()
            planned = [self._plan(edit) for edit in edits]
            self._check_new_names(planned)
            moved = {change.moved_from for change in planned}
            planned = [change for change in planned if change.path not in moved]
            if len(planned) > 1:
                write_blobs(make_bare_runner(self._mirror.mirror, self._mirror.timeout_s), edits)
                self._journal.write("", planned)
            # New files first: a page that is being renamed is never missing from the disk.
            for change in sorted(planned, key=lambda change: change.new is None):
                if change.moved_from:
                    self._move_file(change.moved_from, change.path)
                else:
                    self._update_file(change.path, change.data)
            for edit in edits:
                if edit.moved_from:
                    remove_empty_directories(self._root, edit.moved_from)
        self._mirror.refresh_files(files, author, message)
        self._journal.clear()

    def finish_interrupted(self) -> None:
        """Finish the write of a process that was killed between two files."""
        unfinished = self._journal.read()
        if unfinished is None:
            return
        git = make_bare_runner(self._mirror.mirror, self._mirror.timeout_s)
        for change in sorted(unfinished[1], key=lambda change: change.new is None):
            if change.moved_from:
                # The move is one step, so the file is at its old or at its new place.
                if find_stamp(self._root, change.moved_from) and not os.path.lexists(self._root / change.path):
                    self._move_file(change.moved_from, change.path)
                remove_empty_directories(self._root, change.moved_from)
                continue
            current = self._find_blob(change.path)
            if current != (change.old.object_id if change.old else None):
                continue  # already done, or changed by somebody else
            found = git.run("cat-file", "blob", change.new.object_id) if change.new else None
            if found is None or found.status == 0:
                self._update_file(change.path, found.stdout if found else None)
        self._journal.clear()

    def _plan(self, edit: FileEdit) -> PlannedChange:
        """The change of one file, if it is still as expected and can be written."""
        find_id = self._get_attachment_id if edit.is_attachment else self._find_blob
        current = find_id(edit.file)
        if current is None:
            self._require_free(edit.file)
        if current != edit.expected_blob:
            self._mirror.refresh_files([] if edit.is_attachment else [edit.file], wait=True)
            problem = "has changed" if current and edit.expected_blob else "already exists" if current else "is gone"
            raise RevisionMismatch(
                f"{edit.file} {problem}.", current=None, hint="Read the page again and repeat the change."
            )
        if not is_writable(self._root, edit.file):
            raise NotWritable(
                f"{edit.file} cannot be written.", hint="Check that the user who runs wikiholt may write there."
            )
        old = GitEntry(FILE_MODE, current) if current else None
        if edit.data is None and edit.moved_from:
            moved = GitEntry(FILE_MODE, find_id(edit.moved_from) or "")
            return PlannedChange(edit.file, old, moved, moved_from=edit.moved_from)
        new = GitEntry(FILE_MODE, _hash(edit.data)) if edit.data is not None else None
        return PlannedChange(edit.file, old, new, edit.data)

    def _find_blob(self, file: str) -> str | None:
        """The blob of a file on disk, None if there is none. A file that changes all the time has no stable blob."""
        for _ in range(_READ_TRIES):
            stamp = find_stamp(self._root, file)
            if stamp is None:
                return None
            if stamp.size > self._mirror.max_bytes:
                return make_placeholder(file, stamp.size)
            data = read_file(self._root, file, stamp)
            if data is not None:
                return _hash(data)
        return PLACEHOLDER_MODE

    def _move_file(self, old: str, new: str) -> None:
        """Move a file in one step; to another file system by copying it first."""
        try:
            with (
                open_parent(self._root, new, create=True) as (new_parent, new_name),
                open_parent(self._root, old) as (old_parent, old_name),
            ):
                os.rename(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
                os.fsync(new_parent)
                os.fsync(old_parent)
        except OSError as error:
            stamp = find_stamp(self._root, old) if error.errno == errno.EXDEV else None
            data = read_file(self._root, old, stamp) if stamp else None
            if data is None:
                raise
            self._update_file(new, data)
            self._update_file(old, None)

    def _update_file(self, path: str, data: bytes | None) -> None:
        """Replace or remove a file; directories stay, even if they become empty."""
        if data is None:
            with suppress(FileNotFoundError), open_parent(self._root, path) as (directory, name):
                os.unlink(name, dir_fd=directory)
                os.fsync(directory)
            return
        temporary = f"{TEMPORARY_PREFIX}{_hash(data)[:16]}"
        replace_file(self._root, path, data, temporary, 0o666, durable=True, keep_mode=True)

    def _require_free(self, file: str) -> None:
        """Raise InvalidPage if something other than a file has this path or a part of it."""
        parent = Path(file).parent
        directories = [str(part) for part in (*reversed(parent.parents), parent) if str(part) != "."]
        for path in directories:
            if os.path.lexists(self._root / path) and not (self._root / path).is_dir():
                raise InvalidPage(f"The path {path} exists but is not a directory.", hint="Choose another name.")
        if os.path.lexists(self._root / file):
            raise InvalidPage(f"The path {file} exists but is not a file.", hint="Choose another name.")

    def _check_new_names(self, planned: Sequence[PlannedChange]) -> None:
        """Raise InvalidPage if a new name looks like another one that stays in the same directory."""
        removed = {change.path for change in planned if change.new is None}

        def list_remaining(directory: str) -> list[str]:
            prefix = f"{directory}/" if directory else ""
            return [name for name in list_names(self._root, directory) if prefix + name not in removed]

        check_distinct([change.path for change in planned if change.old is None and change.new], list_remaining)


def _hash(data: bytes) -> str:
    return hash_object(data, SHA1_SAMPLE)
