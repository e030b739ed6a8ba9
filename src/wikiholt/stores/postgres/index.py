"""One generation of a wiki's index in PostgreSQL, reached through the wiki's own door.

Any thread may read; writes are single transactions, and the writer's lease keeps to one writing process.
"""

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
from wikiholt.stores.postgres import checking, copies, links, nearest, rows, writing
from wikiholt.stores.postgres.faults import missing
from wikiholt.stores.postgres.filters import where_clause
from wikiholt.stores.postgres.pool import Connection, Door
from wikiholt.stores.postgres.rows import Standing
from wikiholt.stores.postgres.tables import HNSW_FROM, Tables
from wikiholt.stores.postgres.timeouts import WIKI_WRITE_STATEMENT_TIMEOUT_S
from wikiholt.stores.postgres.words import WordSearch
from wikiholt.stores.sqlite.rows import moment, unpack_words

_VECTORS_AT_ONCE = 2_000
_WORDS_AT_ONCE = 500


class PostgresIndex:
    """A `WikiIndex` over the tables of one generation; its door leads to no other wiki's.

    `fence` gives the number of the writer's lease this process holds, or None; `hnsw_from` is how many chunks an HNSW
    index is made, and used, from.
    """

    def __init__(
        self, door: Door, generation: int, fence: Callable[[], int | None] = lambda: None, hnsw_from: int = HNSW_FROM
    ) -> None:
        self._door = door
        self._fence = fence
        self._hnsw_from = hnsw_from
        self.wiki_id = door.wiki_id
        self._tables = Tables(generation, door.wiki_id)
        self._words = WordSearch(door, self._tables)
        self.generation = generation
        with door.reading() as db:
            standing, seal = writing.standing_of(db, generation)
        if standing.seal_for(door.wiki_id) != seal:
            raise IndexCorrupt(
                "the index has lost its state, or belongs to another wiki",
                hint="run `wikiholt sync` to build it again",
            )
        self.recipe = standing.recipe
        self._chunks = standing.chunks

    # ── where it stands ──────────────────────────────────────────────────────────────────────────

    def state(self) -> State:
        with self._door.reading() as db:
            return self._state(writing.standing_of(db, self.generation)[0])

    def _state(self, now: Standing) -> State:
        self._chunks = now.chunks
        counts = now.pages, now.chunks, now.problems
        return State(self.generation, now.version, self.recipe, now.revision, moment(now.synced_at), *counts)

    def version(self) -> int:
        with self._door.reading() as db:
            return self._version(db)[0]

    def _version(self, db: Connection) -> tuple[int, int]:
        """The version, and the horizon before which nothing is known of what was dropped."""
        row = db.execute("SELECT version, horizon FROM state WHERE number = %s", (self.generation,)).fetchone()
        if row is None:
            raise missing()
        return row[0], row[1]

    def pages(self) -> Mapping[str, str]:
        with self._door.reading() as db:
            found = db.execute(f"SELECT file, blob FROM {self._tables.pages}").fetchall()
        return {rows.meant(file): rows.meant(blob) for file, blob in found}

    def problems(self) -> Sequence[Problem]:
        with self._door.reading() as db:
            sql = f'SELECT file, blob, reason, detail FROM {self._tables.problems} ORDER BY file COLLATE "C"'
            return [Problem(*rows.meant_row(row)) for row in db.execute(sql)]

    def check(self, stop: Callable[[], bool] = lambda: False) -> Sequence[str]:
        if stop():
            raise Busy("the check was stopped", hint="try again")
        with self._door.snapshot() as db:
            return checking.faults(db, self._tables, stop)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> int:
        with self._door.writing(statement_timeout_s=WIKI_WRITE_STATEMENT_TIMEOUT_S) as db:
            return writing.apply(db, self._tables, change, self._fence())

    def reuse(self, hashes: Sequence[bytes]) -> Mapping[bytes, Floats]:
        sql = f"SELECT hash, vector FROM {self._tables.chunks} WHERE hash = ANY(%s)"
        with self._door.reading() as db:
            found = db.execute(sql, (list(hashes),), binary=True).fetchall()
        vectors = rows.vectors([vector for _, vector in found], self.recipe.dimensions)
        return {digest: vector for (digest, _), vector in zip(found, vectors, strict=True)}

    def backup(self, to: Path, stop: Callable[[], bool] = lambda: False) -> State:
        with self._door.snapshot() as db:
            return self._state(copies.write(db, self._tables, to, stop))

    # ── searching ────────────────────────────────────────────────────────────────────────────────

    def words(self, query: WordQuery, limit: int, where: Filter) -> Sequence[WordHit]:
        return self._words.search(query, limit, where)

    def best_possible(self, query: WordQuery) -> float:
        return self._words.best_possible(query)

    def allowed(self, where: Filter) -> Ints | None:
        clause, values = where_clause(where)
        if not clause:
            return None
        with self._door.reading() as db:
            sql = f"SELECT id FROM {self._tables.pages} WHERE {clause} ORDER BY id"
            return rows.ids(db.execute(sql, values, binary=True).fetchall())

    def holding(self, query: WordQuery) -> Ints:
        return self._words.holding(query)

    def nearest(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        if pages is None and self._chunks >= self._hnsw_from:
            with self._door.snapshot() as db:
                near = nearest.by_index(db, self._tables, vector, limit)
            if near is not None:
                return near
        with self._door.reading() as db:
            near = nearest.exact(db, self._tables, vector, limit, pages)
            if pages is None and not len(near.chunk_ids) and limit > 0:
                self._require_none(db)
        return near

    def _require_none(self, db: Connection) -> None:
        """Raise where there should be chunks: nothing is silently empty."""
        standing, _ = writing.standing_of(db, self._tables.number)
        if standing.chunks:
            raise IndexCorrupt("the index has lost its passages", hint="run `wikiholt sync` to build it again")

    # ── for caches ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._door.snapshot() as db:
            standing, _ = writing.standing_of(db, self.generation)
            yield PostgresSnapshot(standing.version, standing.chunks, lambda: self._blocks(db))

    def changes_since(self, version: int) -> VectorDelta | None:
        with self._door.snapshot() as db:
            now, horizon = self._version(db)
            if not horizon <= version <= now:
                return None
            added = db.execute(
                f"SELECT c.id, c.page_id, c.vector FROM {self._tables.pages} p JOIN {self._tables.chunks} c"
                " ON c.page_id = p.id WHERE p.version > %s ORDER BY c.id",
                (version,),
                binary=True,
            ).fetchall()
            dropped = self._dropped(db, "chunk_id", version)
        return VectorDelta(now, rows.vector_rows(added, self.recipe.dimensions), dropped)

    @contextmanager
    def word_rows(self) -> Iterator[tuple[int, Iterator[WordRow]]]:
        with self._door.snapshot() as db:
            yield self._version(db)[0], self._every_word(db)

    def words_since(self, version: int) -> WordDelta | None:
        with self._door.snapshot() as db:
            now, horizon = self._version(db)
            if not horizon <= version <= now:
                return None
            sql = f"SELECT id, words FROM {self._tables.pages} WHERE version > %s ORDER BY id"
            found = db.execute(sql, (version,), binary=True).fetchall()
            gone = self._dropped(db, "page_id", version)
        return WordDelta(now, tuple(WordRow(i, unpack_words(w)) for i, w in found), gone)

    def _dropped(self, db: Connection, what: str, version: int) -> Ints:
        sql = f"SELECT {what} FROM {self._tables.dropped} WHERE version > %s AND {what} IS NOT NULL"
        return rows.ids(db.execute(sql, (version,), binary=True).fetchall())

    def _blocks(self, db: Connection) -> Iterator[VectorRows]:
        sql = f"SELECT id, page_id, vector FROM {self._tables.chunks} WHERE id > %s ORDER BY id LIMIT %s"
        last = 0
        while block := db.execute(sql, (last, _VECTORS_AT_ONCE), binary=True).fetchall():
            last = block[-1][0]
            yield rows.vector_rows(block, self.recipe.dimensions)

    def _every_word(self, db: Connection) -> Iterator[WordRow]:
        sql = f"SELECT id, words FROM {self._tables.pages} WHERE id > %s ORDER BY id LIMIT %s"
        last = 0
        while block := db.execute(sql, (last, _WORDS_AT_ONCE), binary=True).fetchall():
            last = block[-1][0]
            for page_id, packed in block:
                yield WordRow(page_id, unpack_words(packed))

    # ── what was found ───────────────────────────────────────────────────────────────────────────

    def stored_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]:
        sql = f"SELECT {rows.PAGE_COLUMNS} FROM {self._tables.pages} WHERE id = ANY(%s)"
        with self._door.reading() as db:
            return {row[0]: rows.stored_page(row) for row in db.execute(sql, (list(page_ids),))}

    def find_page(self, path: str) -> StoredPage | None:
        sql = (
            f"SELECT {rows.PAGE_COLUMNS} FROM {self._tables.pages} WHERE path = %(path)s OR file = %(path)s"
            " ORDER BY file = %(path)s DESC, id LIMIT 1"
        )
        with self._door.reading() as db:
            row = db.execute(sql, {"path": rows.held(path)}).fetchone()
        return rows.stored_page(row) if row else None

    def stored_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]:
        sql = f"SELECT {rows.CHUNK_COLUMNS} FROM {self._tables.chunks} WHERE id = ANY(%s)"
        with self._door.reading() as db:
            return {row[0]: rows.stored_chunk(row) for row in db.execute(sql, (list(chunk_ids),))}

    def page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        sql = (
            f"SELECT {rows.CHUNK_COLUMNS} FROM {self._tables.chunks} WHERE page_id = ANY(%s)"
            f"{'' if limit is None else ' AND number < %s'} ORDER BY page_id, number"
        )
        found: defaultdict[int, list[StoredChunk]] = defaultdict(list)
        with self._door.reading() as db:
            for row in db.execute(sql, (list(page_ids),) if limit is None else (list(page_ids), limit)):
                found[row[1]].append(rows.stored_chunk(row))
        return found

    # ── contents ─────────────────────────────────────────────────────────────────────────────────

    def list_pages(self, where: Filter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        with self._door.reading() as db:
            return links.listed(db, self._tables, where, limit, offset)

    def named(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        with self._door.reading() as db:
            return links.named(db, self._tables, keys)

    def links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        with self._door.reading() as db:
            return list(links.on_pages(db, self._tables, page_ids))

    def links_naming(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        with self._door.reading() as db:
            return list(links.naming(db, self._tables, keys))

    def page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        sql = f"SELECT id, page_id, vector FROM {self._tables.chunks} WHERE page_id = ANY(%s) ORDER BY id"
        with self._door.reading() as db:
            found = db.execute(sql, (np.asarray(page_ids, np.int64).tolist(),), binary=True).fetchall()
        return rows.vector_rows(found, self.recipe.dimensions)

    def facets(self, where: Filter) -> Facets:
        with self._door.reading() as db:
            return links.facets(db, self._tables, where)

    def close(self) -> None:
        """Nothing is held: connections belong to the door."""


class PostgresSnapshot:
    """All vectors at one version, while its transaction is open."""

    def __init__(self, version: int, count: int, blocks: Callable[[], Iterator[VectorRows]]) -> None:
        self.version = version
        self.count = count
        self.blocks = blocks
