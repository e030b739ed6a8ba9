"""Whether a generation is whole: nothing missing, nothing left over, nothing other than was written.

Torn pages PostgreSQL finds itself, by its checksums, when it reads them; here every row is read.
"""

from collections.abc import Callable, Generator, Iterator

from psycopg.errors import UndefinedTable

from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.model import Problem
from wikiholt.stores.postgres import rows, writing
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.reading import WholePage, whole_pages
from wikiholt.stores.postgres.rows import Standing
from wikiholt.stores.postgres.tables import Tables
from wikiholt.stores.sqlite.rows import unpack_words
from wikiholt.stores.sqlite.seals import problem_seal

_ENOUGH = 5


def faults(db: Connection, tables: Tables, stop: Callable[[], bool]) -> list[str]:
    """What is wrong, in words; empty when nothing is. Reads every row, in one snapshot; raises Busy if stopped."""
    found: list[str] = []
    try:
        standing, seal = writing.standing_of(db, tables.number)
        if standing.seal_for(tables.wiki_id) != seal:
            found.append("its version or revision is not as it was written, or is another wiki's")
        for fault in _Check(db, tables, standing, stop).run():
            found.append(fault)
            if len(found) >= _ENOUGH:
                break
    except (IndexCorrupt, UnicodeDecodeError) as error:
        text = error.message if isinstance(error, IndexCorrupt) else "text that is not UTF-8"
        found.append(f"it cannot be read to its end: {text}")
    except UndefinedTable:
        found.append("a table of it is gone")
    return found


class _Check:
    def __init__(self, db: Connection, tables: Tables, standing: Standing, stop: Callable[[], bool]) -> None:
        self._db = db
        self._tables = tables
        self._standing = standing
        self._stop = stop
        self._files: set[str] = set()
        self._chunks = 0
        self._terms = 0
        self._last_chunk = 0

    def run(self) -> Iterator[str]:
        last = 0
        for page in whole_pages(self._db, self._tables, self._standing.dimensions):
            if self._stop():
                raise Busy("the check was stopped", hint="try again")
            yield from self._page(page)
            last = page.page_id
        problems = yield from self._problems()
        (chunks,) = self._db.execute(f"SELECT count(*) FROM {self._tables.chunks}").fetchone() or (0,)
        if chunks != self._chunks:
            yield f"{chunks - self._chunks} chunks without a page"
        yield from self._counts((len(self._files), chunks, problems, self._terms))
        if last >= self._standing.next_page or self._last_chunk >= self._standing.next_chunk:
            yield "ids that were given out would be given out once more"

    def _page(self, whole: WholePage) -> Iterator[str]:
        file = whole.page[1]
        if file in self._files:
            yield "a file that is indexed twice"
        self._files.add(file)
        self._chunks += len(whole.chunks)
        self._last_chunk = max([self._last_chunk, *(chunk[0] for chunk in whole.chunks)])
        self._terms += whole.size
        if whole.seal != whole.sealed_as():
            yield f"page {whole.page_id} is not as it was written"
            return
        terms = rows.terms_of(unpack_words(whole.page[14]))
        if (terms.size, terms.field) != (whole.size, whole.terms):
            yield f"page {whole.page_id} is not found by its words"
        keys = sorted({rows.indexed(tag) for tag in whole.tags}), rows.link_keys(whole.links)
        if keys != (list(whole.tag_keys), list(whole.link_keys)):
            yield f"page {whole.page_id} is not found by its tags or links"
        if len(whole.chunks) != whole.page[13]:
            yield f"page {whole.page_id} whose chunks are not all there"

    def _problems(self) -> Generator[str, None, int]:
        """Faults of problems; gives how many problems there are."""
        found: set[str] = set()
        sql = f"SELECT file, blob, reason, detail, seal FROM {self._tables.problems}"
        for *columns, seal in self._db.execute(sql).fetchall():
            problem = Problem(*rows.meant_row(columns))
            if problem_seal(problem) != seal:
                yield "a problem is not as it was written"
            if problem.file in self._files:
                yield "a file both indexed and listed as a problem"
            if problem.file in found:
                yield "a file that is listed twice as a problem"
            found.add(problem.file)
        return len(found)

    def _counts(self, there: tuple[int, ...]) -> Iterator[str]:
        said = (self._standing.pages, self._standing.chunks, self._standing.problems, self._standing.terms)
        for what, count, meant in zip(("pages", "chunks", "problems", "terms"), there, said, strict=True):
            if count != meant:
                yield f"{count} {what}, where it says {meant}"
