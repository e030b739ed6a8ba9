"""Reads every row of a generation, to check its integrity and to copy it.

PostgreSQL detects torn pages by its own checksums; the check here detects missing, extra and altered rows.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.errors import UndefinedTable

from wikiholt.domain.index import FloatArray
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.checksums import compute_page_checksum, compute_problem_checksum
from wikiholt.storage.page_table import PageRow
from wikiholt.storage.postgres import index_writer, rows
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import ChunkRow, DerivedPageColumns, GenerationState, LinkRow
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.rows import decode_strings, decode_terms

Row = tuple[Any, ...]

_BATCH_PAGES = 100
_MAX_FAULTS = 5
_PAGE_COLUMNS = ", ".join((*PageRow._fields, *DerivedPageColumns._fields))


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
    def vector_rows(self) -> list[Row]:
        return index_writer.make_vector_rows(self.chunks, self.vectors)

    def compute_checksum(self) -> int:
        """Compute the checksum of the rows as they are now."""
        return compute_page_checksum(self.page, self.chunks, self.vector_rows, self.tags, self.links)


def iter_full_pages(db: Connection, tables: GenerationTables, dimensions: int) -> Iterator[FullPage]:
    """Yield every page in order of id, read in batches. Call inside a snapshot."""
    sql = f"SELECT {_PAGE_COLUMNS} FROM {tables.pages} WHERE id > %s ORDER BY id LIMIT {_BATCH_PAGES:d}"
    last_id = 0
    while batch := db.execute(sql, (last_id,), binary=True).fetchall():
        pages = [_split_page_row(rows.decode_row(row)) for row in batch]
        last_id = pages[-1][0].id
        yield from _add_chunks(db, tables, dimensions, pages)


def read_full_pages(
    db: Connection, tables: GenerationTables, dimensions: int, files: Sequence[str]
) -> Iterator[FullPage]:
    """Yield the pages with these files. Call inside a snapshot."""
    sql = f"SELECT {_PAGE_COLUMNS} FROM {tables.pages} WHERE file = ANY(%s)"
    names = [rows.encode_text(file) for file in files]
    pages = [_split_page_row(rows.decode_row(row)) for row in db.execute(sql, (names,), binary=True).fetchall()]
    yield from _add_chunks(db, tables, dimensions, pages)


def _add_chunks(
    db: Connection,
    tables: GenerationTables,
    dimensions: int,
    pages: Sequence[tuple[PageRow, DerivedPageColumns]],
) -> Iterator[FullPage]:
    chunks = _read_chunks(db, tables, [page.id for page, _ in pages])
    for page, derived in pages:
        yield _make_full_page(page, derived, chunks[page.id], dimensions)


def _split_page_row(row: Row) -> tuple[PageRow, DerivedPageColumns]:
    size = len(PageRow._fields)
    return PageRow._make(row[:size]), DerivedPageColumns._make(row[size:])


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


def _make_full_page(
    page: PageRow, derived: DerivedPageColumns, chunks: Sequence[tuple[ChunkRow, bytes]], dimensions: int
) -> FullPage:
    tags = sorted({tag.casefold() for tag in decode_strings(page.tags)})
    links = rows.decode_links(derived.links)
    vectors = rows.decode_vectors([vector for _, vector in chunks], dimensions)
    return FullPage(page, [chunk for chunk, _ in chunks], vectors, tags, links, derived)


# ── integrity ────────────────────────────────────────────────────────────────────────────────────


def find_faults(db: Connection, tables: GenerationTables, stop: Callable[[], bool]) -> list[str]:
    """Describe the faults of a generation; empty if it is intact. Reads every row. Raises Busy if stopped."""
    faults: list[str] = []
    try:
        state, checksum = index_writer.read_state(db, tables.number)
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
        self._terms = 0
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
        yield from self._check_counts((len(self._files), chunks, problems, self._terms))
        if last_page >= self._state.next_page or self._last_chunk >= self._state.next_chunk:
            yield "the next id is already in use"

    def _check_page(self, full_page: FullPage) -> Iterator[str]:
        page, derived = full_page.page, full_page.derived
        if page.file in self._files:
            yield "a file is indexed twice"
        self._files.add(page.file)
        self._chunks += len(full_page.chunks)
        self._last_chunk = max([self._last_chunk, *(chunk.id for chunk in full_page.chunks)])
        self._terms += derived.size
        if derived.seal != full_page.compute_checksum():
            yield f"page {page.id} is not as it was written"
            return
        terms = rows.build_term_vector(decode_terms(page.words))
        if (terms.size, terms.tsvector) != (derived.size, derived.terms):
            yield f"page {page.id} cannot be found by its words"
        keys = sorted({rows.encode_key(tag) for tag in full_page.tags}), rows.get_link_keys(full_page.links)
        if keys != (derived.tag_keys, derived.link_keys):
            yield f"page {page.id} cannot be found by its tags or links"
        if len(full_page.chunks) != page.chunks:
            yield f"page {page.id} has missing chunks"

    def _check_problems(self) -> Generator[str, None, int]:
        """Yield the faults of problem rows and return the number of problems."""
        files: set[str] = set()
        for problem, checksum in index_writer.read_problems(self._db, self._tables):
            if compute_problem_checksum(problem) != checksum:
                yield "a problem is not as it was written"
            if problem.file in self._files:
                yield "a file is both indexed and listed as a problem"
            if problem.file in files:
                yield "a file is listed twice as a problem"
            files.add(problem.file)
        return len(files)

    def _check_counts(self, actual: tuple[int, ...]) -> Iterator[str]:
        expected = (self._state.pages, self._state.chunks, self._state.problems, self._state.terms)
        for kind, count, expected_count in zip(("pages", "chunks", "problems", "terms"), actual, expected, strict=True):
            if count != expected_count:
                yield f"{count} {kind} instead of {expected_count}"
