"""The page files of a tree."""

from collections.abc import Callable
from dataclasses import dataclass

from wikiholt.errors import InvalidSource, SourceBroken, SourceError
from wikiholt.model import AttachedFile, EntryKind, TreeChange, TreeEntry
from wikiholt.sources.command import Git

_PLAIN = (b"100644", b"100755", b"100664")
_KINDS = {b"120000": EntryKind.SYMLINK, b"160000": EntryKind.SUBMODULE}


@dataclass(frozen=True, slots=True)
class PageFiles:
    """Which files of a repository are pages: below a directory, by extension, not left out."""

    subdirectory: str
    extensions: tuple[str, ...]
    ignored: Callable[[str], bool]

    def accepts(self, file: str) -> bool:
        """Whether a file (relative to the sub-directory) is a page."""
        name = file.rpartition("/")[2].lower()
        # A name that is nothing but an extension would be a page without a name.
        named = any(name.endswith(extension) and name != extension for extension in self.extensions)
        return named and not self.ignored(file)

    def accepts_attached(self, file: str) -> bool:
        """Whether a file (relative to the sub-directory) may be attached to a page: no page, not hidden or left out."""
        name = file.rpartition("/")[2]
        return not name.startswith(".") and not name.lower().endswith(self.extensions) and not self.ignored(file)

    def full_name(self, file: str) -> str:
        """The file's path from the top of the repository."""
        return f"{self.subdirectory}/{file}" if self.subdirectory else file

    def own_name(self, path: str) -> str | None:
        """The page file that lies at this path from the top of the repository, if one may."""
        prefix = f"{self.subdirectory}/" if self.subdirectory else ""
        file = path.removeprefix(prefix)
        return file if path.startswith(prefix) and self.accepts(file) else None


def read_tree(git: Git, revision: str, pages: PageFiles) -> dict[str, TreeEntry]:
    """Every page file at the revision; links and submodules that bear a page's name come with their kind."""
    tree = f"{revision}:{pages.subdirectory}" if pages.subdirectory else revision
    listed = git.run("ls-tree", "-r", "-z", "--full-tree", tree)
    if listed.status != 0:
        raise _why(git, revision, pages.subdirectory, listed.failure(f"list the files of commit {revision}"))
    entries: dict[str, TreeEntry] = {}
    for record in listed.out.split(b"\0")[:-1]:
        described, _, raw = record.partition(b"\t")
        file = file_name(raw)
        if pages.accepts(file):
            mode, _, blob = described.split(b" ")
            entries[_free(file, entries)] = TreeEntry(blob.decode(), _KINDS.get(mode, EntryKind.FILE))
    return entries


def find_entry(git: Git, file: str, revision: str, pages: PageFiles) -> TreeEntry | None:
    """The page file's entry at the revision, or None; only the directories on the way to it are read."""
    if "\\" in file:  # it may stand for a byte that is not UTF-8, and only the whole tree tells
        return read_tree(git, revision, pages).get(file)
    sane = file.isprintable() or not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in file)
    if not sane or not pages.accepts(file) or not {"", ".", ".."}.isdisjoint(file.split("/")):
        return None
    path = pages.full_name(file)
    listed = git.run("ls-tree", "-z", "--full-tree", revision, "--", path)
    if listed.status != 0:
        raise _why(git, revision, "", listed.failure(f"look into commit {revision}"))
    described, _, raw = listed.out.partition(b"\0")[0].partition(b"\t")
    if raw != path.encode():
        return None
    mode, kind, blob = described.split(b" ")
    return None if kind == b"tree" else TreeEntry(blob.decode(), _KINDS.get(mode, EntryKind.FILE))


def read_attached(git: Git, folder: str, revision: str, pages: PageFiles) -> dict[str, AttachedFile]:
    """The files right in a folder that may be attached to a page; links, submodules and unreadable names are none."""
    if not folder or "\0" in folder or not {"", ".", ".."}.isdisjoint(folder.split("/")):
        return {}
    listed = git.run("ls-tree", "-l", "-z", "--full-tree", revision, "--", f"{pages.full_name(folder)}/")
    if listed.status != 0:
        raise _why(git, revision, "", listed.failure(f"look into commit {revision}"))
    files: dict[str, AttachedFile] = {}
    for record in listed.out.split(b"\0")[:-1]:
        described, _, raw = record.partition(b"\t")
        mode, _, blob, size = described.split()
        name = file_name(raw).rpartition("/")[2]
        if mode in _PLAIN and "\\" not in name and pages.accepts_attached(f"{folder}/{name}"):
            files[name] = AttachedFile(blob.decode(), int(size))
    return files


def read_changes(git: Git, old: str, new: str, pages: PageFiles) -> list[TreeChange] | None:
    """The page files that differ between two revisions; None where the whole trees must be compared instead."""
    trees = [f"{revision}:{pages.subdirectory}" if pages.subdirectory else revision for revision in (old, new)]
    compared = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", *trees, "--")
    if compared.status != 0:
        return None
    fields = compared.out.split(b"\0")[:-1]
    changes = []
    for described, raw in zip(fields[::2], fields[1::2], strict=True):
        file = file_name(raw)
        if b"\\" in raw or "\\" in file:
            return None
        if pages.accepts(file):
            old_mode, new_mode, old_blob, new_blob, _ = described.lstrip(b":").split(b" ")
            changes.append(TreeChange(file, _entry(old_mode, old_blob), _entry(new_mode, new_blob)))
    return changes


def _entry(mode: bytes, blob: bytes) -> TreeEntry | None:
    return None if mode == b"000000" else TreeEntry(blob.decode(), _KINDS.get(mode, EntryKind.FILE))


def file_name(raw: bytes) -> str:
    """A file's name as text; bytes that are not UTF-8 are shown as `\\xff`."""
    return raw.decode("utf-8", "backslashreplace")


def _free(file: str, entries: dict[str, TreeEntry]) -> str:
    # The byte 0xff and the four characters `\xff` read the same; neither file may hide the other.
    while file in entries:
        stem, dot, extension = file.rpartition(".")
        file = f"{stem}\\{dot}{extension}"
    return file


def _why(git: Git, revision: str, subdirectory: str, otherwise: SourceError) -> SourceError | InvalidSource:
    if git.run("cat-file", "-e", f"{revision}^{{commit}}").status != 0:
        return SourceBroken(
            f"The repository does not hold commit {revision}.",
            hint="Its history was rewritten or the object is damaged; sync again, and look at it with `git fsck`.",
        )
    if not subdirectory or git.run("cat-file", "-t", f"{revision}:{subdirectory}").out.strip() == b"tree":
        return otherwise
    top = git.run("ls-tree", "-z", "-d", "--name-only", "--full-tree", revision).out.split(b"\0")[:-1]
    directories = ", ".join(file_name(raw) for raw in top[:8]) or "none"
    return InvalidSource(
        f"There is no directory {subdirectory} in commit {revision[:12]}.",
        hint=f"Directories at the top of the repository: {directories}.",
    )
