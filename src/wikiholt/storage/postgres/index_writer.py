"""A page as rows, and rows on their way into a generation's tables: by COPY, in binary form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wikiholt.domain.index import FloatArray, IndexChange, PageEntry
from wikiholt.domain.page import PageProblem
from wikiholt.storage.checksums import compute_page_checksum, compute_problem_checksum
from wikiholt.storage.postgres import rows
from wikiholt.storage.postgres.errors import make_missing_error
from wikiholt.storage.postgres.leases import check_fence
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import GenerationState
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite import rows as packing

Row = tuple[Any, ...]

PAGE_FIELDS = (
    *("id", "file", "path", "name", "blob", "category", "category_key", "description", "language", "last_updated"),
    *("hidden", "tags", "warnings", "chunks", "words", "version", "key", "last_key", "word_count", "length"),
)
"""The columns of a page that the embedded store has too, in the order they are sealed in."""
DERIVED_PAGE_FIELDS = ("links", "tag_keys", "link_keys", "size", "terms", "seal")
CHUNK_FIELDS = ("id", "page_id", "number", "text", "heading_path", "anchor", "first_line", "last_line", "hash")

# A tsvector and a vector come in the binary form they travel in, so they are given as bytes.
_PAGE_TYPES = (
    *("int8", "text", "text", "text", "text", "text", "text", "text", "text", "float8"),
    *("int4", "text", "text", "int4", "bytea", "int8", "text", "text", "int4", "int8"),
    *("text", "text[]", "text[]", "int8", "bytea", "int8"),
)
_CHUNK_TYPES = ("int8", "int8", "int4", "text", "text", "text", "int4", "int4", "bytea", "bytea")


def make_chunk_rows(page_id: int, first_id: int, entry: PageEntry) -> list[Row]:
    """The chunks of a page, with ids from `first` on."""
    found = []
    for at, (chunk, digest, _) in enumerate(zip(entry.chunks, entry.hashes, entry.vectors, strict=True)):
        path, lines = packing.encode_strings(chunk.heading_path), (chunk.first_line, chunk.last_line)
        found.append((first_id + at, page_id, chunk.index, chunk.text, path, chunk.anchor, *lines, digest))
    return found


def make_page_row(
    page: Row, chunks: Sequence[Row], vectors: FloatArray, tags: Sequence[str], links: Sequence[Row]
) -> Row:
    """The whole row of a page, from what the embedded store keeps of one."""
    terms = rows.build_term_vector(packing.decode_terms(page[PAGE_FIELDS.index("words")]))
    blobs = [(chunk[0], chunk[1], packing.encode_vector(one)) for chunk, one in zip(chunks, vectors, strict=True)]
    seal = compute_page_checksum(page, chunks, blobs, tags, links)
    keys = sorted({rows.encode_key(tag) for tag in tags}), rows.get_link_keys(links)
    return (*page, rows.encode_links(links), *keys, terms.size, terms.tsvector, seal)


def copy_pages(db: Connection, tables: GenerationTables, pages: Iterable[Row]) -> None:
    _copy_rows(db, tables.pages, (*PAGE_FIELDS, *DERIVED_PAGE_FIELDS), _PAGE_TYPES, pages)


def copy_chunks(db: Connection, tables: GenerationTables, chunks: Iterable[Row]) -> None:
    """Rows of chunks, each with its vector as `rows.vector_fields` gives it."""
    _copy_rows(db, tables.chunks, (*CHUNK_FIELDS, "vector"), _CHUNK_TYPES, chunks)


def copy_problems(db: Connection, tables: GenerationTables, problems: Iterable[PageProblem]) -> None:
    found = ((each.file, each.blob, each.reason, each.detail, compute_problem_checksum(each)) for each in problems)
    names, types = ("file", "blob", "reason", "detail", "seal"), ("text", "text", "text", "text", "int8")
    _copy_rows(db, tables.problems, names, types, found)


def copy_dropped(db: Connection, tables: GenerationTables, dropped: Iterable[Row]) -> None:
    _copy_rows(db, tables.dropped, ("version", "chunk_id", "page_id"), ("int8", "int8", "int8"), dropped)


def _copy_rows(db: Connection, table: str, names: Sequence[str], types: Sequence[str], records: Iterable[Row]) -> None:
    order = f"COPY {table} ({', '.join(names)}) FROM STDIN (FORMAT binary)"
    with db.cursor() as cursor, cursor.copy(order) as copy:
        copy.set_types(types)
        for row in records:
            copy.write_row([rows.encode_text(value) if isinstance(value, str) else value for value in row])


# What one transaction does to a generation. What a change asks for is compared with what is there in two statements,
# and written in a few, however many pages it has: rows travel by COPY in binary form.


MAX_DROPPED_ROWS = 200_000
"""How many dropped chunks are remembered; a cache older than that is built anew."""
_TRIM_INTERVAL_VERSIONS = 16

_COMPARED_PAGE_FIELDS = PAGE_FIELDS[1:15] + PAGE_FIELDS[16:]
"""What a page that is put once more must have alike."""


def read_state(db: Connection, number: int, *, lock: bool = False) -> tuple[GenerationState, int]:
    """Where a generation stands, and the seal that was written with it."""
    sql = f"SELECT {rows.STATE_COLUMNS}, seal FROM state WHERE number = %s{' FOR UPDATE' if lock else ''}"
    row = db.execute(sql, (number,)).fetchone()
    if row is None:
        raise make_missing_error()
    return GenerationState(*row[:-1]), row[-1]


def write_state(db: Connection, tables: GenerationTables, state: GenerationState) -> None:
    names = ", ".join(f"{name} = %s" for name in rows.STATE_FIELDS)
    sql = f"UPDATE state SET {names}, seal = %s WHERE number = %s"
    db.execute(sql, (*state.row, state.get_checksum(tables.wiki_id), state.number))


def apply_change(db: Connection, tables: GenerationTables, change: IndexChange, fence: int | None) -> int:
    """Make the change true inside the open transaction and return the version the index then has.

    Raises Busy where the writer's lease, that `fence` is the number of, has gone to another.
    """
    check_fence(db, fence)
    standing, _ = read_state(db, tables.number, lock=True)
    writer = _PostgresWriter(db, tables, standing, change)
    standing = writer.write()
    if writer.changed:
        standing = _trim_dropped(db, tables, replace(standing, version=standing.version + 1))
    if writer.changed or change.revision is not None:
        write_state(db, tables, standing)
    check_fence(db, fence)
    return standing.version


def _trim_dropped(db: Connection, tables: GenerationTables, state: GenerationState) -> GenerationState:
    """Keep the list of dropped rows short; `horizon` says from which version on it is whole."""
    if state.version % _TRIM_INTERVAL_VERSIONS:  # counting them takes as long as there are many
        return state
    sql = f"SELECT version FROM {tables.dropped} ORDER BY version DESC OFFSET %s LIMIT 1"
    if db.execute(sql, (MAX_DROPPED_ROWS,)).fetchone() is None:
        return state
    row = db.execute(sql, (MAX_DROPPED_ROWS // 2,)).fetchone()
    middle = row[0] if row else state.horizon
    db.execute(f"DELETE FROM {tables.dropped} WHERE version <= %s", (middle,))
    return replace(state, horizon=middle)


class _PostgresWriter:
    """One change on its way into the tables; `touched` says whether it made a difference."""

    def __init__(self, db: Connection, tables: GenerationTables, state: GenerationState, change: IndexChange) -> None:
        self._db = db
        self._tables = tables
        self._state = state
        self._change = change
        self._entries = {entry.page.file: entry for entry in change.pages}
        self._problems = {problem.file: problem for problem in change.problems}
        self._files = list({*change.deleted, *self._problems, *self._entries})
        self.changed = False

    def write(self) -> GenerationState:
        """Write what differs and say where the index then stands, but for its version."""
        pages, problems = self._read_known_pages(), self._read_known_problems()
        same = self._find_unchanged(pages)
        going = [file for file in (*self._change.deleted, *self._problems) if file in pages]
        fresh = [entry for file, entry in self._entries.items() if file not in same or file in going]
        deleted = set(self._change.deleted)
        notes = {file: note for file, note in self._problems.items() if problems.get(file) != note or file in deleted}
        leaving = {*deleted, *notes, *(entry.page.file for entry in fresh)} & problems.keys()
        self.changed = bool(going or fresh or notes or leaving)
        self._remove_pages({pages[file] for file in going}, deleted=True)
        self._remove_pages({pages[e.page.file] for e in fresh if e.page.file in pages} - {pages[f] for f in going})
        self._delete_problems(leaving)
        self._write_problems([note for file, note in notes.items() if file not in self._entries])
        ids = {file: page_id for file, page_id in pages.items() if file not in going}
        self._write_pages(fresh, ids)
        if self._change.revision is not None:
            self._set_revision(self._change.revision)
        return self._state

    # ── what is there ────────────────────────────────────────────────────────────────────────────

    def _read_known_pages(self) -> dict[str, int]:
        sql = f"SELECT file, id FROM {self._tables.pages} WHERE file = ANY(%s)"
        found = self._db.execute(sql, ([rows.encode_text(file) for file in self._files],))
        return {rows.decode_text(file): page_id for file, page_id in found}

    def _read_known_problems(self) -> dict[str, PageProblem]:
        if not self._state.problems:
            return {}
        sql = f"SELECT file, blob, reason, detail FROM {self._tables.problems} WHERE file = ANY(%s)"
        found = self._db.execute(sql, ([rows.encode_text(file) for file in self._files],))
        return {problem.file: problem for problem in (PageProblem(*rows.decode_row(row)) for row in found)}

    def _find_unchanged(self, pages: Mapping[str, int]) -> set[str]:
        """The files that are put as they are there already."""
        known = {pages[file]: entry for file, entry in self._entries.items() if file in pages}
        if not known:
            return set()
        sql = f"SELECT id, {', '.join(_COMPARED_PAGE_FIELDS)} FROM {self._tables.pages} WHERE id = ANY(%s)"
        alike: dict[int, PageEntry] = {}
        for page_id, *row in self._db.execute(sql, (list(known),), binary=True):
            columns = packing.to_page_columns(known[page_id])
            if rows.decode_row(row) == tuple(columns[name] for name in _COMPARED_PAGE_FIELDS):
                alike[page_id] = known[page_id]
        if not alike:
            return set()
        chunks: dict[int, list[tuple[bytes, str]]] = {page_id: [] for page_id in alike}
        sql = f"SELECT page_id, hash, text FROM {self._tables.chunks} WHERE page_id = ANY(%s) ORDER BY page_id, number"
        for page_id, digest, text in self._db.execute(sql, (list(alike),), binary=True):
            chunks[page_id].append((digest, rows.decode_text(text)))
        return {
            entry.page.file
            for page_id, entry in alike.items()
            if chunks[page_id] == [(h, c.text) for h, c in zip(entry.hashes, entry.chunks, strict=True)]
        }

    # ── what becomes of it ───────────────────────────────────────────────────────────────────────

    def _remove_pages(self, page_ids: set[int], *, deleted: bool = False) -> None:
        """Remove pages with all that hangs on them; what follows the index is told, of pages only if they are gone."""
        if not page_ids:
            return
        tables, version, some = self._tables, self._state.version + 1, sorted(page_ids)
        chunks = self._db.execute(
            f"WITH out AS (DELETE FROM {tables.chunks} WHERE page_id = ANY(%s) RETURNING id)"
            f" INSERT INTO {tables.dropped} SELECT %s, id, NULL FROM out ORDER BY id",
            (some, version),
        ).rowcount
        sizes = self._db.execute(f"DELETE FROM {tables.pages} WHERE id = ANY(%s) RETURNING size", (some,)).fetchall()
        if deleted:
            sql = f"INSERT INTO {tables.dropped} SELECT %s, NULL, unnest(%s::int8[])"
            self._db.execute(sql, (version, some))
        self._add_counts(pages=-len(sizes), chunks=-chunks, terms=-sum(size for (size,) in sizes))

    def _delete_problems(self, files: Iterable[str]) -> None:
        leaving = [rows.encode_text(file) for file in files]
        if leaving:
            self._db.execute(f"DELETE FROM {self._tables.problems} WHERE file = ANY(%s)", (leaving,))
            self._add_counts(problems=-len(leaving))

    def _write_problems(self, problems: Sequence[PageProblem]) -> None:
        if problems:
            copy_problems(self._db, self._tables, problems)
            self._add_counts(problems=len(problems))

    def _write_pages(self, entries: Sequence[PageEntry], ids: Mapping[str, int]) -> None:
        next_page, next_chunk = self._state.next_page, self._state.next_chunk
        pages: list[tuple[Any, ...]] = []
        chunks: list[tuple[Any, ...]] = []
        for entry in entries:
            page_id = ids.get(entry.page.file)
            if page_id is None:
                page_id, next_page = next_page, next_page + 1
            own = make_chunk_rows(page_id, next_chunk, entry)
            next_chunk += len(own)
            columns = packing.to_page_columns(entry) | {"id": page_id, "version": self._state.version + 1}
            page = tuple(columns[name] for name in PAGE_FIELDS)
            tags = sorted(packing.fold_tags(entry.page.metadata))
            pages.append(make_page_row(page, own, entry.vectors, tags, rows.to_link_rows(entry.page.links)))
            chunks += [(*row, field) for row, field in zip(own, rows.encode_vectors(entry.vectors), strict=True)]
        if pages:
            copy_pages(self._db, self._tables, pages)
        if chunks:
            copy_chunks(self._db, self._tables, chunks)
        self._state = replace(self._state, next_page=next_page, next_chunk=next_chunk)
        self._add_counts(pages=len(pages), chunks=len(chunks), terms=sum(page[-3] for page in pages))

    def _set_revision(self, revision: str) -> None:
        self.changed = self.changed or self._state.revision != revision
        self._state = replace(self._state, revision=revision, synced_at=datetime.now(UTC).timestamp())

    def _add_counts(self, pages: int = 0, chunks: int = 0, problems: int = 0, terms: int = 0) -> None:
        now = self._state
        self._state = replace(
            now,
            pages=now.pages + pages,
            chunks=now.chunks + chunks,
            problems=now.problems + problems,
            terms=now.terms + terms,
        )
