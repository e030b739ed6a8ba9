"""Writes the files of a directory as commits into its mirror. A commit becomes visible complete or not at all."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from wikiholt.directory.file_table import FileRow
from wikiholt.domain.git import Author
from wikiholt.errors import StorageError
from wikiholt.git.mirror import MIRROR_BRANCH
from wikiholt.git.process import GitProcess, GitRunner

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


@contextmanager
def open_snapshot(git: GitRunner) -> Iterator[SnapshotWriter]:
    """A snapshot to write; what is not committed is discarded."""
    writer = SnapshotWriter(git)
    try:
        yield writer
    finally:
        writer.close()
