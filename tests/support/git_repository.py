"""Real repositories, created with real git."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.first_commit import is_plain, write_first_commit, write_object
from wikiholt.git.commit import CommitWriter

_OPTIONS = tuple(
    part
    # A test repository needs no cleanup after each commit, and no files that survive a power failure.
    for setting in ("protocol.file.allow=always", "gc.auto=0", "maintenance.auto=false", "core.fsync=none")
    for part in ("-c", setting)
)


_PERSON = "Ada <ada@example.org>"


class Repository:
    """A repository for a test: commits have fixed dates, one minute apart, and user settings of git are ignored."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self._minutes = 0
        self._is_new = False
        """Whether there is nothing but the files of `git init`."""
        path.mkdir(parents=True, exist_ok=True)
        if options or (path / ".git").exists():
            self.run_git("init", "--quiet", "--initial-branch=main", *options, ".")
        else:
            _write_empty_repository(path / ".git")
            self._is_new = _list_names(path) == [".git"]

    def run_git(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> bytes:
        self._is_new = False
        moment = self._get_moment()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_AUTHOR_DATE": moment,
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
            "GIT_COMMITTER_DATE": moment,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        command = ["git", *_OPTIONS, *arguments]
        done = subprocess.run(command, cwd=self.path, env=environment, input=stdin, capture_output=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"git {arguments}: {done.stderr.decode()}")
        return done.stdout.strip()

    def commit(self, files: dict[str, str | bytes | None], message: str = "Write") -> str:
        """Write files (None deletes one), commit, and return the commit's id."""
        self._minutes += 1
        contents = {
            name: text.encode() if isinstance(text, str) else text for name, text in files.items() if text is not None
        }
        is_first = self._is_new and self._is_unchanged() and len(contents) == len(files) and is_plain(contents, message)
        self._is_new = False
        for name in files:
            target = self.path / name
            if name not in contents:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(contents[name])
        if is_first:
            return write_first_commit(self.path, contents, f"{_PERSON} {self._get_moment()}", message)
        self.run_git("add", "--all", "--", ".")
        self.run_git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.get_head()

    def _get_moment(self) -> str:
        """The time of a commit made now."""
        return f"{1_700_000_000 + 60 * self._minutes} +0000"

    def _is_unchanged(self) -> bool:
        """Whether no test has written files beside those of `git init`; the branch may be another one."""
        git = self.path / ".git"
        found = {str(path.relative_to(git)): path.read_bytes() for path in git.rglob("*") if path.is_file()}
        expected = {name: content for name, content in _read_empty_repository() if content is not None}
        return _list_names(self.path) == [".git"] and found | {"HEAD": b""} == expected | {"HEAD": b""}

    def commit_tree(self, lines: list[bytes]) -> str:
        """Commit a tree in the format of `git mktree -z`, for names that no file system accepts."""
        self._minutes += 1
        tree = self.run_git("mktree", "-z", "--missing", stdin=b"".join(line + b"\0" for line in lines)).decode()
        commit = self.run_git("commit-tree", tree, "-m", "Odd names").decode()
        self.run_git("update-ref", "HEAD", commit)
        return commit

    def write_blob(self, content: bytes) -> str:
        """Write a blob and return its id, without a process where ids are SHA-1."""
        self._is_new = False
        config = self.path / ".git" / "config"
        if config.is_file() and "objectformat" not in config.read_text().lower():
            return write_object(config.parent, b"blob", content).hex()
        return self.run_git("hash-object", "-w", "--stdin", stdin=content).decode()

    def get_head(self) -> str:
        """The commit that HEAD names, without a process where its ref is a file."""
        git = self.path / ".git"
        try:
            return (git / (git / "HEAD").read_text().removeprefix("ref: ").strip()).read_text().strip()
        except OSError:
            return self.run_git("rev-parse", "HEAD").decode()

    def set_branch(self, name: str) -> None:
        """Let HEAD name this branch, which has no commits yet."""
        (self.path / ".git" / "HEAD").write_text(f"ref: refs/heads/{name}\n")

    def get_loose_object_file(self, object_id: str) -> Path:
        """The file of a loose object; the file is made writable."""
        file = self.path / ".git" / "objects" / object_id[:2] / object_id[2:]
        file.chmod(0o644)
        return file

    def get_commit_time(self, number: int) -> float:
        """The time stamp of the n-th commit."""
        return 1_700_000_000 + 60.0 * number


def _list_names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _write_empty_repository(git_directory: Path) -> None:
    """Write the files of `git init` without starting a process."""
    for name, content in _read_empty_repository():
        target = git_directory / name
        target.mkdir() if content is None else target.write_bytes(content)


@cache
def _read_empty_repository() -> tuple[tuple[str, bytes | None], ...]:
    """The directories (None) and files that `git init` creates, parents first."""
    with TemporaryDirectory() as directory:
        made = Repository(Path(directory), "--template=").path / ".git"
        found = [made, *sorted(made.rglob("*"))]
        return tuple((str(path.relative_to(made)), path.read_bytes() if path.is_file() else None) for path in found)


@contextmanager
def limit_lock_wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    """Let writers wait this long for locks of other processes. The time limit of git commands stays."""
    create = CommitWriter.__init__

    def create_hasty(self: CommitWriter, *arguments: Any) -> None:
        create(self, *arguments[:-1], seconds)

    with monkeypatch.context() as patch:
        patch.setattr(CommitWriter, "__init__", create_hasty)
        yield


@contextmanager
def hang_git(repositories: Sequence[Repository]) -> Iterator[None]:
    """In this block, every git command in these repositories waits."""
    configs = [repository.path / ".git/config" for repository in repositories]
    for config in configs:
        config.unlink()
        os.mkfifo(config)  # git waits until somebody writes to it
    try:
        yield
    finally:
        for config in configs:
            pipe = config.rename(config.with_name("pipe"))
            config.touch()
            with suppress(OSError):  # nobody waits
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
