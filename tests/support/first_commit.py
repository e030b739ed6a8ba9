"""Writes the first commit of a new repository without starting git, because most tests need no more than that."""

import hashlib
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

_FILE_MODE = 0o100644
_MAX_NAME_BYTES = 0xFFF
_ENTRY_ALIGNMENT_BYTES = 8


def is_plain(files: Mapping[str, bytes], message: str) -> bool:
    """Whether git would commit exactly these files and this message: no name or text that it treats in its own way."""
    is_line = bool(message) and message == message.strip() and message.isprintable()
    return is_line and bool(files) and all(map(_is_plain_name, files))


def _is_plain_name(name: str) -> bool:
    parts = name.split("/")
    is_safe = all(part.strip(". ") and not part.lower().startswith((".git", "git~")) for part in parts)
    return is_safe and len(name) < _MAX_NAME_BYTES // 4 and "\0" not in name and str(PurePosixPath(name)) == name


def write_first_commit(work_tree: Path, files: Mapping[str, bytes], person: str, message: str) -> str:
    """Write objects, index and branch for files that are in the work tree already. Returns the id of the commit."""
    git_directory = work_tree / ".git"
    blobs = {os.fsencode(name): write_object(git_directory, b"blob", content) for name, content in files.items()}
    tree = _write_tree(git_directory, blobs)
    text = f"tree {tree.hex()}\nauthor {person}\ncommitter {person}\n\n{message}\n"
    commit = write_object(git_directory, b"commit", text.encode()).hex()
    (git_directory / "index").write_bytes(_make_index(work_tree, blobs))
    ref = git_directory / (git_directory / "HEAD").read_text().removeprefix("ref: ").strip()
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(f"{commit}\n")
    return commit


def write_object(git_directory: Path, kind: bytes, content: bytes) -> bytes:
    """Write a loose object with a SHA-1 name and return its id."""
    data = b"%s %d\0%s" % (kind, len(content), content)
    object_id = hashlib.sha1(data).digest()
    directory = git_directory / "objects" / object_id.hex()[:2]
    file = directory / object_id.hex()[2:]
    if not file.exists():
        directory.mkdir(exist_ok=True)
        file.write_bytes(zlib.compress(data, 1))
        file.chmod(0o444)
    return object_id


def _write_tree(git_directory: Path, blobs: Mapping[bytes, bytes]) -> bytes:
    """Write the tree of these blobs, and of the directories in their names. Returns its id."""
    entries: dict[bytes, tuple[bytes, bytes]] = {}
    directories: dict[bytes, dict[bytes, bytes]] = {}
    for name, blob in blobs.items():
        first, separator, rest = name.partition(b"/")
        if separator:
            directories.setdefault(first, {})[rest] = blob
        else:
            entries[name] = (b"100644 " + name, blob)
    for name, content in directories.items():
        entries[name + b"/"] = (b"40000 " + name, _write_tree(git_directory, content))
    return write_object(git_directory, b"tree", b"".join(b"%s\0%s" % entries[name] for name in sorted(entries)))


def _make_index(work_tree: Path, blobs: Mapping[bytes, bytes]) -> bytes:
    """The index of version 2, with the state of the files in the work tree."""
    parts = [b"DIRC" + struct.pack(">LL", 2, len(blobs))]
    for name in sorted(blobs):
        status = (work_tree / os.fsdecode(name)).stat()
        times = (*divmod(status.st_ctime_ns, 10**9), *divmod(status.st_mtime_ns, 10**9))
        numbers = (status.st_dev, status.st_ino, _FILE_MODE, status.st_uid, status.st_gid, status.st_size)
        head = struct.pack(">10L", *(number & 0xFFFFFFFF for number in (*times, *numbers)))
        entry = head + blobs[name] + struct.pack(">H", len(name)) + name
        parts.append(entry + bytes(_ENTRY_ALIGNMENT_BYTES - len(entry) % _ENTRY_ALIGNMENT_BYTES))
    content = b"".join(parts)
    return content + hashlib.sha1(content).digest()
