"""The git binary: run without a shell, in a clean environment, never for ever.

Nothing that git could be told by its surroundings is let in: hooks export GIT_DIR and the like, users have aliases and
settings of their own. What is asked of git depends on the repository alone. Git is never allowed to use the network:
in a partial clone an object that was not fetched is a missing object.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from wikiholt.errors import SourceCorrupt, SourceError
from wikiholt.sources.conversation import GitProcess
from wikiholt.sources.exchange import run_to_end, limit_memory
from wikiholt.sources.location import RepositoryLocation

_GIT_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # A replaced object would let one id mean two contents; the index holds on to ids.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_GIT_CONFIG = (
    "core.fsmonitor=false",
    # Who can write into a repository could otherwise have programs run by whoever reads or writes it.
    f"core.hooksPath={os.devnull}",
    "core.quotePath=false",
    # What is committed must outlive a power cut, and the branch must never name what did not.
    "core.fsync=objects,reference",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.showRoot=true",
    "log.showSignature=false",
)


@dataclass(frozen=True, slots=True)
class GitResult:
    """What a finished git said."""

    status: int
    stdout: bytes
    stderr: str

    def to_error(self, action: str) -> SourceError:
        """The error that says what git would not do, in git's own words."""
        return SourceCorrupt(
            f"Git could not {action}: {self.stderr or f'it ended with status {self.status}'}",
            hint="Look at the repository with `git fsck`.",
        )


class GitRunner:
    """One repository as the git binary sees it. Safe to use from many threads."""

    def __init__(self, location: RepositoryLocation, timeout: float) -> None:
        # Naming the git directory keeps git from looking for another one further up,
        # and from refusing a repository that belongs to somebody else.
        self._location = location
        self._prefix = ["git", f"--git-dir={location.git_dir}", "--no-pager"]
        for setting in (f"safe.directory={location.git_dir}", *_GIT_CONFIG):
            self._prefix += ["-c", setting]
        self._timeout = timeout

    def run(self, *arguments: str, input_data: bytes = b"", environment: Mapping[str, str] | None = None) -> GitResult:
        """Run one command to its end, with `given` on its standard input; a git that never ends is an error."""
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._location.git_dir,
                env=build_environment() | dict(environment or {}),
            )
        except OSError as error:
            raise self._make_start_error(error) from error
        limit_memory(process.pid)
        out, err = run_to_end(process, arguments[0], input_data, self._timeout)
        return GitResult(process.returncode, out, _get_first_line(err))

    @contextmanager
    def start(self, *arguments: str, timeout_factor: float = 1) -> Iterator[GitProcess]:
        """Start a command to talk with; it is gone when the block is left, however that happens."""
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._location.git_dir,
                env=build_environment(),
            )
        except OSError as error:
            raise self._make_start_error(error) from error
        limit_memory(process.pid)
        conversation = GitProcess(process, arguments[0], self._timeout * timeout_factor)
        try:
            yield conversation
        finally:
            conversation.close()

    def _make_start_error(self, error: OSError) -> SourceError:
        if isinstance(error, FileNotFoundError) and self._location.git_dir.exists():
            return SourceCorrupt("Git is not installed.", hint="Install git and make sure that it is on the PATH.")
        return SourceCorrupt(f"Git could not be started: {error.strerror or error}.", hint="Is the repository there?")


def build_environment() -> dict[str, str]:
    """The environment git runs in: what this process has, without anything that is meant for git."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return inherited | _GIT_ENVIRONMENT


def _get_first_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return (fatal or lines or [""])[0].removeprefix("fatal: ").removeprefix("error: ")
