"""A bare repository whose HEAD is any commit of another repository, so that a wiki of it is indexed at that commit.

It borrows the objects of the other repository, in which nothing is written.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from wikiholt.errors import InvalidSource, NoCommits
from wikiholt.git.commit import COMMITTER_ENVIRONMENT
from wikiholt.git.mirror import make_bare_runner
from wikiholt.git.process import GitResult, GitRunner
from wikiholt.git.repository import find_repository, get_file_type, make_unreadable_error

_TIMEOUT_S = 60.0
_BRANCH = "refs/heads/check"
_AUTHOR = COMMITTER_ENVIRONMENT | {"GIT_AUTHOR_NAME": "wikiholt", "GIT_AUTHOR_EMAIL": "wikiholt@localhost"}


class PinnedRepository:
    """Only for one process at a time."""

    def __init__(self, path: Path, repository: Path) -> None:
        """Creates the repository at `path`, or uses the one that is there. Raises SourceError and InvalidSource."""
        self._origin = find_repository(repository)
        self._repository = repository
        self._origin_git = GitRunner(self._origin, _TIMEOUT_S)
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        self._git = make_bare_runner(path, _TIMEOUT_S)
        if not (path / "HEAD").exists():
            object_format = self._run_origin("rev-parse", "--show-object-format").stdout.decode().strip()
            options = ("--quiet", "--bare", "--template=", f"--object-format={object_format}")
            _require(self._git.run("init", *options, f"--initial-branch={_BRANCH.rpartition('/')[2]}"), "create it")
        try:
            self._borrow_objects()
        except OSError as error:
            raise make_unreadable_error(repository, error) from error

    def _borrow_objects(self) -> None:
        objects = os.fsencode(self._origin.common_dir.absolute() / "objects")
        (self._path / "objects/info").mkdir(exist_ok=True)
        (self._path / "objects/info/alternates").write_bytes(objects + b"\n")
        shallow = self._path / "shallow"
        shallow.unlink(missing_ok=True)
        if get_file_type(self._origin.common_dir / "shallow"):
            shutil.copyfile(self._origin.common_dir / "shallow", shallow)

    def resolve(self, name: str) -> str:
        """The id of the commit with this name in the other repository. Raises NoCommits and InvalidSource."""
        commit = self._find_commit(name)
        if commit is not None:
            return commit
        if name == "HEAD":
            raise NoCommits(f"The repository at {self._repository} has no commits.", hint="Commit the pages first.")
        if get_file_type(self._origin.common_dir / "shallow"):
            hint = "This clone is shallow: fetch the commit with `git fetch --unshallow`, in CI with `fetch-depth: 0`."
        else:
            hint = "Name a commit, a branch or a tag; `git fetch` fetches new ones."
        raise InvalidSource(f"There is no commit {name!r} in {self._repository}.", hint=hint)

    def _find_commit(self, name: str) -> str | None:
        if not name or name.startswith("-") or "\0" in name:
            return None
        result = self._origin_git.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return result.stdout.decode().strip() if result.status == 0 else None

    def is_ancestor(self, old: str, new: str) -> bool:
        return self._origin_git.run("merge-base", "--is-ancestor", old, new).status == 0

    def commit_staged_files(self) -> str:
        """A commit of the files that are staged in the other repository, after its HEAD. Raises SourceError."""
        index = self._origin.git_dir / "index"
        with suppress(KeyError, OSError):  # a commit of some of the files has an index of its own
            used = Path(os.environ["GIT_INDEX_FILE"]).resolve(strict=True)
            index = used if used.is_relative_to(self._origin.git_dir.resolve()) else index
        try:
            shutil.copyfile(index, self._path / "index")
        except FileNotFoundError:
            (self._path / "index").unlink(missing_ok=True)
        except OSError as error:
            raise make_unreadable_error(self._repository, error) from error
        tree = _require(self._git.run("write-tree"), "read the staged files").stdout.decode().strip()
        head = self._find_commit("HEAD")
        parents = ("-p", head) if head else ()
        commit = self._git.run("commit-tree", *parents, tree, input_data=b"Staged files\n", environment=_AUTHOR)
        return _require(commit, "create a commit").stdout.decode().strip()

    def pin(self, commit: str) -> None:
        """Make this commit HEAD."""
        _require(self._git.run("update-ref", _BRANCH, commit, environment=_AUTHOR), "set its HEAD")

    def _run_origin(self, *arguments: str) -> GitResult:
        return _require(self._origin_git.run(*arguments), "read the repository")


def _require(result: GitResult, action: str) -> GitResult:
    if result.status != 0:
        raise result.to_error(action)
    return result
