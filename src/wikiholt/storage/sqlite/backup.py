"""Copies of an index file: made while others read and write it, and taken in again as a generation of its own."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.checksums import compute_row_checksum
from wikiholt.storage.sqlite import integrity, schema
from wikiholt.storage.sqlite.errors import translate_errors

_COPY_STEP_PAGES = 512
"""Pages of SQLite that are copied before it is asked whether to stop."""


def write_copy(db: sqlite3.Connection, to: Path, stop: Callable[[], bool]) -> None:
    """Copy what an open transaction sees to a new file; raises Busy once `stop` says so."""

    def between(_: int, __: int, ___: int) -> None:
        if stop():
            raise Busy("the copy was stopped", hint="try again")

    with closing(sqlite3.connect(to, isolation_level=None)) as copy, translate_errors():
        # It counts only once it has been read back; until then a crash may do to it what it likes.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        db.backup(copy, pages=_COPY_STEP_PAGES, progress=between)
    _fsync(to)


def import_copy(copy: Path, file: Path, generation: int, wiki_id: str) -> None:
    """Make a generation of that number from a copy of this wiki; it appears under its name only when it is whole."""
    making = file.with_name(file.name + ".making")
    for leftover in making.parent.glob(making.name + "*"):
        leftover.unlink()
    try:
        shutil.copyfile(copy, making)
        with closing(schema.open_connection(making)) as db, translate_errors():
            _, _, recipe = schema.read_header(db)
            schema.require_owner(db, wiki_id)
            (layout,) = db.execute("SELECT schema FROM state").fetchone()
            seal = compute_row_checksum((layout, generation, recipe.fingerprint, recipe.dimensions, recipe.pipeline))
            db.execute("UPDATE state SET generation = ?, seal = ?", (generation, seal))
            faults = integrity.find_faults(db, recipe.dimensions)
            if faults:
                raise IndexCorrupt(f"the backup is damaged: {faults[0]}", hint="choose an earlier one")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        for leftover in making.parent.glob(making.name + "*"):
            leftover.unlink(missing_ok=True)
        raise
    _fsync(making)
    making.rename(file)
    _fsync(file.parent)


def _fsync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
