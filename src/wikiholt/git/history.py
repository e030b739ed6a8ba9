"""Reads git history: when files last changed and by whom, earlier versions of pages, and their former names.

A file last changed in the newest commit in which it differs from every parent; the date is the author date. A merge
therefore does not make old pages look new, but a page edited during a merge counts. A rename is a change.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from wikiholt.domain.git import Commit, FileVersion, LogEntry
from wikiholt.errors import SourceCorrupt
from wikiholt.git.objects import PageFiles, decode_file_name
from wikiholt.git.process import GitProcess, GitRunner, make_output_error

_LOG = logging.getLogger(__name__)

# Pathspecs let git skip the rest of the tree; too many of them make it slower.
_MAX_NAMED_FILES = 50
# A walk over a long history may produce no output for a while.
_LOG_TIMEOUT_FACTOR = 10
# A longer message or name is truncated. The output is limited too: a crafted commit can list one small tree a billion
# times.
_MAX_FIELD_BYTES = 1 << 20
_MAX_LOG_BYTES = 1 << 28
_HEADER_FORMAT = "--format=%H%n%an%n%ae%n%at%n%B"
# Otherwise git reads `.gitmodules`, and a bad value there ends the log.
_NO_SUBMODULES = "--ignore-submodules=all"
_LOG_ARGUMENTS = (
    "log",
    "-z",
    "--raw",
    "--no-abbrev",
    "-c",
    "--root",
    "--no-renames",
    "--full-history",
    "--no-notes",
    _NO_SUBMODULES,
)


class Ancestry:
    """Whether one commit is in the history of another. Remembers one such pair, for which git need not be asked."""

    def __init__(self) -> None:
        self._known: tuple[str, str] | None = None

    def add(self, commit: str, revision: str) -> None:
        """Remember that `commit` is in the history of `revision`."""
        self._known = (commit, revision)

    def is_ancestor(self, git: GitRunner, commit: str, revision: str) -> bool:
        if self._known != (commit, revision):
            if not is_ancestor(git, commit, revision):
                return False
            self.add(commit, revision)
        return True


def find_change_dates(
    git: GitRunner, files: Sequence[str], revision: str, since: str | None, ancestry: Ancestry
) -> tuple[dict[str, datetime], bool]:
    """When each file last changed, and whether git could read the history as far as needed.

    Commits before `since` are only walked for files that no later commit touched.
    """
    if not files:
        return {}, True
    missing = set(files)
    dates: dict[str, datetime] = {}
    is_complete = True
    if since:
        dates, parents, is_complete = _walk_log(git, (revision, f"^{since}"), missing)
        if since in parents:
            ancestry.add(since, revision)
        if not ancestry.is_ancestor(git, since, revision):
            since, missing, is_complete = None, set(files), True
    if missing:
        older, _, is_older_complete = _walk_log(git, (since or revision,), missing)
        dates, is_complete = dates | older, is_complete and is_older_complete
    if missing:
        date = get_commit_time(git, revision)
        dates |= dict.fromkeys(missing, date)
    return dates, is_complete


def get_commit_time(git: GitRunner, revision: str) -> datetime:
    """The author date of the commit."""
    result = git.run("log", "--no-walk", "--no-notes", "--format=%at", revision)
    if result.status != 0:
        raise result.to_error(f"read commit {revision}")
    return to_datetime(result.stdout)


def read_file_history(git: GitRunner, file: str, revision: str, limit: int) -> list[Commit]:
    """The commits that changed a file, newest first, followed through renames.

    Where old files are missing that would have to be compared, it is followed through renames without an edit.
    """
    for similarity in ("-M", "-M100%"):
        commits, is_complete = _read_file_commits(git, file, revision, limit, similarity)
        if is_complete:
            return commits
    raise SourceCorrupt(f"Git could not read the history of {file}.", hint="Check it with `git fsck`.")


def _read_file_commits(
    git: GitRunner, file: str, revision: str, limit: int, similarity: str
) -> tuple[list[Commit], bool]:
    """The commits that changed a file, and whether git could read as many as there are."""
    commits: list[Commit] = []
    header = b""
    options = ("-z", "--raw", "-c", "--follow", similarity, "--no-notes", _NO_SUBMODULES, _HEADER_FORMAT)
    with git.start("log", *options, revision, "--", file) as process:
        for token, is_file in _iter_tokens(_iter_fields(process, _MAX_LOG_BYTES)):
            if is_file and header:  # a merge that did not change the file lists no file
                commits.append(_parse_commit(header))
            header = b"" if is_file else token
            if len(commits) >= limit:
                return commits, True
        return commits, process.wait() == 0


def read_last_deletion(git: GitRunner, file: str, since: str, revision: str) -> Commit | None:
    """The newest commit after `since` that removed the file; None if there is none."""
    options = ("-z", "--raw", "-c", "--no-renames", "--diff-filter=D", "-1", "--no-notes", _NO_SUBMODULES)
    with git.start("log", *options, _HEADER_FORMAT, f"{since}..{revision}", "--", file) as process:
        for token, is_file in _iter_tokens(_iter_fields(process, _MAX_LOG_BYTES)):
            if not is_file:
                return _parse_commit(token)
        if process.wait() != 0:
            raise SourceCorrupt(f"Git could not read the history of {file}.", hint="Check it with `git fsck`.")
    return None


def read_page_log(
    git: GitRunner, revision: str, pages: PageFiles, limit: int, skip: int, *, all_commits: bool = False
) -> list[LogEntry]:
    """The commits that touched a page, newest first, each with its page files; the first `skip` are left out.

    With `all_commits`, also those that touched only other files of the wiki's directory, such as attachments.
    """
    entries: list[LogEntry] = []
    header, files = b"", []
    pathspecs = (pages.subdirectory,) if pages.subdirectory else ()

    with git.start(
        *_LOG_ARGUMENTS, _HEADER_FORMAT, revision, "--", *pathspecs, timeout_factor=_LOG_TIMEOUT_FACTOR
    ) as process:
        for token, is_file in chain(_iter_tokens(_iter_fields(process, _MAX_LOG_BYTES)), [(b"", False)]):
            if is_file:
                file = pages.to_page_file(decode_file_name(token))
                files += [file] if file is not None else []
                continue
            if files or (all_commits and header):
                entries.append(LogEntry(_parse_commit(header), tuple(dict.fromkeys(files))))
            if len(entries) >= skip + limit:
                return entries[skip : skip + limit]
            header, files = token, []
        if process.wait() != 0:
            raise SourceCorrupt("Git could not read the wiki's history.", hint="Check it with `git fsck`.")
    return entries[skip:]


def resolve_commit(git: GitRunner, digits: str, head: str) -> str | None:
    """The only commit in the history of `head` whose id begins with these digits; None for none or several."""
    result = git.run("rev-parse", f"--disambiguate={digits}")
    commits = []
    for candidate in result.stdout.decode().split():
        is_commit = git.run("cat-file", "-t", candidate).stdout.strip() == b"commit"
        if is_commit and is_ancestor(git, candidate, head):
            commits.append(candidate)
    return commits[0] if len(commits) == 1 else None


def _parse_commit(header: bytes) -> Commit:
    revision, author, email, timestamp, message = header.decode("utf-8", "replace").split("\n", 4)
    return Commit(revision, author, email, to_datetime(timestamp.encode()), message.strip())


def is_ancestor(git: GitRunner, commit: str, revision: str) -> bool:
    return git.run("merge-base", "--is-ancestor", commit, revision).status == 0


def _walk_log(git: GitRunner, commits: Sequence[str], missing: set[str]) -> tuple[dict[str, datetime], set[str], bool]:
    """Find the newest change of each missing file and remove it from the set; stop when the set is empty.

    Returns the dates, the parents of the commits that touched a missing file, and whether git could read the history.
    """
    dates: dict[str, datetime] = {}
    parents: set[str] = set()
    # A backslash may replace a byte that is not UTF-8, so git would not recognize such a name.
    is_usable = len(missing) <= _MAX_NAMED_FILES and not any("\\" in file for file in missing)
    pathspecs = sorted(missing) if is_usable else []
    with git.start(
        *_LOG_ARGUMENTS, "--format=%at %P", *commits, "--", *pathspecs, timeout_factor=_LOG_TIMEOUT_FACTOR
    ) as process:
        for header, file in _iter_changes(process):
            if file in missing:
                date, *own_parents = header.split(b" ")
                missing.discard(file)
                dates[file] = to_datetime(date)
                parents |= {parent.decode() for parent in own_parents}
                if not missing:
                    return dates, parents, True
        is_complete = process.wait() == 0
        if not is_complete:
            _LOG.warning("git could not read all of the history; %d files get the date of HEAD", len(missing))
    return dates, parents, is_complete


def _iter_changes(process: GitProcess) -> Iterator[tuple[bytes, str]]:
    """Every change of a file in the log, newest first, with the header of its commit."""
    header = b""
    for token, is_file in _iter_tokens(_iter_fields(process)):
        if is_file:
            yield header, decode_file_name(token)
        else:
            header = token


def _iter_tokens(fields: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Commit headers (False) and names of changed files (True) in the output of `git log -z --raw`."""
    names = 0
    for field in fields:
        if names:
            names -= 1
            yield field, True
        elif (change := field.lstrip(b"\n")).startswith(b":"):
            renamed = not change.startswith(b"::") and change.rpartition(b" ")[2][:1] in (b"R", b"C")
            names = 2 if renamed else 1
        elif change:
            yield change, False


def _iter_fields(process: GitProcess, max_bytes: int | None = None) -> Iterator[bytes]:
    """The NUL-separated fields of git's output. Raises SourceCorrupt beyond `max_bytes`."""
    rest = b""
    while block := process.read_some():
        *fields, rest = (rest + block).split(b"\0")
        rest = rest[:_MAX_FIELD_BYTES]
        yield from fields
        max_bytes = max_bytes - len(block) if max_bytes is not None else None
        if max_bytes is not None and max_bytes < 0:
            raise make_output_error("log")
    if rest:
        yield rest


def to_datetime(seconds: bytes) -> datetime:
    """The time of a commit; that of the first moment for a number that is no time."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):  # git stores any date that a broken client wrote
        return datetime.fromtimestamp(0, UTC)


# Earlier versions of pages, followed through renames.

_MAX_VERSION_COMMITS = 50_000

_FileChange = tuple[bytes, bytes, str, str]
"""Status, old blob, old name, new name."""


def find_old_versions(
    git: GitRunner, files: frozenset[str], revision: str, pages: PageFiles, limit: int
) -> list[FileVersion]:
    """Earlier versions of these page files, newest first, each blob of a page once. Merge commits are not compared."""
    current_names = {pages.to_repository_path(file): file for file in files}
    versions: dict[tuple[str, str, str], FileVersion] = {}
    pathspecs = (pages.subdirectory,) if pages.subdirectory else ()
    for _, changes in _iter_commits(git, "-M", f"--max-count={_MAX_VERSION_COMMITS}", revision, "--", *pathspecs):
        for version in _step_back(current_names, changes):
            versions.setdefault((version.file, version.blob, version.old_file), version)
        if len(versions) >= limit:
            break
    return list(versions.values())[:limit]


def _step_back(current_names: dict[str, str], changes: list[_FileChange]) -> Iterator[FileVersion]:
    """Step back over one commit: update `current_names` (name at that commit → page file today) to its parent."""
    before: dict[str, str] = {}
    for status, blob, old, new in changes:
        file = current_names.pop(new, None)
        if file is not None and status != b"A":  # an added file has no earlier version
            before[old] = file
            yield FileVersion(file, old, blob.decode())
    current_names |= before


def _iter_commits(git: GitRunner, *arguments: str) -> Iterator[tuple[str, list[_FileChange]]]:
    """The commits of a log, newest first, with their changes. Raises SourceCorrupt if git fails or writes too much."""
    options = ("-z", "--raw", "--no-abbrev", "--no-notes", _NO_SUBMODULES, "--format=%H")
    with git.start("log", *options, *arguments, timeout_factor=_LOG_TIMEOUT_FACTOR) as process:
        yield from _parse_changes(_iter_fields(process, _MAX_LOG_BYTES))
        if process.wait() != 0:
            raise SourceCorrupt("Git could not read the wiki's history.", hint="Check it with `git fsck`.")


def _parse_changes(fields: Iterator[bytes]) -> Iterator[tuple[str, list[_FileChange]]]:
    """Each commit in the output of `git log -z --raw`, with its changes."""
    commit = ""
    changes: list[_FileChange] = []
    for field in fields:
        described = field.lstrip(b"\n")
        if not described.startswith(b":"):
            yield commit, changes
            commit, changes = described.decode(), []
            continue
        _, _, blob, _, status = described.split(b" ")
        old = decode_file_name(next(fields, b""))
        new = decode_file_name(next(fields, b"")) if status[:1] in (b"R", b"C") else old
        changes.append((status[:1] if blob.strip(b"0") else b"A", blob, old, new))
    yield commit, changes


# Former names of pages: renames in the newest commits, walked once and then continued.

_MAX_RENAME_COMMITS = 5_000
"""Renames in older commits are not found."""
_MAX_RENAME_WALK_S = 30.0
"""Nor those that a longer walk would find: git compares each new file of a commit with each that was removed."""
_MAX_FORMER_FILES = 5
_MAX_COMPARED_FILES = 500
"""More files of one commit are compared by their hashes only."""


class _Rename(NamedTuple):
    """A file got a new name, or was created under it if `old` is empty."""

    old: str
    new: str


class RenameHistory(NamedTuple):
    """The renames up to a commit, one list per commit, newest first."""

    revision: str
    commits: tuple[Sequence[_Rename], ...] = ()
    is_complete: bool = True
    """Whether git could read all that it compared."""


def read_renames(git: GitRunner, revision: str, known: RenameHistory | None, ancestry: Ancestry) -> RenameHistory:
    """The renames up to this commit. Continues what is known of one of its ancestors."""
    if known is not None and known.revision == revision:
        return known
    older = known if known is not None and ancestry.is_ancestor(git, known.revision, revision) else None
    newer, is_complete = _walk_renames(git, (revision, f"^{older.revision}") if older else (revision,))
    commits = [*newer, *(older.commits if older else ())]
    renamed = {rename.new for commit in commits for rename in commit if rename.old}
    kept = ([rename for rename in commit if rename.old or rename.new in renamed] for commit in commits)
    return RenameHistory(revision, tuple(filter(None, kept)), is_complete)


def find_former_files(
    history: RenameHistory, files: Iterable[str], limit: int | None = _MAX_FORMER_FILES
) -> Mapping[str, Sequence[str]]:
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
    return {file: [name for name in names if name != file][:limit] for file, names in former.items()}


def find_names_since(git: GitRunner, files: Iterable[str], commit: str, revision: str) -> set[str]:
    """All other names of files of a revision since a commit, by the renames that `find_renames_of_commit` finds too."""
    renames, _ = _walk_renames(git, (revision, f"^{commit}"), "-M")
    former = find_former_files(RenameHistory(revision, tuple(renames)), files, limit=None)
    return {name for names in former.values() for name in names}


def _walk_renames(
    git: GitRunner, commits: Sequence[str], similarity: str = "-M80%"
) -> tuple[list[list[_Rename]], bool]:
    """The renames of each commit, newest first, and whether git could read all that it compared.

    Where files cannot be compared because old ones are missing, renames without an edit are still found by their
    hashes.
    """
    similar, is_complete = _collect_renames(git, similarity, commits)
    if is_complete:
        return list(similar.values()), True
    exact, _ = _collect_renames(git, "-M100%", commits)
    return list((exact | similar).values()), False


def find_renames_of_commit(git: GitRunner, commit: str) -> dict[str, str]:
    """The new names of the files that a commit renamed, by their old names."""
    found, _ = _collect_renames(git, "-M", ("--no-walk", commit))
    return {rename.old: rename.new for rename in found.get(commit, ()) if rename.old}


def _collect_renames(git: GitRunner, similarity: str, commits: Sequence[str]) -> tuple[dict[str, list[_Rename]], bool]:
    """The renames of each commit, as far as git can read the history, and whether it can."""
    options = ("--no-merges", "--diff-filter=AR", similarity, f"-l{_MAX_COMPARED_FILES}")
    deadline = time.monotonic() + _MAX_RENAME_WALK_S
    found: dict[str, list[_Rename]] = {}
    try:
        for commit, changes in _iter_commits(git, *options, f"--max-count={_MAX_RENAME_COMMITS}", *commits, "--"):
            found[commit] = [_Rename(old if status == b"R" else "", new) for status, _, old, new in changes]
            if time.monotonic() > deadline:
                _LOG.warning("renames in older commits are not found: the walk took more than %g s", _MAX_RENAME_WALK_S)
                break
    except SourceCorrupt as error:
        _LOG.warning("not all former names are found: %s", error.message)
        return found, False
    return found, True
