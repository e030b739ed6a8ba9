"""One wiki's index in one SQLite file.

Any thread may read; writes are single transactions, and the store's writer lock keeps to one writing process.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wikiholt.domain.index import (
    FloatArray,
    IndexChange,
    IndexState,
    IntArray,
    KeywordDelta,
    KeywordRow,
    VectorDelta,
    VectorHits,
    VectorRows,
)
from wikiholt.domain.page import Facets, PageProblem
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter, StoredChunk, StoredLink, StoredPage
from wikiholt.domain.storage_protocols import VectorSnapshot
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.storage.sqlite import backup, fts, index_writer, integrity, page_queries, rows
from wikiholt.storage.sqlite.page_queries import build_where_clause
from wikiholt.storage.sqlite.pool import SqlitePool
from wikiholt.storage.sqlite.schema import get_owner, open_connection, read_header

_BATCH_KEYS = 500
_BLOCK_ROWS = 4096
_STEPS_PER_STOP_CHECK = 50_000
"""Steps of SQLite's machine between two questions whether to stop: a few thousandths of a second."""


class SqliteIndex:
    """A `WikiIndex` over one file; it can reach no other file."""

    def __init__(
        self, file: Path, wiki_id: str | None = None, connect: Callable[[Path], sqlite3.Connection] = open_connection
    ) -> None:
        """With `wiki_id` a file of another wiki is refused (IndexForeign), by every connection that is opened to it."""
        self._pool = SqlitePool(file, connect, wiki_id)
        self._counts: tuple[int, tuple[int, ...]] = (-1, ())
        try:
            with self._pool.read_snapshot() as db:
                self._schema, self.generation, self.recipe = read_header(db)
                self.wiki_id = get_owner(db)
                fault = integrity.find_obvious_fault(db)
            if fault:
                raise IndexCorrupt(f"the index is damaged: {fault}", hint="run `wikiholt sync` to build it again")
        except BaseException:
            self._pool.close()
            raise
        self._page_columns = (
            rows.PAGE_COLUMNS if self._schema >= page_queries.MIN_LINKS_SCHEMA else rows.PAGE_COLUMNS_SCHEMA_1
        )

    # ── where it stands ──────────────────────────────────────────────────────────────────────────

    def get_state(self) -> IndexState:
        with self._pool.read_snapshot() as db:
            return self._read_state(db)

    def _read_state(self, db: sqlite3.Connection) -> IndexState:
        version, revision, synced_at = db.execute("SELECT version, revision, synced_at FROM state").fetchone()
        known, counts = self._counts
        if known != version:  # counting takes as long as the wiki is large, and opening it asks several times
            tables = ("pages", "chunks", "problems")
            counts = tuple(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
            self._counts = (version, counts)
        return IndexState(self.generation, version, self.recipe, revision, rows.to_datetime(synced_at), *counts)

    def get_version(self) -> int:
        with self._pool.read_connection() as db:
            return int(db.execute("SELECT version FROM state").fetchone()[0])

    def get_page_blobs(self) -> Mapping[str, str]:
        with self._pool.read_connection() as db:
            return dict(db.execute("SELECT file, blob FROM pages"))

    def get_problems(self) -> Sequence[PageProblem]:
        with self._pool.read_connection() as db:
            return [
                PageProblem(*row) for row in db.execute("SELECT file, blob, reason, detail FROM problems ORDER BY file")
            ]

    def check(self, stop: Callable[[], bool] = lambda: False) -> Sequence[str]:
        if stop():
            raise Busy("the check was stopped", hint="try again")
        with self._pool.read_snapshot() as db:
            db.set_progress_handler(stop, _STEPS_PER_STOP_CHECK)
            try:
                return integrity.find_faults(db, self.recipe.dimensions)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise Busy("the check was stopped", hint="try again") from error
                raise
            finally:
                db.set_progress_handler(None, 0)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: IndexChange) -> int:
        with self._pool.write_transaction() as db:
            return index_writer.apply_change(db, change)

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        found: dict[bytes, FloatArray] = {}
        sql = "SELECT hash, vector FROM chunks JOIN vectors ON chunk_id = chunks.id WHERE hash IN ({})"
        with self._pool.read_connection() as db:
            for row in _select_in(db, sql, hashes):
                found[row[0]] = rows.decode_vector(row[1], self.recipe.dimensions)
        return found

    def write_backup(self, to: Path, stop: Callable[[], bool] = lambda: False) -> IndexState:
        with self._pool.read_snapshot() as db:
            state = self._read_state(db)
            backup.write_copy(db, to, stop)
        return state

    # ── searching ────────────────────────────────────────────────────────────────────────────────

    def search_keywords(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        with self._pool.read_snapshot() as db:
            return fts.search_keywords(db, query, limit, where)

    def get_max_keyword_score(self, query: KeywordQuery) -> float:
        with self._pool.read_snapshot() as db:
            return fts.get_max_keyword_score(db, query)

    def filter_page_ids(self, where: PageFilter) -> IntArray | None:
        clause, values = build_where_clause(where)
        if not clause:
            return None
        with self._pool.read_connection() as db:
            sql = f"SELECT id FROM pages WHERE {clause} ORDER BY id"
            return rows.to_id_array(db.execute(sql, values).fetchall())

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        with self._pool.read_snapshot() as db:
            return rows.to_id_array(fts.find_matching_page_ids(db, query))

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        best = VectorHits(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        with self._pool.read_snapshot() as db:
            for block in self._iter_blocks(db):
                near = _filter_rows(block, page_ids)
                best = _merge_hits(best, near.chunk_ids, near.page_ids, 1 - near.vectors @ vector, limit)
        return best

    # ── for caches ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def open_vector_snapshot(self) -> Iterator[VectorSnapshot]:
        with self._pool.read_snapshot() as db:
            (version,) = db.execute("SELECT version FROM state").fetchone()
            (count,) = db.execute("SELECT count(*) FROM chunks").fetchone()
            yield SqliteVectorSnapshot(version, count, lambda: self._iter_blocks(db))

    def get_vector_changes(self, version: int) -> VectorDelta | None:
        with self._pool.read_snapshot() as db:
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
        return VectorDelta(now, rows.to_vector_rows(added, self.recipe.dimensions), rows.to_id_array(dropped))

    @contextmanager
    def open_keyword_rows(self) -> Iterator[tuple[int, Iterator[KeywordRow]]]:
        with self._pool.read_snapshot() as db:
            (version,) = db.execute("SELECT version FROM state").fetchone()
            found = db.execute("SELECT id, words FROM pages ORDER BY id")
            yield version, (KeywordRow(page_id, rows.decode_terms(packed)) for page_id, packed in found)

    def get_keyword_changes(self, version: int) -> KeywordDelta | None:
        with self._pool.read_snapshot() as db:
            now, horizon = db.execute("SELECT version, horizon FROM state").fetchone()
            if not horizon <= version <= now:
                return None
            sql = "SELECT id, words FROM pages INDEXED BY pages_version WHERE version > ?"
            found = sorted(db.execute(sql, (version,)))
            gone = db.execute(
                "SELECT page_id FROM dropped WHERE version > ? AND page_id IS NOT NULL", (version,)
            ).fetchall()
        return KeywordDelta(now, tuple(KeywordRow(i, rows.decode_terms(w)) for i, w in found), rows.to_id_array(gone))

    # ── what was found ───────────────────────────────────────────────────────────────────────────

    def get_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]:
        sql = f"SELECT {self._page_columns} FROM pages WHERE id IN ({{}})"
        with self._pool.read_connection() as db:
            return {row[0]: rows.to_stored_page(row) for row in _select_in(db, sql, page_ids)}

    def find_page(self, path: str) -> StoredPage | None:
        sql = f"SELECT {self._page_columns} FROM pages WHERE path = ?1 OR file = ?1 ORDER BY file = ?1 DESC"
        with self._pool.read_connection() as db:
            row = db.execute(sql, (path,)).fetchone()
        return rows.to_stored_page(row) if row else None

    def get_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]:
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE id IN ({{}})"
        with self._pool.read_connection() as db:
            return {row[0]: rows.to_stored_chunk(row) for row in _select_in(db, sql, chunk_ids)}

    def get_page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        first = "" if limit is None else f" AND number < {limit:d}"
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE page_id IN ({{}}){first} ORDER BY page_id, number"
        found: defaultdict[int, list[StoredChunk]] = defaultdict(list)
        with self._pool.read_connection() as db:
            for row in _select_in(db, sql, page_ids):
                found[row[1]].append(rows.to_stored_chunk(row))
        return found

    # ── contents ─────────────────────────────────────────────────────────────────────────────────

    def list_pages(self, where: PageFilter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        with self._pool.read_snapshot() as db:
            return page_queries.list_pages(db, self._page_columns, where, limit, offset)

    def find_pages_by_key(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        page_queries.require_links(self._schema)
        with self._pool.read_snapshot() as db:
            return page_queries.find_pages_by_key(db, keys)

    def get_links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        page_queries.require_links(self._schema)
        with self._pool.read_snapshot() as db:
            return list(page_queries.iter_links(db, page_ids))

    def find_links_by_key(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        page_queries.require_links(self._schema)
        with self._pool.read_snapshot() as db:
            return page_queries.find_links_by_key(db, keys)

    def get_page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        sql = (
            "SELECT chunk_id, chunks.page_id, vector FROM chunks CROSS JOIN vectors ON chunk_id = chunks.id"
            " WHERE chunks.page_id IN ({})"
        )
        with self._pool.read_connection() as db:
            found = rows.to_vector_rows(list(_select_in(db, sql, page_ids)), self.recipe.dimensions)
        order = np.argsort(found.chunk_ids)
        return VectorRows(found.chunk_ids[order], found.page_ids[order], found.vectors[order])

    def get_facets(self, where: PageFilter) -> Facets:
        with self._pool.read_snapshot() as db:
            return page_queries.get_facets(db, where)

    def close(self) -> None:
        self._pool.close()

    def _iter_blocks(self, db: sqlite3.Connection) -> Iterator[VectorRows]:
        cursor = db.execute("SELECT chunk_id, page_id, vector FROM vectors ORDER BY chunk_id")
        while block := cursor.fetchmany(_BLOCK_ROWS):
            yield rows.to_vector_rows(block, self.recipe.dimensions)


class SqliteVectorSnapshot:
    """All vectors at one version, while its transaction is open."""

    def __init__(self, version: int, count: int, iter_blocks: Callable[[], Iterator[VectorRows]]) -> None:
        self.version = version
        self.count = count
        self.iter_blocks = iter_blocks


def _select_in(db: sqlite3.Connection, sql: str, keys: Sequence[object]) -> Iterator[rows.Row]:
    """Rows whose key is one of these, asked for a few hundred at a time."""
    for at in range(0, len(keys), _BATCH_KEYS):
        some = keys[at : at + _BATCH_KEYS]
        yield from db.execute(sql.format(", ".join("?" * len(some))), some)


def _filter_rows(block: VectorRows, pages: IntArray | None) -> VectorRows:
    if pages is None:
        return block
    keep = np.isin(block.page_ids, pages)
    return VectorRows(block.chunk_ids[keep], block.page_ids[keep], block.vectors[keep])


def _merge_hits(
    best: VectorHits, chunk_ids: IntArray, page_ids: IntArray, distances: FloatArray, limit: int
) -> VectorHits:
    chunk_ids = np.concatenate([best.chunk_ids, chunk_ids])
    page_ids = np.concatenate([best.page_ids, page_ids])
    distances = np.concatenate([best.distances, distances.astype(np.float32)])
    order = np.lexsort((chunk_ids, distances))[:limit]
    return VectorHits(chunk_ids[order], page_ids[order], distances[order])
