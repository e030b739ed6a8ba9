"""Applies one change to an index file, inside an open transaction."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter

from wikiholt.domain.index import IndexChange, IndexedPageMove, PageEntry
from wikiholt.domain.page import Link, PageProblem, PageTerms
from wikiholt.index import rows
from wikiholt.index.page_table import (
    MOVED_COLUMNS,
    PageRow,
    compute_page_checksum,
    fold_tags,
    get_answer_values,
    make_move_error,
    move_page_row,
    to_page_columns,
)
from wikiholt.index.sqlite.connections import select_in_batches
from wikiholt.index.sqlite.schema import WRITE_CHECKSUMS, write_state_checksum
from wikiholt.index.sqlite.vectors import VECTOR_COLUMNS, VectorState, VectorWriter

_SELECT_PAGES = (
    f"SELECT {', '.join(PageRow._fields)}, full_page FROM pages LEFT JOIN page_words ON page_words.page_id = id"
    " LEFT JOIN checksums ON checksums.page_id = id WHERE file IN ({0}) ORDER BY id"
)
# Only these columns: SQLite rewrites each index of a column that it sets.
_UPDATE_PAGE = f"UPDATE pages SET {', '.join(f'{name} = ?' for name in MOVED_COLUMNS)} WHERE id = ?"
_get_moved_columns = attrgetter(*MOVED_COLUMNS)
_FIND_PAGE = f"SELECT {', '.join(PageRow._fields)} FROM pages LEFT JOIN page_words ON page_id = id WHERE file = ?"
_LINK_COLUMNS = ", ".join(rows.LinkRow._fields)
_NEXT_CHUNK_ID = """SELECT 1 + max((SELECT coalesce(max(id), 0) FROM chunks),
    (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunks'))"""
"""The id after all that were ever used: caches know a chunk by its id."""


def apply_change(db: sqlite3.Connection, change: IndexChange, vectors: VectorWriter) -> int:
    """Apply the change in the open transaction and return the resulting version."""
    state_sql = f"SELECT version, revision, synced_at, {VECTOR_COLUMNS} FROM state"
    version, revision, synced_at, *columns = db.execute(state_sql).fetchone()
    vector_state = VectorState._make(columns)
    writer = _SqliteWriter(db, version + 1, vectors)
    for file in change.deleted:
        writer.delete_file(file)
    for problem in change.problems:
        writer.write_problem(problem)
    writer.move_pages(change.moved)
    for entry in change.pages:
        writer.write_entry(entry)
    writer.write_terms()
    if change.revision is not None:
        writer.changed = writer.changed or change.revision != revision
        revision, synced_at = change.revision, datetime.now(UTC).timestamp()
    if writer.changed:
        version += 1
        vector_state = vectors.write(vector_state, version)
    if writer.changed or change.revision is not None:
        write_state(db, (version, revision, synced_at), vector_state)
    return int(version)


def write_state(db: sqlite3.Connection, state: tuple[int, str | None, float | None], vectors: VectorState) -> None:
    """Record the version, the revision and the time of the sync, what `vectors` says, and the checksum of all."""
    sql = f"UPDATE state SET (version, revision, synced_at, {VECTOR_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?)"
    db.execute(sql, (*state, *vectors))
    write_state_checksum(db)


def remove_pages(
    db: sqlite3.Connection,
    version: int,
    vectors: VectorWriter,
    replaced: Mapping[int, bool],
    deleted: Iterable[int],
) -> None:
    """Remove pages in the open transaction: deleted ones, and those that will be written again at this version.

    `replaced` says for each page whether its chunks are replaced too; otherwise they stay.
    """
    writer = _SqliteWriter(db, version, vectors)
    for page_id, with_chunks in replaced.items():
        writer.remove_page(page_id, with_chunks=with_chunks)
    for page_id in deleted:
        writer.remove_page(page_id)
    writer.write_terms()


def write_page_checksum(db: sqlite3.Connection, page_id: int) -> None:
    """Record the checksums of a page: of its row, and of all that belongs to it."""
    page = PageRow._make(db.execute("SELECT * FROM full_pages WHERE id = ?", (page_id,)).fetchone())
    write_checksums(db, [(page, compute_page_checksum(page, read_page_parts(db, page_id)))])


def write_checksums(db: sqlite3.Connection, pages: Iterable[tuple[PageRow, int]]) -> None:
    """Record the checksums of pages, given as `compute_page_checksum` returns them."""
    checksums = [(page.id, rows.compute_row_checksum(get_answer_values(page)), checksum) for page, checksum in pages]
    db.executemany(WRITE_CHECKSUMS, checksums)


def read_page_parts(db: sqlite3.Connection, page_id: int) -> bytes:
    """All that belongs to a page, encoded by `encode_page_parts`."""
    chunks = rows.decode_full_chunks(db.execute(f"{rows.FULL_CHUNKS} WHERE page_id = ? ORDER BY number", (page_id,)))
    links = db.execute(f"SELECT {_LINK_COLUMNS} FROM links WHERE page_id = ? ORDER BY rowid", (page_id,))
    tags = [tag for (tag,) in db.execute("SELECT tag FROM tags WHERE page_id = ? ORDER BY tag", (page_id,))]
    return rows.encode_page_parts(page_id, chunks, (), tags, links)


class _SqliteWriter:
    def __init__(self, db: sqlite3.Connection, version: int, vectors: VectorWriter) -> None:
        self._db = db
        self._version = version
        self._vectors = vectors
        self._term_statements: list[tuple[str, tuple[int, str, str, str]]] = []
        self._next_chunk_id = 0
        self.changed = False

    def delete_file(self, file: str) -> None:
        if self._db.execute("DELETE FROM problems WHERE file = ?", (file,)).rowcount:
            self.changed = True
        row = self._db.execute(_FIND_PAGE, (file,)).fetchone()
        if row is not None:
            page = PageRow._make(row)
            self._delete_page(page.id, page.words)

    def remove_page(self, page_id: int, *, with_chunks: bool = True) -> None:
        (words,) = self._db.execute("SELECT words FROM page_words WHERE page_id = ?", (page_id,)).fetchone()
        self._delete_page(page_id, words, with_chunks=with_chunks)

    def _delete_page(self, page_id: int, words: bytes, *, with_chunks: bool = True) -> None:
        self._delete_contents(page_id, words, with_chunks=with_chunks)
        self._db.execute("DELETE FROM page_words WHERE page_id = ?", (page_id,))
        self._db.execute("DELETE FROM checksums WHERE page_id = ?", (page_id,))
        self._db.execute("DELETE FROM pages WHERE id = ?", (page_id,))

    def write_problem(self, problem: PageProblem) -> None:
        columns = (problem.file, problem.blob, problem.reason, problem.detail, rows.compute_problem_checksum(problem))
        sql = "SELECT file, blob, reason, detail, checksum FROM problems WHERE file = ?"
        if self._db.execute(sql, (problem.file,)).fetchone() == columns:
            return
        self.delete_file(problem.file)
        self._db.execute("INSERT INTO problems (file, blob, reason, detail, checksum) VALUES (?, ?, ?, ?, ?)", columns)
        self.changed = True

    def write_entry(self, entry: PageEntry) -> None:
        row = self._db.execute(_FIND_PAGE, (entry.page.file,)).fetchone()
        known = PageRow._make(row) if row is not None else None
        columns = to_page_columns(entry)
        if known is not None and self._is_unchanged(known, columns, entry):
            return
        self._db.execute("DELETE FROM problems WHERE file = ?", (entry.page.file,))
        keeps_terms = known is not None and known.words == columns["words"]  # all but the vectors may be equal
        if known is not None:
            self._delete_contents(known.id, known.words, with_terms=not keeps_terms)
        page = self._write_page(columns, known.id if known is not None else None)
        tags, links = self._write_tags_and_links(page.id, entry)
        chunks = self._write_chunks(page.id, entry)
        if not keeps_terms:
            self._insert_terms(page.id, entry.terms)
        write_checksums(
            self._db, [(page, compute_page_checksum(page, rows.encode_page_parts(page.id, chunks, (), tags, links)))]
        )
        self.changed = True

    def move_pages(self, moves: Sequence[IndexedPageMove]) -> None:
        """Move the pages that are at their old files. What is at their new files is deleted."""
        known = self._find_files("pages", [move.old_file for move in moves])
        moves = [move for move in moves if move.old_file in known and move.old_file != move.file]
        files = [move.file for move in moves]
        for file in self._find_files("pages", files) | self._find_files("problems", files):
            self.delete_file(file)
        moves_by_file = {move.old_file: move for move in moves}
        moved = []
        for *columns, crc in list(select_in_batches(self._db, _SELECT_PAGES, list(moves_by_file))):
            page = PageRow._make(columns)
            moved.append(self._move_page(page, crc, moves_by_file[page.file]))
        self._db.executemany(_UPDATE_PAGE, [(*_get_moved_columns(page), page.id) for page, _ in moved])
        self._db.executemany("UPDATE page_words SET words = ? WHERE page_id = ?", [(p.words, p.id) for p, _ in moved])
        write_checksums(self._db, moved)

    def _find_files(self, table: str, files: Sequence[str]) -> set[str]:
        sql = f"SELECT file FROM {table} WHERE file IN ({{0}})"
        return {file for (file,) in select_in_batches(self._db, sql, files)}

    def _move_page(self, page: PageRow, crc: int, move: IndexedPageMove) -> tuple[PageRow, int]:
        """The row of a page at its new file, and its checksum. Its chunks keep their ids and vectors."""
        parts = read_page_parts(self._db, page.id)
        if crc != compute_page_checksum(page, parts):
            raise make_move_error(page)
        old_terms = rows.decode_terms(page.words)
        terms = PageTerms(move.name_terms, old_terms.headings, old_terms.body)
        if move.links is not None:
            self._db.execute("DELETE FROM links WHERE page_id = ?", (page.id,))
            self._insert_links(page.id, move.links)
            parts = read_page_parts(self._db, page.id)
        self._delete_terms(page.id, old_terms)
        self._insert_terms(page.id, terms)
        self.changed = True
        moved = move_page_row(page, move, terms, self._version)
        return moved, compute_page_checksum(moved, parts)

    def write_terms(self) -> None:
        """Change the keyword index for all pages. Call once, at the end.

        FTS5 writes a segment whenever a later statement of the transaction opens a savepoint, so it would write one or
        two for each page. It also writes one whenever a page id is smaller than the one before.
        """
        for sql, row in sorted(self._term_statements, key=lambda statement: statement[1][0]):
            self._db.execute(sql, row)

    def _is_unchanged(self, known: PageRow, columns: Mapping[str, object], entry: PageEntry) -> bool:
        if any(getattr(known, name) != value for name, value in columns.items()):
            return False
        sql = "SELECT hash, content FROM chunks WHERE page_id = ? ORDER BY number"
        stored = [(digest, rows.decode_text(content)) for digest, content in self._db.execute(sql, (known.id,))]
        return stored == [(digest, chunk.text) for digest, chunk in zip(entry.hashes, entry.chunks, strict=True)]

    def _write_page(self, columns: Mapping[str, object], page_id: int | None) -> PageRow:
        values = {**columns, "version": self._version, "id": page_id}
        words = values.pop("words")
        names, placeholders = ", ".join(values), ", ".join("?" * len(values))
        sql = f"INSERT OR REPLACE INTO pages ({names}) VALUES ({placeholders})"
        values["id"] = page_id = int(self._db.execute(sql, tuple(values.values())).lastrowid or 0)
        self._db.execute("INSERT OR REPLACE INTO page_words (page_id, words) VALUES (?, ?)", (page_id, words))
        return PageRow(**values, words=words)  # type: ignore[arg-type]

    def _write_tags_and_links(self, page_id: int, entry: PageEntry) -> tuple[list[str], list[rows.LinkRow]]:
        tags = sorted(fold_tags(entry.page.metadata))
        self._db.executemany("INSERT INTO tags (tag, page_id) VALUES (?, ?)", [(tag, page_id) for tag in tags])
        return tags, self._insert_links(page_id, entry.page.links)

    def _insert_links(self, page_id: int, links: Iterable[Link]) -> list[rows.LinkRow]:
        link_rows = rows.to_link_rows(links)
        sql = f"INSERT INTO links (page_id, {_LINK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        self._db.executemany(sql, [(page_id, *row) for row in link_rows])
        return link_rows

    def _write_chunks(self, page_id: int, entry: PageEntry) -> list[rows.ChunkRow]:
        if not self._next_chunk_id:
            (self._next_chunk_id,) = self._db.execute(_NEXT_CHUNK_ID).fetchone()
        chunks = rows.make_chunk_rows(page_id, self._next_chunk_id, entry)
        self._next_chunk_id += len(chunks)
        rows.insert_chunks(self._db, chunks)
        self._vectors.add_page(page_id, [chunk.id for chunk in chunks], entry.vectors)
        return chunks

    def _delete_contents(
        self, page_id: int, encoded_terms: bytes, *, with_chunks: bool = True, with_terms: bool = True
    ) -> None:
        """Delete everything that belongs to a page except its row, its words and its checksum."""
        if with_terms:
            self._delete_terms(page_id, rows.decode_terms(encoded_terms))
        if with_chunks:
            self._remove_chunks(page_id)
        self._db.execute("DELETE FROM tags WHERE page_id = ?", (page_id,))
        self._db.execute("DELETE FROM links WHERE page_id = ?", (page_id,))
        self.changed = True

    def _remove_chunks(self, page_id: int) -> None:
        db = self._db
        sql = "INSERT INTO dropped (version, chunk_id) SELECT ?, id FROM chunks WHERE page_id = ?"
        self._vectors.drop_page(db.execute(sql, (self._version, page_id)).rowcount)
        db.execute("DELETE FROM chunks WHERE page_id = ?", (page_id,))

    def _insert_terms(self, page_id: int, terms: PageTerms) -> None:
        sql = "INSERT INTO words (rowid, name, headings, body) VALUES (?, ?, ?, ?)"
        self._term_statements.append((sql, (page_id, terms.name, terms.headings, terms.body)))

    def _delete_terms(self, page_id: int, terms: PageTerms) -> None:
        """FTS5 needs exactly the terms that were inserted."""
        sql = "INSERT INTO words (words, rowid, name, headings, body) VALUES ('delete', ?, ?, ?, ?)"
        self._term_statements.append((sql, (page_id, terms.name, terms.headings, terms.body)))
