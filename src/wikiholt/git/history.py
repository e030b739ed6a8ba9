"""When files were changed, and by whom, from git's history.

A file was last changed by the newest commit that made it differ from what it was in each of that commit's parents, at
the time its author gave it. So a merge does not make pages look new that were written long before, while a page that
was edited in the course of a merge counts. Moving a file to another name is a change.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain

from wikiholt.domain.git import Commit, FileVersion, LogEntry
from wikiholt.errors import SourceCorrupt
from wikiholt.git.objects import PageFiles, decode_file_name
from wikiholt.git.process import GitProcess, GitRunner, make_output_error

_LOG = logging.getLogger(__name__)

# Naming files lets git pass over the rest of the tree; naming very many makes it slower.
_MAX_NAMED_FILES = 50
# Walking a long history may yield nothing for a while.
_TIMEOUT_FACTOR = 10
# A message or a name beyond this is cut. A commit may name one small tree a thousand million times over: what it says
# of itself is read so far.
_MAX_FIELD_BYTES = 1 << 20
_MAX_LOG_BYTES = 1 << 28
_HEADER_FORMAT = "--format=%H%n%an%n%ae%n%at%n%B"
_LOG_ARGUMENTS = ("log", "-z", "--raw", "--no-abbrev", "-c", "--root", "--no-renames", "--full-history", "--no-notes")


def find_change_dates(git: GitRunner, files: Sequence[str], revision: str, since: str | None) -> dict[str, datetime]:
    """When each file was last changed; commits before `since` are only walked for files that none after it touched."""
    if not files:
        return {}
    missing = set(files)
    found: dict[str, datetime] = {}
    ranges = [(revision, f"^{since}"), (since,)] if since and _is_ancestor(git, since, revision) else [(revision,)]
    for commits in ranges:
        if missing:
            found |= _walk_log(git, commits, missing)
    if missing:
        when = get_commit_time(git, revision)
        found |= dict.fromkeys(missing, when)
    return found


def get_commit_time(git: GitRunner, revision: str) -> datetime:
    """When the commit was written."""
    shown = git.run("log", "--no-walk", "--no-notes", "--format=%at", revision)
    if shown.status != 0:
        raise shown.to_error(f"read commit {revision}")
    return _to_datetime(shown.stdout)


def read_file_history(git: GitRunner, file: str, revision: str, limit: int) -> list[Commit]:
    """The commits that changed a file, newest first, its earlier names followed."""
    commits: list[Commit] = []
    header = b""
    with git.start(
        "log", "-z", "--raw", "-c", "--follow", "--no-notes", _HEADER_FORMAT, revision, "--", file
    ) as conversation:
        for token, is_file in _iter_tokens(iter_fields(conversation, _MAX_LOG_BYTES)):
            if is_file and header:  # a merge that only brought the file along has no change to show
                commits.append(_parse_commit(header))
            header = b"" if is_file else token
            if len(commits) >= limit:
                return commits
        if conversation.wait() != 0:
            raise SourceCorrupt(f"Git could not read the history of {file}.", hint="Look at it with `git fsck`.")
    return commits


def read_page_log(git: GitRunner, revision: str, pages: PageFiles, limit: int, skip: int) -> list[LogEntry]:
    """The commits that touched a page, newest first, each with its pages; the first `skip` are passed over."""
    entries: list[LogEntry] = []
    header, files = b"", []
    named = (pages.subdirectory,) if pages.subdirectory else ()

    with git.start(
        *_LOG_ARGUMENTS, _HEADER_FORMAT, revision, "--", *named, timeout_factor=_TIMEOUT_FACTOR
    ) as conversation:
        for token, is_file in chain(_iter_tokens(iter_fields(conversation, _MAX_LOG_BYTES)), [(b"", False)]):
            if is_file:
                own = pages.to_page_file(decode_file_name(token))
                files += [own] if own is not None else []
                continue
            if files:
                entries.append(LogEntry(_parse_commit(header), tuple(dict.fromkeys(files))))
            if len(entries) >= skip + limit:
                return entries[skip : skip + limit]
            header, files = token, []
        if conversation.wait() != 0:
            raise SourceCorrupt("Git could not read the wiki's history.", hint="Look at it with `git fsck`.")
    return entries[skip:]


def resolve_commit(git: GitRunner, digits: str, head: str) -> str | None:
    """The one commit in the history of `head` whose id begins with these digits."""
    listed = git.run("rev-parse", f"--disambiguate={digits}")
    found = []
    for candidate in listed.stdout.decode().split():
        is_commit = git.run("cat-file", "-t", candidate).stdout.strip() == b"commit"
        if is_commit and _is_ancestor(git, candidate, head):
            found.append(candidate)
    return found[0] if len(found) == 1 else None


def _parse_commit(header: bytes) -> Commit:
    revision, author, email, moment, message = header.decode("utf-8", "replace").split("\n", 4)
    return Commit(revision, author, email, _to_datetime(moment.encode()), message.strip())


def _is_ancestor(git: GitRunner, commit: str, revision: str) -> bool:
    return git.run("merge-base", "--is-ancestor", commit, revision).status == 0


def _walk_log(git: GitRunner, commits: Sequence[str], missing: set[str]) -> dict[str, datetime]:
    """Find the newest change of each missing file and take it from the set; stop when the set is empty."""
    found: dict[str, datetime] = {}
    # A shown backslash may stand for a byte that is not UTF-8, so such a name cannot be given back to git.
    named = sorted(missing) if len(missing) <= _MAX_NAMED_FILES and not any("\\" in file for file in missing) else []
    with git.start(
        *_LOG_ARGUMENTS, "--format=%at", *commits, "--", *named, timeout_factor=_TIMEOUT_FACTOR
    ) as conversation:
        for moment, file in _iter_changes(conversation):
            if file in missing:
                missing.discard(file)
                found[file] = moment
                if not missing:
                    return found
        if conversation.wait() != 0:
            _LOG.warning("git could not read the whole history; %d files get the date of HEAD", len(missing))
    return found


def _iter_changes(process: GitProcess) -> Iterator[tuple[datetime, str]]:
    """Every change of a file in the log, newest first."""
    moment = datetime.fromtimestamp(0, UTC)
    for token, is_file in _iter_tokens(iter_fields(process)):
        if is_file:
            yield moment, decode_file_name(token)
        else:
            moment = _to_datetime(token)


def _iter_tokens(fields: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The headers of commits and the names of changed files (True) in the output of `git log -z --raw`."""
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


def iter_fields(process: GitProcess, max_bytes: int | None = None) -> Iterator[bytes]:
    """The parts of what git says between NUL bytes; more than `most` bytes of them are an error."""
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


def _to_datetime(seconds: bytes) -> datetime:
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):  # git keeps whatever date a broken client wrote
        return datetime.fromtimestamp(0, UTC)


# What pages were before: their former files and blobs, followed back through renames.


_MAX_COMMITS = 50_000
_VERSIONS_TIMEOUT_FACTOR = 10
_MAX_VERSIONS_BYTES = 1 << 28
_VERSIONS_ARGUMENTS = (
    "log",
    "-z",
    "--raw",
    "--no-abbrev",
    "-M",
    "--no-notes",
    "--format=%H",
    f"--max-count={_MAX_COMMITS}",
)

_FileChange = tuple[bytes, bytes, str, str]
"""Status, the blob before, the name before, the name after."""


def find_old_versions(
    git: GitRunner, files: frozenset[str], revision: str, pages: PageFiles, limit: int
) -> list[FileVersion]:
    """Former versions of these page files, newest first, each blob of a page once; of merges only what led to them."""
    now = {pages.to_repository_path(file): file for file in files}
    found: dict[tuple[str, str, str], FileVersion] = {}
    named = (pages.subdirectory,) if pages.subdirectory else ()
    with git.start(
        *_VERSIONS_ARGUMENTS, revision, "--", *named, timeout_factor=_VERSIONS_TIMEOUT_FACTOR
    ) as conversation:
        for changes in _iter_commits(iter_fields(conversation, _MAX_VERSIONS_BYTES)):
            for version in _step_back(now, changes):
                found.setdefault((version.file, version.blob, version.old_file), version)
            if len(found) >= limit:
                return list(found.values())[:limit]
        if conversation.wait() != 0:
            raise SourceCorrupt("Git could not read the wiki's history.", hint="Look at it with `git fsck`.")
    return list(found.values())


def _step_back(current_names: dict[str, str], changes: list[_FileChange]) -> Iterator[FileVersion]:
    """One commit back: `now` says which page of today a name of then belongs to, and is brought to before it."""
    before: dict[str, str] = {}
    for status, blob, old, new in changes:
        file = current_names.pop(new, None)
        if file is not None and status != b"A":  # what was added has no earlier version
            before[old] = file
            yield FileVersion(file, old, blob.decode())
    current_names |= before


def _iter_commits(fields: Iterator[bytes]) -> Iterator[list[_FileChange]]:
    """The changes of each commit in the output of `git log -z --raw`."""
    changes: list[_FileChange] = []
    for field in fields:
        described = field.lstrip(b"\n")
        if not described.startswith(b":"):
            yield changes
            changes = []
            continue
        _, _, blob, _, status = described.split(b" ")
        old = decode_file_name(next(fields, b""))
        new = decode_file_name(next(fields, b"")) if status[:1] in (b"R", b"C") else old
        if blob.strip(b"0"):
            changes.append((status[:1], blob, old, new))
        else:
            changes.append((b"A", blob, old, new))
    yield changes
