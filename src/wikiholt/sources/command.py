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

from wikiholt.errors import SourceBroken, SourceError
from wikiholt.sources.conversation import Conversation
from wikiholt.sources.exchange import exchange, keep_small
from wikiholt.sources.location import Location

_ENVIRONMENT = {
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
_SETTINGS = (
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
class Outcome:
    """What a finished git said."""

    status: int
    out: bytes
    err: str

    def failure(self, doing: str) -> SourceError:
        """The error that says what git would not do, in git's own words."""
        return SourceBroken(
            f"Git could not {doing}: {self.err or f'it ended with status {self.status}'}",
            hint="Look at the repository with `git fsck`.",
        )


class Git:
    """One repository as the git binary sees it. Safe to use from many threads."""

    def __init__(self, location: Location, timeout: float) -> None:
        # Naming the git directory keeps git from looking for another one further up,
        # and from refusing a repository that belongs to somebody else.
        self._location = location
        self._prefix = ["git", f"--git-dir={location.git_dir}", "--no-pager"]
        for setting in (f"safe.directory={location.git_dir}", *_SETTINGS):
            self._prefix += ["-c", setting]
        self._timeout = timeout

    def run(self, *arguments: str, given: bytes = b"", environment: Mapping[str, str] | None = None) -> Outcome:
        """Run one command to its end, with `given` on its standard input; a git that never ends is an error."""
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._location.git_dir,
                env=clean_environment() | dict(environment or {}),
            )
        except OSError as error:
            raise self._no_start(error) from error
        keep_small(process.pid)
        out, err = exchange(process, arguments[0], given, self._timeout)
        return Outcome(process.returncode, out, _first_line(err))

    @contextmanager
    def start(self, *arguments: str, patience: float = 1) -> Iterator[Conversation]:
        """Start a command to talk with; it is gone when the block is left, however that happens."""
        try:
            process = subprocess.Popen(
                [*self._prefix, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._location.git_dir,
                env=clean_environment(),
            )
        except OSError as error:
            raise self._no_start(error) from error
        keep_small(process.pid)
        conversation = Conversation(process, arguments[0], self._timeout * patience)
        try:
            yield conversation
        finally:
            conversation.close()

    def _no_start(self, error: OSError) -> SourceError:
        if isinstance(error, FileNotFoundError) and self._location.git_dir.exists():
            return SourceBroken("Git is not installed.", hint="Install git and make sure that it is on the PATH.")
        return SourceBroken(f"Git could not be started: {error.strerror or error}.", hint="Is the repository there?")


def clean_environment() -> dict[str, str]:
    """The environment git runs in: what this process has, without anything that is meant for git."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return inherited | _ENVIRONMENT


def _first_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return (fatal or lines or [""])[0].removeprefix("fatal: ").removeprefix("error: ")
