"""What pages were before: their former files and blobs, followed back through renames."""

from collections.abc import Iterator

from wikiholt.errors import SourceCorrupt
from wikiholt.model import FileVersion
from wikiholt.sources.command import GitRunner
from wikiholt.sources.history import iter_fields
from wikiholt.sources.trees import PageFiles, decode_file_name

_MAX_COMMITS = 50_000
_VERSIONS_TIMEOUT_FACTOR = 10
_MAX_VERSIONS_BYTES = 1 << 28
_VERSIONS_ARGUMENTS = ("log", "-z", "--raw", "--no-abbrev", "-M", "--no-notes", "--format=%H", f"--max-count={_MAX_COMMITS}")

_FileChange = tuple[bytes, bytes, str, str]
"""Status, the blob before, the name before, the name after."""


def find_old_versions(git: GitRunner, files: frozenset[str], revision: str, pages: PageFiles, limit: int) -> list[FileVersion]:
    """Former versions of these page files, newest first, each blob of a page once; of merges only what led to them."""
    now = {pages.to_repository_path(file): file for file in files}
    found: dict[tuple[str, str, str], FileVersion] = {}
    named = (pages.subdirectory,) if pages.subdirectory else ()
    with git.start(*_VERSIONS_ARGUMENTS, revision, "--", *named, patience=_VERSIONS_TIMEOUT_FACTOR) as conversation:
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
