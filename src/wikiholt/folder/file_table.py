"""The table of a directory's files: path, stamp and content hash, as the last scan found them.

A SQLite file with data derived from the directory: one that is lost or damaged is built again by the next scan, with
the same revision. The revision is the hash of the rows. The table also keeps a write of several files until it is done.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from wikiholt.domain.git import EntryKind
from wikiholt.errors import SourceCorrupt, StorageError
from wikiholt.regular_files import is_irregular, move_away

TABLE_FILE = "files.sqlite"
_VERSION = 2
_SCHEMA = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, kind TEXT NOT NULL, blob TEXT NOT NULL,
    changed_ns INTEGER NOT NULL, stamp TEXT NOT NULL, revision TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS files_by_blob ON files (blob);
CREATE TABLE IF NOT EXISTS head (revision TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pending (path BLOB PRIMARY KEY, old TEXT, data BLOB, moved_from BLOB NOT NULL);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_SELECT_ROWS = "SELECT path, kind, blob, changed_ns, stamp, revision FROM files"
_LOCK_TIMEOUT_S = 10.0
_REVISION_BYTES = 20


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


class PendingChange(NamedTuple):
    """One file of a write: new content, a removal without `data`, or the move of another file to this path."""

    path: str
    old: str | None
    """What identifies the content that is replaced; None if there is no file."""
    data: bytes | None
    moved_from: str = ""

    @property
    def is_removal(self) -> bool:
        return self.data is None and not self.moved_from


class FileTable:
    """The table in one file. Writing it requires the lock of the directory; reading is safe in many threads."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get_revision(self) -> str | None:
        """The revision of the last scan; None if there is no table yet."""
        with self._open() as db:
            return row[0] if db and (row := db.execute("SELECT revision FROM head").fetchone()) else None

    def read_rows(self) -> dict[str, FileRow] | None:
        """The files by path; None if there is no table yet."""
        with self._open() as db:
            if db is None:
                return None
            db.execute("BEGIN")
            found = db.execute("SELECT revision FROM head").fetchone()
            rows = {
                os.fsdecode(path): FileRow(EntryKind(kind), *rest) for path, kind, *rest in db.execute(_SELECT_ROWS)
            }
        if found and _compute_revision(rows) != found[0]:
            raise self._discard()
        return rows if found else None

    def find_row(self, path: str) -> FileRow | None:
        with self._open() as db:
            found = db.execute(f"{_SELECT_ROWS} WHERE path = ?", (os.fsencode(path),)).fetchone() if db else None
        return FileRow(EntryKind(found[1]), *found[2:]) if found else None

    def find_paths(self, blobs: Sequence[str]) -> dict[str, list[str]]:
        """The files that had each of these contents."""
        paths: dict[str, list[str]] = {}
        with self._open() as db:
            statement = "SELECT blob, path FROM files WHERE blob IN (SELECT value FROM json_each(?)) ORDER BY path"
            for blob, path in db.execute(statement, (json.dumps(blobs),)) if db else ():
                paths.setdefault(blob, []).append(os.fsdecode(path))
        return paths

    def save(self, rows: Mapping[str, FileRow], saved: Mapping[str, FileRow] | None) -> bool:
        """Replace the rows `saved`; return whether this is a new revision."""
        if rows == saved:
            return False
        old, revision = saved or {}, _compute_revision(rows)
        changed = [(path, row) for path, row in rows.items() if old.get(path) != row]
        with self._change() as db:
            before = db.execute("SELECT revision FROM head").fetchone()
            db.executemany(
                "DELETE FROM files WHERE path = ?", [(os.fsencode(path),) for path in old.keys() - rows.keys()]
            )
            db.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)",
                [(os.fsencode(path), *row[:4], row.revision or revision) for path, row in changed],
            )
            db.execute("DELETE FROM head")
            db.execute("INSERT INTO head VALUES (?)", (revision,))
        return bool(before != (revision,))

    def read_pending(self) -> list[PendingChange]:
        """The write that was interrupted; empty if there is none."""
        with self._open() as db:
            rows = db.execute("SELECT path, old, data, moved_from FROM pending").fetchall() if db else []
        return [PendingChange(os.fsdecode(path), old, data, os.fsdecode(source)) for path, old, data, source in rows]

    def write_pending(self, changes: Sequence[PendingChange]) -> None:
        """Keep a write durably until it is done, or forget the last one."""
        with self._change() as db:
            db.execute("DELETE FROM pending")
            db.executemany(
                "INSERT INTO pending VALUES (?, ?, ?, ?)",
                [(os.fsencode(path), old, data, os.fsencode(source)) for path, old, data, source in changes],
            )

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
            is_new = not (self._file.exists() and self._file.stat().st_size)
            if is_new and not create:
                yield None
                return
            with closing(sqlite3.connect(self._file, _LOCK_TIMEOUT_S, isolation_level=None)) as db:
                if is_new or db.execute("PRAGMA user_version").fetchone() == (_VERSION,):
                    yield db
                    return
            move_away(self._file)  # of an earlier version
            with self._open(create=create) as new:
                yield new
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


def _compute_revision(rows: Mapping[str, FileRow]) -> str:
    """The hash of paths, kinds and contents; empty without files."""
    lines = sorted(b"%b\0%b %b\n" % (os.fsencode(path), *map(str.encode, row[:2])) for path, row in rows.items())
    return blake2b(b"".join(lines), digest_size=_REVISION_BYTES).hexdigest() if rows else ""
