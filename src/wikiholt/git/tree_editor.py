"""Names and tree of a new commit: a valid name denotes the same file on every file system.

Reads and writes only the directories on the paths of the edited files.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from wikiholt.errors import InvalidPage, SourceCorrupt
from wikiholt.git.objects import PageFiles, hash_object
from wikiholt.git.process import GitProcess, GitRunner

# Names of pages and attachments.

_MAX_COMPONENT_BYTES = 255
_MAX_PATH_BYTES = 1024
# Bidirectional controls make one name look like another: `a`, one of these, `dm.txt` may look like `atxt.md`.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def validate_page_file(file: str, pages: PageFiles) -> None:
    """Raise InvalidPage unless a page may be written to this file (relative to the wiki's subdirectory)."""
    fault = _find_fault(file)
    if fault:
        raise InvalidPage(f"The page name is invalid: {fault}.", hint="Use a name such as guides/Setup.md.")
    if not pages.is_page(file):
        extensions = " or ".join(pages.extensions)
        raise InvalidPage(
            f"The file {file} would not be a page of this wiki.",
            hint=f"Page files end in {extensions} and must not match the wiki's ignore patterns.",
        )


def validate_attachment_file(file: str, pages: PageFiles) -> None:
    """Raise InvalidPage unless a page may have an attachment with this file name."""
    fault = _find_fault(file)
    if fault:
        raise InvalidPage(f"The file name is invalid: {fault}.", hint="Use a name such as report.pdf.")
    if not pages.is_attachable(file):
        raise InvalidPage(
            "A file with this name cannot be attached.",
            hint=f"Attachments cannot begin with a dot or end in {' or '.join(pages.extensions)}.",
        )


def get_visual_key(name: str) -> str:
    """A key that is equal for names that some file system or reader cannot tell apart."""
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


def check_distinct(paths: Iterable[str], list_names: Callable[[str], Iterable[str]]) -> None:
    """Raise InvalidPage if a component of a path looks like another name in the same directory, as `list_names` has."""
    names_by_key: dict[str, defaultdict[str, set[str]]] = {}
    for path in paths:
        directory = ""
        for part in path.split("/"):
            if directory not in names_by_key:
                names_by_key[directory] = defaultdict(set)
                for name in list_names(directory):
                    names_by_key[directory][get_visual_key(name)].add(name)
            for other in names_by_key[directory][get_visual_key(part)] - {part}:
                raise InvalidPage(
                    f"{path} differs from {directory + '/' if directory else ''}{other} only in case or spelling.",
                    hint="Some file systems cannot tell them apart; use the existing name.",
                )
            directory = f"{directory}/{part}" if directory else part


def _find_fault(file: str) -> str:
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in file):
        return "it contains a control character or is not text"
    if any(char in _BIDI_CONTROLS for char in file):
        return "it contains a bidirectional control character"
    if "\\" in file:
        return "it contains a backslash"
    if len(file.encode()) > _MAX_PATH_BYTES:
        return f"it is longer than {_MAX_PATH_BYTES} bytes"
    return next((fault for part in file.split("/") if (fault := _find_component_fault(part))), "")


def _find_component_fault(part: str) -> str:
    if part in ("", ".", ".."):
        return "it contains an empty, `.` or `..` component"
    if len(part.encode()) > _MAX_COMPONENT_BYTES:
        return f"a component is longer than {_MAX_COMPONENT_BYTES} bytes"
    if part != part.strip() or part.endswith("."):
        return "a component begins or ends with a space, or ends with a dot"
    # File systems that ignore case, invisible characters or the part after a colon treat these as the git directory.
    if get_visual_key(part).partition(":")[0].rstrip(" .") in (".git", "git~1"):
        return "it points into the git directory"
    return ""


# The tree.

FILE_MODE = "100644"
_TREE_MODE = "40000"
_FILE_MODES = ("100644", "100755")


@dataclass(frozen=True, slots=True)
class GitEntry:
    """The mode and object id of one tree entry."""

    mode: str
    object_id: str


class TreeEditor:
    """The directories of one commit that were read so far, with pending changes."""

    def __init__(self, process: GitProcess, revision: str | None) -> None:
        self._process = process
        self._root = revision and f"{revision}^{{tree}}"
        self._directories: dict[str, dict[bytes, GitEntry]] = {}

    def find_entry(self, path: str) -> GitEntry | None:
        """The file at this path from the root. Raises InvalidPage if something other than a file is there."""
        directory, _, name = path.rpartition("/")
        entry = self._get_directory(directory).get(name.encode())
        if entry is not None and entry.mode not in _FILE_MODES:
            raise InvalidPage(f"The path {path} exists but is not a file.", hint="Choose another name.")
        return entry

    def set_entry(self, path: str, entry: GitEntry | None) -> None:
        """Set the file's entry, or remove the file."""
        directory, _, name = path.rpartition("/")
        entries = self._get_directory(directory)
        if entry is None:
            entries.pop(name.encode(), None)
        else:
            entries[name.encode()] = entry

    def list_names(self, directory: str) -> list[str]:
        """The names in a directory, with pending changes."""
        return [raw.decode("utf-8", "replace") for raw in self._get_directory(directory)]

    def write_trees(self, git: GitRunner) -> str:
        """Write the changed directories and return the id of the root tree."""
        tree = ""
        for directory in sorted(self._directories, key=lambda name: (-name.count("/") - bool(name), name)):
            entries = self._directories[directory]
            tree = _write_tree(git, entries) if entries or not directory else ""
            if directory:
                self.set_entry(directory, GitEntry(_TREE_MODE, tree) if tree else None)
        return tree

    def _get_directory(self, path: str) -> dict[bytes, GitEntry]:
        """The entries of a directory; empty if there is no such directory."""
        if path in self._directories:
            return self._directories[path]
        object_name = self._root
        if path:
            parent, _, name = path.rpartition("/")
            entry = self._get_directory(parent).get(name.encode())
            if entry is not None and entry.mode != _TREE_MODE:
                raise InvalidPage(f"The path {path} exists but is not a directory.", hint="Choose another name.")
            object_name = entry.object_id if entry is not None else None
        self._directories[path] = _read_tree(self._process, object_name) if object_name else {}
        return self._directories[path]


def _read_tree(process: GitProcess, name: str) -> dict[bytes, GitEntry]:
    process.write(f"{name}\n".encode())
    header = process.read_line().split()
    if len(header) != 3 or header[1] != b"tree":
        raise SourceCorrupt("Git could not read a directory of the newest commit.", hint="Check it with `git fsck`.")
    size = int(header[2])
    data = process.read(size + 1)[:size]
    width = len(header[0]) // 2
    if len(data) != size or hash_object(data, header[0].decode(), "tree") != header[0].decode():
        raise SourceCorrupt("A directory of the newest commit is damaged.", hint="Check it with `git fsck`.")
    entries, position = {}, 0
    while position < size:
        end = data.index(b"\0", position)
        mode, _, raw = data[position:end].partition(b" ")
        position = end + 1 + width
        # Very old commits contain group-writable files; git treats them as plain ones.
        entries[raw] = GitEntry(FILE_MODE if mode == b"100664" else mode.decode(), data[end + 1 : position].hex())
    return entries


def _write_tree(git: GitRunner, entries: Mapping[bytes, GitEntry]) -> str:
    kinds = {_TREE_MODE: "tree", "160000": "commit"}
    lines = [
        f"{entry.mode} {kinds.get(entry.mode, 'blob')} {entry.object_id}\t".encode() + raw + b"\0"
        for raw, entry in entries.items()
    ]
    # Without --missing git would look up every existing object.
    result = git.run("mktree", "-z", "--missing", input_data=b"".join(lines))
    if result.status != 0:
        raise result.to_error("write a directory")
    return result.stdout.decode().strip()
