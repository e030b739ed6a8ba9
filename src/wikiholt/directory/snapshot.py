"""Snapshots of a directory: the table of its files, and commits in its mirror, each complete or not visible."""

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from wikiholt.directory.directory_files import FileStamp
from wikiholt.domain.git import Author
from wikiholt.errors import StorageError
from wikiholt.git.mirror import MIRROR_BRANCH
from wikiholt.git.process import GitProcess, GitRunner
from wikiholt.regular_files import is_irregular, move_away, open_regular, write_atomically

_LOG = logging.getLogger(__name__)

# The files of the last snapshot: the stamp, blob and date of each, so that unchanged files are not read again.
# The table is a cache. One whose checksum is wrong is ignored, and then every page is read once.


_TABLE_FILE = "wikiholt.files"
_FORMAT = 1
_NO_STAMP = FileStamp(-1, 0, 0, 0)


class FileRow(NamedTuple):
    """One file of a snapshot. With an unknown stamp, it is read again by the next scan."""

    mode: str
    blob: str
    changed_ns: int
    """The modification time of the file when this content was first seen."""
    stamp: FileStamp = _NO_STAMP


@dataclass(frozen=True, slots=True)
class FileTable:
    """The files of the snapshot `head`, by path from the root of the directory."""

    head: str | None = None
    rows: Mapping[str, FileRow] = field(default_factory=dict)

    def save(self, mirror: Path) -> None:
        """Replace the table in the mirror atomically. A failure only makes the next scan slower."""
        rows = [[path, row.mode, row.blob, row.changed_ns, *row.stamp] for path, row in self.rows.items()]
        body = json.dumps({"format": _FORMAT, "head": self.head, "files": rows}).encode()
        file = mirror / _TABLE_FILE
        try:
            if is_irregular(file):
                move_away(file)
            write_atomically(file, mirror / f"{_TABLE_FILE}.new", f"{_hash(body)}\n".encode() + body, 0o600)
        except OSError as error:
            _LOG.warning("the table of files cannot be saved, so the next scan reads every file: %s", error.strerror)


def load_table(mirror: Path) -> FileTable:
    """The saved table; an empty one if there is none or it is damaged."""
    try:
        with os.fdopen(open_regular(mirror / _TABLE_FILE), "rb") as file:
            checksum, _, body = file.read().partition(b"\n")
        if checksum.decode("ascii", "replace") != _hash(body):
            return FileTable()
        record = json.loads(body)
        if record["format"] != _FORMAT:
            return FileTable()
        rows = {
            path: FileRow(mode, blob, changed_ns, FileStamp(*stamp))
            for path, mode, blob, changed_ns, *stamp in record["files"]
        }
        return FileTable(record["head"], rows)
    except (OSError, ValueError, KeyError, TypeError):
        return FileTable()


def _hash(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()


# Commits.


SNAPSHOT_AUTHOR = Author("Wikiholt", "wikiholt@localhost")
# Without --done, a stream that a killed process left incomplete would look complete. Names that only other operating
# systems reserve are allowed.
_IMPORT = ("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false", "fast-import", "--quiet", "--done")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class SnapshotWriter:
    """One commit in progress: blobs first, then the commit. Git is only started if there is something to write."""

    def __init__(self, git: GitRunner) -> None:
        self._git = git
        self._stack = ExitStack()
        self._process: GitProcess | None = None
        self._marks: dict[str, int] = {}

    def add_blob(self, blob: str, data: bytes) -> None:
        """Write the content of a blob, once."""
        if blob not in self._marks:
            self._marks[blob] = len(self._marks) + 1
            self._send(f"blob\nmark :{self._marks[blob]}\ndata {len(data)}\n".encode() + data + b"\n")

    def commit(self, changes: Mapping[str, FileRow | None], parent: str | None, author: Author, message: str) -> None:
        """Commit these files (None removes one) on top of the parent and move the branch. Raises StorageError."""
        text = message.replace("\r\n", "\n").strip().encode() + b"\n"
        now = int(time.time())
        lines = [
            f"commit {MIRROR_BRANCH}".encode(),
            f"author {author.name} <{author.email}> {now} +0000".encode(),
            f"committer {SNAPSHOT_AUTHOR.name} <{SNAPSHOT_AUTHOR.email}> {now} +0000".encode(),
            f"data {len(text)}\n".encode() + text,
        ]
        if parent:
            lines.append(f"from {parent}".encode())
        # Deletions first: a directory may take the place of a file.
        for path, row in sorted(changes.items(), key=lambda item: item[1] is not None):
            lines.append(self._format_change(path, row))
        self._send(b"\n".join(lines) + b"\n\ndone\n")
        if self._process is None or self._process.wait() != 0:
            raise StorageError(
                "Git could not write a snapshot of the directory.",
                hint="Check free disk space in the data directory. The next sync checks the mirror and tries again.",
            )

    def close(self) -> None:
        """Discard what is not committed."""
        self._stack.close()

    def _format_change(self, path: str, row: FileRow | None) -> bytes:
        name = b'"' + os.fsencode(path.translate(_ESCAPES)) + b'"'
        if row is None:
            return b"D " + name
        mark = self._marks.get(row.blob)
        return f"M {row.mode} {f':{mark}' if mark else row.blob} ".encode() + name

    def _send(self, data: bytes) -> None:
        if self._process is None:
            self._process = self._stack.enter_context(self._git.start(*_IMPORT))
        self._process.write(data)
