"""The rows of a shared index in a temporary file during an import, by wiki.

Only one import at a time can run in a data directory. The next import deletes the files of a killed one.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from threading import Lock

import numpy as np

from wikiholt.api.importer.shared_index import SharedRow
from wikiholt.domain.index import FloatArray
from wikiholt.errors import Busy, StorageError
from wikiholt.index.pipeline import hash_text
from wikiholt.regular_files import open_lock


@contextmanager
def open_work_directory(data: Path) -> Iterator[Path]:
    """An empty directory for one import, deleted afterwards. Raises Busy while another import runs."""
    directory = data / "importing"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open_lock(data / "import.lock")
    except OSError as error:
        raise StorageError(
            f"the work directory cannot be created ({error.strerror})", hint="check the data directory's permissions"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("another import is running in this data directory", hint="wait for it to finish") from None
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
    finally:
        os.close(lock)


class RowSpool:
    """The rows of each wiki. Safe to use from many threads. Nothing is synced to disk."""

    def __init__(self, file: Path) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE rows (wiki TEXT, page TEXT, number INTEGER, text TEXT, hash BLOB, model TEXT, vector BLOB);"
            "CREATE INDEX by_text ON rows (wiki, hash)"
        )

    def add_vectors(self, rows: Iterable[tuple[str, SharedRow]]) -> None:
        """Add the vectors of rows, each with its wiki."""
        self._add((wiki, None, None, None, hash_text(r.text), r.model, r.vector.tobytes()) for wiki, r in rows)

    def add_documents(self, rows: Iterable[tuple[str, SharedRow]]) -> None:
        """Add the texts of rows, each with its wiki."""
        self._add((wiki, r.page.strip("/"), r.index, r.text, None, None, None) for wiki, r in rows)

    def _add(self, rows: Iterable[tuple[object, ...]]) -> None:
        try:
            with self._lock:
                self._connection.execute("BEGIN")
                self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                self._connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise StorageError(f"the rows cannot be stored ({error})", hint="check free disk space") from error

    def count_rows(self) -> Mapping[str, int]:
        """The number of rows of each wiki, by slug."""
        return dict(self._connection.execute("SELECT wiki, count(*) FROM rows GROUP BY wiki ORDER BY wiki"))

    def find_vectors(self, wiki: str, hashes: Sequence[bytes]) -> Mapping[bytes, tuple[str, FloatArray]]:
        """The model and the first vector of each of these texts that the wiki has."""
        found: dict[bytes, tuple[str, FloatArray]] = {}
        with self._lock:
            for digest in hashes:
                for model, vector in self._connection.execute(
                    "SELECT model, vector FROM rows WHERE wiki = ? AND hash = ? ORDER BY rowid LIMIT 1", (wiki, digest)
                ):
                    found[digest] = model, np.frombuffer(vector, np.float32)
        return found

    def iter_pages(self, wiki: str) -> Iterator[tuple[str, list[str]]]:
        """The pages of one wiki with the texts of their rows, in order."""
        rows = self._connection.execute(
            "SELECT page, text FROM rows WHERE wiki = ? ORDER BY page, number, rowid", (wiki,)
        )
        for page, group in groupby(rows, key=lambda row: str(row[0])):
            yield page, [text for _, text in group]

    def close(self) -> None:
        with self._lock:
            self._connection.close()
