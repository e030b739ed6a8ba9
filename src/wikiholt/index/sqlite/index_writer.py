"""Applies one change to an index file, inside an open transaction."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter

from wikiholt.domain.index import IndexChange, IndexedPageMove, PageEntry
from wikiholt.domain.page import PageProblem, PageTerms
from wikiholt.index import rows
from wikiholt.index.checksums import (
    compute_page_checksum,
    compute_problem_checksum,
    read_page_parts,
    write_checksums,
    write_page_checksum,
    write_state_checksum,
)
from wikiholt.index.page_table import (
    MOVED_COLUMNS,
    PageRow,
    fold_tags,
    make_move_error,
    move_page_row,
    to_page_columns,
)
from wikiholt.index.sqlite.index_vectors import VectorWriter
from wikiholt.index.sqlite.queries import insert_links, select_in_batches

_SELECT_PAGES = (
    f"SELECT {', '.join(PageRow._fields)}, full_page FROM pages LEFT JOIN page_words ON page_words.page_id = id"
    " LEFT JOIN checksums ON checksums.page_id = id WHERE file IN ({0}) ORDER BY id"
)
# Only these columns: SQLite rewrites each index of a column that it sets.
_UPDATE_PAGE = f"UPDATE pages SET {', '.join(f'{name} = ?' for name in MOVED_COLUMNS)} WHERE id = ?"
_get_moved_columns = attrgetter(*MOVED_COLUMNS)
_FIND_PAGE = "SELECT id, words FROM pages LEFT JOIN page_words ON page_id = id WHERE file = ?"


def apply_change(db: sqlite3.Connection, change: IndexChange, vectors: VectorWriter) -> int:
    """Apply the change in the open transaction and return the resulting version."""
    (version,) = db.execute("SELECT version FROM state").fetchone()
    writer = _SqliteWriter(db, version + 1, vectors)
    for file in change.deleted:
        writer.delete_file(file)
    for problem in change.problems:
        writer.write_problem(problem)
    writer.move_pages(change.moved)
    for entry in change.pages:
        writer.write_entry(entry)
    if change.revision is not None:
        writer.set_revision(change.revision)
    writer.write_terms()
    if writer.changed:
        version += 1
        db.execute("UPDATE state SET version = ?", (version,))
        vectors.write(version)
        _trim_dropped(db)
    if writer.changed or change.revision is not None:
        write_state_checksum(db)
    return int(version)


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
    _trim_dropped(db)


def _trim_dropped(db: sqlite3.Connection) -> None:
    """Remove dropped ids that are in no file of vectors any more."""
    db.execute("DELETE FROM dropped WHERE version <= (SELECT vector_since FROM state)")


class _SqliteWriter:
    def __init__(self, db: sqlite3.Connection, version: int, vectors: VectorWriter) -> None:
        self._db = db
        self._version = version
        self._vectors = vectors
        self._term_statements: list[tuple[str, tuple[int, str, str, str]]] = []
        self.changed = False

    def delete_file(self, file: str) -> None:
        if self._db.execute("DELETE FROM problems WHERE file = ?", (file,)).rowcount:
            self.changed = True
        row = self._db.execute(_FIND_PAGE, (file,)).fetchone()
        if row is None:
            return
        page_id, words = row
        self._remove_page_contents(page_id, words)
        self._db.execute("DELETE FROM pages WHERE id = ?", (page_id,))

    def remove_page(self, page_id: int, *, with_chunks: bool = True) -> None:
        (words,) = self._db.execute("SELECT words FROM page_words WHERE page_id = ?", (page_id,)).fetchone()
        self._remove_page_contents(page_id, words, with_chunks=with_chunks)
        self._db.execute("DELETE FROM pages WHERE id = ?", (page_id,))

    def write_problem(self, problem: PageProblem) -> None:
        columns = (problem.file, problem.blob, problem.reason, problem.detail, compute_problem_checksum(problem))
        sql = "SELECT file, blob, reason, detail, checksum FROM problems WHERE file = ?"
        if self._db.execute(sql, (problem.file,)).fetchone() == columns:
            return
        self.delete_file(problem.file)
        self._db.execute("INSERT INTO problems (file, blob, reason, detail, checksum) VALUES (?, ?, ?, ?, ?)", columns)
        self.changed = True

    def write_entry(self, entry: PageEntry) -> None:
        stored = self._db.execute(_FIND_PAGE, (entry.page.file,)).fetchone()
        old_id, old_terms = stored or (None, b"")
        if old_id is not None and self._is_unchanged(old_id, entry):
            return
        self._db.execute("DELETE FROM problems WHERE file = ?", (entry.page.file,))
        if old_id is not None:
            self._remove_page_contents(old_id, old_terms)
        page_id = self._write_page(entry, old_id)
        self._write_chunks(page_id, entry)
        self._insert_terms(page_id, entry.terms)
        write_page_checksum(self._db, page_id)
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
            insert_links(self._db, page.id, move.links)
            parts = read_page_parts(self._db, page.id)
        self._delete_terms(page.id, old_terms)
        self._insert_terms(page.id, terms)
        self.changed = True
        moved = move_page_row(page, move, terms, self._version)
        return moved, compute_page_checksum(moved, parts)

    def set_revision(self, revision: str) -> None:
        (old_revision,) = self._db.execute("SELECT revision FROM state").fetchone()
        self._db.execute("UPDATE state SET revision = ?, synced_at = ?", (revision, datetime.now(UTC).timestamp()))
        self.changed = self.changed or old_revision != revision

    def write_terms(self) -> None:
        """Change the keyword index for all pages. Call once, at the end.

        FTS5 writes a segment whenever a later statement of the transaction opens a savepoint, so it would write one or
        two for each page. It also writes one whenever a page id is smaller than the one before.
        """
        for sql, row in sorted(self._term_statements, key=lambda statement: statement[1][0]):
            self._db.execute(sql, row)

    def _is_unchanged(self, page_id: int, entry: PageEntry) -> bool:
        columns = to_page_columns(entry)
        names = ", ".join(columns)
        stored = self._db.execute(f"SELECT {names} FROM full_pages WHERE id = ?", (page_id,)).fetchone()
        if stored != tuple(columns.values()):
            return False
        sql = "SELECT hash, content FROM chunks WHERE page_id = ? ORDER BY number"
        chunks = self._db.execute(sql, (page_id,))
        known = [(digest, rows.decode_text(content)) for digest, content in chunks]
        return known == [(digest, chunk.text) for digest, chunk in zip(entry.hashes, entry.chunks, strict=True)]

    def _write_page(self, entry: PageEntry, page_id: int | None) -> int:
        columns = to_page_columns(entry) | {"version": self._version}
        words = columns.pop("words")
        if page_id is not None:
            columns["id"] = page_id
        names, placeholders = ", ".join(columns), ", ".join("?" * len(columns))
        row = tuple(columns.values())
        cursor = self._db.execute(f"INSERT OR REPLACE INTO pages ({names}) VALUES ({placeholders})", row)
        page_id = int(cursor.lastrowid or 0)
        self._db.execute("INSERT INTO page_words (page_id, words) VALUES (?, ?)", (page_id, words))
        tags = [(tag, page_id) for tag in sorted(fold_tags(entry.page.metadata))]
        self._db.executemany("INSERT INTO tags (tag, page_id) VALUES (?, ?)", tags)
        insert_links(self._db, page_id, entry.page.links)
        return page_id

    def _write_chunks(self, page_id: int, entry: PageEntry) -> None:
        chunks = rows.make_chunk_rows(page_id, self._get_next_chunk_id(), entry)
        rows.insert_chunks(self._db, chunks)
        self._vectors.add_page(page_id, [chunk.id for chunk in chunks], entry.vectors)

    def _get_next_chunk_id(self) -> int:
        """The id after all that were ever used: caches know a chunk by its id."""
        sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunks'"
        (sequence,) = self._db.execute(sql).fetchone()
        (last_id,) = self._db.execute("SELECT coalesce(max(id), 0) FROM chunks").fetchone()
        return int(max(sequence, last_id)) + 1

    def _remove_page_contents(self, page_id: int, encoded_terms: bytes, *, with_chunks: bool = True) -> None:
        """Delete everything that belongs to a page except its row."""
        db = self._db
        self._delete_terms(page_id, rows.decode_terms(encoded_terms))
        if with_chunks:
            self._remove_chunks(page_id)
        db.execute("DELETE FROM page_words WHERE page_id = ?", (page_id,))
        db.execute("DELETE FROM tags WHERE page_id = ?", (page_id,))
        db.execute("DELETE FROM links WHERE page_id = ?", (page_id,))
        db.execute("DELETE FROM checksums WHERE page_id = ?", (page_id,))
        self.changed = True

    def _remove_chunks(self, page_id: int) -> None:
        db = self._db
        sql = "INSERT INTO dropped (version, chunk_id) SELECT ?, id FROM chunks WHERE page_id = ?"
        self._vectors.drop_page(db.execute(sql, (self._version, page_id)).rowcount)
        db.execute("DELETE FROM chunks WHERE page_id = ?", (page_id,))

    def _insert_terms(self, page_id: int, terms: PageTerms) -> None:
        sql = "INSERT INTO words (rowid, name, headings, body) VALUES (?, ?, ?, ?)"
        self._term_statements.append((sql, (page_id, *terms.fields)))

    def _delete_terms(self, page_id: int, terms: PageTerms) -> None:
        """FTS5 needs exactly the terms that were inserted."""
        sql = "INSERT INTO words (words, rowid, name, headings, body) VALUES ('delete', ?, ?, ?, ?)"
        self._term_statements.append((sql, (page_id, *terms.fields)))
