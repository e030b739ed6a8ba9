"""Updates the work tree and index of a non-bare repository after a commit, for exactly the edited files.

Uncommitted changes are never touched: if an edited file differs from HEAD in the index or on disk, the write is refused
before anything changes. The branch moves while git's own index lock is held, so no other git process commits an index
without the edit. The next writer finishes what a killed writer recorded in the journal (`wikiholt.git.journal`).
"""

import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from wikiholt.errors import NotWritable
from wikiholt.git.journal import PlannedChange, WriteJournal, lock_index
from wikiholt.git.objects import hash_object
from wikiholt.git.process import MAX_OUTPUT_BYTES, GitRunner
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.tree_editor import GitEntry

_OPEN_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATHS_PER_COMMAND = 500
"""The length of a command line is limited."""
_LOG = logging.getLogger(__name__)


def is_same_as_entry(root: Path, path: str, entry: GitEntry | None) -> bool:
    """Whether the file on disk has the content of the entry (CRLF line ends allowed), or is absent as it should be."""
    try:
        with open_parent(root, path) as (directory, name):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_OUTPUT_BYTES:
                return False  # git could not return as much either
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory), "rb") as file:
                data = file.read(MAX_OUTPUT_BYTES)
    except FileNotFoundError:
        return entry is None
    except NotADirectoryError:
        return False
    return entry is not None and any(
        hash_object(form, entry.object_id) == entry.object_id for form in (data, data.replace(b"\r\n", b"\n"))
    )


def is_writable(root: Path, path: str) -> bool:
    """Whether a file could be created or replaced in the nearest existing parent directory."""
    parent = root / path
    while not (parent := parent.parent).is_dir():
        pass
    return os.access(parent, os.W_OK | os.X_OK)


def update_file(root: Path, path: str, entry: GitEntry | None, data: bytes | None) -> None:
    """Atomically replace the file; or remove it, together with directories that become empty."""
    if entry is None or data is None:
        with suppress(FileNotFoundError), open_parent(root, path) as (directory, name):
            os.unlink(name, dir_fd=directory)
        remove_empty_directories(root, path)
        return
    # The temporary name depends on the content: the next writer replaces what a killed one left.
    replace_file(root, path, data, f".wikiholt-{entry.object_id[:16]}", 0o777 if entry.mode == "100755" else 0o666)


def replace_file(
    root: Path, path: str, data: bytes, temporary: str, mode: int, *, durable: bool = False, keep_mode: bool = False
) -> None:
    """Atomically replace or create a file, through a temporary file in the same directory.

    With `durable`, the content is on disk when this returns. With `keep_mode`, an existing file keeps its permissions.
    """
    with open_parent(root, path, create=True) as (directory, name):
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if keep_mode:
                    with suppress(FileNotFoundError):
                        old_mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
                        os.fchmod(file.fileno(), stat.S_IMODE(old_mode))
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            if durable:
                os.fsync(directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


@contextmanager
def open_parent(root: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory of the file one component at a time, without following links; yields it and the name."""
    *parts, name = path.split("/")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=directory)
            subdirectory = _open_subdirectory(part, directory)
            os.close(directory)
            directory = subdirectory
        yield directory, name
    finally:
        os.close(directory)


def _open_subdirectory(part: str, parent: int) -> int:
    if stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
        raise NotWritable(
            "A directory in the page's path is a symbolic link in the repository's work tree.",
            hint="Replace it by a real directory.",
        )
    return os.open(part, _OPEN_DIRECTORY_FLAGS, dir_fd=parent)


def remove_empty_directories(root: Path, path: str) -> None:
    """Remove the directory of a former file if it is empty, and then its parents."""
    with suppress(OSError):
        while path := path.rpartition("/")[0]:
            with open_parent(root, path) as (directory, name):
                os.rmdir(name, dir_fd=directory)


def open_work_tree(
    git: GitRunner, path: Path, location: RepositoryLocation, journal: WriteJournal
) -> "WorkTree | None":
    """The work tree of the repository at this path, or None when it is bare. Raises NotWritable if it is elsewhere."""
    listed = git.run("config", "--null", "--get-regexp", r"^core\.(bare|worktree)$").stdout.decode("utf-8", "replace")
    config = dict(line.split("\n", 1) for line in listed.split("\0") if "\n" in line)
    is_bare = config.get("core.bare", "").lower() in ("true", "yes", "on", "1")
    is_linked = location.git_dir != location.common_dir
    if is_bare and not is_linked:
        return None
    is_git_dir = location.git_dir == path
    root = path.parent if is_git_dir and path.name == ".git" else None if is_git_dir else path
    configured = config.get("core.worktree")
    if root is None or (configured and (location.git_dir / configured).resolve() != root.resolve()):
        raise NotWritable(
            "The repository's work tree is not at the wiki's source.",
            hint="Register the directory of the work tree as the wiki's source.",
        )
    return WorkTree(git, location.git_dir, root, journal)


class WorkTree:
    """The checked-out files of a repository and their index."""

    def __init__(self, git: GitRunner, git_dir: Path, root: Path, journal: WriteJournal) -> None:
        self._git = git
        self._git_dir = git_dir
        self._root = root
        self._journal = journal
        self._prepared_index = git_dir / "wikiholt.index"

    def advance(
        self, changes: Sequence[PlannedChange], commit: str, move_branch: Callable[[], bool], deadline: float
    ) -> bool:
        """Move the branch, then update index and files; False when the branch could not be moved."""
        with lock_index(self._git_dir, deadline):
            self._check_saved(changes)
            self._prepare_index(changes)
            self._journal.write(commit, changes)
            if not move_branch():
                return False
            self._prepared_index.replace(self._git_dir / "index")
        self._update_files(changes)
        return True

    def repair(self, deadline: float) -> None:
        """Finish the write of a killed process. Requires the writer lock."""
        unfinished = self._journal.read()
        if unfinished is None or self._git.run("merge-base", "--is-ancestor", unfinished[0], "HEAD").status != 0:
            return
        current = self._read_entries(
            "ls-tree", "-z", "--full-tree", "HEAD", "--", paths=[change.path for change in unfinished[1]]
        )
        pending = [PlannedChange(change.path, change.old, current.get(change.path)) for change in unfinished[1]]
        with lock_index(self._git_dir, deadline):
            staged = self._read_staged(pending)
            self._prepare_index([change for change in pending if staged.get(change.path) == change.old])
            self._prepared_index.replace(self._git_dir / "index")
        self._update_files(pending)

    def _update_files(self, changes: Sequence[PlannedChange]) -> None:
        for change in changes:
            try:
                # If somebody saved the file after the check, it stays as their uncommitted change.
                if is_same_as_entry(self._root, change.path, change.old):
                    update_file(self._root, change.path, change.new, self._get_content(change))
            except OSError as error:
                _LOG.warning("cannot update a file of the work tree after its commit: %s", error.strerror)

    def _check_saved(self, changes: Sequence[PlannedChange]) -> None:
        staged = self._read_staged(changes)
        for change in changes:
            if staged.get(change.path) != change.old or not is_same_as_entry(self._root, change.path, change.old):
                raise NotWritable(
                    f"{change.path} has uncommitted changes in the repository's work tree.",
                    hint="Commit them, or discard them with `git restore`.",
                )
            if not is_writable(self._root, change.path):
                raise NotWritable(
                    f"{change.path} cannot be written in the repository's work tree.",
                    hint="Check that the user who runs wikiholt may write there.",
                )

    def _read_staged(self, changes: Sequence[PlannedChange]) -> dict[str, GitEntry]:
        """The index entries of these files; a file in conflict gets an entry that never equals a real one."""
        return self._read_entries("ls-files", "--stage", "-z", "--", paths=[change.path for change in changes])

    def _read_entries(self, *command: str, paths: Sequence[str]) -> dict[str, GitEntry]:
        entries = {}
        for record in self._list_records(command, paths):
            description, _, raw = record.partition(b"\t")
            fields = description.decode().split()
            in_conflict = command[0] == "ls-files" and fields[2] != "0"
            object_id = fields[2] if command[0] == "ls-tree" else fields[1]
            entries[raw.decode("utf-8", "replace")] = GitEntry("conflict" if in_conflict else fields[0], object_id)
        return entries

    def _list_records(self, command: Sequence[str], paths: Sequence[str]) -> Iterator[bytes]:
        for start in range(0, len(paths), _PATHS_PER_COMMAND):
            result = self._git.run(*command, *paths[start : start + _PATHS_PER_COMMAND])
            if result.status != 0:
                raise result.to_error("list files")
            yield from result.stdout.split(b"\0")[:-1]

    def _prepare_index(self, changes: Sequence[PlannedChange]) -> None:
        """Write the new index beside the current one."""
        for leftover in (self._prepared_index, self._prepared_index.with_suffix(".index.lock")):
            leftover.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(self._git_dir / "index", self._prepared_index)
        lines = [
            f"{change.new.mode} {change.new.object_id}\t{change.path}\0"
            if change.new
            else f"0 {'0' * len(change.old.object_id if change.old else '')}\t{change.path}\0"
            for change in sorted(changes, key=lambda change: change.new is not None)
        ]
        result = self._git.run(
            "update-index",
            "-z",
            "--index-info",
            input_data="".join(lines).encode(),
            environment={"GIT_INDEX_FILE": str(self._prepared_index)},
        )
        if result.status != 0:
            raise result.to_error("update the index")

    def _get_content(self, change: PlannedChange) -> bytes | None:
        """The new content of the file. Raises OSError if git cannot read it."""
        if change.new is None or change.data is not None:
            return change.data
        result = self._git.run("cat-file", "blob", change.new.object_id)
        if result.status != 0:
            raise OSError(errno.EIO, f"git cannot read {change.new.object_id}")
        return result.stdout
