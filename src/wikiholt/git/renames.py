"""Finds the former files of pages: renames in the newest commits, walked once and then continued."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from wikiholt.errors import SourceCorrupt
from wikiholt.git.history import LOG_TIMEOUT_FACTOR, MAX_LOG_BYTES, Ancestry, iter_commit_changes, iter_fields
from wikiholt.git.process import GitRunner

MAX_COMMITS = 5_000
"""Renames in older commits are not found."""
MAX_FORMER_FILES = 5
_RENAMES_ARGUMENTS = (
    "log",
    "-z",
    "--raw",
    "--no-abbrev",
    "--no-merges",
    "--no-notes",
    "--diff-filter=AR",
    "-M80%",
    "-l500",  # more files of one commit are compared by their hashes only
    "--format=%H",
    f"--max-count={MAX_COMMITS}",
)


class _Rename(NamedTuple):
    """A file got a new name, or was created under it if `old` is empty."""

    old: str
    new: str


class RenameHistory(NamedTuple):
    """The renames up to a commit, one list per commit, newest first."""

    revision: str
    commits: tuple[Sequence[_Rename], ...] = ()


def read_renames(git: GitRunner, revision: str, known: RenameHistory | None, ancestry: Ancestry) -> RenameHistory:
    """The renames up to this commit. Continues what is known of one of its ancestors."""
    if known is not None and known.revision == revision:
        return known
    older = known if known is not None and ancestry.is_ancestor(git, known.revision, revision) else None
    newer = _walk(git, (revision, f"^{older.revision}") if older else (revision,))
    commits = [*newer, *(older.commits if older else ())]
    renamed = {rename.new for commit in commits for rename in commit if rename.old}
    kept = ([rename for rename in commit if rename.old or rename.new in renamed] for commit in commits)
    return RenameHistory(revision, tuple(filter(None, kept)))


def find_former_files(history: RenameHistory, files: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The former names of these files of the repository, newest first."""
    current = {file: file for file in files}
    former: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for commit in history.commits:
        before: dict[str, str] = {}
        for rename in commit:
            file = current.pop(rename.new, None)
            if file is not None and rename.old:
                before[rename.old] = file
                former[file].setdefault(rename.old)
        current |= before
    return {file: [name for name in names if name != file][:MAX_FORMER_FILES] for file, names in former.items()}


def _walk(git: GitRunner, commits: Sequence[str]) -> list[list[_Rename]]:
    with git.start(*_RENAMES_ARGUMENTS, *commits, "--", timeout_factor=LOG_TIMEOUT_FACTOR) as process:
        found = [
            [_Rename(old if status == b"R" else "", new) for status, _, old, new in changes]
            for changes in iter_commit_changes(iter_fields(process, MAX_LOG_BYTES))
        ]
        if process.wait() != 0:
            raise SourceCorrupt("Git could not read the wiki's history.", hint="Check it with `git fsck`.")
    return found
