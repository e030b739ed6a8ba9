"""Copies of an index file: written while others use the index, and imported as a new generation."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.regular_files import fsync_path
from wikiholt.storage.sqlite import integrity, schema
from wikiholt.storage.sqlite.errors import translate_errors

_COPY_STEP_PAGES = 512
"""SQLite pages copied between two calls of `stop`."""


def write_copy(db: sqlite3.Connection, to: Path, stop: Callable[[], bool]) -> None:
    """Copy the snapshot of an open transaction to a new file. Raises Busy once `stop` returns True."""

    def check_stop(_: int, __: int, ___: int) -> None:
        if stop():
            raise Busy("the copy was stopped", hint="try again")

    with closing(sqlite3.connect(to, isolation_level=None)) as copy, translate_errors():
        # The copy is used only after it has been verified, so it needs no protection against a crash.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        db.backup(copy, pages=_COPY_STEP_PAGES, progress=check_stop)
    fsync_path(to)


def import_copy(copy: Path, file: Path, generation: int, wiki_id: str) -> None:
    """Create generation `generation` from a copy of this wiki. `file` appears only once it is complete and verified."""
    draft = schema.get_draft_file(file)
    schema.remove_draft(draft)
    try:
        shutil.copyfile(copy, draft)
        with closing(schema.open_connection(draft)) as db, translate_errors():
            _, recipe = schema.read_header(db)
            schema.require_owner(db, wiki_id)
            schema.write_generation(db, generation, recipe)
            faults = integrity.find_faults(db, recipe.dimensions)
            if faults:
                raise IndexCorrupt(f"the backup is damaged: {faults[0]}", hint="choose an earlier one")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except BaseException:
        schema.remove_draft(draft)
        raise
    fsync_path(draft)
    draft.rename(file)
    fsync_path(file.parent)
