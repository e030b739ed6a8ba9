"""Creates commits with git plumbing commands: no checkout, no hooks, and the user's index is not used.

Objects are written first. The branch moves last, and only if it still points at the parent commit, so a killed writer
leaves only unreachable objects. If the branch moved meanwhile, the edits are retried on the new tip, provided that
the edited files still have the expected blobs.
"""

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import Busy, InputTooLarge, InvalidPage, NotWritable, RevisionMismatch
from wikiholt.git.history import read_file_history
from wikiholt.git.journal import PlannedChange, WriteJournal, lock_file, translate_write_errors
from wikiholt.git.objects import PageFiles
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.tree_editor import (
    FILE_MODE,
    GitEntry,
    TreeEditor,
    check_distinct,
    validate_attachment_file,
    validate_page_file,
)
from wikiholt.git.worktree import open_work_tree

_LOG = logging.getLogger(__name__)

COMMITTER_ENVIRONMENT = {"GIT_COMMITTER_NAME": "Wikiholt", "GIT_COMMITTER_EMAIL": "wikiholt@localhost"}
_MAX_MESSAGE_BYTES = 64 * 1024
_MAX_AUTHOR_CHARS = 1024
_RETRY_DELAY_S = 0.01
_MIN_FILES_OF_A_PACK = 16
# Git strips these characters from both ends of a name; a name of only such characters becomes empty.
_STRIPPED_CHARACTERS = ".,:;<>\"\\' \t"


class CommitWriter:
    """Creates commits on the current branch of one repository."""

    def __init__(
        self, git: GitRunner, path: Path, location: RepositoryLocation, pages: PageFiles, timeout_s: float
    ) -> None:
        self._git = git
        self._lock = location.git_dir / "wikiholt.lock"
        self._pages = pages
        self._journal = WriteJournal(location.git_dir, location.common_dir)
        self._work_tree = open_work_tree(git, path, location, self._journal)
        self._timeout_s = timeout_s

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Commit these edits and return the commit id, or the id of HEAD when they change nothing.

        Raises Busy, InputTooLarge, InvalidPage, NotWritable, RevisionMismatch.
        """
        validate_commit(edits, author, message, self._pages)
        blobs = write_blobs(self._git, edits)
        deadline = time.monotonic() + self._timeout_s
        with translate_write_errors(), lock_file(self._lock, deadline):
            branch = self._read_branch()
            self._repair(branch, deadline)
            while True:
                commit = self._try_commit(branch, edits, blobs, author, message, deadline)
                self._journal.clear()
                if commit is not None:
                    return commit
                if time.monotonic() > deadline:
                    raise Busy("Other writers keep changing the repository.", hint="Try again in a moment.")
                time.sleep(_RETRY_DELAY_S)

    def repair(self) -> None:
        """Finish the write of a process that was killed."""
        deadline = time.monotonic() + self._timeout_s
        with translate_write_errors(), lock_file(self._lock, deadline):
            self._repair(self._read_branch(), deadline)

    def _repair(self, branch: str, deadline: float) -> None:
        self._journal.release_locks(branch)
        if self._work_tree is not None:
            self._work_tree.repair(deadline)
        self._journal.clear()

    def _try_commit(
        self,
        branch: str,
        edits: Sequence[FileEdit],
        blobs: Mapping[str, str],
        author: Author,
        message: str,
        deadline: float,
    ) -> str | None:
        """Commit on top of the current tip; None when the branch moved meanwhile."""
        head = self._read_tip(branch)
        with self._git.start("cat-file", "--batch") as process:
            tree_editor = TreeEditor(process, head)
            planned = self._plan_changes(tree_editor, head, edits, blobs)
            if head is not None and all(change.old == change.new for change in planned):
                return head
            tree = tree_editor.write_trees(self._git)
        commit = self._create_commit(tree, head, author, message)

        def move() -> bool:
            return self._move_branch(branch, commit, head)

        if self._work_tree is None:
            self._journal.write(commit, planned)
            return commit if move() else None
        try:
            return commit if self._work_tree.advance(planned, commit, move, deadline) else None
        except NotWritable:
            if self._read_tip(branch) == head:
                raise
            return None  # somebody else committed meanwhile, and the work tree contains their version

    def _plan_changes(
        self, tree_editor: TreeEditor, head: str | None, edits: Sequence[FileEdit], blobs: Mapping[str, str]
    ) -> list[PlannedChange]:
        planned = []
        for edit in edits:
            path = self._pages.to_repository_path(edit.file)
            old = tree_editor.find_entry(path)
            if (old and old.object_id) != edit.expected_blob:
                raise self._make_mismatch_error(edit, path, head if old else None)
            planned.append(PlannedChange(path, old, self._get_new_entry(tree_editor, edit, old, blobs), edit.data))
        # Deletions first, so that a page can be renamed from Home.md to home.md.
        for change in sorted(planned, key=lambda change: change.new is not None):
            tree_editor.set_entry(change.path, change.new)
        new_paths = [change.path for change in planned if change.old is None and change.new is not None]
        check_distinct(new_paths, tree_editor.list_names)
        return planned

    def _get_new_entry(
        self, tree_editor: TreeEditor, edit: FileEdit, old: GitEntry | None, blobs: Mapping[str, str]
    ) -> GitEntry | None:
        source = old
        if edit.moved_from is not None:
            source = tree_editor.find_entry(self._pages.to_repository_path(edit.moved_from))
            if edit.data is None:
                return source
        return GitEntry(source.mode if source else FILE_MODE, blobs[edit.file]) if edit.data is not None else None

    def _make_mismatch_error(self, edit: FileEdit, path: str, head: str | None) -> RevisionMismatch:
        commits = read_file_history(self._git, path, head, 1) if head else []
        problem = (
            "has changed since" if commits and edit.expected_blob else "already exists" if commits else "does not exist"
        )
        return RevisionMismatch(
            f"{edit.file} {problem}.",
            current=commits[0].revision if commits else None,
            hint="Read the page again and repeat the change on its current text.",
        )

    def _read_branch(self) -> str:
        """The full ref name of the branch at HEAD."""
        symbolic = self._git.run("symbolic-ref", "--quiet", "HEAD")
        if symbolic.status == 0:
            return symbolic.stdout.decode("utf-8", "surrogateescape").strip()
        raise NotWritable("HEAD is detached: a commit could be lost.", hint="Check out a branch in the repository.")

    def _read_tip(self, branch: str) -> str | None:
        result = self._git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{branch}^{{commit}}")
        if result.status == 0:
            return result.stdout.decode().strip()
        if self._git.run("for-each-ref", "--count=1", "refs/heads").stdout:
            raise NotWritable(
                "The branch at HEAD has no commits, but other branches do.",
                hint="Point HEAD at one of them with `git symbolic-ref HEAD refs/heads/NAME`.",
            )
        return None

    def _create_commit(self, tree: str, parent: str | None, author: Author, message: str) -> str:
        identity = COMMITTER_ENVIRONMENT | {"GIT_AUTHOR_NAME": author.name, "GIT_AUTHOR_EMAIL": author.email}
        parents = ("-p", parent) if parent else ()
        text = message.replace("\r\n", "\n").strip() + "\n"
        result = self._git.run("commit-tree", *parents, tree, input_data=text.encode(), environment=identity)
        if result.status != 0:
            raise result.to_error("create a commit")
        return result.stdout.decode().strip()

    def _move_branch(self, branch: str, commit: str, old: str | None) -> bool:
        """Move the branch if it still points at `old`; False when it does not, or another process is moving it."""
        result = self._git.run(
            "update-ref", "-m", "wikiholt", branch, commit, old or "", environment=COMMITTER_ENVIRONMENT
        )
        if result.status == 0:
            return True
        if self._read_tip(branch) != old or "File exists" in result.stderr:
            return False
        _LOG.warning("git could not move %s: %s", branch, result.stderr)
        raise make_not_writable_error()


def make_not_writable_error() -> NotWritable:
    """The error for a repository that the operating system does not allow this process to write."""
    return NotWritable(
        "The repository cannot be written.",
        hint="Check that the user who runs wikiholt may write to it; the log has git's message.",
    )


def write_blobs(git: GitRunner, edits: Sequence[FileEdit]) -> dict[str, str]:
    """Write the new file contents to the object store, without filters."""
    contents = {edit.file: edit.data for edit in edits if edit.data is not None}
    if len(contents) >= _MIN_FILES_OF_A_PACK:
        # One process and one pack, instead of a process and a file for each.
        ids = _run_object_writer(git, _format_blob_stream(contents.values()), "fast-import", "--quiet").split()
        return dict(zip(contents, ids, strict=True))
    return {
        file: _run_object_writer(git, data, "hash-object", "-w", "--no-filters", "--stdin").strip()
        for file, data in contents.items()
    }


def _format_blob_stream(contents: Iterable[bytes]) -> bytes:
    """The input of fast-import that stores these blobs and prints their ids."""
    blobs = [b"blob\nmark :%d\ndata %d\n%b\n" % (n, len(data), data) for n, data in enumerate(contents, 1)]
    return b"".join((*blobs, *(b"get-mark :%d\n" % n for n in range(1, len(blobs) + 1))))


def _run_object_writer(git: GitRunner, input_data: bytes, *arguments: str) -> str:
    result = git.run(*arguments, input_data=input_data)
    if result.status != 0:
        _LOG.warning("git could not write an object: %s", result.stderr)
        raise make_not_writable_error()
    return result.stdout.decode()


def validate_commit(edits: Sequence[FileEdit], author: Author, message: str, pages: PageFiles) -> None:
    """Raise InvalidPage or InputTooLarge unless these edits can be committed."""
    if not edits or len({edit.file for edit in edits}) != len(edits):
        raise InvalidPage("A commit needs at least one file, and each file only once.")
    for edit in edits:
        (validate_attachment_file if edit.is_attachment else validate_page_file)(edit.file, pages)
    for text in (author.name, author.email):
        if re.search(r"[\x00-\x1f\x7f<>\ud800-\udfff]", text) or len(text) > _MAX_AUTHOR_CHARS:
            raise InvalidPage(
                "The author's name or email contains invalid characters.", hint="Remove < and > and line breaks."
            )
    if not author.name.strip(_STRIPPED_CHARACTERS):
        raise InvalidPage("A commit needs an author name.", hint="Set one.")
    if re.search(r"[\x00\ud800-\udfff]", message) or not message.strip():
        raise InvalidPage("The commit message is empty or not text.", hint="Describe the change in a few words.")
    if len(message.encode()) > _MAX_MESSAGE_BYTES:
        raise InputTooLarge(f"The commit message is longer than {_MAX_MESSAGE_BYTES} bytes.", hint="Shorten it.")
