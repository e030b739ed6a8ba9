"""The table of a directory's files: path, stamp, content hash and content, at the last revisions.

A SQLite file with data derived from the directory: one that is lost or damaged is built again by the next scan, with
the same revision. A revision is the hash of its rows. It can be read for an hour after a newer one has taken its place,
so that a sync that reads it can finish.
"""

import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from wikiholt.domain.git import EntryKind
from wikiholt.errors import SourceCorrupt, StorageError
from wikiholt.folder.files_on_disk import FileStamp
from wikiholt.git.objects import hash_object
from wikiholt.regular_files import is_irregular, move_away

TABLE_FILE = "files.sqlite"
_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS revisions (version INTEGER PRIMARY KEY, revision TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    path BLOB NOT NULL, kind TEXT NOT NULL, blob TEXT NOT NULL, changed_ns INTEGER NOT NULL, stamp TEXT NOT NULL,
    revision TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER, PRIMARY KEY (path, since));
CREATE INDEX IF NOT EXISTS files_by_blob ON files (blob);
CREATE TABLE IF NOT EXISTS contents (blob TEXT PRIMARY KEY, data BLOB NOT NULL);
COMMIT;
"""
_FIND_REVISION = """
SELECT version, revision FROM revisions WHERE revision = ifnull(?1, revision) ORDER BY version DESC LIMIT 1
"""
_READ_ROWS = """
SELECT path, kind, blob, changed_ns, stamp, revision FROM files WHERE since <= ?1 AND ifnull(until, ?1 + 1) > ?1
"""
_FIND_ROW = "SELECT kind, blob, changed_ns, stamp, revision FROM files WHERE path = ? AND until IS NULL"
_LOCK_TIMEOUT_S = 10.0
_KEPT_S = 3600.0
_HASH_SAMPLE = "0" * 40
UNREAD_PREFIX = "unread:"
_ATTACHMENT = "file:"


class FileRow(NamedTuple):
    """One file. With an empty stamp, it is read again by the next scan."""

    kind: EntryKind
    blob: str
    """The hash of its content, as git computes it; `make_unread_id` if it was not read."""
    changed_ns: int
    """The modification time of the file when this content was first seen."""
    stamp: str = ""
    revision: str = ""
    """The revision in which this content was first seen."""


class FileTable:
    """The table in one file. Writing it requires the lock of the directory; reading is safe in many threads."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get_revision(self) -> str | None:
        """The revision of the last scan; None if there is no table yet."""
        with self._open() as db:
            return row[1] if db and (row := db.execute(_FIND_REVISION, (None,)).fetchone()) else None

    def read_rows(self, revision: str | None = None) -> dict[str, FileRow] | None:
        """The files at a revision, or at the last one, by path; None if it cannot be read any more."""
        with self._open() as db:
            if db is None or (found := db.execute(_FIND_REVISION, (revision,)).fetchone()) is None:
                return None
            selected = db.execute(_READ_ROWS, found[:1])
            rows = {os.fsdecode(path): FileRow(EntryKind(kind), *rest) for path, kind, *rest in selected}
        if _compute_revision(rows) != found[1]:
            raise self._discard()
        return rows

    def find_row(self, path: str) -> FileRow | None:
        """The last row of a file."""
        with self._open() as db:
            found = db.execute(_FIND_ROW, (os.fsencode(path),)).fetchone() if db else None
        return FileRow(EntryKind(found[0]), *found[1:]) if found else None

    def read_content(self, blob: str) -> bytes | None:
        """The content with this hash; None if there is none. Raises SourceCorrupt if it is damaged."""
        with self._open() as db:
            found = db and db.execute("SELECT data FROM contents WHERE blob = ?", (blob,)).fetchone()
        if not found:
            return None
        with suppress(zlib.error, TypeError):
            data = zlib.decompress(found[0])
            if hash_content(data) == blob:
                return data
        raise self._discard()

    def add_contents(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by their hash, for the rows that follow."""
        with self._change() as db:
            rows = ((blob, zlib.compress(data, 1)) for blob, data in contents.items())
            db.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?)", rows)

    def save(self, rows: Mapping[str, FileRow], saved: Mapping[str, FileRow] | None) -> bool:
        """Replace the rows `saved`, and forget old ones; return whether this is a new revision."""
        if rows == saved:
            return False
        old, revision = saved or {}, _compute_revision(rows)
        with self._change() as db:
            last = db.execute(_FIND_REVISION, (None,)).fetchone()
            is_new = last is None or last[1] != revision
            version = (last[0] if last else 0) + is_new
            for path, row in old.items():
                new, name = rows.get(path), os.fsencode(path)
                if new is None or new[:2] != row[:2]:
                    db.execute("UPDATE files SET until = ? WHERE path = ? AND until IS NULL", (version, name))
                elif new != row:
                    db.execute("UPDATE files SET stamp = ? WHERE path = ? AND until IS NULL", (new.stamp, name))
            new_rows = [(path, row) for path, row in rows.items() if path not in old or old[path][:2] != row[:2]]
            db.executemany(
                "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                [(os.fsencode(path), *row[:4], revision, version) for path, row in new_rows],
            )
            if is_new:
                db.execute("INSERT INTO revisions VALUES (?, ?, ?)", (version, revision, time.time()))
                before = (time.time() - _KEPT_S,)
                db.execute(
                    "DELETE FROM revisions WHERE version < (SELECT max(version) FROM revisions WHERE at < ?)", before
                )
                db.execute("DELETE FROM files WHERE until <= (SELECT min(version) FROM revisions)")
                db.execute("DELETE FROM contents WHERE blob NOT IN (SELECT blob FROM files)")
        return is_new

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """A transaction. Creates the table if there is none."""
        with self._open(create=True) as db:
            assert db is not None
            db.executescript(_SCHEMA)
            with db:
                db.execute("BEGIN IMMEDIATE")
                yield db

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[sqlite3.Connection | None]:
        """The table; None if there is none. Raises StorageError, and SourceCorrupt after removing a damaged one."""
        try:
            if is_irregular(self._file):
                move_away(self._file)
            if not create and not (self._file.exists() and self._file.stat().st_size):
                yield None
                return
            db = sqlite3.connect(self._file, _LOCK_TIMEOUT_S, isolation_level=None)
            with closing(db):
                yield db
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"The table of the directory's files cannot be used: {error}.",
                hint="Check free disk space and the permissions of the data directory.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._discard() from error

    def _discard(self) -> SourceCorrupt:
        """Remove the damaged table, and return the error that says so."""
        with suppress(OSError):
            move_away(self._file)
        return SourceCorrupt(
            "The table of the directory's files was damaged.", hint="It was removed; the next sync builds it again."
        )


def hash_content(data: bytes) -> str:
    """The hash of a file's content, which is its blob in a git repository too."""
    return hash_object(data, _HASH_SAMPLE)


def make_unread_id(size: int) -> str:
    """The id instead of a hash for a file that is too large to be read, or, with the size -1, cannot be read."""
    return f"{UNREAD_PREFIX}{size}"


def make_attachment_id(stamp: FileStamp, file: str) -> str:
    """The id instead of a hash for an attachment, which is not read."""
    return f"{_ATTACHMENT}{stamp}:{quote(file)}"


def is_attachment_id(blob: str) -> bool:
    return blob.startswith(_ATTACHMENT)


def parse_attachment_id(blob: str) -> tuple[FileStamp, str]:
    """Stamp and file of an attachment."""
    stamp, _, file = blob.removeprefix(_ATTACHMENT).rpartition(":")
    return FileStamp.parse(stamp), unquote(file)


def _compute_revision(rows: Mapping[str, FileRow]) -> str:
    """The hash of paths, kinds and contents; empty without files."""
    lines = sorted(b"%b\0%b %b\n" % (os.fsencode(path), *map(str.encode, row[:2])) for path, row in rows.items())
    return blake2b(b"".join(lines), digest_size=len(_HASH_SAMPLE) // 2).hexdigest() if rows else ""
