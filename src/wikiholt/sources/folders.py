"""Trees of a commit to be made: only the directories on the way to the edited files are read and written."""

from collections.abc import Mapping
from dataclasses import dataclass

from wikiholt.errors import InvalidPage, SourceBroken
from wikiholt.sources.command import Git
from wikiholt.sources.conversation import Conversation
from wikiholt.sources.naming import look
from wikiholt.sources.objects import hash_of

FILE = "100644"
_TREE = "40000"
_FILES = ("100644", "100755")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a tree."""

    mode: str
    object_id: str


class Folders:
    """The directories of one commit as far as they were looked at, and what shall become of them."""

    def __init__(self, conversation: Conversation, revision: str | None) -> None:
        self._conversation = conversation
        self._root = revision and f"{revision}^{{tree}}"
        self._read: dict[str, dict[bytes, Entry]] = {}

    def find(self, path: str) -> Entry | None:
        """The file at this path from the top; raises InvalidPage where something else than a file is in the way."""
        folder, _, name = path.rpartition("/")
        entry = self._folder(folder).get(name.encode())
        if entry is not None and entry.mode not in _FILES:
            raise InvalidPage(f"{path} is there, but it is not a file.", hint="Choose another name.")
        return entry

    def put(self, path: str, entry: Entry | None) -> None:
        """Let the file be this, or be gone."""
        folder, _, name = path.rpartition("/")
        entries = self._folder(folder)
        if entry is None:
            entries.pop(name.encode(), None)
        else:
            entries[name.encode()] = entry

    def require_distinct(self, path: str) -> None:
        """Raise InvalidPage when a part of the path looks like another name that stays in the same directory."""
        folder = ""
        for part in path.split("/"):
            for raw in self._folder(folder):
                other = raw.decode("utf-8", "replace")
                if other != part and look(other) == look(part):
                    raise InvalidPage(
                        f"{path} differs from {folder + '/' if folder else ''}{other} only in case or spelling.",
                        hint="Many disks and readers take the two for one; use the name that is there.",
                    )
            folder = f"{folder}/{part}" if folder else part
            if folder == path:
                return

    def write(self, git: Git) -> str:
        """Write what has become of the directories and return the tree of the whole."""
        written = ""
        for folder in sorted(self._read, key=lambda name: (-name.count("/") - bool(name), name)):
            entries = self._read[folder]
            written = _write_tree(git, entries) if entries or not folder else ""
            if folder:
                self.put(folder, Entry(_TREE, written) if written else None)
        return written

    def _folder(self, path: str) -> dict[bytes, Entry]:
        """What is in a directory; nothing in one that is not there."""
        if path in self._read:
            return self._read[path]
        wanted = self._root
        if path:
            above, _, name = path.rpartition("/")
            entry = self._folder(above).get(name.encode())
            if entry is not None and entry.mode != _TREE:
                raise InvalidPage(f"{path} is there, but it is not a directory.", hint="Choose another name.")
            wanted = entry.object_id if entry is not None else None
        self._read[path] = _read_tree(self._conversation, wanted) if wanted else {}
        return self._read[path]


def _read_tree(conversation: Conversation, name: str) -> dict[bytes, Entry]:
    conversation.write(f"{name}\n".encode())
    header = conversation.line().split()
    if len(header) != 3 or header[1] != b"tree":
        raise SourceBroken("Git could not read a directory of the newest commit.", hint="Look at it with `git fsck`.")
    size = int(header[2])
    data = conversation.read(size + 1)[:size]
    width = len(header[0]) // 2
    if len(data) != size or hash_of(data, header[0].decode(), "tree") != header[0].decode():
        raise SourceBroken("A directory of the newest commit is damaged.", hint="Look at it with `git fsck`.")
    entries, at = {}, 0
    while at < size:
        end = data.index(b"\0", at)
        mode, _, raw = data[at:end].partition(b" ")
        at = end + 1 + width
        # Very old commits hold group-writable files; git reads them as plain ones.
        entries[raw] = Entry(FILE if mode == b"100664" else mode.decode(), data[end + 1 : at].hex())
    return entries


def _write_tree(git: Git, entries: Mapping[bytes, Entry]) -> str:
    kinds = {_TREE: "tree", "160000": "commit"}
    lines = [
        f"{entry.mode} {kinds.get(entry.mode, 'blob')} {entry.object_id}\t".encode() + raw + b"\0"
        for raw, entry in entries.items()
    ]
    # Without --missing git would look for each object that was there already.
    made = git.run("mktree", "-z", "--missing", given=b"".join(lines))
    if made.status != 0:
        raise made.failure("write a directory")
    return made.out.decode().strip()
