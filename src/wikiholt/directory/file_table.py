"""The files of the last snapshot: the stamp, blob and date of each, so that unchanged files are not read again.

The table is a cache. One whose checksum is wrong is ignored, and then every page is read once.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from wikiholt.directory.directory_files import FileStamp
from wikiholt.regular_files import is_irregular, move_away, open_regular, write_atomically

_LOG = logging.getLogger(__name__)

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
