"""One wiki's index in one SQLite file.

Any thread may read. Each write is one transaction; the store's write lock keeps other processes from writing.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from wikiholt.domain.index import (
    PENDING_HASH,
    FloatArray,
    IndexChange,
    IndexState,
    IntArray,
    PageContents,
    VectorHits,
    VectorRows,
)
from wikiholt.domain.page import Facets, Link, PageProblem, PageWarnings
from wikiholt.domain.protocols import never_stop
from wikiholt.domain.search import (
    KeywordHit,
    KeywordQuery,
    OrderOverride,
    PageFilter,
    StoredChunk,
    StoredLink,
    StoredPage,
)
from wikiholt.domain.storage_protocols import KeywordSnapshot, VectorSnapshot
from wikiholt.errors import Busy, IndexCorrupt, IndexUnavailable, InvalidQuery
from wikiholt.index import rows
from wikiholt.index.facets import count_facets
from wikiholt.index.page_table import (
    CHECKED_PAGES,
    CONTENTS_COLUMNS,
    HAS_ALIAS,
    HAS_ORDER_OVERRIDE,
    HAS_WARNINGS,
    LANGUAGE_COUNTS,
    ORDER_COLUMNS,
    PAGE_PROPERTIES,
    SQLITE,
    build_where_clause,
    to_checked_page,
    to_numbers,
    to_order_override,
    to_page_contents,
    to_page_warnings,
)
from wikiholt.index.sqlite import index_writer, integrity, queries
from wikiholt.index.sqlite.connections import SqlitePool, open_connection, select_in_batches, translate_errors
from wikiholt.index.sqlite.packed_vectors import pack_table, read_intact, read_packed
from wikiholt.index.sqlite.queries import LINK_COLUMNS
from wikiholt.index.sqlite.schema import find_obvious_fault, get_owner, read_header, require_owner
from wikiholt.index.sqlite.vector_file import VectorFileHeader
from wikiholt.index.sqlite.vectors import (
    CodesChoice,
    IndexVectors,
    VectorTable,
    VectorWriter,
    choose_quantized,
    is_packed,
)
from wikiholt.regular_files import fsync_path

_BLOCK_ROWS = 4096
_COPY_STEP_PAGES = 512
"""SQLite pages copied between two calls of `stop`."""
_STEPS_PER_STOP_CHECK = 50_000
"""SQLite virtual machine steps between two calls of `stop`: a few milliseconds."""
_PENDING_CHUNKS = (
    f"chunks WHERE substr(hash, 1, {rows.HASH_PREFIX_BYTES}) = zeroblob({rows.HASH_PREFIX_BYTES})"
    f" AND hash = zeroblob({len(PENDING_HASH)})"
)
_STATE_QUERY = "SELECT version, revision, synced_at, {}, {}, {}, {} FROM state".format(
    *(
        f"CASE WHEN version <> ?1 THEN (SELECT count(*) FROM {name}) END"
        for name in ("pages", "chunks", "problems", _PENDING_CHUNKS)
    )
)


class SqliteIndex:
    """A `WikiIndex` in one file, without access to any other file."""

    def __init__(
        self,
        file: Path,
        wiki_id: str | None = None,
        connect: Callable[[Path], sqlite3.Connection] = open_connection,
        choose_codes: CodesChoice = choose_quantized,
        *,
        check: bool = True,
    ) -> None:
        """With `wiki_id`, every new connection raises IndexForeign for a file of another wiki.

        Without `check`, an index with an obvious fault is opened too.
        """
        self._file = file
        self._pool = SqlitePool(partial(_connect, file, connect, wiki_id), self._release_vectors)
        self._counts: tuple[int, Sequence[int]] = (-1, ())
        try:
            with self._pool.read_snapshot() as db:
                self.generation, self.recipe = read_header(db)
                self.wiki_id = wiki_id or get_owner(db)
                fault = find_obvious_fault(db) if check else ""
                if fault:
                    raise IndexCorrupt(f"the index is damaged: {fault}", hint="run `wikiholt sync` to build it again")
                self._header = VectorFileHeader(self.wiki_id, self.generation, self.recipe.dimensions)
                self._vectors = IndexVectors(file, self._header, choose_codes, check=check)
                self._is_packed = is_packed(db)
                if check and not self._is_packed:
                    self._get_vectors(db)
        except BaseException:
            self._pool.close()
            raise

    # ── state ────────────────────────────────────────────────────────────────────────────────────

    def get_state(self) -> IndexState:
        with self._pool.read_connection() as db:
            return self._read_state(db)

    def _read_state(self, db: sqlite3.Connection) -> IndexState:
        """The state, in one statement. Counting takes time in a large wiki, so it is done once for each version."""
        known_version, known_counts = self._counts
        version, revision, synced_at, *counts = db.execute(_STATE_QUERY, (known_version,)).fetchone()
        counts = known_counts if version == known_version else counts
        self._counts = (version, counts)
        return IndexState(self.generation, version, self.recipe, revision, rows.to_datetime(synced_at), *counts)

    def open_search(self) -> AbstractContextManager[None]:
        return self._pool.share_snapshot()

    def get_version(self) -> int:
        return self._pool.get_version()

    def get_page_blobs(self) -> Mapping[str, str]:
        with self._pool.read_connection() as db:
            return dict(db.execute("SELECT file, blob FROM pages"))

    def get_problems(self) -> Sequence[PageProblem]:
        with self._pool.read_connection() as db:
            return [
                PageProblem(*row) for row in db.execute("SELECT file, blob, reason, detail FROM problems ORDER BY file")
            ]

    def list_warnings(self, limit: int) -> tuple[int, Sequence[PageWarnings]]:
        with self._pool.read_snapshot() as db:
            (total,) = db.execute(f"SELECT count(*) FROM pages WHERE {HAS_WARNINGS}").fetchone()
            pages = db.execute(f"SELECT file, warnings FROM pages WHERE {HAS_WARNINGS} ORDER BY file LIMIT ?", (limit,))
            return total, [to_page_warnings(row) for row in pages]

    def check(self, stop: Callable[[], bool] = never_stop) -> Sequence[str]:
        if stop():
            raise Busy("the check was stopped", hint="try again")
        with self._pool.read_snapshot() as db:
            db.set_progress_handler(stop, _STEPS_PER_STOP_CHECK)
            try:
                return integrity.find_faults(db) or list(self._find_vector_faults(db))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise Busy("the check was stopped", hint="try again") from error
                raise
            finally:
                db.set_progress_handler(None, 0)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def _find_vector_faults(self, db: sqlite3.Connection) -> Iterator[str]:
        """Compare the checksums of all vectors, and their ids with those of the chunks."""
        try:
            if self._is_packed:
                for _ in read_packed(db, self.recipe.dimensions):
                    pass
                return
            table = self._get_vectors(db)
            if not np.array_equal(rows.to_id_array(db.execute("SELECT id FROM chunks ORDER BY id")), table.live_ids):
                yield "chunks and vectors have other ids"
            damaged = table.file.count_damaged(table.live_slots)
            if damaged:
                yield f"{damaged} vectors are not as they were written"
            self._vectors.remove_damaged_codes(db)
        except IndexCorrupt as error:
            yield error.message

    def apply(self, change: IndexChange) -> int:
        if change.revision is not None and not self.get_state().pending_chunks:
            self.update_codes()
        with self._pool.write_transaction() as db:
            return index_writer.apply_change(db, change, VectorWriter(db, self._file, self._header))

    def update_codes(self) -> None:
        """Make the codes of vectors if too many have none. Only for the writer, whose changes are all committed."""
        with self._pool.read_connection() as db:
            self._vectors.update_codes(db)

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE substr(hash, 1, {rows.HASH_PREFIX_BYTES}) IN ({{0}})"
        requested = frozenset(hashes)
        prefixes = sorted({digest[: rows.HASH_PREFIX_BYTES] for digest in requested})
        with self._pool.read_snapshot() as db:
            chunks = filter(rows.is_row_intact, select_in_batches(db, sql, prefixes))
            found = {digest: chunk_id for chunk_id, *_, digest, _ in chunks if digest in requested}
            digests = {chunk_id: digest for digest, chunk_id in found.items()}
            if self._is_packed:
                vectors = read_intact(db, sorted(digests), self.recipe.dimensions)
            else:
                vectors = self._get_vectors(db).read_intact(np.array(sorted(digests), np.int64))
        return {digests[chunk_id]: vector for chunk_id, vector in vectors.items()}

    def find_pending_page_ids(self) -> IntArray:
        sql = f"SELECT DISTINCT page_id FROM {_PENDING_CHUNKS} ORDER BY page_id"
        with self._pool.read_connection() as db:
            return rows.to_id_array(db.execute(sql).fetchall())

    def get_page_contents(self, files: Sequence[str]) -> Mapping[str, PageContents]:
        sql = f"SELECT id, {CONTENTS_COLUMNS} FROM pages WHERE file IN ({{0}})"
        with self._pool.read_snapshot() as db:
            pages = {page_id: row for page_id, *row in select_in_batches(db, sql, files)}
            links: dict[int, list[Link]] = {page_id: [] for page_id in pages}
            sql = f"SELECT {LINK_COLUMNS} FROM links WHERE page_id IN ({{0}}) ORDER BY page_id, rowid"
            for page_id, target, text, line, wiki, paths in select_in_batches(db, sql, list(pages)):
                links[page_id].append(Link(target, text, line, bool(wiki), rows.decode_strings(paths)))
        return {row[0]: to_page_contents(row, links[page_id]) for page_id, row in pages.items()}

    def write_backup(self, to: Path, stop: Callable[[], bool] = never_stop) -> IndexState:
        with self._pool.read_snapshot() as db:
            state = self._read_state(db)
            write_copy(db, to, stop)
            with closing(open_connection(to)) as copy, translate_errors():
                copy.execute("PRAGMA synchronous = OFF")
                copy.execute("BEGIN")
                pack_table(copy, self._get_vectors(db))
                copy.execute("COMMIT")
                copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fsync_path(to)
        return state

    # ── search ───────────────────────────────────────────────────────────────────────────────────

    def search_keywords(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        with self._pool.read_snapshot() as db:
            hits = queries.search_keywords(db, query, limit, where)
            integrity.require_words(db, query, hits)
            return hits

    def count_pages(self, terms: Sequence[str]) -> Mapping[str, int]:
        with self._pool.read_snapshot() as db:
            return {term: queries.count_pages(db, term) for term in terms}

    def filter_page_ids(self, where: PageFilter) -> IntArray | None:
        clause, values = build_where_clause(where, SQLITE)
        if not clause:
            return None
        with self._pool.read_connection() as db:
            sql = f"SELECT id FROM pages WHERE {clause} ORDER BY id"
            return rows.to_id_array(db.execute(sql, values).fetchall())

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        with self._pool.read_snapshot() as db:
            return rows.to_id_array(queries.find_matching_page_ids(db, query))

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        return self._read_vectors().search(self._check_query(vector), limit, page_ids)

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        """The nearest of these chunks. Unknown ids are ignored."""
        return self._read_vectors().score_chunks(self._check_query(vector), chunk_ids, limit)

    def read_ahead(self, page_ids: IntArray) -> VectorRows:
        return self._read_vectors().read_pages(page_ids)

    def get_page_means(self, page_ids: IntArray) -> FloatArray:
        return self._read_vectors().read_means(page_ids)

    def sample_vectors(self, count: int) -> VectorRows:
        """The vectors of random chunks."""
        table = self._read_vectors()
        drawn = np.random.default_rng().permutation(len(table))[:count]
        return table.read_chunks(table.chunk_slots[np.sort(drawn)])

    def _check_query(self, vector: FloatArray) -> FloatArray:
        vector = np.ascontiguousarray(vector, np.float32)
        if vector.shape != (self.recipe.dimensions,) or not np.isfinite(vector).all():
            raise InvalidQuery("The query vector does not match the vectors of the index.", hint="check the model")
        return vector

    def _read_vectors(self) -> VectorTable:
        table = self._vectors.get_known(self._pool.get_version())
        if table is not None:
            return table
        with self._pool.read_snapshot() as db:
            return self._get_vectors(db)

    def _get_vectors(self, db: sqlite3.Connection) -> VectorTable:
        """The vectors at the version of the open snapshot."""
        if self._is_packed:
            raise IndexUnavailable("a copy of an index cannot be searched", hint="restore it first")
        return self._vectors.read(db)

    # ── changes, for caches ──────────────────────────────────────────────────────────────────────

    @contextmanager
    def open_vector_snapshot(self) -> Iterator[VectorSnapshot]:
        table = self._read_vectors()
        slots = table.chunk_slots
        parts = [slots[start : start + _BLOCK_ROWS] for start in range(0, len(slots), _BLOCK_ROWS)]
        yield VectorSnapshot(table.version, len(table), lambda: map(table.read_chunks, parts))

    @contextmanager
    def open_keywords(self) -> Iterator[KeywordSnapshot]:
        with self._pool.read_snapshot() as db:
            (version,) = db.execute("SELECT version FROM state").fetchone()
            yield KeywordSnapshot(version, queries.read_page_keys(db), partial(queries.iter_page_terms, db))

    def count_terms(self) -> tuple[int, Mapping[str, int]]:
        with self._pool.read_snapshot() as db:
            (version,) = db.execute("SELECT version FROM state").fetchone()
            return version, queries.count_terms(db)

    # ── pages and chunks ─────────────────────────────────────────────────────────────────────────

    def get_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]:
        sql = f"{CHECKED_PAGES} WHERE id IN ({{0}})"
        with self._pool.read_connection() as db:
            pages = [to_checked_page(row) for row in select_in_batches(db, sql, page_ids)]
        return {page.page_id: page for page in pages}

    def find_page(self, path: str) -> StoredPage | None:
        sql = f"{CHECKED_PAGES} WHERE path = ?1 OR file = ?1 ORDER BY file = ?1 DESC"
        with self._pool.read_connection() as db:
            row = db.execute(sql, (path,)).fetchone()
        return to_checked_page(row) if row else None

    def get_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]:
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE id IN ({{0}})"
        with self._pool.read_connection() as db:
            chunks = [rows.to_stored_chunk(row) for row in select_in_batches(db, sql, chunk_ids)]
        return {chunk.chunk_id: chunk for chunk in chunks}

    def get_page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        first = "" if limit is None else f" AND number < {limit:d}"
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM chunks WHERE page_id IN ({{0}}){first} ORDER BY page_id, number"
        chunks: defaultdict[int, list[StoredChunk]] = defaultdict(list)
        with self._pool.read_connection() as db:
            for chunk in map(rows.to_stored_chunk, select_in_batches(db, sql, page_ids)):
                chunks[chunk.page_id].append(chunk)
        return chunks

    # ── lists, links and facets ──────────────────────────────────────────────────────────────────

    def list_pages(self, where: PageFilter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        clause, values = build_where_clause(where, SQLITE)
        condition = f" WHERE {clause}" if clause else ""
        sql = f"{CHECKED_PAGES}{condition} ORDER BY path, file LIMIT ? OFFSET ?"
        with self._pool.read_snapshot() as db:
            (total,) = db.execute(f"SELECT count(*) FROM pages{condition}", values).fetchone()
            pages = db.execute(sql, (*values, -1 if limit is None else limit, offset))
            return total, [to_checked_page(row) for row in pages]

    def find_pages_by_key(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        sql = f"{CHECKED_PAGES} WHERE key IN ({{0}}) OR last_key IN ({{0}})"
        by_alias = (
            f"{CHECKED_PAGES} WHERE {HAS_ALIAS} AND EXISTS (SELECT 1 FROM json_each(alias_keys) WHERE value IN ({{0}}))"
        )
        with self._pool.read_snapshot() as db:
            found = (*select_in_batches(db, sql, keys, columns=2), *select_in_batches(db, by_alias, keys))
        return list({page.page_id: page for page in map(to_checked_page, found)}.values())

    def get_links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        sql = f"SELECT {LINK_COLUMNS} FROM links{{}} ORDER BY page_id, rowid"
        with self._pool.read_snapshot() as db:
            if page_ids is None:
                links = db.execute(sql.format("")).fetchall()
            else:
                links = list(select_in_batches(db, sql.format(" WHERE page_id IN ({0})"), page_ids))
        return [rows.to_stored_link(row) for row in links]

    def find_links_by_key(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        sql = f"SELECT rowid, {LINK_COLUMNS} FROM links WHERE key IN ({{0}}) OR other_key IN ({{0}})"
        with self._pool.read_snapshot() as db:
            links = {rowid: row for rowid, *row in select_in_batches(db, sql, keys, columns=2)}
        return [rows.to_stored_link(row) for _, row in sorted(links.items())]

    def get_page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        return self._read_vectors().read_pages(np.unique(np.array(page_ids, np.int64)))

    def get_facets(self, where: PageFilter, properties: Sequence[str] = ()) -> Facets:
        clause, values = build_where_clause(where, SQLITE)
        sql = f"SELECT path, category, tags, properties FROM pages WHERE {clause or 'true'}"
        with self._pool.read_snapshot() as db:
            return count_facets(db.execute(sql, values), properties, where.path_prefix)

    def get_numbers(self, properties: Sequence[str]) -> Mapping[str, float]:
        with self._pool.read_connection() as db:
            return to_numbers(db.execute(PAGE_PROPERTIES.format("pages")), properties)

    def count_languages(self) -> Mapping[str, int]:
        with self._pool.read_connection() as db:
            return dict(db.execute(LANGUAGE_COUNTS.format("pages")))

    def get_order_overrides(self) -> Sequence[OrderOverride]:
        with self._pool.read_connection() as db:
            # Without INDEXED BY, SQLite would read all pages in the order of their paths.
            sql = f"SELECT {ORDER_COLUMNS} FROM pages INDEXED BY pages_order WHERE {HAS_ORDER_OVERRIDE}"
            return [to_order_override(row) for row in db.execute(f"{sql} ORDER BY path, file")]

    def close(self) -> None:
        self._pool.close()
        self._release_vectors()

    def _release_vectors(self) -> None:
        """Close the file of vectors; the next search opens it again."""
        self._vectors.release()


def _connect(file: Path, connect: Callable[[Path], sqlite3.Connection], wiki_id: str | None) -> sqlite3.Connection:
    """Open the file and check its owner, because it may have been replaced since it was last opened."""
    db = connect(file)
    try:
        if wiki_id is not None:
            require_owner(db, wiki_id)
    except BaseException:
        db.close()
        raise
    return db


def write_copy(db: sqlite3.Connection, to: Path, stop: Callable[[], bool]) -> None:
    """Copy the snapshot of an open transaction to a new file. Raises Busy once `stop` returns True."""

    def check_stop(_: int, __: int, ___: int) -> None:
        if stop():
            raise Busy("the copy was stopped", hint="try again")

    with closing(sqlite3.connect(to, isolation_level=None)) as copy, translate_errors():
        # The copy is used only after it has been verified, so it needs no protection against a crash.
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        db.backup(copy, pages=_COPY_STEP_PAGES, progress=check_stop)
