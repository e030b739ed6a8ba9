"""Copies between a generation and an index file of the SQLite store.

A copy keeps ids, versions and checksums, so either store can import the backups of the other.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from wikiholt.domain.index import Recipe
from wikiholt.domain.page import PageProblem
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.checksums import write_checksums, write_state_checksum
from wikiholt.storage.page_table import PageRow
from wikiholt.storage.postgres import generation_rows, rows
from wikiholt.storage.postgres.errors import make_foreign_state_error
from wikiholt.storage.postgres.generation_rows import DroppedRow, FullPage, iter_full_pages
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import GenerationState
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite import integrity, schema
from wikiholt.storage.sqlite import rows as packing
from wikiholt.storage.sqlite.errors import translate_errors
from wikiholt.storage.sqlite.rows import ChunkRow, LinkRow

Row = tuple[Any, ...]

_BATCH_CHUNKS = 200


# ── export ───────────────────────────────────────────────────────────────────────────────────────


def write_copy(db: Connection, tables: GenerationTables, to: Path, stop: Callable[[], bool]) -> GenerationState:
    """Copy the open snapshot to a new file, which appears only when it is complete. Raises Busy if stopped."""
    state, checksum = generation_rows.read_state(db, tables.number)
    if state.get_checksum(tables.wiki_id) != checksum:
        raise make_foreign_state_error()
    temporary = to.with_name(to.name + ".copying")
    try:
        schema.create_index_file(temporary, tables.wiki_id, state.number, state.recipe)
        with closing(schema.open_connection(temporary)) as copy, translate_errors():
            copy.execute("PRAGMA synchronous = OFF")  # an incomplete copy is deleted, so only the end is synced
            copy.execute("BEGIN")
            for page in iter_full_pages(db, tables, state.dimensions):
                if stop():
                    raise Busy("the copy was stopped", hint="try again")
                _write_page(copy, page)
            _write_rest(db, tables, copy, state)
            copy.execute("COMMIT")
            copy.execute("PRAGMA synchronous = FULL")
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        temporary.rename(to)
    except BaseException:
        for leftover in temporary.parent.glob(temporary.name + "*"):
            leftover.unlink(missing_ok=True)
        raise
    return state


def _write_page(copy: sqlite3.Connection, full_page: FullPage) -> None:
    page = full_page.page
    columns = page._asdict()
    copy.execute("INSERT INTO page_words (page_id, words) VALUES (?, ?)", (page.id, columns.pop("words")))
    copy.execute(_format_insert("pages", tuple(columns)), tuple(columns.values()))
    packing.insert_chunks(copy, full_page.chunks, full_page.vector_rows)
    copy.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, page.id) for tag in full_page.tags])
    links = [(page.id, *link) for link in full_page.links]
    copy.executemany(_format_insert("links", ("page_id", *LinkRow._fields)), links)
    words = packing.decode_terms(page.words)
    row = (page.id, words.name, words.headings, words.body)
    copy.execute(_format_insert("words", ("rowid", "name", "headings", "body")), row)
    write_checksums(copy, [(page, full_page.derived.seal)])


def _write_rest(db: Connection, tables: GenerationTables, copy: sqlite3.Connection, state: GenerationState) -> None:
    problems = generation_rows.read_problems(db, tables)
    copy.executemany(
        "INSERT INTO problems VALUES (?, ?, ?, ?, ?)",
        ((problem.file, problem.blob, problem.reason, problem.detail, checksum) for problem, checksum in problems),
    )
    for dropped in generation_rows.read_dropped(db, tables):
        chunks, pages = ([(dropped.version, each) for each in ids] for ids in (dropped.chunk_ids, dropped.page_ids))
        copy.executemany("INSERT INTO dropped VALUES (?, ?, NULL)", chunks)
        copy.executemany("INSERT INTO dropped VALUES (?, NULL, ?)", pages)
    # The store that imports the copy must not reuse ids either.
    copy.execute("DELETE FROM sqlite_sequence")
    last_ids = [("pages", state.next_page - 1), ("chunks", state.next_chunk - 1)]
    copy.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", last_ids)
    row = (state.version, state.horizon, state.revision, state.synced_at)
    copy.execute("UPDATE state SET version = ?, horizon = ?, revision = ?, synced_at = ?", row)
    write_state_checksum(copy)


def _format_insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


# ── import ───────────────────────────────────────────────────────────────────────────────────────


def verify_copy(file: Path, wiki_id: str) -> Recipe:
    """Read every byte of a copy and return its recipe. Raises IndexFault if this wiki cannot import it."""
    with closing(schema.open_immutable(file)) as copy, translate_errors():
        _, recipe = schema.read_header(copy)
        schema.require_owner(copy, wiki_id)
        faults = integrity.find_faults(copy, recipe.dimensions)
    if faults:
        raise _make_damaged_error(faults[0])
    return recipe


def import_copy(db: Connection, file: Path, tables: GenerationTables) -> None:
    """Fill an empty generation from a verified copy, in the open transaction."""
    with closing(schema.open_immutable(file)) as copy, translate_errors():
        _, recipe = schema.read_header(copy)
        _CopyImport(db, tables, copy, recipe.dimensions).run()


def _make_damaged_error(fault: str) -> IndexCorrupt:
    return IndexCorrupt(f"the backup is damaged: {fault}", hint="choose an earlier one")


class _CopyImport:
    """Imports one SQLite index file into an empty generation."""

    def __init__(self, db: Connection, tables: GenerationTables, copy: sqlite3.Connection, dimensions: int) -> None:
        self._db = db
        self._tables = tables
        self._copy = copy
        self._dimensions = dimensions
        self._terms = 0

    def run(self) -> None:
        state, _ = generation_rows.read_state(self._db, self._tables.number, lock=True)
        generation_rows.copy_pages(self._db, self._tables, self._iter_page_rows())
        generation_rows.copy_chunks(self._db, self._tables, self._iter_chunk_rows())
        problems = [PageProblem(*row) for row in self._copy.execute("SELECT file, blob, reason, detail FROM problems")]
        generation_rows.write_problems(self._db, self._tables, problems)
        for version, dropped_rows in groupby(
            self._copy.execute("SELECT version, chunk_id, page_id FROM dropped ORDER BY version"), itemgetter(0)
        ):
            chunk_ids, page_ids = zip(*((chunk_id, page_id) for _, chunk_id, page_id in dropped_rows), strict=True)
            dropped = DroppedRow(
                version,
                [each for each in chunk_ids if each is not None],
                [each for each in page_ids if each is not None],
            )
            generation_rows.write_dropped(self._db, self._tables, dropped)
        version, horizon, revision, synced_at = self._copy.execute(
            "SELECT version, horizon, revision, synced_at FROM state"
        ).fetchone()
        state = replace(
            state,
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
        generation_rows.write_state(self._db, self._tables, state)

    def _iter_page_rows(self) -> Iterator[Row]:
        """Yield the rows of all pages. Raises IndexCorrupt if a checksum differs from the one in the copy."""
        for page in map(
            PageRow._make, self._copy.execute(f"SELECT {', '.join(PageRow._fields)} FROM full_pages ORDER BY id")
        ):
            chunks, vectors = packing.split_full_chunks(
                self._select_for_page(packing.FULL_CHUNKS, "number", page, "chunks.page_id")
            )
            tags = [tag for (tag,) in self._select_for_page("SELECT tag FROM tags", "tag", page)]
            links = self._select_for_page(f"SELECT {', '.join(LinkRow._fields)} FROM links", "rowid", page)
            derived = generation_rows.derive_page_columns(
                page,
                list(map(ChunkRow._make, chunks)),
                packing.to_vector_rows(vectors, self._dimensions).vectors,
                tags,
                list(map(LinkRow._make, links)),
            )
            if self._select_for_page("SELECT full_page FROM checksums", "full_page", page) != [(derived.seal,)]:
                raise _make_damaged_error(f"page {page.id} is not as it was written")
            self._terms += derived.size
            yield (*page, *derived)

    def _iter_chunk_rows(self) -> Iterator[Row]:
        full_chunks = self._copy.execute(f"{packing.FULL_CHUNKS} ORDER BY chunks.id")
        while batch := full_chunks.fetchmany(_BATCH_CHUNKS):
            chunks, vectors = packing.split_full_chunks(batch)
            fields = rows.encode_vectors(packing.to_vector_rows(vectors, self._dimensions).vectors)
            yield from ((*chunk, field) for chunk, field in zip(chunks, fields, strict=True))

    def _select_for_page(self, select: str, order_by: str, page: PageRow, page_id: str = "page_id") -> list[Row]:
        sql = f"{select} WHERE {page_id} = ? ORDER BY {order_by}"
        return self._copy.execute(sql, (page.id,)).fetchall()

    def _count_rows(self, table: str) -> int:
        (count,) = self._copy.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def _get_next_id(self, table: str) -> int:
        (sequence,) = self._copy.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone() or (0,)
        (last_id,) = self._copy.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        return int(max(last_id, sequence)) + 1
