"""All that a generation holds, page by page, at one moment: for checking it and for copying it."""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.errors import UndefinedTable

from wikiholt.domain.index import FloatArray
from wikiholt.domain.page import PageProblem
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.checksums import compute_page_checksum, compute_problem_checksum
from wikiholt.storage.postgres import index_writer, rows
from wikiholt.storage.postgres.index_writer import CHUNK_FIELDS, DERIVED_PAGE_FIELDS, PAGE_FIELDS
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import GenerationState
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.rows import decode_strings, decode_terms, encode_vector

Row = tuple[Any, ...]

_BATCH_PAGES = 100


@dataclass(frozen=True, slots=True)
class FullPage:
    """A page with all that hangs on it, as the embedded store's columns have it, and what is derived from it here."""

    page: Row
    chunks: Sequence[Row]
    vectors: FloatArray
    tags: Sequence[str]
    links: Sequence[Row]
    tag_keys: Sequence[str]
    link_keys: Sequence[str]
    size: int
    terms: bytes
    checksum: int

    @property
    def page_id(self) -> int:
        return int(self.page[0])

    @property
    def vector_rows(self) -> list[Row]:
        return [(chunk[0], chunk[1], encode_vector(one)) for chunk, one in zip(self.chunks, self.vectors, strict=True)]

    def compute_checksum(self) -> int:
        """The seal of what is there."""
        return compute_page_checksum(self.page, self.chunks, self.vector_rows, self.tags, self.links)


def iter_full_pages(db: Connection, tables: GenerationTables, dimensions: int) -> Iterator[FullPage]:
    """Every page in the order of ids, a few at a time; inside a snapshot."""
    sql = f"SELECT {', '.join((*PAGE_FIELDS, *DERIVED_PAGE_FIELDS))} FROM {tables.pages} WHERE id > %s ORDER BY id LIMIT {_BATCH_PAGES:d}"
    last = 0
    while block := db.execute(sql, (last,), binary=True).fetchall():
        chunks = _read_chunks(db, tables, last, block[-1][0])
        last = block[-1][0]
        for row in block:
            yield _make_full_page(rows.decode_row(row), chunks[row[0]], dimensions)


def _read_chunks(db: Connection, tables: GenerationTables, after: int, to: int) -> defaultdict[int, list[Row]]:
    sql = (
        f"SELECT {', '.join(CHUNK_FIELDS)}, vector FROM {tables.chunks} WHERE page_id > %s AND page_id <= %s"
        " ORDER BY page_id, number"
    )
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in db.execute(sql, (after, to), binary=True):
        found[row[1]].append(row)
    return found


def _make_full_page(row: Row, chunks: Sequence[Row], dimensions: int) -> FullPage:
    page, (packed, *keys, size, terms, seal) = row[: len(PAGE_FIELDS)], row[len(PAGE_FIELDS) :]
    links = [tuple(link) for link in rows.decode_links(packed)]
    tags = sorted({tag.casefold() for tag in decode_strings(page[PAGE_FIELDS.index("tags")])})
    vectors = rows.decode_vectors([chunk[-1] for chunk in chunks], dimensions)
    texts = [rows.decode_row(chunk[:-1]) for chunk in chunks]
    return FullPage(page, texts, vectors, tags, links, keys[0], keys[1], size, terms, seal)


# Whether a generation is whole: nothing missing, nothing left over, nothing other than was written. Torn pages
# PostgreSQL finds itself, by its checksums, when it reads them; here every row is read.


_MAX_FAULTS = 5


def find_faults(db: Connection, tables: GenerationTables, stop: Callable[[], bool]) -> list[str]:
    """What is wrong, in words; empty when nothing is. Reads every row, in one snapshot; raises Busy if stopped."""
    found: list[str] = []
    try:
        standing, seal = index_writer.read_state(db, tables.number)
        if standing.get_checksum(tables.wiki_id) != seal:
            found.append("its version or revision is not as it was written, or is another wiki's")
        for fault in _IntegrityCheck(db, tables, standing, stop).find_faults():
            found.append(fault)
            if len(found) >= _MAX_FAULTS:
                break
    except (IndexCorrupt, UnicodeDecodeError) as error:
        text = error.message if isinstance(error, IndexCorrupt) else "text that is not UTF-8"
        found.append(f"it cannot be read to its end: {text}")
    except UndefinedTable:
        found.append("a table of it is gone")
    return found


class _IntegrityCheck:
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
        last = 0
        for page in iter_full_pages(self._db, self._tables, self._state.dimensions):
            if self._stop():
                raise Busy("the check was stopped", hint="try again")
            yield from self._check_page(page)
            last = page.page_id
        problems = yield from self._check_problems()
        (chunks,) = self._db.execute(f"SELECT count(*) FROM {self._tables.chunks}").fetchone() or (0,)
        if chunks != self._chunks:
            yield f"{chunks - self._chunks} chunks without a page"
        yield from self._check_counts((len(self._files), chunks, problems, self._terms))
        if last >= self._state.next_page or self._last_chunk >= self._state.next_chunk:
            yield "ids that were given out would be given out once more"

    def _check_page(self, full_page: FullPage) -> Iterator[str]:
        file = full_page.page[1]
        if file in self._files:
            yield "a file that is indexed twice"
        self._files.add(file)
        self._chunks += len(full_page.chunks)
        self._last_chunk = max([self._last_chunk, *(chunk[0] for chunk in full_page.chunks)])
        self._terms += full_page.size
        if full_page.checksum != full_page.compute_checksum():
            yield f"page {full_page.page_id} is not as it was written"
            return
        terms = rows.build_term_vector(decode_terms(full_page.page[14]))
        if (terms.size, terms.tsvector) != (full_page.size, full_page.terms):
            yield f"page {full_page.page_id} is not found by its words"
        keys = sorted({rows.encode_key(tag) for tag in full_page.tags}), rows.get_link_keys(full_page.links)
        if keys != (list(full_page.tag_keys), list(full_page.link_keys)):
            yield f"page {full_page.page_id} is not found by its tags or links"
        if len(full_page.chunks) != full_page.page[13]:
            yield f"page {full_page.page_id} whose chunks are not all there"

    def _check_problems(self) -> Generator[str, None, int]:
        """Faults of problems; gives how many problems there are."""
        found: set[str] = set()
        sql = f"SELECT file, blob, reason, detail, seal FROM {self._tables.problems}"
        for *columns, seal in self._db.execute(sql).fetchall():
            problem = PageProblem(*rows.decode_row(columns))
            if compute_problem_checksum(problem) != seal:
                yield "a problem is not as it was written"
            if problem.file in self._files:
                yield "a file both indexed and listed as a problem"
            if problem.file in found:
                yield "a file that is listed twice as a problem"
            found.add(problem.file)
        return len(found)

    def _check_counts(self, actual: tuple[int, ...]) -> Iterator[str]:
        said = (self._state.pages, self._state.chunks, self._state.problems, self._state.terms)
        for what, count, meant in zip(("pages", "chunks", "problems", "terms"), actual, said, strict=True):
            if count != meant:
                yield f"{count} {what}, where it says {meant}"
