"""Files of a work tree, reached without ever following a link: each directory is opened from the one above it."""

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
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.tree_editor import GitEntry

_OPEN_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_same_as_entry(root: Path, path: str, entry: GitEntry | None) -> bool:
    """Whether the file on disk is what git has for it (line ends of another system apart), or rightly not there."""
    try:
        with _open_parent(root, path) as (folder, name):
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return False
            with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder), "rb") as file:
                data = file.read()
    except FileNotFoundError:
        return entry is None
    except NotADirectoryError:
        return False
    return entry is not None and any(
        hash_object(form, entry.object_id) == entry.object_id for form in (data, data.replace(b"\r\n", b"\n"))
    )


def is_writable(root: Path, path: str) -> bool:
    """Whether a file could be made or replaced in the nearest directory that is there."""
    place = root / path
    while not (place := place.parent).is_dir():
        pass
    return os.access(place, os.W_OK | os.X_OK)


def update_file(root: Path, path: str, entry: GitEntry | None, data: bytes | None) -> None:
    """Replace the file by what it shall hold, in one step; or remove it, with the directories it leaves empty."""
    if entry is None or data is None:
        with suppress(FileNotFoundError), _open_parent(root, path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        _remove_empty_directories(root, path)
        return
    with _open_parent(root, path, create=True) as (folder, name):
        # The same name for the same content: what a killed writer left is taken up by the one that comes after it.
        fresh = f".wikiholt-{entry.object_id[:16]}"
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        mode = 0o777 if entry.mode == "100755" else 0o666
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise


@contextmanager
def _open_parent(root: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """The open directory that holds the file, and the file's name in it."""
    *parts, name = path.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            below = _open_subdirectory(part, folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)


def _open_subdirectory(part: str, parent: int) -> int:
    if stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
        raise NotWritable(
            "A directory on the way to the page is a link in the repository's work tree.",
            hint="Put a real directory in its place.",
        )
    return os.open(part, _OPEN_DIRECTORY_FLAGS, dir_fd=parent)


def _remove_empty_directories(root: Path, path: str) -> None:
    with suppress(OSError):
        while path := path.rpartition("/")[0]:
            with _open_parent(root, path) as (folder, name):
                os.rmdir(name, dir_fd=folder)


# The work tree of a repository that is not bare follows the commits made here, for exactly the edited files. What
# somebody has not committed is never touched: where an edited file differs from HEAD in the index or on disk, the
# write is refused before anything happened. The index is changed under git's own lock, in which the branch moves too,
# so that no other git commits an index that lacks the edit. What a killed writer noted as under way
# (`wikiholt.git.journal`) is brought about by whoever comes next.


_LOG = logging.getLogger(__name__)


def open_work_tree(
    git: GitRunner, path: Path, location: RepositoryLocation, journal: WriteJournal
) -> "WorkTree | None":
    """The work tree of the repository at this path, or None when it is bare."""
    listed = git.run("config", "--null", "--get-regexp", r"^core\.(bare|worktree)$").stdout.decode("utf-8", "replace")
    config = dict(line.split("\n", 1) for line in listed.split("\0") if "\n" in line)
    is_bare = config.get("core.bare", "").lower() in ("true", "yes", "on", "1")
    linked = location.git_dir != location.common_dir
    if is_bare and not linked:
        return None
    named_inside = location.git_dir == path
    root = path.parent if named_inside and path.name == ".git" else None if named_inside else path
    elsewhere = config.get("core.worktree")
    if root is None or (elsewhere and (location.git_dir / elsewhere).resolve() != root.resolve()):
        raise NotWritable(
            "The repository's work tree is not where its source says.",
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
        """Move the branch and let index and files follow; False when the branch could not be moved."""
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
        """Finish what a writer that was killed had begun. For who holds the writers' lock."""
        begun = self._journal.read()
        if begun is None or self._git.run("merge-base", "--is-ancestor", begun[0], "HEAD").status != 0:
            return
        current = self._read_entries(
            "ls-tree", "-z", "--full-tree", "HEAD", "--", paths=[each.path for each in begun[1]]
        )
        owed = [
            PlannedChange(each.path, each.old, current.get(each.path), self._read_content(each, current))
            for each in begun[1]
        ]
        with lock_index(self._git_dir, deadline):
            staged = self._read_staged(owed)
            self._prepare_index([each for each in owed if staged.get(each.path) == each.old])
            self._prepared_index.replace(self._git_dir / "index")
        self._update_files(owed)

    def _update_files(self, changes: Sequence[PlannedChange]) -> None:
        for change in changes:
            try:
                # Somebody may have saved the file since it was looked at; then it stays as a change of theirs.
                if is_same_as_entry(self._root, change.path, change.old):
                    update_file(self._root, change.path, change.new, change.data)
            except OSError as error:
                _LOG.warning("a file of a work tree could not follow its commit: %s", error.strerror)

    def _check_saved(self, changes: Sequence[PlannedChange]) -> None:
        staged = self._read_staged(changes)
        for change in changes:
            if staged.get(change.path) != change.old or not is_same_as_entry(self._root, change.path, change.old):
                raise NotWritable(
                    f"{change.path} has changes in the repository's work tree that are not committed.",
                    hint="Commit them, or take them back with `git restore`.",
                )
            if not is_writable(self._root, change.path):
                raise NotWritable(
                    f"{change.path} cannot be written in the repository's work tree.",
                    hint="Check that the user who runs wikiholt may write there.",
                )

    def _read_staged(self, changes: Sequence[PlannedChange]) -> dict[str, GitEntry]:
        """What the index holds for these files; a file in conflict is given as something no file ever was."""
        return self._read_entries("ls-files", "--stage", "-z", "--", paths=[change.path for change in changes])

    def _read_entries(self, *command: str, paths: Sequence[str]) -> dict[str, GitEntry]:
        listed = self._git.run(*command, *paths)
        if listed.status != 0:
            raise listed.to_error("list files")
        found = {}
        for record in listed.stdout.split(b"\0")[:-1]:
            described, _, raw = record.partition(b"\t")
            fields = described.decode().split()
            in_conflict = command[0] == "ls-files" and fields[2] != "0"
            object_id = fields[2] if command[0] == "ls-tree" else fields[1]
            found[raw.decode("utf-8", "replace")] = GitEntry("conflict" if in_conflict else fields[0], object_id)
        return found

    def _prepare_index(self, changes: Sequence[PlannedChange]) -> None:
        """Make the index as it shall be, beside the one that is there."""
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
        updated = self._git.run(
            "update-index",
            "-z",
            "--index-info",
            input_data="".join(lines).encode(),
            environment={"GIT_INDEX_FILE": str(self._prepared_index)},
        )
        if updated.status != 0:
            raise updated.to_error("bring the index up to date")

    def _read_content(self, change: PlannedChange, current: dict[str, GitEntry]) -> bytes | None:
        entry = current.get(change.path)
        return self._git.run("cat-file", "blob", entry.object_id).stdout if entry else None
