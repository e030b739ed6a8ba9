"""One wiki's index in one SQLite file.

Any thread may read; writes are single transactions, and the store's writer lock keeps to one writing process.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.model import (
    Change,
    Facets,
    Filter,
    Floats,
    Ints,
    Neighbours,
    Problem,
    State,
    StoredChunk,
    StoredLink,
    StoredPage,
    VectorDelta,
    VectorRows,
    WordDelta,
    WordHit,
    WordQuery,
    WordRow,
)
from wikiholt.ports import Snapshot
from wikiholt.stores.sqlite import checking, copies, links, rows, words, writing
from wikiholt.stores.sqlite.filters import where_clause
from wikiholt.stores.sqlite.pool import Pool
from wikiholt.stores.sqlite.schema import connect, examine, owner_of

_AT_ONCE = 500
_BLOCK = 4096
_BETWEEN_LOOKS = 50_000
"""Steps of SQLite's machine between two questions whether to stop: a few thousandths of a second."""


class SqliteIndex:
    """A `WikiIndex` over one file; it can reach no other file."""

    def __init__(
        self, file: Path, wiki_id: str | None = None, connect: Callable[[Path], sqlite3.Connection] = connect
    ) -> None:
        """With `wiki_id` a file of another wiki is refused (IndexForeign), by every connection that is opened to it."""
        self._pool = Pool(file, connect, wiki_id)
        self._counted: tuple[int, tuple[int, ...]] = (-1, ())
        try:
            with self._pool.snapshot() as db:
                self._schema, self.generation, self.recipe = examine(db)
                self.wiki_id = owner_of(db)
                fault = checking.glance(db)
            if fault:
                raise IndexCorrupt(f"the index is damaged: {fault}", hint="run `wikiholt sync` to build it again")
        except BaseException:
            self._pool.close()
            raise
        self._page_columns = rows.PAGE_COLUMNS if self._schema >= links.LINKS_SCHEMA else rows.PAGE_COLUMNS_1

    # ── where it stands ──────────────────────────────────────────────────────────────────────────

    def state(self) -> State:
        with self._pool.snapshot() as db:
            return self._state(db)

    def _state(self, db: sqlite3.Connection) -> State:
        version, revision, synced_at = db.execute("SELECT version, revision, synced_at FROM state").fetchone()
        known, counts = self._counted
        if known != version:  # counting takes as long as the wiki is large, and opening it asks several times
            tables = ("pages", "chunks", "problems")
            counts = tuple(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
            self._counted = (version, counts)
        return State(self.generation, version, self.recipe, revision, rows.moment(synced_at), *counts)

    def version(self) -> int:
        with self._pool.reading() as db:
            return int(db.execute("SELECT version FROM state").fetchone()[0])

    def pages(self) -> Mapping[str, str]:
        with self._pool.reading() as db:
            return dict(db.execute("SELECT file, blob FROM pages"))

    def problems(self) -> Sequence[Problem]:
        with self._pool.reading() as db:
            return [
                Problem(*row) for row in db.execute("SELECT file, blob, reason, detail FROM problems ORDER BY file")
            ]

    def check(self, stop: Callable[[], bool] = lambda: False) -> Sequence[str]:
        if stop():
            raise Busy("the check was stopped", hint="try again")
        with self._pool.snapshot() as db:
            db.set_progress_handler(stop, _BETWEEN_LOOKS)
            try:
                return checking.faults(db, self.recipe.dimensions)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise Busy("the check was stopped", hint="try again") from error
                raise
            finally:
                db.set_progress_handler(None, 0)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> int:
        with self._pool.writing() as db:
            return writing.apply(db, change)

    def reuse(self, hashes: Sequence[bytes]) -> Mapping[bytes, Floats]:
        found: dict[bytes, Floats] = {}
        sql = "SELECT hash, vector FROM chunks JOIN vectors ON chunk_id = chunks.id WHERE hash IN ({})"
        with self._pool.reading() as db:
            for row in _select_in(db, sql, hashes):
                found[row[0]] = rows.vector(row[1], self.recipe.dimensions)
        return found

    def backup(self, to: Path, stop: Callable[[], bool] = lambda: False) -> State:
        with self._pool.snapshot() as db:
            state = self._state(db)
            copies.write(db, to, stop)
        return state

    # ── searching ────────────────────────────────────────────────────────────────────────────────

    def words(self, query: WordQuery, limit: int, where: Filter) -> Sequence[WordHit]:
        with self._pool.snapshot() as db:
            return words.search(db, query, limit, where)

    def best_possible(self, query: WordQuery) -> float:
        with self._pool.snapshot() as db:
            return words.best_possible(db, query)

    def allowed(self, where: Filter) -> Ints | None:
        clause, values = where_clause(where)
        if not clause:
            return None
        with self._pool.reading() as db:
            sql = f"SELECT id FROM pages WHERE {clause} ORDER BY id"
            return rows.ids(db.execute(sql, values).fetchall())

    def holding(self, query: WordQuery) -> Ints:
        with self._pool.snapshot() as db:
            return rows.ids(words.holding(db, query))

    def nearest(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        best = Neighbours(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        with self._pool.snapshot() as db:
            for block in self._blocks(db):
                near = _within(block, pages)
                best = _merged(best, near.chunk_ids, near.page_ids, 1 - near.vectors @ vector, limit)
        return best

    # ── for caches ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._pool.snapshot() as db:
            (version,) = db.execute("SELECT version FROM state").fetchone()
            (count,) = db.execute("SELECT count(*) FROM chunks").fetchone()
            yield SqliteSnapshot(version, count, lambda: self._blocks(db))

    def changes_since(self, version: int) -> VectorDelta | None:
        with self._pool.snapshot() as db:
            now, horizon = db.execute("SELECT version, horizon FROM state").fetchone()
            if not horizon <= version <= now:
                return None
            # INDEXED BY and CROSS JOIN keep SQLite to this way: from the few pages that changed to their chunks.
            added = sorted(
                db.execute(
                    "SELECT vectors.chunk_id, vectors.page_id, vector FROM pages INDEXED BY pages_version"
                    " CROSS JOIN chunks ON chunks.page_id = pages.id CROSS JOIN vectors ON chunk_id = chunks.id"
                    " WHERE pages.version > ?",
                    (version,),
                )
            )
            dropped = db.execute(
                "SELECT chunk_id FROM dropped WHERE version > ? AND chunk_id IS NOT NULL", (version,)
            ).fetchall()
        return VectorDelta(now, rows.vector_rows(added, self.recipe.dimensions), rows.ids(dropped))

    @contextmanager
    def word_rows(self) -> Iterator[tuple[int, Iterator[WordRow]]]:
        with self._pool.snapshot() as db:
            (version,) = db.execute("SELECT version FROM state").fetchone()
            found = db.execute("SELECT id, words FROM pages ORDER BY id")
            yield version, (WordRow(page_id, rows.unpack_words(packed)) for page_id, packed in found)

    def words_since(self, version: int) -> WordDelta | None:
        with self._pool.snapshot() as db:
            now, horizon = db.execute("SELECT version, horizon FROM state").fetchone()
            if not horizon <= version <= now:
                return None
            sql = "SELECT id, words FROM pages INDEXED BY pages_version WHERE version > ?"
            found = sorted(db.execute(sql, (version,)))
            gone = db.execute(
                "SELECT page_id FROM dropped WHERE version > ? AND page_id IS NOT NULL", (version,)
            ).fetchall()
        return WordDelta(now, tuple(WordRow(i, rows.unpack_words(w)) for i, w in found), rows.ids(gone))

    # ── what was found ───────────────────────────────────────────────────────────────────────────

    def stored_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]:
        sql = f"SELECT {self._page_columns} FROM pages WHERE id IN ({{}})"
        with self._pool.reading() as db:
            return {row[0]: rows.stored_page(row) for row in _select_in(db, sql, page_ids)}

    def find_page(self, path: str) -> StoredPage | None:
        sql = f"SELECT {self._page_columns} FROM pages WHERE path = ?1 OR file = ?1 ORDER BY file = ?1 DESC"
        with self._pool.reading() as db:
            row = db.execute(sql, (path,)).fetchone()
        return rows.stored_page(row) if row else None

    def stored_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]:
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE id IN ({{}})"
        with self._pool.reading() as db:
            return {row[0]: rows.stored_chunk(row) for row in _select_in(db, sql, chunk_ids)}

    def page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        first = "" if limit is None else f" AND number < {limit:d}"
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE page_id IN ({{}}){first} ORDER BY page_id, number"
        found: defaultdict[int, list[StoredChunk]] = defaultdict(list)
        with self._pool.reading() as db:
            for row in _select_in(db, sql, page_ids):
                found[row[1]].append(rows.stored_chunk(row))
        return found

    # ── contents ─────────────────────────────────────────────────────────────────────────────────

    def list_pages(self, where: Filter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        with self._pool.snapshot() as db:
            return links.listed(db, self._page_columns, where, limit, offset)

    def named(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        links.require(self._schema)
        with self._pool.snapshot() as db:
            return links.named(db, keys)

    def links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        links.require(self._schema)
        with self._pool.snapshot() as db:
            return list(links.on_pages(db, page_ids))

    def links_naming(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        links.require(self._schema)
        with self._pool.snapshot() as db:
            return links.naming(db, keys)

    def page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        sql = (
            "SELECT chunk_id, chunks.page_id, vector FROM chunks CROSS JOIN vectors ON chunk_id = chunks.id"
            " WHERE chunks.page_id IN ({})"
        )
        with self._pool.reading() as db:
            found = rows.vector_rows(list(_select_in(db, sql, page_ids)), self.recipe.dimensions)
        order = np.argsort(found.chunk_ids)
        return VectorRows(found.chunk_ids[order], found.page_ids[order], found.vectors[order])

    def facets(self, where: Filter) -> Facets:
        with self._pool.snapshot() as db:
            return links.facets(db, where)

    def close(self) -> None:
        self._pool.close()

    def _blocks(self, db: sqlite3.Connection) -> Iterator[VectorRows]:
        cursor = db.execute("SELECT chunk_id, page_id, vector FROM vectors ORDER BY chunk_id")
        while block := cursor.fetchmany(_BLOCK):
            yield rows.vector_rows(block, self.recipe.dimensions)


class SqliteSnapshot:
    """All vectors at one version, while its transaction is open."""

    def __init__(self, version: int, count: int, blocks: Callable[[], Iterator[VectorRows]]) -> None:
        self.version = version
        self.count = count
        self.blocks = blocks


def _select_in(db: sqlite3.Connection, sql: str, keys: Sequence[object]) -> Iterator[rows.Row]:
    """Rows whose key is one of these, asked for a few hundred at a time."""
    for at in range(0, len(keys), _AT_ONCE):
        some = keys[at : at + _AT_ONCE]
        yield from db.execute(sql.format(", ".join("?" * len(some))), some)


def _within(block: VectorRows, pages: Ints | None) -> VectorRows:
    if pages is None:
        return block
    keep = np.isin(block.page_ids, pages)
    return VectorRows(block.chunk_ids[keep], block.page_ids[keep], block.vectors[keep])


def _merged(best: Neighbours, chunk_ids: Ints, page_ids: Ints, distances: Floats, limit: int) -> Neighbours:
    chunk_ids = np.concatenate([best.chunk_ids, chunk_ids])
    page_ids = np.concatenate([best.page_ids, page_ids])
    distances = np.concatenate([best.distances, distances.astype(np.float32)])
    order = np.lexsort((chunk_ids, distances))[:limit]
    return Neighbours(chunk_ids[order], page_ids[order], distances[order])
