"""The work tree of a repository that is not bare follows the commits made here, for exactly the edited files.

What somebody has not committed is never touched: where an edited file differs from HEAD in the index or on disk, the
write is refused before anything happened. The index is changed under git's own lock, in which the branch moves too,
so that no other git commits an index that lacks the edit. What a killed writer noted as under way
(`wikiholt.sources.pending`) is brought about by whoever comes next.
"""

import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from wikiholt.errors import NotWritable
from wikiholt.sources.claims import index_locked
from wikiholt.sources.command import Git
from wikiholt.sources.disk import follow, is_as, is_writable
from wikiholt.sources.folders import Entry
from wikiholt.sources.location import Location
from wikiholt.sources.pending import Pending, Planned

_LOG = logging.getLogger(__name__)


def work_tree(git: Git, path: Path, location: Location, pending: Pending) -> "WorkTree | None":
    """The work tree of the repository at this path, or None when it is bare."""
    listed = git.run("config", "--null", "--get-regexp", r"^core\.(bare|worktree)$").out.decode("utf-8", "replace")
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
    return WorkTree(git, location.git_dir, root, pending)


class WorkTree:
    """The checked-out files of a repository and their index."""

    def __init__(self, git: Git, git_dir: Path, root: Path, pending: Pending) -> None:
        self._git = git
        self._git_dir = git_dir
        self._root = root
        self._pending = pending
        self._prepared = git_dir / "wikiholt.index"

    def advance(self, planned: Sequence[Planned], commit: str, move: Callable[[], bool], deadline: float) -> bool:
        """Move the branch and let index and files follow; False when the branch could not be moved."""
        with index_locked(self._git_dir, deadline):
            self._require_saved(planned)
            self._prepare(planned)
            self._pending.leave(commit, planned)
            if not move():
                return False
            self._prepared.replace(self._git_dir / "index")
        self._follow(planned)
        return True

    def heal(self, deadline: float) -> None:
        """Finish what a writer that was killed had begun. For who holds the writers' lock."""
        begun = self._pending.read()
        if begun is None or self._git.run("merge-base", "--is-ancestor", begun[0], "HEAD").status != 0:
            return
        current = self._entries("ls-tree", "-z", "--full-tree", "HEAD", "--", paths=[each.path for each in begun[1]])
        owed = [Planned(each.path, each.old, current.get(each.path), self._content(each, current)) for each in begun[1]]
        with index_locked(self._git_dir, deadline):
            staged = self._staged(owed)
            self._prepare([each for each in owed if staged.get(each.path) == each.old])
            self._prepared.replace(self._git_dir / "index")
        self._follow(owed)

    def _follow(self, planned: Sequence[Planned]) -> None:
        for change in planned:
            try:
                # Somebody may have saved the file since it was looked at; then it stays as a change of theirs.
                if is_as(self._root, change.path, change.old):
                    follow(self._root, change.path, change.new, change.data)
            except OSError as error:
                _LOG.warning("a file of a work tree could not follow its commit: %s", error.strerror)

    def _require_saved(self, planned: Sequence[Planned]) -> None:
        staged = self._staged(planned)
        for change in planned:
            if staged.get(change.path) != change.old or not is_as(self._root, change.path, change.old):
                raise NotWritable(
                    f"{change.path} has changes in the repository's work tree that are not committed.",
                    hint="Commit them, or take them back with `git restore`.",
                )
            if not is_writable(self._root, change.path):
                raise NotWritable(
                    f"{change.path} cannot be written in the repository's work tree.",
                    hint="Check that the user who runs wikiholt may write there.",
                )

    def _staged(self, planned: Sequence[Planned]) -> dict[str, Entry]:
        """What the index holds for these files; a file in conflict is given as something no file ever was."""
        return self._entries("ls-files", "--stage", "-z", "--", paths=[change.path for change in planned])

    def _entries(self, *command: str, paths: Sequence[str]) -> dict[str, Entry]:
        listed = self._git.run(*command, *paths)
        if listed.status != 0:
            raise listed.failure("list files")
        found = {}
        for record in listed.out.split(b"\0")[:-1]:
            described, _, raw = record.partition(b"\t")
            fields = described.decode().split()
            in_conflict = command[0] == "ls-files" and fields[2] != "0"
            object_id = fields[2] if command[0] == "ls-tree" else fields[1]
            found[raw.decode("utf-8", "replace")] = Entry("conflict" if in_conflict else fields[0], object_id)
        return found

    def _prepare(self, planned: Sequence[Planned]) -> None:
        """Make the index as it shall be, beside the one that is there."""
        for leftover in (self._prepared, self._prepared.with_suffix(".index.lock")):
            leftover.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            shutil.copyfile(self._git_dir / "index", self._prepared)
        lines = [
            f"{change.new.mode} {change.new.object_id}\t{change.path}\0"
            if change.new
            else f"0 {'0' * len(change.old.object_id if change.old else '')}\t{change.path}\0"
            for change in sorted(planned, key=lambda change: change.new is not None)
        ]
        updated = self._git.run(
            "update-index",
            "-z",
            "--index-info",
            given="".join(lines).encode(),
            environment={"GIT_INDEX_FILE": str(self._prepared)},
        )
        if updated.status != 0:
            raise updated.failure("bring the index up to date")

    def _content(self, change: Planned, current: dict[str, Entry]) -> bytes | None:
        entry = current.get(change.path)
        return self._git.run("cat-file", "blob", entry.object_id).out if entry else None
