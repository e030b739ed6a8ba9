"""Reads objects from a repository: blobs in batches, the page files of a tree, and changes between two trees.

Blob requests go out in small windows, each after all answers to the previous one, so full pipes cannot deadlock.
An object that crashes git is reported as missing, and git is restarted.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from wikiholt.domain.git import AttachedFile, Blob, EntryKind, TreeChange, TreeEntry
from wikiholt.errors import InvalidSource, SourceCorrupt, SourceError
from wikiholt.git.process import GitProcess, GitRunner
from wikiholt.text.page_names import MARKDOWN_EXTENSIONS, is_vendored_code

# 60 ids of 64 digits fit into 4096 bytes, which every system's pipe accepts without blocking.
_REQUESTS_IN_FLIGHT = 60
_READ_BLOCK_BYTES = 1 << 16
_MAX_SKIPPED_BYTES = 1 << 26
"""Instead of skipping more, git is started again: a file of some megabytes can contain a blob of many gigabytes."""
OBJECT_ID_PATTERN = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def read_blobs(git: GitRunner, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
    """The blobs in request order; missing, damaged and larger ones have no data."""
    remaining = iter(blobs)
    window = list(islice(remaining, _REQUESTS_IN_FLIGHT))
    while window:
        with git.start("cat-file", "--batch") as process:
            while window:
                answers = 0
                is_cut = False
                for blob in _read_answers(process, window, limit):
                    answers += 1
                    is_cut = blob.data is None and blob.size > limit + _MAX_SKIPPED_BYTES
                    yield blob
                window = window[answers:]
                if window or is_cut:
                    break
                window = list(islice(remaining, _REQUESTS_IN_FLIGHT))
        if window and not is_cut:
            _check_repository(git)
            yield Blob(window.pop(0), -1, None)
        window = window or list(islice(remaining, _REQUESTS_IN_FLIGHT))


def _read_answers(process: GitProcess, ids: list[str], limit: int) -> Iterator[Blob]:
    """One blob per id; ends early if git exits, and after a blob that is too large to be skipped."""
    valid = [blob for blob in ids if OBJECT_ID_PATTERN.fullmatch(blob)]
    if valid and not process.write("".join(f"{blob}\n" for blob in valid).encode()):
        return
    for blob in ids:
        if not OBJECT_ID_PATTERN.fullmatch(blob):
            yield Blob(blob, -1, None)
            continue
        answer = _read_answer(process, blob, limit)
        if answer is None:
            return
        yield answer
        if answer.data is None and answer.size > limit + _MAX_SKIPPED_BYTES:
            return


def _read_answer(process: GitProcess, blob: str, limit: int) -> Blob | None:
    """The answer to one request; None if git exits before it is complete."""
    header = process.read_line().split()
    if header == [blob.encode(), b"missing"]:
        return Blob(blob, -1, None)
    if len(header) != 3 or header[0] != blob.encode():
        return None
    kind, size = header[1], int(header[2])
    if kind != b"blob" or size > limit:
        is_skipped = kind != b"blob" or size <= limit + _MAX_SKIPPED_BYTES
        if is_skipped and not _skip_bytes(process, size + 1):
            return None
        return Blob(blob, size if kind == b"blob" else -1, None)
    data = process.read(size + 1)
    if len(data) != size + 1:
        return None
    content = data[:-1]
    # Git does not verify what it streams; the index must never contain text that does not match its blob id.
    return Blob(blob, size, content) if hash_object(content, blob) == blob else Blob(blob, -1, None)


def _skip_bytes(process: GitProcess, size: int) -> bool:
    while size > 0:
        block = process.read(min(size, _READ_BLOCK_BYTES))
        if not block:
            return False
        size -= len(block)
    return True


def hash_object(content: bytes, sample_id: str, kind: str = "blob") -> str:
    """The id git computes for this content, with the hash algorithm of `sample_id`."""
    algorithm = "sha1" if len(sample_id) == 40 else "sha256"
    digest = hashlib.new(algorithm, f"{kind} {len(content)}\0".encode(), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def _check_repository(git: GitRunner) -> None:
    """Raise SourceCorrupt unless git works in this repository; if it does, only the one object is damaged."""
    probe = git.run("rev-parse", "--git-dir")
    if probe.status != 0:
        raise probe.to_error("read the repository")


# Page files of a tree.

_FILE_MODES = (b"100644", b"100755", b"100664")
_KIND_BY_MODE = {b"120000": EntryKind.SYMLINK, b"160000": EntryKind.SUBMODULE}


@dataclass(frozen=True, slots=True)
class PageFiles:
    """Decides which files of a repository are pages: by directory, extension and ignore patterns."""

    subdirectory: str
    extensions: tuple[str, ...]
    is_ignored: Callable[[str], bool]
    is_ignored_by_user: Callable[[str], bool] = lambda _: False
    """Whether the settings of the wiki ignore a file; `is_ignored` also includes hidden directories."""

    def is_page(self, file: str) -> bool:
        """Whether a file (relative to the subdirectory) is a page."""
        return self.has_page_name(file) and not self.is_ignored(file)

    def has_page_name(self, file: str) -> bool:
        """Whether a file would be a page if nothing were ignored."""
        name = file.rpartition("/")[2].lower()
        # A file named only `.md` would be a page without a name.
        return name.endswith(self.extensions) and name not in self.extensions and not is_vendored_code(file)

    def is_attachable(self, file: str, *, hidden: bool = False) -> bool:
        """Whether a file (relative to the subdirectory) can be an attachment: not Markdown, hidden or ignored. With
        `hidden`, the folder may be hidden.

        Other text can be both a page and an attachment.
        """
        name = file.rpartition("/")[2]
        is_ignored = self.is_ignored_by_user if hidden else self.is_ignored
        return not name.startswith(".") and not name.lower().endswith(MARKDOWN_EXTENSIONS) and not is_ignored(file)

    def is_other(self, file: str) -> bool:
        """Whether a file is no page because of its name, and not because of the settings."""
        return not self.is_page(file) and not self.is_ignored_by_user(file)

    def to_repository_path(self, file: str) -> str:
        """The file's path from the repository root."""
        return f"{self.subdirectory}/{file}" if self.subdirectory else file

    def to_page_file(self, path: str) -> str | None:
        """The page file for a path from the repository root; None if that is not a page."""
        prefix = f"{self.subdirectory}/" if self.subdirectory else ""
        file = path.removeprefix(prefix)
        return file if path.startswith(prefix) and self.is_page(file) else None


def read_tree(git: GitRunner, revision: str, pages: PageFiles) -> dict[str, TreeEntry]:
    """All page files at the revision; symlinks and submodules named like a page are included with their kind."""
    return _select_pages(_list_tree(git, revision, pages), pages)


def read_other_files(git: GitRunner, revision: str, pages: PageFiles) -> list[str]:
    """All files below the subdirectory that are no pages, and the files directly in the directories above it."""
    return _select_others(git, _list_tree(git, revision, pages), revision, pages)


def read_names(git: GitRunner, revision: str, pages: PageFiles) -> list[str]:
    """All files below the subdirectory that are named like a page, also ignored ones."""
    return [file for _, file in _list_tree(git, revision, pages) if pages.has_page_name(file)]


def read_all_files(git: GitRunner, revision: str, pages: PageFiles) -> tuple[dict[str, TreeEntry], list[str]]:
    """What `read_tree` and `read_other_files` return, from one listing."""
    listing = _list_tree(git, revision, pages)
    return _select_pages(listing, pages), _select_others(git, listing, revision, pages)


_Listing = Sequence[tuple[bytes, str]]
"""Mode, type and id of each file of a tree, and its name."""


def _list_tree(git: GitRunner, revision: str, pages: PageFiles) -> _Listing:
    tree = f"{revision}:{pages.subdirectory}" if pages.subdirectory else revision
    result = git.run("ls-tree", "-r", "-z", "--full-tree", tree)
    if result.status != 0:
        raise _make_tree_error(
            git, revision, pages.subdirectory, result.to_error(f"list the files of commit {revision}")
        )
    parts = (record.partition(b"\t") for record in result.stdout.split(b"\0")[:-1])
    return [(description, decode_file_name(raw)) for description, _, raw in parts]


def _select_pages(listing: _Listing, pages: PageFiles) -> dict[str, TreeEntry]:
    entries: dict[str, TreeEntry] = {}
    for description, file in listing:
        if pages.is_page(file):
            mode, _, blob = description.split(b" ")
            entries[find_free_name(file, entries)] = TreeEntry(blob.decode(), _KIND_BY_MODE.get(mode, EntryKind.FILE))
    return entries


def _select_others(git: GitRunner, listing: _Listing, revision: str, pages: PageFiles) -> list[str]:
    files = [file for _, file in listing if pages.is_other(file)]
    folder, above = pages.subdirectory, ""
    while folder:
        folder, above = folder.rpartition("/")[0], above + "../"
        files += [above + file for file in _list_names(git, f"{revision}:{folder}" if folder else revision)]
    return files


def _list_names(git: GitRunner, tree: str) -> list[str]:
    result = git.run("ls-tree", "-z", "--name-only", "--full-tree", tree)
    if result.status != 0:
        raise result.to_error("list the files of a commit")
    return [decode_file_name(raw) for raw in result.stdout.split(b"\0")[:-1]]


def find_entry(git: GitRunner, file: str, revision: str, pages: PageFiles) -> TreeEntry | None:
    """The page file's entry at the revision, or None; reads only the directories on the path."""
    if "\\" in file:  # may replace a byte that is not UTF-8; only the full tree tells
        return read_tree(git, revision, pages).get(file)
    valid = file.isprintable() or not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in file)
    if not valid or not pages.is_page(file) or not {"", ".", ".."}.isdisjoint(file.split("/")):
        return None
    path = pages.to_repository_path(file)
    result = git.run("ls-tree", "-z", "--full-tree", revision, "--", path)
    if result.status != 0:
        raise _make_tree_error(git, revision, "", result.to_error(f"read commit {revision}"))
    description, _, raw = result.stdout.partition(b"\0")[0].partition(b"\t")
    if raw != path.encode():
        return None
    mode, kind, blob = description.split(b" ")
    return None if kind == b"tree" else TreeEntry(blob.decode(), _KIND_BY_MODE.get(mode, EntryKind.FILE))


def read_attached_files(
    git: GitRunner, directory: str, revision: str, pages: PageFiles, *, hidden: bool = False
) -> dict[str, AttachedFile]:
    """The attachable files directly in a directory (empty for the root of the wiki), which may be `hidden`.

    Symlinks, submodules and names that are not UTF-8 are left out.
    """
    if "\0" in directory or (directory and not {"", ".", ".."}.isdisjoint(directory.split("/"))):
        return {}
    parent = pages.to_repository_path(directory).strip("/")
    result = git.run("ls-tree", "-l", "-z", "--full-tree", revision, "--", *([f"{parent}/"] if parent else []))
    if result.status != 0:
        raise _make_tree_error(git, revision, "", result.to_error(f"read commit {revision}"))
    files: dict[str, AttachedFile] = {}
    for record in result.stdout.split(b"\0")[:-1]:
        description, _, raw = record.partition(b"\t")
        mode, _, blob, size = description.split()
        name = decode_file_name(raw).rpartition("/")[2]
        file = f"{directory}/{name}" if directory else name
        if mode in _FILE_MODES and "\\" not in name and pages.is_attachable(file, hidden=hidden):
            files[name] = AttachedFile(blob.decode(), int(size))
    return files


def read_changes(git: GitRunner, old: str, new: str, pages: PageFiles) -> list[TreeChange] | None:
    """The page files that differ between two revisions; None if the full trees must be compared instead."""
    trees = [f"{revision}:{pages.subdirectory}" if pages.subdirectory else revision for revision in (old, new)]
    result = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", *trees, "--")
    if result.status != 0:
        return None
    fields = result.stdout.split(b"\0")[:-1]
    changes = []
    for description, raw in zip(fields[::2], fields[1::2], strict=True):
        file = decode_file_name(raw)
        if b"\\" in raw or "\\" in file:
            return None
        if pages.is_page(file):
            old_mode, new_mode, old_blob, new_blob, _ = description.lstrip(b":").split(b" ")
            changes.append(TreeChange(file, _make_entry(old_mode, old_blob), _make_entry(new_mode, new_blob)))
    return changes


def _make_entry(mode: bytes, blob: bytes) -> TreeEntry | None:
    return None if mode == b"000000" else TreeEntry(blob.decode(), _KIND_BY_MODE.get(mode, EntryKind.FILE))


def decode_file_name(raw: bytes) -> str:
    """A file name as text; bytes that are not UTF-8 appear as `\\xff`."""
    return raw.decode("utf-8", "backslashreplace")


def find_free_name(file: str, entries: Mapping[str, object]) -> str:
    """The name for a file whose name may look like that of an earlier one."""
    # The byte 0xff and the four characters `\xff` look the same; neither file may hide the other.
    while file in entries:
        stem, dot, extension = file.rpartition(".")
        file = f"{stem}\\{dot}{extension}"
    return file


def _make_tree_error(
    git: GitRunner, revision: str, subdirectory: str, default: SourceError
) -> SourceError | InvalidSource:
    if git.run("cat-file", "-e", f"{revision}^{{commit}}").status != 0:
        return SourceCorrupt(
            f"The repository does not contain commit {revision}.",
            hint="Its history was rewritten or the object is damaged; sync again, and check with `git fsck`.",
        )
    if not subdirectory or git.run("cat-file", "-t", f"{revision}:{subdirectory}").stdout.strip() == b"tree":
        return default
    top = git.run("ls-tree", "-z", "-d", "--name-only", "--full-tree", revision).stdout.split(b"\0")[:-1]
    directories = ", ".join(decode_file_name(raw) for raw in top[:8]) or "none"
    return InvalidSource(
        f"There is no directory {subdirectory} in commit {revision[:12]}.",
        hint=f"Directories at the repository root: {directories}.",
    )
