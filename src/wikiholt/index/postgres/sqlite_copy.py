"""Copies between a generation and an index file of the SQLite store.

A copy keeps ids and versions, so either store can import the backups of the other.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from wikiholt.domain.index import Recipe
from wikiholt.domain.page import PageProblem
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.index import rows as packing
from wikiholt.index.page_table import PageRow
from wikiholt.index.postgres import generation_rows, rows
from wikiholt.index.postgres.errors import make_foreign_state_error
from wikiholt.index.postgres.generation_rows import FullPage, iter_full_pages
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.rows import GenerationState
from wikiholt.index.postgres.schema import GenerationTables
from wikiholt.index.rows import LinkRow
from wikiholt.index.sqlite import index_writer, integrity, packed_vectors, schema
from wikiholt.index.sqlite.connections import open_connection, open_immutable, translate_errors, translate_os_errors
from wikiholt.index.sqlite.vector_file import VectorFileHeader
from wikiholt.index.sqlite.vectors import VectorWriter, read_vector_state

Row = tuple[Any, ...]


# ── export ───────────────────────────────────────────────────────────────────────────────────────


def write_copy(db: Connection, tables: GenerationTables, to: Path, stop: Callable[[], bool]) -> GenerationState:
    """Copy the open snapshot to a new file, which appears only when it is complete. Raises Busy if stopped."""
    state = _read_own_state(db, tables)
    temporary = to.with_name(to.name + ".copying")
    try:
        schema.create_index_file(temporary, tables.wiki_id, state.number, state.recipe)
        with closing(open_connection(temporary)) as copy, translate_errors():
            copy.execute("PRAGMA synchronous = OFF")  # an incomplete copy is deleted, so only the end is synced
            copy.execute("BEGIN")
            packed_vectors.create_table(copy)
            for page in iter_full_pages(db, tables, state.dimensions):
                if stop():
                    raise Busy("the copy was stopped", hint="try again")
                _write_page(copy, page)
                packing.insert_chunks(copy, page.chunks)
                packed_vectors.pack_rows(copy, page.vector_rows)
                index_writer.write_page_checksum(copy, page.page.id)
            _write_rest(db, tables, copy, state)
            packed_vectors.write_packed_state(copy)
            copy.execute("COMMIT")
            copy.execute("PRAGMA synchronous = FULL")
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        temporary.rename(to)
    except BaseException:
        for leftover in temporary.parent.glob(temporary.name + "*"):
            leftover.unlink(missing_ok=True)
        raise
    return state


def write_index(db: Connection, tables: GenerationTables, to: Path, stop: Callable[[], bool]) -> None:
    """Copy the open snapshot to an index file that can be searched and updated. Raises Busy if stopped."""
    draft = to.with_name(to.name + ".packed")
    state = write_copy(db, tables, draft, stop)
    with closing(open_connection(draft)) as copy, translate_errors(), translate_os_errors():
        copy.execute("BEGIN")
        packed_vectors.unpack(copy, to, VectorFileHeader(tables.wiki_id, state.number, state.dimensions))
        copy.execute("COMMIT")
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    draft.rename(to)


def update_index(db: Connection, tables: GenerationTables, file: Path, max_pages: int) -> bool:
    """Bring a file of `write_index` to the open snapshot.

    Returns False if more than `max_pages` pages differ, or if the file has another history.
    """
    state = _read_own_state(db, tables)
    with closing(open_connection(file)) as copy, translate_errors():
        copy.execute("PRAGMA synchronous = NORMAL")  # a change lost by a crash of the machine is taken over again
        schema.require_owner(copy, tables.wiki_id)
        # All pages are compared, not only newer ones: a database may have been restored or have failed over.
        columns = "SELECT id, version, file, blob, last_updated FROM"
        known = {row[0]: row for row in copy.execute(f"{columns} pages")}
        current = {row[0]: rows.decode_row(row) for row in db.execute(f"{columns} {tables.pages}", binary=True)}
        written = {page_id for page_id, row in current.items() if known.get(page_id) != row}
        deleted = known.keys() - current.keys()
        if len(written | deleted) > max_pages:
            return False
        version, revision = copy.execute("SELECT version, revision FROM state").fetchone()
        if version >= state.version and (written or deleted or revision != state.revision):
            return False  # another history: readers keep what they have read by its version
        pages = list(iter_full_pages(db, tables, state.dimensions, list(written)))
        has_new_chunks = {page.page.id: _has_new_chunks(copy, page) for page in pages}
        (last_chunk,) = copy.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").fetchone()
        if any(has_new_chunks[page.page.id] and page.first_chunk <= last_chunk for page in pages):
            return False  # the copy has other chunks with these ids
        pages.sort(key=attrgetter("first_chunk"))
        copy.execute("BEGIN IMMEDIATE")
        replaced = {page_id: has_new_chunks[page_id] for page_id in written & known.keys()}
        vectors = VectorWriter(copy, file, VectorFileHeader(tables.wiki_id, state.number, state.dimensions))
        index_writer.remove_pages(copy, state.version, vectors, replaced, deleted)
        for page in pages:
            _write_page(copy, page)
            if has_new_chunks[page.page.id]:
                packing.insert_chunks(copy, page.chunks)
                vectors.add_page(page.page.id, [chunk.id for chunk in page.chunks], page.vectors)
            index_writer.write_page_checksum(copy, page.page.id)
        _write_rest(db, tables, copy, state)
        packed_vectors.write_vector_state(copy, vectors.write(read_vector_state(copy), state.version))
        copy.execute("COMMIT")
    return True


def _read_own_state(db: Connection, tables: GenerationTables) -> GenerationState:
    state, checksum = generation_rows.read_state(db, tables.number)
    if state.get_checksum(tables.wiki_id) != checksum:
        raise make_foreign_state_error()
    return state


def _has_new_chunks(copy: sqlite3.Connection, page: FullPage) -> bool:
    """Whether the page has other chunks than in the copy. A page that was moved has the same."""
    sql = "SELECT id, hash FROM chunks WHERE page_id = ? ORDER BY number"
    return copy.execute(sql, (page.page.id,)).fetchall() != [(chunk.id, chunk.hash) for chunk in page.chunks]


def _write_page(copy: sqlite3.Connection, full_page: FullPage) -> None:
    """Write a page without its chunks and its checksum."""
    page = full_page.page
    columns = page._asdict()
    copy.execute("INSERT INTO page_words (page_id, words) VALUES (?, ?)", (page.id, columns.pop("words")))
    copy.execute(_format_insert("pages", tuple(columns)), tuple(columns.values()))
    copy.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, page.id) for tag in full_page.tags])
    links = [(page.id, *link) for link in full_page.links]
    copy.executemany(_format_insert("links", ("page_id", *LinkRow._fields)), links)
    words = packing.decode_terms(page.words)
    row = (page.id, words.name, words.headings, words.body)
    copy.execute(_format_insert("words", ("rowid", "name", "headings", "body")), row)


def _write_rest(db: Connection, tables: GenerationTables, copy: sqlite3.Connection, state: GenerationState) -> None:
    problems = generation_rows.read_problems(db, tables)
    copy.execute("DELETE FROM problems")
    copy.executemany(
        "INSERT INTO problems VALUES (?, ?, ?, ?, ?)",
        ((problem.file, problem.blob, problem.reason, problem.detail, checksum) for problem, checksum in problems),
    )
    # The store that imports the copy must not reuse ids either.
    copy.execute("DELETE FROM sqlite_sequence")
    last_ids = [("pages", state.next_page - 1), ("chunks", state.next_chunk - 1)]
    copy.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", last_ids)
    row = (state.version, state.revision, state.synced_at)
    copy.execute("UPDATE state SET version = ?, revision = ?, synced_at = ?", row)


def _format_insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


# ── import ───────────────────────────────────────────────────────────────────────────────────────


def verify_copy(file: Path, wiki_id: str) -> Recipe:
    """Read every byte of a copy and return its recipe. Raises IndexFault if this wiki cannot import it."""
    with closing(open_immutable(file)) as copy, translate_errors():
        _, recipe = schema.read_header(copy)
        schema.require_owner(copy, wiki_id)
        faults = integrity.find_faults(copy)
        if faults:
            raise _make_damaged_error(faults[0])
        for _ in packed_vectors.read_packed(copy, recipe.dimensions):
            pass
    return recipe


def import_copy(db: Connection, file: Path, tables: GenerationTables) -> None:
    """Fill an empty generation from a verified copy, in the open transaction."""
    with closing(open_immutable(file)) as copy, translate_errors():
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

    def run(self) -> None:
        state, _ = generation_rows.read_state(self._db, self._tables.number, lock=True)
        generation_rows.copy_pages(self._db, self._tables, self._iter_page_rows())
        generation_rows.copy_chunks(self._db, self._tables, self._iter_chunk_rows())
        problems = [PageProblem(*row) for row in self._copy.execute("SELECT file, blob, reason, detail FROM problems")]
        generation_rows.write_problems(self._db, self._tables, problems)
        version, revision, synced_at = self._copy.execute("SELECT version, revision, synced_at FROM state").fetchone()
        state = replace(
            state,
            version=version,
            revision=revision,
            synced_at=synced_at,
            pages=self._count_rows("pages"),
            chunks=self._count_rows("chunks"),
            problems=len(problems),
            next_page=self._get_next_id("pages"),
            next_chunk=self._get_next_id("chunks"),
        )
        generation_rows.write_state(self._db, self._tables, state)

    def _iter_page_rows(self) -> Iterator[Row]:
        """Yield the rows of all pages of a verified copy."""
        for page in map(
            PageRow._make, self._copy.execute(f"SELECT {', '.join(PageRow._fields)} FROM full_pages ORDER BY id")
        ):
            chunks = packing.decode_full_chunks(self._select_for_page(packing.FULL_CHUNKS, "number", page))
            vectors = packed_vectors.read_page(self._copy, page.id, self._dimensions)
            tags = [tag for (tag,) in self._select_for_page("SELECT tag FROM tags", "tag", page)]
            links = self._select_for_page(f"SELECT {', '.join(LinkRow._fields)} FROM links", "rowid", page)
            derived = generation_rows.derive_page_columns(
                page,
                chunks,
                vectors,
                tags,
                list(map(LinkRow._make, links)),
            )
            yield (*page, *derived)

    def _iter_chunk_rows(self) -> Iterator[Row]:
        chunk_rows = iter(self._copy.execute(f"{packing.FULL_CHUNKS} ORDER BY id"))
        for part in packed_vectors.read_packed(self._copy, self._dimensions):
            chunks = packing.decode_full_chunks(islice(chunk_rows, len(part.chunk_ids)))
            yield from ((*chunk, field) for chunk, field in zip(chunks, rows.encode_vectors(part.vectors), strict=True))

    def _select_for_page(self, select: str, order_by: str, page: PageRow) -> list[Row]:
        sql = f"{select} WHERE page_id = ? ORDER BY {order_by}"
        return self._copy.execute(sql, (page.id,)).fetchall()

    def _count_rows(self, table: str) -> int:
        (count,) = self._copy.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def _get_next_id(self, table: str) -> int:
        (sequence,) = self._copy.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone() or (0,)
        (last_id,) = self._copy.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
        return int(max(last_id, sequence)) + 1
