"""Copies of a generation, as files of the embedded store: with the same ids, versions and seals, so that either store
can take in the other's."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wikiholt.domain.index import Recipe
from wikiholt.domain.page import PageProblem
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.checksums import write_state_checksum
from wikiholt.storage.postgres import index_writer, rows
from wikiholt.storage.postgres.integrity import FullPage, iter_full_pages
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import GenerationState
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite import integrity, schema
from wikiholt.storage.sqlite import rows as packing
from wikiholt.storage.sqlite.errors import translate_errors

Row = tuple[Any, ...]

_BATCH_CHUNKS = 200


def write_copy(db: Connection, tables: GenerationTables, to: Path, stop: Callable[[], bool]) -> GenerationState:
    """Copy what the open snapshot sees to a new file, which appears when it is whole; raises Busy if stopped."""
    standing, seal = index_writer.read_state(db, tables.number)
    if standing.get_checksum(tables.wiki_id) != seal:
        raise IndexCorrupt(
            "the index has lost its state, or belongs to another wiki", hint="run `wikiholt sync` to build it again"
        )
    making = to.with_name(to.name + ".copying")
    try:
        schema.create_index_file(making, tables.wiki_id, standing.number, standing.recipe)
        with closing(schema.open_connection(making)) as copy, translate_errors():
            copy.execute("PRAGMA synchronous = OFF")  # it counts only once it has been read back
            copy.execute("BEGIN")
            for page in iter_full_pages(db, tables, standing.dimensions):
                if stop():
                    raise Busy("the copy was stopped", hint="try again")
                _write_page(copy, page)
            _write_rest(db, tables, copy, standing)
            copy.execute("COMMIT")
            copy.execute("PRAGMA synchronous = FULL")
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        making.rename(to)
    except BaseException:
        for leftover in making.parent.glob(making.name + "*"):
            leftover.unlink(missing_ok=True)
        raise
    return standing


def _write_page(copy: sqlite3.Connection, page: FullPage) -> None:
    copy.execute(
        f"INSERT INTO pages ({', '.join(index_writer.PAGE_FIELDS)}) VALUES ({_format_placeholders(page.page)})",
        page.page,
    )
    names = ", ".join(index_writer.CHUNK_FIELDS)
    copy.executemany(
        f"INSERT INTO chunks ({names}) VALUES ({_format_placeholders(index_writer.CHUNK_FIELDS)})", page.chunks
    )
    copy.executemany("INSERT INTO vectors VALUES (?, ?, ?)", page.vector_rows)
    copy.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, page.page_id) for tag in page.tags])
    copy.executemany(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(page.page_id, *link) for link in page.links]
    )
    words = packing.decode_terms(page.page[index_writer.PAGE_FIELDS.index("words")])
    row = (page.page_id, words.name, words.headings, words.body)
    copy.execute("INSERT INTO words (rowid, name, headings, body) VALUES (?, ?, ?, ?)", row)
    copy.execute("INSERT INTO seals VALUES (?, ?)", (page.page_id, page.checksum))


def _write_rest(db: Connection, tables: GenerationTables, copy: sqlite3.Connection, state: GenerationState) -> None:
    sql = f"SELECT file, blob, reason, detail, seal FROM {tables.problems}"
    copy.executemany("INSERT INTO problems VALUES (?, ?, ?, ?, ?)", map(rows.decode_row, db.execute(sql)))
    sql = f"SELECT version, chunk_id, page_id FROM {tables.dropped} ORDER BY version"
    copy.executemany("INSERT INTO dropped VALUES (?, ?, ?)", db.execute(sql))
    # Ids are never given out twice, also not by the store that takes this in.
    copy.execute("DELETE FROM sqlite_sequence")
    last = [("pages", state.next_page - 1), ("chunks", state.next_chunk - 1)]
    copy.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", last)
    row = (state.version, state.horizon, state.revision, state.synced_at)
    copy.execute("UPDATE state SET version = ?, horizon = ?, revision = ?, synced_at = ?", row)
    write_state_checksum(copy)


def verify_copy(file: Path, wiki_id: str) -> Recipe:
    """The recipe of a file of this wiki that can be taken in, every byte of which was read; else raises IndexFault."""
    with closing(schema.open_immutable(file)) as copy, translate_errors():
        _, recipe = schema.read_header(copy)
        schema.require_owner(copy, wiki_id)
        faults = integrity.find_faults(copy, recipe.dimensions)
    if faults:
        raise _make_damaged_error(faults[0])
    return recipe


def import_copy(db: Connection, file: Path, tables: GenerationTables) -> None:
    """Fill an empty generation from a file that was proven, in the open transaction."""
    with closing(schema.open_immutable(file)) as copy, translate_errors():
        _, recipe = schema.read_header(copy)
        _CopyImport(db, tables, copy, recipe.dimensions).run()


def _make_damaged_error(fault: str) -> IndexCorrupt:
    return IndexCorrupt(f"the backup is damaged: {fault}", hint="choose an earlier one")


class _CopyImport:
    def __init__(self, db: Connection, tables: GenerationTables, copy: sqlite3.Connection, dimensions: int) -> None:
        self._db = db
        self._tables = tables
        self._copy = copy
        self._dimensions = dimensions
        self._terms = 0

    def run(self) -> None:
        before, _ = index_writer.read_state(self._db, self._tables.number, lock=True)
        index_writer.copy_pages(self._db, self._tables, self._iter_page_rows())
        index_writer.copy_chunks(self._db, self._tables, self._iter_chunk_rows())
        problems = [PageProblem(*row) for row in self._copy.execute("SELECT file, blob, reason, detail FROM problems")]
        index_writer.copy_problems(self._db, self._tables, problems)
        index_writer.copy_dropped(self._db, self._tables, self._copy.execute("SELECT * FROM dropped"))
        version, horizon, revision, synced_at = self._copy.execute(
            "SELECT version, horizon, revision, synced_at FROM state"
        ).fetchone()
        standing = replace(
            before,
            version=version,
            horizon=horizon,
            revision=revision,
            synced_at=synced_at,
            pages=self._count_rows("pages"),
            chunks=self._count_rows("chunks"),
            problems=len(problems),
            next_page=self._get_next_id("pages"),
            next_chunk=self._get_next_id("chunks"),
            terms=self._terms,
        )
        index_writer.write_state(self._db, self._tables, standing)

    def _iter_page_rows(self) -> Iterator[Row]:
        for page in self._copy.execute(f"SELECT {', '.join(index_writer.PAGE_FIELDS)} FROM pages ORDER BY id"):
            chunks = self._select_for_page(
                f"SELECT {', '.join(index_writer.CHUNK_FIELDS)} FROM chunks WHERE page_id = ? ORDER BY number", page
            )
            blobs = self._select_for_page(
                "SELECT vector FROM chunks JOIN vectors ON chunk_id = chunks.id WHERE chunks.page_id = ?"
                " ORDER BY number",
                page,
            )
            vectors = np.frombuffer(b"".join(blob for (blob,) in blobs), "<f4").reshape(-1, self._dimensions)
            tags = [
                tag for (tag,) in self._select_for_page("SELECT tag FROM tags WHERE page_id = ? ORDER BY tag", page)
            ]
            columns = "target, text, line, wiki, paths, key, other_key"
            links = self._select_for_page(f"SELECT {columns} FROM links WHERE page_id = ? ORDER BY rowid", page)
            row = index_writer.make_page_row(page, chunks, vectors, tags, links)
            if self._select_for_page("SELECT crc FROM seals WHERE page_id = ?", page) != [row[-1:]]:
                raise _make_damaged_error(f"page {page[0]} is not as it was written")
            self._terms += row[-3]
            yield row

    def _iter_chunk_rows(self) -> Iterator[Row]:
        found = self._copy.execute(
            f"SELECT {', '.join(f'chunks.{name}' for name in index_writer.CHUNK_FIELDS)}, vector"
            " FROM chunks JOIN vectors ON chunk_id = chunks.id ORDER BY chunks.id"
        )
        while block := found.fetchmany(_BATCH_CHUNKS):
            vectors = packing.to_vector_rows([(0, 0, row[-1]) for row in block], self._dimensions).vectors
            for row, field in zip(block, rows.encode_vectors(vectors), strict=True):
                yield (*row[:-1], field)

    def _select_for_page(self, sql: str, page: Row) -> list[Row]:
        return self._copy.execute(sql, (page[0],)).fetchall()

    def _count_rows(self, table: str) -> int:
        return int(self._copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def _get_next_id(self, table: str) -> int:
        row = self._copy.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        (last,) = self._copy.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        return int(max(last, row[0] if row else 0)) + 1


def _format_placeholders(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
