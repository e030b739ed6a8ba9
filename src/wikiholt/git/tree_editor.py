"""Trees of a commit to be made: only the directories on the way to the edited files are read and written."""

from collections.abc import Mapping
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
    """One line of a tree."""

    mode: str
    object_id: str


class TreeEditor:
    """The directories of one commit as far as they were looked at, and what shall become of them."""

    def __init__(self, process: GitProcess, revision: str | None) -> None:
        self._process = process
        self._root = revision and f"{revision}^{{tree}}"
        self._directories: dict[str, dict[bytes, GitEntry]] = {}

    def find_entry(self, path: str) -> GitEntry | None:
        """The file at this path from the top; raises InvalidPage where something else than a file is in the way."""
        folder, _, name = path.rpartition("/")
        entry = self._get_directory(folder).get(name.encode())
        if entry is not None and entry.mode not in _FILE_MODES:
            raise InvalidPage(f"{path} is there, but it is not a file.", hint="Choose another name.")
        return entry

    def set_entry(self, path: str, entry: GitEntry | None) -> None:
        """Let the file be this, or be gone."""
        folder, _, name = path.rpartition("/")
        entries = self._get_directory(folder)
        if entry is None:
            entries.pop(name.encode(), None)
        else:
            entries[name.encode()] = entry

    def check_distinct(self, path: str) -> None:
        """Raise InvalidPage when a part of the path looks like another name that stays in the same directory."""
        folder = ""
        for part in path.split("/"):
            for raw in self._get_directory(folder):
                other = raw.decode("utf-8", "replace")
                if other != part and get_visual_key(other) == get_visual_key(part):
                    raise InvalidPage(
                        f"{path} differs from {folder + '/' if folder else ''}{other} only in case or spelling.",
                        hint="Many disks and readers take the two for one; use the name that is there.",
                    )
            folder = f"{folder}/{part}" if folder else part
            if folder == path:
                return

    def write_trees(self, git: GitRunner) -> str:
        """Write what has become of the directories and return the tree of the whole."""
        written = ""
        for folder in sorted(self._directories, key=lambda name: (-name.count("/") - bool(name), name)):
            entries = self._directories[folder]
            written = _write_tree(git, entries) if entries or not folder else ""
            if folder:
                self.set_entry(folder, GitEntry(_TREE_MODE, written) if written else None)
        return written

    def _get_directory(self, path: str) -> dict[bytes, GitEntry]:
        """What is in a directory; nothing in one that is not there."""
        if path in self._directories:
            return self._directories[path]
        wanted = self._root
        if path:
            above, _, name = path.rpartition("/")
            entry = self._get_directory(above).get(name.encode())
            if entry is not None and entry.mode != _TREE_MODE:
                raise InvalidPage(f"{path} is there, but it is not a directory.", hint="Choose another name.")
            wanted = entry.object_id if entry is not None else None
        self._directories[path] = _read_tree(self._process, wanted) if wanted else {}
        return self._directories[path]


def _read_tree(process: GitProcess, name: str) -> dict[bytes, GitEntry]:
    process.write(f"{name}\n".encode())
    header = process.read_line().split()
    if len(header) != 3 or header[1] != b"tree":
        raise SourceCorrupt("Git could not read a directory of the newest commit.", hint="Look at it with `git fsck`.")
    size = int(header[2])
    data = process.read(size + 1)[:size]
    width = len(header[0]) // 2
    if len(data) != size or hash_object(data, header[0].decode(), "tree") != header[0].decode():
        raise SourceCorrupt("A directory of the newest commit is damaged.", hint="Look at it with `git fsck`.")
    entries, at = {}, 0
    while at < size:
        end = data.index(b"\0", at)
        mode, _, raw = data[at:end].partition(b" ")
        at = end + 1 + width
        # Very old commits hold group-writable files; git reads them as plain ones.
        entries[raw] = GitEntry(FILE_MODE if mode == b"100664" else mode.decode(), data[end + 1 : at].hex())
    return entries


def _write_tree(git: GitRunner, entries: Mapping[bytes, GitEntry]) -> str:
    kinds = {_TREE_MODE: "tree", "160000": "commit"}
    lines = [
        f"{entry.mode} {kinds.get(entry.mode, 'blob')} {entry.object_id}\t".encode() + raw + b"\0"
        for raw, entry in entries.items()
    ]
    # Without --missing git would look for each object that was there already.
    made = git.run("mktree", "-z", "--missing", input_data=b"".join(lines))
    if made.status != 0:
        raise made.to_error("write a directory")
    return made.stdout.decode().strip()
