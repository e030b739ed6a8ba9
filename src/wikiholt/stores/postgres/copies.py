"""Copies of a generation, as files of the embedded store: with the same ids, versions and seals, so that either store
can take in the other's."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wikiholt.errors import Busy, IndexCorrupt, IndexFault
from wikiholt.model import Problem, Recipe
from wikiholt.stores.postgres import filing, rows, writing
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.reading import WholePage, whole_pages
from wikiholt.stores.postgres.rows import Standing
from wikiholt.stores.postgres.tables import Tables
from wikiholt.stores.sqlite import checking, schema
from wikiholt.stores.sqlite import rows as packing
from wikiholt.stores.sqlite.faults import translated
from wikiholt.stores.sqlite.seals import seal_state

Row = tuple[Any, ...]

_AT_ONCE = 200
_LAYOUT = 2
"""The oldest schema of a file that can be taken in: before, links had no keys."""


def write(db: Connection, tables: Tables, to: Path, stop: Callable[[], bool]) -> Standing:
    """Copy what the open snapshot sees to a new file, which appears when it is whole; raises Busy if stopped."""
    standing, seal = writing.standing_of(db, tables.number)
    if standing.seal_for(tables.wiki_id) != seal:
        raise IndexCorrupt(
            "the index has lost its state, or belongs to another wiki", hint="run `wikiholt sync` to build it again"
        )
    making = to.with_name(to.name + ".copying")
    try:
        schema.create(making, tables.wiki_id, standing.number, standing.recipe)
        with closing(schema.connect(making)) as copy, translated():
            copy.execute("PRAGMA synchronous = OFF")  # it counts only once it has been read back
            copy.execute("BEGIN")
            for page in whole_pages(db, tables, standing.dimensions):
                if stop():
                    raise Busy("the copy was stopped", hint="try again")
                _put(copy, page)
            _put_rest(db, tables, copy, standing)
            copy.execute("COMMIT")
            copy.execute("PRAGMA synchronous = FULL")
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        making.rename(to)
    except BaseException:
        for leftover in making.parent.glob(making.name + "*"):
            leftover.unlink(missing_ok=True)
        raise
    return standing


def _put(copy: sqlite3.Connection, page: WholePage) -> None:
    copy.execute(f"INSERT INTO pages ({', '.join(filing.PAGE)}) VALUES ({_marks(page.page)})", page.page)
    names = ", ".join(filing.CHUNK)
    copy.executemany(f"INSERT INTO chunks ({names}) VALUES ({_marks(filing.CHUNK)})", page.chunks)
    copy.executemany("INSERT INTO vectors VALUES (?, ?, ?)", page.vector_rows)
    copy.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, page.page_id) for tag in page.tags])
    copy.executemany(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(page.page_id, *link) for link in page.links]
    )
    words = packing.unpack_words(page.page[filing.PAGE.index("words")])
    row = (page.page_id, words.name, words.headings, words.body)
    copy.execute("INSERT INTO words (rowid, name, headings, body) VALUES (?, ?, ?, ?)", row)
    copy.execute("INSERT INTO seals VALUES (?, ?)", (page.page_id, page.seal))


def _put_rest(db: Connection, tables: Tables, copy: sqlite3.Connection, standing: Standing) -> None:
    sql = f"SELECT file, blob, reason, detail, seal FROM {tables.problems}"
    copy.executemany("INSERT INTO problems VALUES (?, ?, ?, ?, ?)", map(rows.meant_row, db.execute(sql)))
    sql = f"SELECT version, chunk_id, page_id FROM {tables.dropped} ORDER BY version"
    copy.executemany("INSERT INTO dropped VALUES (?, ?, ?)", db.execute(sql))
    # Ids are never given out twice, also not by the store that takes this in.
    copy.execute("DELETE FROM sqlite_sequence")
    last = [("pages", standing.next_page - 1), ("chunks", standing.next_chunk - 1)]
    copy.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", last)
    row = (standing.version, standing.horizon, standing.revision, standing.synced_at)
    copy.execute("UPDATE state SET version = ?, horizon = ?, revision = ?, synced_at = ?", row)
    seal_state(copy)


def proven(file: Path, wiki_id: str) -> Recipe:
    """The recipe of a file of this wiki that can be taken in, every byte of which was read; else raises IndexFault."""
    with closing(schema.connect_unchanging(file)) as copy, translated():
        layout, _, recipe = schema.examine(copy)
        if layout < _LAYOUT:
            raise IndexFault(
                "the copy is an older Wikiholt's and knows no links",
                hint="sync it in an embedded store first (`wikiholt sync`), then move that wiki",
            )
        schema.require_owner(copy, wiki_id)
        faults = checking.faults(copy, recipe.dimensions)
    if faults:
        raise _damaged(faults[0])
    return recipe


def take_in(db: Connection, file: Path, tables: Tables) -> None:
    """Fill an empty generation from a file that was proven, in the open transaction."""
    with closing(schema.connect_unchanging(file)) as copy, translated():
        _, _, recipe = schema.examine(copy)
        _Intake(db, tables, copy, recipe.dimensions).run()


def _damaged(fault: str) -> IndexCorrupt:
    return IndexCorrupt(f"the backup is damaged: {fault}", hint="choose an earlier one")


class _Intake:
    def __init__(self, db: Connection, tables: Tables, copy: sqlite3.Connection, dimensions: int) -> None:
        self._db = db
        self._tables = tables
        self._copy = copy
        self._dimensions = dimensions
        self._terms = 0

    def run(self) -> None:
        before, _ = writing.standing_of(self._db, self._tables.number, locked=True)
        filing.copy_pages(self._db, self._tables, self._pages())
        filing.copy_chunks(self._db, self._tables, self._chunks())
        problems = [Problem(*row) for row in self._copy.execute("SELECT file, blob, reason, detail FROM problems")]
        filing.copy_problems(self._db, self._tables, problems)
        filing.copy_dropped(self._db, self._tables, self._copy.execute("SELECT * FROM dropped"))
        version, horizon, revision, synced_at = self._copy.execute(
            "SELECT version, horizon, revision, synced_at FROM state"
        ).fetchone()
        standing = replace(
            before,
            version=version,
            horizon=horizon,
            revision=revision,
            synced_at=synced_at,
            pages=self._count("pages"),
            chunks=self._count("chunks"),
            problems=len(problems),
            next_page=self._next("pages"),
            next_chunk=self._next("chunks"),
            terms=self._terms,
        )
        writing.write_standing(self._db, self._tables, standing)

    def _pages(self) -> Iterator[Row]:
        for page in self._copy.execute(f"SELECT {', '.join(filing.PAGE)} FROM pages ORDER BY id"):
            chunks = self._of_page(
                f"SELECT {', '.join(filing.CHUNK)} FROM chunks WHERE page_id = ? ORDER BY number", page
            )
            blobs = self._of_page(
                "SELECT vector FROM chunks JOIN vectors ON chunk_id = chunks.id WHERE chunks.page_id = ?"
                " ORDER BY number",
                page,
            )
            vectors = np.frombuffer(b"".join(blob for (blob,) in blobs), "<f4").reshape(-1, self._dimensions)
            tags = [tag for (tag,) in self._of_page("SELECT tag FROM tags WHERE page_id = ? ORDER BY tag", page)]
            columns = "target, text, line, wiki, paths, key, other_key"
            links = self._of_page(f"SELECT {columns} FROM links WHERE page_id = ? ORDER BY rowid", page)
            row = filing.sealed_page(page, chunks, vectors, tags, links)
            if self._of_page("SELECT crc FROM seals WHERE page_id = ?", page) != [row[-1:]]:
                raise _damaged(f"page {page[0]} is not as it was written")
            self._terms += row[-3]
            yield row

    def _chunks(self) -> Iterator[Row]:
        found = self._copy.execute(
            f"SELECT {', '.join(f'chunks.{name}' for name in filing.CHUNK)}, vector"
            " FROM chunks JOIN vectors ON chunk_id = chunks.id ORDER BY chunks.id"
        )
        while block := found.fetchmany(_AT_ONCE):
            vectors = packing.vector_rows([(0, 0, row[-1]) for row in block], self._dimensions).vectors
            for row, field in zip(block, rows.vector_fields(vectors), strict=True):
                yield (*row[:-1], field)

    def _of_page(self, sql: str, page: Row) -> list[Row]:
        return self._copy.execute(sql, (page[0],)).fetchall()

    def _count(self, table: str) -> int:
        return int(self._copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def _next(self, table: str) -> int:
        row = self._copy.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        (last,) = self._copy.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        return int(max(last, row[0] if row else 0)) + 1


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
