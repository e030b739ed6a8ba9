"""What pages were before: their former files and blobs, followed back through renames."""

from collections.abc import Iterator

from wikiholt.errors import SourceBroken
from wikiholt.model import Version
from wikiholt.sources.command import Git
from wikiholt.sources.history import fields
from wikiholt.sources.trees import PageFiles, file_name

_MOST_COMMITS = 50_000
_PATIENCE = 10
_MOST_SAID = 1 << 28
_WALK = ("log", "-z", "--raw", "--no-abbrev", "-M", "--no-notes", "--format=%H", f"--max-count={_MOST_COMMITS}")

_Change = tuple[bytes, bytes, str, str]
"""Status, the blob before, the name before, the name after."""


def page_versions(git: Git, files: frozenset[str], revision: str, pages: PageFiles, limit: int) -> list[Version]:
    """Former versions of these page files, newest first, each blob of a page once; of merges only what led to them."""
    now = {pages.full_name(file): file for file in files}
    found: dict[tuple[str, str, str], Version] = {}
    named = (pages.subdirectory,) if pages.subdirectory else ()
    with git.start(*_WALK, revision, "--", *named, patience=_PATIENCE) as conversation:
        for changes in _commits(fields(conversation, _MOST_SAID)):
            for version in _stepped(now, changes):
                found.setdefault((version.file, version.blob, version.then), version)
            if len(found) >= limit:
                return list(found.values())[:limit]
        if conversation.end() != 0:
            raise SourceBroken("Git could not read the wiki's history.", hint="Look at it with `git fsck`.")
    return list(found.values())


def _stepped(now: dict[str, str], changes: list[_Change]) -> Iterator[Version]:
    """One commit back: `now` says which page of today a name of then belongs to, and is brought to before it."""
    before: dict[str, str] = {}
    for status, blob, old, new in changes:
        file = now.pop(new, None)
        if file is not None and status != b"A":  # what was added has no earlier version
            before[old] = file
            yield Version(file, old, blob.decode())
    now |= before


def _commits(found: Iterator[bytes]) -> Iterator[list[_Change]]:
    """The changes of each commit in the output of `git log -z --raw`."""
    changes: list[_Change] = []
    for field in found:
        described = field.lstrip(b"\n")
        if not described.startswith(b":"):
            yield changes
            changes = []
            continue
        _, _, blob, _, status = described.split(b" ")
        old = file_name(next(found, b""))
        new = file_name(next(found, b"")) if status[:1] in (b"R", b"C") else old
        if blob.strip(b"0"):
            changes.append((status[:1], blob, old, new))
        else:
            changes.append((b"A", blob, old, new))
    yield changes
