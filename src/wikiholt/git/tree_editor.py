"""Builds the tree of a new commit; reads and writes only the directories on the paths of the edited files."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wikiholt.errors import InvalidPage, SourceCorrupt
from wikiholt.git.filenames import get_visual_key
from wikiholt.git.objects import hash_object
from wikiholt.git.process import GitProcess, GitRunner

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
            raise InvalidPage(f"{path} exists but is not a file.", hint="Choose another name.")
        return entry

    def set_entry(self, path: str, entry: GitEntry | None) -> None:
        """Set the file's entry, or remove the file."""
        directory, _, name = path.rpartition("/")
        entries = self._get_directory(directory)
        if entry is None:
            entries.pop(name.encode(), None)
        else:
            entries[name.encode()] = entry

    def check_distinct(self, paths: Iterable[str]) -> None:
        """Raise InvalidPage if a component of a path looks like another name in the same directory."""
        names_by_key: dict[str, defaultdict[str, set[str]]] = {}
        for path in paths:
            directory = ""
            for part in path.split("/"):
                if directory not in names_by_key:
                    names_by_key[directory] = _group_by_visual_key(self._get_directory(directory))
                for other in names_by_key[directory][get_visual_key(part)] - {part}:
                    raise InvalidPage(
                        f"{path} differs from {directory + '/' if directory else ''}{other} only in case or spelling.",
                        hint="Some file systems cannot tell them apart; use the existing name.",
                    )
                directory = f"{directory}/{part}" if directory else part

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
                raise InvalidPage(f"{path} exists but is not a directory.", hint="Choose another name.")
            object_name = entry.object_id if entry is not None else None
        self._directories[path] = _read_tree(self._process, object_name) if object_name else {}
        return self._directories[path]


def _group_by_visual_key(raw_names: Iterable[bytes]) -> defaultdict[str, set[str]]:
    names_by_key: defaultdict[str, set[str]] = defaultdict(set)
    for raw in raw_names:
        name = raw.decode("utf-8", "replace")
        names_by_key[get_visual_key(name)].add(name)
    return names_by_key


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
