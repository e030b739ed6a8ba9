"""One generation of a wiki's index in PostgreSQL.

Any thread may read. A write is one transaction; the writer's lease ensures that only one process writes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

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
from wikiholt.domain.page import Facets, PageProblem, PageTerms, PageWarnings
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
from wikiholt.errors import Busy, IndexCorrupt
from wikiholt.index.facets import count_facets
from wikiholt.index.keywords.memory_search import MemoryKeywordSearch
from wikiholt.index.page_table import (
    HAS_ALIAS,
    HAS_ORDER_OVERRIDE,
    HAS_WARNINGS,
    LANGUAGE_COUNTS,
    ORDER_COLUMNS,
    PAGE_PROPERTIES,
    STORED_PAGE_COLUMNS,
    to_numbers,
    to_order_override,
    to_page_warnings,
    to_stored_page,
)
from wikiholt.index.postgres import generation_rows, index_writer, queries, rows, sqlite_copy
from wikiholt.index.postgres.errors import make_foreign_state_error, make_missing_error
from wikiholt.index.postgres.leases import Lease
from wikiholt.index.postgres.locks import WIKI_WRITE_STATEMENT_TIMEOUT_S
from wikiholt.index.postgres.pool import Connection, RoleConnections
from wikiholt.index.postgres.queries import build_where_clause
from wikiholt.index.postgres.rows import GenerationState
from wikiholt.index.postgres.schema import GenerationTables
from wikiholt.index.rows import decode_terms, to_datetime, to_id_array

Row = tuple[Any, ...]

_VECTOR_BATCH_ROWS = 2_000
_KEYWORD_BATCH_ROWS = 500


class PostgresIndex:
    """A `WikiIndex` over the tables of one generation. Its connections reach no other wiki.

    `lease` returns the writer's lease if this process holds it, else None. Keywords are searched at the version that
    was read last, in memory. Raises IndexMissing, IndexCorrupt.
    """

    def __init__(
        self,
        connections: RoleConnections,
        generation: int,
        lease: Callable[[], Lease | None] = lambda: None,
    ) -> None:
        self._connections = connections
        self._lease = lease
        self.wiki_id = connections.wiki_id
        self._tables = GenerationTables(generation, connections.wiki_id)
        self._keywords = MemoryKeywordSearch(self.open_keywords, self._read_terms)
        self.generation = generation
        with connections.read_connection() as db:
            state, checksum = generation_rows.read_state(db, generation)
        if state.get_checksum(connections.wiki_id) != checksum:
            raise make_foreign_state_error()
        self.recipe = state.recipe
        self._version = state.version
        self._checksum: int | None = checksum
        """The checksum of the state at that version; None if this process has written it."""

    # ── state ────────────────────────────────────────────────────────────────────────────────────

    def get_state(self) -> IndexState:
        with self._connections.read_snapshot() as db:
            return self._make_state(db, generation_rows.read_state(db, self.generation)[0])

    def _make_state(self, db: Connection, state: GenerationState) -> IndexState:
        (pending,) = db.execute(
            f"SELECT count(*) FROM {self._tables.chunks} WHERE hash = %s", (PENDING_HASH,)
        ).fetchone() or (0,)
        counts = state.pages, state.chunks, state.problems, pending
        return IndexState(
            self.generation, state.version, self.recipe, state.revision, to_datetime(state.synced_at), *counts
        )

    def open_search(self) -> AbstractContextManager[None]:
        return nullcontext()

    def get_version(self) -> int:
        with self._connections.read_connection() as db:
            row = db.execute("SELECT version, seal FROM state WHERE name = %s", (self._tables.state_name,)).fetchone()
        if row is None:
            raise make_missing_error()
        version, checksum = row
        if version == self._version and self._checksum not in (None, checksum):
            self._keywords.release()  # another history: a database may have been restored or have failed over
        self._version, self._checksum = version, checksum
        return self._version

    def get_page_blobs(self) -> Mapping[str, str]:
        return dict(self._select(f"SELECT file, blob FROM {self._tables.pages}"))

    def get_problems(self) -> Sequence[PageProblem]:
        with self._connections.read_connection() as db:
            problems = [problem for problem, _ in generation_rows.read_problems(db, self._tables)]
        return sorted(problems, key=lambda problem: problem.file.encode("utf-8", "surrogatepass"))

    def list_warnings(self, limit: int) -> tuple[int, Sequence[PageWarnings]]:
        # A single statement sees a single version.
        sql = (
            f"SELECT count(*) OVER (), file, warnings FROM {self._tables.pages} WHERE {HAS_WARNINGS}"
            ' ORDER BY file COLLATE "C" LIMIT %s'
        )
        pages = self._select(sql, (limit,))
        return (pages[0][0] if pages else 0), [to_page_warnings(page[1:]) for page in pages]

    def check(self, stop: Callable[[], bool] = never_stop) -> Sequence[str]:
        if stop():
            raise Busy("the check was stopped", hint="try again")
        with self._connections.read_snapshot() as db:
            return generation_rows.find_faults(db, self._tables, stop)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: IndexChange) -> int:
        with self._connections.write_transaction(statement_timeout_s=WIKI_WRITE_STATEMENT_TIMEOUT_S) as db:
            version = index_writer.apply_change(db, self._tables, change, self._lease())
        if version <= self._version:
            self._keywords.release()  # another history, or no change
        self._version, self._checksum = version, None
        return version

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        sql = f"SELECT hash, vector FROM {self._tables.chunks} WHERE hash = ANY(%s)"
        chunks = self._select(sql, (list(hashes),))
        vectors = rows.decode_vectors([vector for _, vector in chunks], self.recipe.dimensions)
        return {digest: vector for (digest, _), vector in zip(chunks, vectors, strict=True)}

    def find_pending_page_ids(self) -> IntArray:
        sql = f"SELECT DISTINCT page_id FROM {self._tables.chunks} WHERE hash = %s ORDER BY page_id"
        return to_id_array(self._select(sql, (PENDING_HASH,)))

    def get_page_contents(self, files: Sequence[str]) -> Mapping[str, PageContents]:
        with self._connections.read_connection() as db:
            return generation_rows.read_page_contents(db, self._tables, files)

    def write_backup(self, to: Path, stop: Callable[[], bool] = never_stop) -> IndexState:
        with self._connections.read_snapshot() as db:
            return self._make_state(db, sqlite_copy.write_copy(db, self._tables, to, stop))

    def write_index(self, to: Path, stop: Callable[[], bool] = never_stop) -> None:
        """Write a copy of this version that can be searched. Raises Busy if stopped."""
        with self._connections.read_snapshot() as db:
            sqlite_copy.write_index(db, self._tables, to, stop)

    def update_index(self, file: Path, max_pages: int) -> bool:
        """Bring a file of `write_index` to this version. Returns False if more than `max_pages` pages differ."""
        with self._connections.read_snapshot() as db:
            return sqlite_copy.update_index(db, self._tables, file, max_pages)

    # ── searching ────────────────────────────────────────────────────────────────────────────────

    def search_keywords(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        return self._keywords.search(self._version, query, limit, self.filter_page_ids(where))

    def count_pages(self, terms: Sequence[str]) -> Mapping[str, int]:
        return self._keywords.count_pages(self._version, terms)

    def filter_page_ids(self, where: PageFilter) -> IntArray | None:
        clause, values = build_where_clause(where)
        if not clause:
            return None
        return to_id_array(self._select(f"SELECT id FROM {self._tables.pages} WHERE {clause} ORDER BY id", values))

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        return self._keywords.find_page_ids(self._version, query)

    def release_keywords(self) -> None:
        """Release the memory of keyword searches, when a copy answers them."""
        self._keywords.release()

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        with self._connections.read_connection() as db:
            hits = queries.search_exact(db, self._tables, vector, limit, page_ids)
            if page_ids is None and not len(hits.chunk_ids) and limit > 0:
                self._require_no_chunks(db)
        return hits

    def _require_no_chunks(self, db: Connection) -> None:
        """Raise IndexCorrupt if the state counts chunks, so that lost rows never look like an empty result."""
        state, _ = generation_rows.read_state(db, self._tables.number)
        if state.chunks:
            raise IndexCorrupt("the index has lost its chunks", hint="run `wikiholt sync` to rebuild it")

    # ── for caches ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def open_vector_snapshot(self) -> Iterator[VectorSnapshot]:
        with self._connections.read_snapshot() as db:
            state, _ = generation_rows.read_state(db, self.generation)
            yield VectorSnapshot(state.version, state.chunks, lambda: self._iter_blocks(db))

    @contextmanager
    def open_keywords(self) -> Iterator[KeywordSnapshot]:
        with self._connections.read_snapshot() as db:
            version = generation_rows.read_state(db, self.generation)[0].version
            sql = f"SELECT id << 32 | seal FROM {self._tables.pages} ORDER BY id"
            keys = to_id_array(db.execute(sql, binary=True).fetchall())
            yield KeywordSnapshot(version, keys, lambda page_ids: self._iter_page_terms(db, page_ids))

    def count_terms(self) -> tuple[int, Mapping[str, int]]:
        return self._keywords.count_terms(self._version)

    def _iter_blocks(self, db: Connection) -> Iterator[VectorRows]:
        sql = f"SELECT id, page_id, vector FROM {self._tables.chunks} WHERE id > %s ORDER BY id LIMIT %s"
        last_id = 0
        while batch := db.execute(sql, (last_id, _VECTOR_BATCH_ROWS), binary=True).fetchall():
            last_id, *_ = batch[-1]
            yield rows.to_vector_rows(batch, self.recipe.dimensions)

    def _read_terms(self, page_ids: Sequence[int]) -> Iterator[tuple[int, PageTerms]]:
        sql = f"SELECT id, words FROM {self._tables.pages} WHERE id = ANY(%s)"
        return ((page_id, decode_terms(packed)) for page_id, packed in self._select(sql, (list(page_ids),)))

    def _iter_page_terms(self, db: Connection, page_ids: Sequence[int] | None) -> Iterator[tuple[int, PageTerms]]:
        clause, values = ("true", ()) if page_ids is None else ("id = ANY(%s)", (list(page_ids),))
        sql = f"SELECT id, words FROM {self._tables.pages} WHERE id > %s AND {clause} ORDER BY id LIMIT %s"
        last_id = 0
        while batch := db.execute(sql, (last_id, *values, _KEYWORD_BATCH_ROWS), binary=True).fetchall():
            for page_id, packed in batch:
                yield page_id, decode_terms(packed)
            last_id, _ = batch[-1]

    # ── pages and chunks ─────────────────────────────────────────────────────────────────────────

    def get_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]:
        sql = f"SELECT {STORED_PAGE_COLUMNS} FROM {self._tables.pages} WHERE id = ANY(%s)"
        pages = map(to_stored_page, self._select(sql, (list(page_ids),)) if page_ids else ())
        return {page.page_id: page for page in pages}

    def find_page(self, path: str) -> StoredPage | None:
        sql = (
            f"SELECT {STORED_PAGE_COLUMNS} FROM {self._tables.pages} WHERE path = %(path)s OR file = %(path)s"
            " ORDER BY file = %(path)s DESC, id LIMIT 1"
        )
        return next(map(to_stored_page, self._select(sql, {"path": rows.encode_text(path)})), None)

    def get_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]:
        if not chunk_ids:
            return {}
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM {self._tables.chunks} WHERE id = ANY(%s)"
        chunks = map(rows.to_stored_chunk, self._select(sql, (list(chunk_ids),)))
        return {chunk.chunk_id: chunk for chunk in chunks}

    def get_page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        sql = (
            f"SELECT {rows.CHUNK_COLUMNS} FROM {self._tables.chunks} WHERE page_id = ANY(%s)"
            f"{'' if limit is None else ' AND number < %s'} ORDER BY page_id, number"
        )
        chunks: defaultdict[int, list[StoredChunk]] = defaultdict(list)
        if not page_ids:
            return chunks
        values = (list(page_ids),) if limit is None else (list(page_ids), limit)
        for chunk in map(rows.to_stored_chunk, self._select(sql, values)):
            chunks[chunk.page_id].append(chunk)
        return chunks

    # ── contents ─────────────────────────────────────────────────────────────────────────────────

    def list_pages(self, where: PageFilter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        clause, values = build_where_clause(where)
        source = f"FROM {self._tables.pages} WHERE {clause or 'true'}"
        # A single statement sees a single version, so the count is joined to every row, or alone if no row is left.
        sql = (
            f"SELECT total.count, part.* FROM (SELECT count(*) {source}) AS total LEFT JOIN"
            f' (SELECT {STORED_PAGE_COLUMNS} {source} ORDER BY path, file COLLATE "C" LIMIT %s OFFSET %s) AS part'
            ' ON true ORDER BY part.path, part.file COLLATE "C"'
        )
        matches = self._select(sql, (*values, *values, limit, offset))
        return matches[0][0], [to_stored_page(page) for _, *page in matches if page[0] is not None]

    def find_pages_by_key(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        encoded = [rows.encode_text(key) for key in keys]
        # Two parts, because only the first one can use indexes.
        sql = (
            f"SELECT {STORED_PAGE_COLUMNS} FROM {self._tables.pages} WHERE key = ANY(%s) OR last_key = ANY(%s)"
            f" UNION ALL SELECT {STORED_PAGE_COLUMNS} FROM {self._tables.pages} WHERE {HAS_ALIAS} AND EXISTS"
            " (SELECT 1 FROM jsonb_array_elements_text(alias_keys::jsonb) AS item(value) WHERE value = ANY(%s))"
        )
        pages = map(to_stored_page, self._select(sql, (encoded, encoded, encoded)))
        return list({page.page_id: page for page in pages}.values())

    def get_links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        within = "" if page_ids is None else " AND id = ANY(%s)"
        sql = f"SELECT id, links FROM {self._tables.pages} WHERE links <> '[]'{within} ORDER BY id"
        pages = self._select(sql, () if page_ids is None else (list(page_ids),))
        return [rows.to_stored_link(page_id, link) for page_id, packed in pages for link in rows.decode_links(packed)]

    def find_links_by_key(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        sql = f"SELECT id, links FROM {self._tables.pages} WHERE link_keys && %s::text[] ORDER BY id"
        pages = self._select(sql, ([rows.encode_key(key) for key in keys],))
        wanted = frozenset(keys)
        links = ((page_id, link) for page_id, packed in pages for link in rows.decode_links(packed))
        return [
            rows.to_stored_link(page_id, link)
            for page_id, link in links
            if not wanted.isdisjoint((link.key, link.other_key))
        ]

    def read_ahead(self, page_ids: IntArray) -> VectorRows | None:  # noqa: ARG002
        return None

    def get_page_means(self, page_ids: IntArray) -> FloatArray | None:  # noqa: ARG002
        return None

    def get_page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        return self._read_vectors("page_id = ANY(%s) ORDER BY id", np.asarray(page_ids, np.int64).tolist())

    def _read_vectors(self, condition: str, value: object) -> VectorRows:
        sql = f"SELECT id, page_id, vector FROM {self._tables.chunks} WHERE {condition}"
        return rows.to_vector_rows(self._select(sql, (value,)), self.recipe.dimensions)

    def get_facets(self, where: PageFilter, properties: Sequence[str] = ()) -> Facets:
        clause, values = build_where_clause(where)
        sql = f"SELECT path, category, tags, properties FROM {self._tables.pages} WHERE {clause or 'true'}"
        return count_facets(self._select(sql, values), properties, where.path_prefix)

    def get_numbers(self, properties: Sequence[str]) -> Mapping[str, float]:
        return to_numbers(self._select(PAGE_PROPERTIES.format(self._tables.pages)), properties)

    def count_languages(self) -> Mapping[str, int]:
        return dict(self._select(LANGUAGE_COUNTS.format(self._tables.pages)))

    def get_order_overrides(self) -> Sequence[OrderOverride]:
        sql = (
            f"SELECT {ORDER_COLUMNS} FROM {self._tables.pages} WHERE {HAS_ORDER_OVERRIDE}"
            ' ORDER BY path, file COLLATE "C"'
        )
        return [to_order_override(row) for row in self._select(sql)]

    def _select(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Row]:
        """The rows of a statement, with their texts decoded."""
        with self._connections.read_connection() as db:
            return [rows.decode_row(row) for row in db.execute(sql, values, binary=True)]

    def close(self) -> None:
        """Do nothing: the connections belong to the pool."""
