"""Writes changes to the tables of a generation, in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wikiholt.domain.index import IndexChange, IndexedPageMove, PageEntry
from wikiholt.domain.page import PageProblem
from wikiholt.index import rows as packing
from wikiholt.index.page_table import (
    PageRow,
    fold_tags,
    make_move_error,
    move_page_row,
    to_page_columns,
)
from wikiholt.index.postgres import rows
from wikiholt.index.postgres.generation_rows import (
    copy_chunks,
    copy_pages,
    decode_problem,
    derive_page_columns,
    read_full_pages,
    read_state,
    split_problem,
    write_problems,
    write_state,
)
from wikiholt.index.postgres.leases import Lease, check_fence
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.rows import GenerationState
from wikiholt.index.postgres.schema import GenerationTables

Row = tuple[Any, ...]

_COMPARED_PAGE_FIELDS = tuple(name for name in PageRow._fields if name not in ("id", "version"))
"""The columns that decide whether a page has changed."""


def apply_change(db: Connection, tables: GenerationTables, change: IndexChange, lease: Lease | None) -> int:
    """Apply a change inside the open transaction and return the new version of the index.

    Raises Busy if the writer's lease was taken over.
    """
    check_fence(db, lease)
    state, _ = read_state(db, tables.number, lock=True)
    writer = _PostgresWriter(db, tables, state, change)
    state = writer.write()
    if writer.changed:
        state = replace(state, version=state.version + 1)
    if writer.changed or change.revision is not None:
        write_state(db, tables, state)
    check_fence(db, lease)
    return state.version


class _PostgresWriter:
    """Applies one change. `changed` says whether any row differs.

    Compares the change with the tables in two statements and writes it in a few, regardless of the number of pages.
    """

    def __init__(self, db: Connection, tables: GenerationTables, state: GenerationState, change: IndexChange) -> None:
        self._db = db
        self._tables = tables
        self._state = state
        self._change = change
        self._entries = {entry.page.file: entry for entry in change.pages}
        self._problems = {problem.file: problem for problem in change.problems}
        moved_files = (file for move in change.moved for file in (move.old_file, move.file))
        self._files = list({*change.deleted, *self._problems, *self._entries, *moved_files})
        self.changed = False

    def write(self) -> GenerationState:
        """Write what differs and return the new state, still with the old version."""
        pages, known_problems = self._read_known_pages(), self._read_known_problems()
        unchanged = self._find_unchanged(pages)
        deleted = set(self._change.deleted)
        movable = pages.keys() - deleted
        moves = [move for move in self._change.moved if move.old_file in movable and move.old_file != move.file]
        deleted |= {move.file for move in moves}
        removed = {file for file in (*deleted, *self._problems) if file in pages}
        entries = [entry for file, entry in self._entries.items() if file not in unchanged or file in removed]
        written = {entry.page.file for entry in entries}
        problems = {
            file: problem
            for file, problem in self._problems.items()
            if known_problems.get(file) != problem or file in deleted
        }
        solved = {*deleted, *problems, *written} & known_problems.keys()
        self.changed = bool(removed or entries or problems or solved or moves)
        self._remove_pages({pages[file] for file in removed | (written & pages.keys())})
        self._delete_problems([known_problems[file] for file in solved])
        self._write_problems([problem for file, problem in problems.items() if file not in self._entries])
        self._move_pages({move.old_file: move for move in moves})
        self._write_pages(entries, {file: page_id for file, page_id in pages.items() if file not in removed})
        if self._change.revision is not None:
            self._set_revision(self._change.revision)
        return self._state

    # ── known rows ───────────────────────────────────────────────────────────────────────────────

    def _read_known_pages(self) -> dict[str, int]:
        sql = f"SELECT file, id FROM {self._tables.pages} WHERE file = ANY(%s)"
        pages = self._db.execute(sql, ([rows.encode_text(file) for file in self._files],))
        return {rows.decode_text(file): page_id for file, page_id in pages}

    def _read_known_problems(self) -> dict[str, PageProblem]:
        if not self._state.problems:
            return {}
        sql = "SELECT name, text FROM state WHERE name = ANY(%s)"
        names = list(map(self._tables.get_problem_name, self._files))
        parts: list[Row] = self._db.execute(sql, (names,)).fetchall()
        sql = "SELECT name, text FROM state WHERE name >= %s AND name < %s ORDER BY name"
        for name in [name for name, text in parts if len(text) == rows.MAX_TEXT_CHARS]:
            parts += self._db.execute(sql, rows.get_part_names(name)).fetchall()
        problems = map(decode_problem, rows.join_texts(parts).values())
        return {problem.file: problem for problem in problems}

    def _find_unchanged(self, pages: Mapping[str, int]) -> set[str]:
        """Find the files whose stored page and chunks equal the new ones."""
        known = {pages[file]: entry for file, entry in self._entries.items() if file in pages}
        if not known:
            return set()
        sql = f"SELECT id, {', '.join(_COMPARED_PAGE_FIELDS)} FROM {self._tables.pages} WHERE id = ANY(%s)"
        same_page: dict[int, PageEntry] = {}
        for page_id, *row in self._db.execute(sql, (list(known),), binary=True):
            columns = to_page_columns(known[page_id])
            if rows.decode_row(row) == tuple(columns[name] for name in _COMPARED_PAGE_FIELDS):
                same_page[page_id] = known[page_id]
        if not same_page:
            return set()
        chunks: dict[int, list[tuple[bytes, str]]] = {page_id: [] for page_id in same_page}
        sql = f"SELECT page_id, hash, text FROM {self._tables.chunks} WHERE page_id = ANY(%s) ORDER BY page_id, number"
        for page_id, digest, text in self._db.execute(sql, (list(same_page),), binary=True):
            chunks[page_id].append((digest, rows.decode_text(text)))
        return {
            entry.page.file
            for page_id, entry in same_page.items()
            if chunks[page_id] == [(h, c.text) for h, c in zip(entry.hashes, entry.chunks, strict=True)]
        }

    # ── writes ───────────────────────────────────────────────────────────────────────────────────

    def _remove_pages(self, page_ids: set[int]) -> None:
        """Remove pages with their chunks."""
        if not page_ids:
            return
        tables, ids = self._tables, sorted(page_ids)
        chunks = self._db.execute(f"DELETE FROM {tables.chunks} WHERE page_id = ANY(%s)", (ids,)).rowcount
        pages = self._db.execute(f"DELETE FROM {tables.pages} WHERE id = ANY(%s)", (ids,)).rowcount
        self._add_counts(pages=-pages, chunks=-chunks)

    def _delete_problems(self, problems: Sequence[PageProblem]) -> None:
        if problems:
            names = [name for problem in problems for name, _ in split_problem(self._tables, problem)]
            self._db.execute("DELETE FROM state WHERE name = ANY(%s)", (names,))
            self._add_counts(problems=-len(problems))

    def _write_problems(self, problems: Sequence[PageProblem]) -> None:
        if problems:
            write_problems(self._db, self._tables, problems)
            self._add_counts(problems=len(problems))

    def _write_pages(self, entries: Sequence[PageEntry], ids: Mapping[str, int]) -> None:
        next_page, next_chunk = self._state.next_page, self._state.next_chunk
        pages: list[Row] = []
        chunks: list[Row] = []
        for entry in entries:
            page_id = ids.get(entry.page.file)
            if page_id is None:
                page_id, next_page = next_page, next_page + 1
            page_chunks = packing.make_chunk_rows(page_id, next_chunk, entry)
            next_chunk += len(page_chunks)
            columns = to_page_columns(entry) | {"id": page_id, "version": self._state.version + 1}
            page = PageRow._make(columns[name] for name in PageRow._fields)
            tags, links = sorted(fold_tags(entry.page.metadata)), packing.to_link_rows(entry.page.links)
            derived = derive_page_columns(page, page_chunks, entry.vectors, tags, links)
            pages.append((*page, *derived))
            fields = rows.encode_vectors(entry.vectors)
            chunks += [(*chunk, field) for chunk, field in zip(page_chunks, fields, strict=True)]
        if pages:
            copy_pages(self._db, self._tables, pages)
        if chunks:
            copy_chunks(self._db, self._tables, chunks)
        self._state = replace(self._state, next_page=next_page, next_chunk=next_chunk)
        self._add_counts(pages=len(pages), chunks=len(chunks))

    def _move_pages(self, moves: Mapping[str, IndexedPageMove]) -> None:
        """Replace the rows of these pages, by old file. Their chunks keep their ids and vectors."""
        db, tables, pages = self._db, self._tables, list[Row]()
        for full in read_full_pages(db, tables, self._state.dimensions, list(moves)) if moves else ():
            if full.compute_checksum() != full.derived.seal:
                raise make_move_error(full.page)
            move = moves[full.page.file]
            terms = replace(packing.decode_terms(full.page.words), name=move.name_terms)
            page = move_page_row(full.page, move, terms, self._state.version + 1)
            links = full.links if move.links is None else packing.to_link_rows(move.links)
            derived = derive_page_columns(page, full.chunks, full.vectors, full.tags, links)
            pages.append((*page, *derived))
        if pages:
            db.execute(f"DELETE FROM {tables.pages} WHERE id = ANY(%s)", ([page_id for page_id, *_ in pages],))
            copy_pages(db, tables, pages)

    def _set_revision(self, revision: str) -> None:
        self.changed = self.changed or self._state.revision != revision
        self._state = replace(self._state, revision=revision, synced_at=datetime.now(UTC).timestamp())

    def _add_counts(self, pages: int = 0, chunks: int = 0, problems: int = 0) -> None:
        state = self._state
        self._state = replace(
            state,
            pages=state.pages + pages,
            chunks=state.chunks + chunks,
            problems=state.problems + problems,
        )
