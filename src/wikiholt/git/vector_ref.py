"""A ref of a remote that nobody checks out: a commit without parents whose files are read and written with plumbing.

Runs git as the user does, with their credentials. New objects go to a temporary directory, never to the repository.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from wikiholt.errors import InvalidSource, NotFound, SourceError
from wikiholt.git.commit import COMMITTER_ENVIRONMENT
from wikiholt.git.repository import find_repository

_TIMEOUT_S = 600.0
_OWN_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE")
_AUTHOR = COMMITTER_ENVIRONMENT | {"GIT_AUTHOR_NAME": "wikiholt", "GIT_AUTHOR_EMAIL": "wikiholt@localhost"}
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")
_BLOCK_BYTES = 512


class VectorRef:
    """One ref of one remote of a repository."""

    def __init__(self, repository: Path, remote: str, ref: str, directory: Path, max_bytes: int) -> None:
        """`directory` is temporary. Raises SourceError, and InvalidSource for an unknown remote."""
        self._repository, self._remote, self._ref, self._max_bytes = repository, remote, ref, max_bytes
        objects = directory / "objects"
        objects.mkdir()
        inherited = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
        self._environment = {
            **inherited,
            **_AUTHOR,
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(find_repository(repository).common_dir.absolute() / "objects"),
            "GIT_TERMINAL_PROMPT": "1" if sys.stdin is not None and sys.stdin.isatty() else "0",
            "LC_ALL": "C",
        }
        remotes = self._run("remote", action="list the remotes").decode().split()
        if remote not in remotes:
            known = f"Its remotes: {', '.join(remotes)}." if remotes else "It has none: add one with `git remote add`."
            raise InvalidSource(f"{repository} has no remote {remote!r}.", hint=known)

    def push(self, files: Mapping[str, bytes]) -> None:
        """Replace what the ref has by these files. Raises SourceError."""
        entries = []
        for name, data in sorted(files.items()):
            blob = self._run("hash-object", "-w", "--stdin", data=data, action="store a file").decode().strip()
            entries.append(f"100644 blob {blob}\t{name}\n")
        tree = self._run("mktree", data="".join(entries).encode(), action="store a tree").decode().strip()
        commit = self._run("commit-tree", tree, data=b"Vectors of the index\n", action="make a commit").decode().strip()
        options = ("--quiet", "--no-verify", "--recurse-submodules=no", "--no-follow-tags")
        # By its addresses: by its name, a clone that follows all refs of the remote would get one to temporary objects.
        urls = self._run("remote", "get-url", "--push", "--all", self._remote, action="read the address of the remote")
        for url in urls.decode().splitlines():
            self._run("push", *options, "--", url, f"+{commit}:{self._ref}", action=f"push to {self._remote}")

    def fetch(self) -> str:
        """Fetch the ref and return its commit. Raises NotFound if the remote does not have it, and SourceError."""
        action = f"read {self._remote}"
        listed = self._run("ls-remote", "--quiet", self._remote, self._ref, action=action).decode().splitlines()
        # A branch may have this name too, after `refs/heads/`.
        commit = next((line.split("\t")[0] for line in listed if line.endswith(f"\t{self._ref}")), None)
        if commit is None:
            hint = "Push it where the index is: `wikiholt index push`. Both need the same model."
            raise NotFound(f"{self._remote} has no index for this model ({self._ref}).", hint=hint)
        options = (
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-filter",
            "--refmap=",
        )
        self._run("fetch", *options, "--no-auto-maintenance", self._remote, self._ref, action=action)
        return commit

    def read_file(self, commit: str, name: str, max_bytes: int) -> bytes:
        """A file of the commit. Raises SourceError if it is missing or larger."""
        size = int(self._run("cat-file", "-s", f"{commit}:{name}", action=f"read {name}"))
        if size > max_bytes:
            hint = f"At most {max_bytes} are read: see remote.max_bytes."
            raise SourceError(f"{name} of the pushed index has {size} bytes.", hint=hint)
        return self._run("cat-file", "blob", f"{commit}:{name}", action=f"read {name}")

    def _run(self, *arguments: str, data: bytes = b"", action: str) -> bytes:
        """Run git. What it writes is limited in size. Raises SourceError."""
        command = ("git", "-C", str(self._repository), *_NO_HOOKS, *arguments)
        limited = ("sh", "-c", 'ulimit -f "$1"; shift; exec "$@"', "sh", str(self._max_bytes // _BLOCK_BYTES), *command)
        try:
            done = subprocess.run(
                limited, input=data, capture_output=True, env=self._environment, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"Git could not {action} within {_TIMEOUT_S:g} s.", hint="Try again.") from error
        if done.returncode != 0:
            raise self._make_error(action, done.stderr.decode("utf-8", "replace"))
        return done.stdout

    def _make_error(self, action: str, errors: str) -> SourceError:
        lines = [line.strip() for line in errors.splitlines() if line.strip()] or ["git gave no reason"]
        reason = next((line for line in lines if line.startswith(("fatal:", "error:", "!", "remote:"))), lines[0])
        text = "".join(char if char.isprintable() else " " for char in reason)[:300]
        is_refused = any(word in errors.lower() for word in ("denied", "rejected", "403", "not allowed", "permission"))
        hint = "Check the network and the address of the remote."
        if is_refused:
            hint = f"You need the permission to read and push refs/wikiholt on {self._remote}."
        return SourceError(f"Git could not {action}: {text}", hint=hint)
