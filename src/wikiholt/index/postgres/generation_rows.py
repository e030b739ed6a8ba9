"""The rows of a generation: pages with all that belongs to them, problems and the state, and their check.

Rows are sent by COPY in binary format. PostgreSQL detects torn pages by its own checksums; the check here detects
missing, extra and altered rows.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg.errors import UndefinedTable

from wikiholt.domain.index import FloatArray, PageContents, VectorRows, round_vectors
from wikiholt.domain.page import Link, PageProblem
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.index.page_table import (
    CONTENTS_COLUMNS,
    PageRow,
    compute_page_checksum,
    get_postgres_type,
    to_page_contents,
)
from wikiholt.index.postgres import rows
from wikiholt.index.postgres.errors import make_missing_error
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.rows import DerivedPageColumns, GenerationState
from wikiholt.index.postgres.schema import GenerationTables
from wikiholt.index.rows import (
    ChunkRow,
    LinkRow,
    compute_problem_checksum,
    decode_strings,
    encode_page_parts,
    encode_vectors,
)
from wikiholt.text.properties import fold_tag

Row = tuple[Any, ...]

_BATCH_PAGES = 100
_PAGE_COLUMNS = ", ".join((*PageRow._fields, *DerivedPageColumns._fields))
_MAX_FAULTS = 5

# A vector is already in binary format, so COPY sends it as bytea.
_COLUMN_TYPES = {
    **dict.fromkeys(("page_id", "chunk_id", "seal"), "int8"),
    **dict.fromkeys(("number", "first_line", "last_line"), "int4"),
    **dict.fromkeys(("hash", "vector"), "bytea"),
    **dict.fromkeys(("tag_keys", "link_keys"), "text[]"),
    **{name: get_postgres_type(name) for name in PageRow._fields},
}
"""The types of all columns that are not text. A name has the same type in every table."""

# ── pages ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FullPage:
    """A page with its chunks, vectors, tags and links, and its derived columns as stored."""

    page: PageRow
    chunks: Sequence[ChunkRow]
    vectors: FloatArray
    tags: Sequence[str]
    links: Sequence[LinkRow]
    derived: DerivedPageColumns

    @property
    def first_chunk(self) -> int:
        """The id of the first chunk, after all earlier ones if the page is new; a large number without chunks."""
        return self.chunks[0].id if self.chunks else sys.maxsize

    @property
    def vector_rows(self) -> VectorRows:
        chunk_ids = np.array([chunk.id for chunk in self.chunks], np.int64)
        return VectorRows(chunk_ids, np.full(len(chunk_ids), self.page.id), self.vectors)

    def compute_checksum(self) -> int:
        """Compute the checksum of the rows as they are now."""
        vectors = make_vector_rows(self.chunks, self.vectors)
        parts = encode_page_parts(self.page.id, self.chunks, vectors, self.tags, self.links)
        return compute_page_checksum(self.page, parts)


def make_vector_rows(chunks: Sequence[ChunkRow], vectors: FloatArray) -> list[Row]:
    """Make the vector rows of a page as the SQLite store has them; the checksum covers this form.

    A vector that is not rounded is damaged. Its row has all of its bits, so that the checksum differs.
    """
    encoded = encode_vectors(vectors)
    if not np.array_equal(round_vectors(vectors), vectors):
        encoded = [vector.tobytes() for vector in vectors]
    return [(chunk.id, chunk.page_id, vector) for chunk, vector in zip(chunks, encoded, strict=True)]


def iter_full_pages(
    db: Connection, tables: GenerationTables, dimensions: int, page_ids: Sequence[int] | None = None
) -> Iterator[FullPage]:
    """Yield these pages, or every page, in order of id, read in batches. Call inside a snapshot."""
    within = "" if page_ids is None else "id = ANY(%(ids)s) AND "
    sql = f"SELECT {_PAGE_COLUMNS} FROM {tables.pages} WHERE {within}id > %(last)s ORDER BY id LIMIT {_BATCH_PAGES:d}"
    last_id = 0
    while batch := db.execute(sql, {"ids": page_ids, "last": last_id}, binary=True).fetchall():
        last_id, *_ = batch[-1]
        yield from _make_full_pages(db, tables, dimensions, batch)


def read_full_pages(
    db: Connection, tables: GenerationTables, dimensions: int, files: Sequence[str]
) -> Iterator[FullPage]:
    """Yield the pages with these files. Call inside a snapshot."""
    sql = f"SELECT {_PAGE_COLUMNS} FROM {tables.pages} WHERE file = ANY(%s)"
    names = [rows.encode_text(file) for file in files]
    return _make_full_pages(db, tables, dimensions, db.execute(sql, (names,), binary=True).fetchall())


def read_page_contents(db: Connection, tables: GenerationTables, files: Sequence[str]) -> dict[str, PageContents]:
    """What a move of these pages may change, by file."""
    sql = f"SELECT links, {CONTENTS_COLUMNS} FROM {tables.pages} WHERE file = ANY(%s)"
    contents: dict[str, PageContents] = {}
    for row in db.execute(sql, ([rows.encode_text(file) for file in files],), binary=True):
        packed, *page = rows.decode_row(row)
        links = (
            Link(link.target, link.text, link.line, bool(link.wiki), decode_strings(link.paths))
            for link in rows.decode_links(packed)
        )
        contents[page[0]] = to_page_contents(page, links)
    return contents


def _make_full_pages(
    db: Connection, tables: GenerationTables, dimensions: int, page_rows: Sequence[Row]
) -> Iterator[FullPage]:
    """Yield the pages of these rows with all that belongs to them."""
    chunks = _read_chunks(db, tables, [page_id for page_id, *_ in page_rows])
    size = len(PageRow._fields)
    for row in map(rows.decode_row, page_rows):
        page, derived = PageRow._make(row[:size]), DerivedPageColumns._make(row[size:])
        tags = sorted({fold_tag(tag) for tag in decode_strings(page.tags)})
        links = rows.decode_links(derived.links)
        vectors = rows.decode_vectors([vector for _, vector in chunks[page.id]], dimensions)
        yield FullPage(page, [chunk for chunk, _ in chunks[page.id]], vectors, tags, links, derived)


def _read_chunks(
    db: Connection, tables: GenerationTables, page_ids: list[int]
) -> defaultdict[int, list[tuple[ChunkRow, bytes]]]:
    """Read the chunks of pages, by page, each with its encoded vector."""
    sql = (
        f"SELECT {', '.join(ChunkRow._fields)}, vector FROM {tables.chunks} WHERE page_id = ANY(%s)"
        " ORDER BY page_id, number"
    )
    chunks: defaultdict[int, list[tuple[ChunkRow, bytes]]] = defaultdict(list)
    for *columns, vector in db.execute(sql, (page_ids,), binary=True):
        chunk = ChunkRow._make(rows.decode_row(columns))
        chunks[chunk.page_id].append((chunk, vector))
    return chunks


def derive_page_columns(
    page: PageRow, chunks: Sequence[ChunkRow], vectors: FloatArray, tags: Sequence[str], links: Sequence[LinkRow]
) -> DerivedPageColumns:
    """Compute the columns that only PostgreSQL has, including the checksum of the page."""
    parts = encode_page_parts(page.id, chunks, make_vector_rows(chunks, vectors), tags, links)
    checksum = compute_page_checksum(page, parts)
    tag_keys = sorted({rows.encode_key(tag) for tag in tags})
    return DerivedPageColumns(rows.encode_links(links), tag_keys, rows.get_link_keys(links), checksum)


def copy_pages(db: Connection, tables: GenerationTables, pages: Iterable[Row]) -> None:
    """Insert page rows, each followed by its derived columns."""
    _copy_rows(db, tables.pages, (*PageRow._fields, *DerivedPageColumns._fields), pages)


def copy_chunks(db: Connection, tables: GenerationTables, chunks: Iterable[Row]) -> None:
    """Insert chunk rows, each followed by its vector as encoded by `rows.encode_vectors`."""
    _copy_rows(db, tables.chunks, (*ChunkRow._fields, "vector"), chunks)


def _copy_rows(db: Connection, table: str, columns: Sequence[str], records: Iterable[Row]) -> None:
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)"
    with db.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([_COLUMN_TYPES.get(name, "text") for name in columns])
        for row in records:
            copy.write_row([rows.encode_text(value) if isinstance(value, str) else value for value in row])


# ── problems and state ────────────────────────────────────────────────────────────────────────────


def write_problems(db: Connection, tables: GenerationTables, problems: Iterable[PageProblem]) -> None:
    problem_rows = (
        (name, text, compute_problem_checksum(problem))
        for problem in problems
        for name, text in split_problem(tables, problem)
    )
    _copy_rows(db, "state", ("name", "text", "seal"), problem_rows)


def read_problems(db: Connection, tables: GenerationTables) -> list[tuple[PageProblem, int]]:
    """Read the problems of a generation, each with its stored checksum. Raises IndexCorrupt."""
    sql = "SELECT name, text, seal FROM state WHERE name >= %s AND name < %s ORDER BY name"
    problem_rows = db.execute(sql, tables.problem_names).fetchall()
    checksums = {name: checksum for name, _, checksum in problem_rows}
    texts = rows.join_texts((name, text) for name, text, _ in problem_rows)
    return [(decode_problem(text), checksums.get(name, 0)) for name, text in texts.items()]


def split_problem(tables: GenerationTables, problem: PageProblem) -> list[tuple[str, str]]:
    """The names and texts of the rows of a problem."""
    text = json.dumps([problem.file, problem.blob, problem.reason, problem.detail])
    return rows.split_text(tables.get_problem_name(problem.file), text)


def decode_problem(text: str) -> PageProblem:
    try:
        return PageProblem(*json.loads(text))
    except (ValueError, TypeError) as error:
        raise _make_unreadable_error() from error


def _make_unreadable_error() -> IndexCorrupt:
    return IndexCorrupt("a row of the index cannot be read", hint="run `wikiholt sync` to rebuild it")


def read_state(db: Connection, number: int, *, lock: bool = False) -> tuple[GenerationState, int]:
    """Read the state of a generation and its stored checksum. Raises IndexMissing."""
    sql = f"SELECT {rows.STATE_COLUMNS}, seal FROM state WHERE name = %s{' FOR UPDATE' if lock else ''}"
    row = db.execute(sql, (GenerationTables(number).state_name,)).fetchone()
    if row is None:
        raise make_missing_error()
    *values, checksum = row
    return GenerationState(*values), checksum


def write_state(db: Connection, tables: GenerationTables, state: GenerationState) -> None:
    """Write the state of a generation and its checksum."""
    names = ", ".join(f"{name} = %s" for name in rows.STATE_FIELDS)
    sql = f"UPDATE state SET {names}, seal = %s WHERE name = %s"
    db.execute(sql, (*state.row, state.get_checksum(tables.wiki_id), tables.state_name))


# ── check ─────────────────────────────────────────────────────────────────────────────────────────


def find_faults(db: Connection, tables: GenerationTables, stop: Callable[[], bool]) -> list[str]:
    """Describe the faults of a generation; empty if it is intact. Reads every row. Raises Busy if stopped."""
    faults: list[str] = []
    try:
        state, checksum = read_state(db, tables.number)
        if state.get_checksum(tables.wiki_id) != checksum:
            faults.append("its version or revision is not as it was written, or belongs to another wiki")
        for fault in _IntegrityCheck(db, tables, state, stop).find_faults():
            faults.append(fault)
            if len(faults) >= _MAX_FAULTS:
                break
    except (IndexCorrupt, UnicodeDecodeError) as error:
        text = error.message if isinstance(error, IndexCorrupt) else "text that is not UTF-8"
        faults.append(f"it cannot be read completely: {text}")
    except UndefinedTable:
        faults.append("a table is missing")
    return faults


class _IntegrityCheck:
    """Checks the rows of one generation against each other and against its state."""

    def __init__(
        self, db: Connection, tables: GenerationTables, state: GenerationState, stop: Callable[[], bool]
    ) -> None:
        self._db = db
        self._tables = tables
        self._state = state
        self._stop = stop
        self._files: set[str] = set()
        self._chunks = 0
        self._last_chunk = 0

    def find_faults(self) -> Iterator[str]:
        last_page = 0
        for page in iter_full_pages(self._db, self._tables, self._state.dimensions):
            if self._stop():
                raise Busy("the check was stopped", hint="try again")
            yield from self._check_page(page)
            last_page = page.page.id
        problems = yield from self._check_problems()
        (chunks,) = self._db.execute(f"SELECT count(*) FROM {self._tables.chunks}").fetchone() or (0,)
        if chunks != self._chunks:
            yield f"{chunks - self._chunks} chunks without a page"
        yield from self._check_counts((len(self._files), chunks, problems))
        if last_page >= self._state.next_page or self._last_chunk >= self._state.next_chunk:
            yield "the next id is already in use"

    def _check_page(self, full_page: FullPage) -> Iterator[str]:
        page, derived = full_page.page, full_page.derived
        if page.file in self._files:
            yield "a file is indexed twice"
        self._files.add(page.file)
        self._chunks += len(full_page.chunks)
        self._last_chunk = max([self._last_chunk, *(chunk.id for chunk in full_page.chunks)])
        if derived.seal != full_page.compute_checksum():
            yield f"page {page.id} is not as it was written"
            return
        expected = derive_page_columns(page, full_page.chunks, full_page.vectors, full_page.tags, full_page.links)
        if expected != derived:
            yield f"page {page.id} cannot be found by its tags or links"
        if len(full_page.chunks) != page.chunks:
            yield f"page {page.id} has missing chunks"

    def _check_problems(self) -> Generator[str, None, int]:
        """Yield the faults of problem rows and return the number of problems."""
        files: set[str] = set()
        for problem, checksum in read_problems(self._db, self._tables):
            if compute_problem_checksum(problem) != checksum:
                yield "a problem is not as it was written"
            if problem.file in self._files:
                yield "a file is both indexed and listed as a problem"
            if problem.file in files:
                yield "a file is listed twice as a problem"
            files.add(problem.file)
        return len(files)

    def _check_counts(self, actual: tuple[int, ...]) -> Iterator[str]:
        expected = (self._state.pages, self._state.chunks, self._state.problems)
        for kind, count, expected_count in zip(("pages", "chunks", "problems"), actual, expected, strict=True):
            if count != expected_count:
                yield f"{count} {kind} instead of {expected_count}"
