"""Reads every row of a generation to check its integrity.

PostgreSQL detects torn pages by its own checksums; the check here detects missing, extra and altered rows.
"""

from collections.abc import Callable, Generator, Iterator

from psycopg.errors import UndefinedTable

from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.checksums import compute_problem_checksum
from wikiholt.storage.postgres import index_writer, rows
from wikiholt.storage.postgres.full_pages import FullPage, iter_full_pages
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import GenerationState
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.rows import decode_terms

_MAX_FAULTS = 5


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
