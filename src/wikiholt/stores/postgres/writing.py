"""What one transaction does to a generation.

What a change asks for is compared with what is there in two statements, and written in a few, however many pages it
has: rows travel by COPY in binary form.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wikiholt.model import Change, PageEntry, Problem
from wikiholt.stores.postgres import filing, rows
from wikiholt.stores.postgres.faults import missing
from wikiholt.stores.postgres.filing import PAGE
from wikiholt.stores.postgres.leases import hold
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.rows import Standing
from wikiholt.stores.postgres.tables import Tables
from wikiholt.stores.sqlite import rows as packing

REMEMBERED = 200_000
"""How many dropped chunks are remembered; a cache older than that is built anew."""
_LOOK_EVERY = 16

_SAME = PAGE[1:15] + PAGE[16:]
"""What a page that is put once more must have alike."""


def standing_of(db: Connection, number: int, *, locked: bool = False) -> tuple[Standing, int]:
    """Where a generation stands, and the seal that was written with it."""
    sql = f"SELECT {rows.STANDING_COLUMNS}, seal FROM state WHERE number = %s{' FOR UPDATE' if locked else ''}"
    row = db.execute(sql, (number,)).fetchone()
    if row is None:
        raise missing()
    return Standing(*row[:-1]), row[-1]


def write_standing(db: Connection, tables: Tables, standing: Standing) -> None:
    names = ", ".join(f"{name} = %s" for name in rows.STANDING)
    sql = f"UPDATE state SET {names}, seal = %s WHERE number = %s"
    db.execute(sql, (*standing.row, standing.seal_for(tables.wiki_id), standing.number))


def apply(db: Connection, tables: Tables, change: Change, fence: int | None) -> int:
    """Make the change true inside the open transaction and return the version the index then has.

    Raises Busy where the writer's lease, that `fence` is the number of, has gone to another.
    """
    hold(db, fence)
    standing, _ = standing_of(db, tables.number, locked=True)
    writer = _Writer(db, tables, standing, change)
    standing = writer.written()
    if writer.touched:
        standing = _forgetting(db, tables, replace(standing, version=standing.version + 1))
    if writer.touched or change.revision is not None:
        write_standing(db, tables, standing)
    hold(db, fence)
    return standing.version


def _forgetting(db: Connection, tables: Tables, standing: Standing) -> Standing:
    """Keep the list of dropped rows short; `horizon` says from which version on it is whole."""
    if standing.version % _LOOK_EVERY:  # counting them takes as long as there are many
        return standing
    sql = f"SELECT version FROM {tables.dropped} ORDER BY version DESC OFFSET %s LIMIT 1"
    if db.execute(sql, (REMEMBERED,)).fetchone() is None:
        return standing
    row = db.execute(sql, (REMEMBERED // 2,)).fetchone()
    middle = row[0] if row else standing.horizon
    db.execute(f"DELETE FROM {tables.dropped} WHERE version <= %s", (middle,))
    return replace(standing, horizon=middle)


class _Writer:
    """One change on its way into the tables; `touched` says whether it made a difference."""

    def __init__(self, db: Connection, tables: Tables, standing: Standing, change: Change) -> None:
        self._db = db
        self._tables = tables
        self._standing = standing
        self._change = change
        self._puts = {entry.page.file: entry for entry in change.pages}
        self._notes = {problem.file: problem for problem in change.problems}
        self._files = list({*change.deleted, *self._notes, *self._puts})
        self.touched = False

    def written(self) -> Standing:
        """Write what differs and say where the index then stands, but for its version."""
        pages, problems = self._known_pages(), self._known_problems()
        same = self._same(pages)
        going = [file for file in (*self._change.deleted, *self._notes) if file in pages]
        fresh = [entry for file, entry in self._puts.items() if file not in same or file in going]
        deleted = set(self._change.deleted)
        notes = {file: note for file, note in self._notes.items() if problems.get(file) != note or file in deleted}
        leaving = {*deleted, *notes, *(entry.page.file for entry in fresh)} & problems.keys()
        self.touched = bool(going or fresh or notes or leaving)
        self._take_out({pages[file] for file in going}, gone=True)
        self._take_out({pages[e.page.file] for e in fresh if e.page.file in pages} - {pages[f] for f in going})
        self._drop_problems(leaving)
        self._note([note for file, note in notes.items() if file not in self._puts])
        ids = {file: page_id for file, page_id in pages.items() if file not in going}
        self._put(fresh, ids)
        if self._change.revision is not None:
            self._stand_for(self._change.revision)
        return self._standing

    # ── what is there ────────────────────────────────────────────────────────────────────────────

    def _known_pages(self) -> dict[str, int]:
        sql = f"SELECT file, id FROM {self._tables.pages} WHERE file = ANY(%s)"
        found = self._db.execute(sql, ([rows.held(file) for file in self._files],))
        return {rows.meant(file): page_id for file, page_id in found}

    def _known_problems(self) -> dict[str, Problem]:
        if not self._standing.problems:
            return {}
        sql = f"SELECT file, blob, reason, detail FROM {self._tables.problems} WHERE file = ANY(%s)"
        found = self._db.execute(sql, ([rows.held(file) for file in self._files],))
        return {problem.file: problem for problem in (Problem(*rows.meant_row(row)) for row in found)}

    def _same(self, pages: Mapping[str, int]) -> set[str]:
        """The files that are put as they are there already."""
        known = {pages[file]: entry for file, entry in self._puts.items() if file in pages}
        if not known:
            return set()
        sql = f"SELECT id, {', '.join(_SAME)} FROM {self._tables.pages} WHERE id = ANY(%s)"
        alike: dict[int, PageEntry] = {}
        for page_id, *row in self._db.execute(sql, (list(known),), binary=True):
            columns = packing.page_columns(known[page_id])
            if rows.meant_row(row) == tuple(columns[name] for name in _SAME):
                alike[page_id] = known[page_id]
        if not alike:
            return set()
        chunks: dict[int, list[tuple[bytes, str]]] = {page_id: [] for page_id in alike}
        sql = f"SELECT page_id, hash, text FROM {self._tables.chunks} WHERE page_id = ANY(%s) ORDER BY page_id, number"
        for page_id, digest, text in self._db.execute(sql, (list(alike),), binary=True):
            chunks[page_id].append((digest, rows.meant(text)))
        return {
            entry.page.file
            for page_id, entry in alike.items()
            if chunks[page_id] == [(h, c.text) for h, c in zip(entry.hashes, entry.chunks, strict=True)]
        }

    # ── what becomes of it ───────────────────────────────────────────────────────────────────────

    def _take_out(self, page_ids: set[int], *, gone: bool = False) -> None:
        """Remove pages with all that hangs on them; what follows the index is told, of pages only if they are gone."""
        if not page_ids:
            return
        tables, version, some = self._tables, self._standing.version + 1, sorted(page_ids)
        chunks = self._db.execute(
            f"WITH out AS (DELETE FROM {tables.chunks} WHERE page_id = ANY(%s) RETURNING id)"
            f" INSERT INTO {tables.dropped} SELECT %s, id, NULL FROM out ORDER BY id",
            (some, version),
        ).rowcount
        sizes = self._db.execute(f"DELETE FROM {tables.pages} WHERE id = ANY(%s) RETURNING size", (some,)).fetchall()
        if gone:
            sql = f"INSERT INTO {tables.dropped} SELECT %s, NULL, unnest(%s::int8[])"
            self._db.execute(sql, (version, some))
        self._count(pages=-len(sizes), chunks=-chunks, terms=-sum(size for (size,) in sizes))

    def _drop_problems(self, files: Iterable[str]) -> None:
        leaving = [rows.held(file) for file in files]
        if leaving:
            self._db.execute(f"DELETE FROM {self._tables.problems} WHERE file = ANY(%s)", (leaving,))
            self._count(problems=-len(leaving))

    def _note(self, problems: Sequence[Problem]) -> None:
        if problems:
            filing.copy_problems(self._db, self._tables, problems)
            self._count(problems=len(problems))

    def _put(self, entries: Sequence[PageEntry], ids: Mapping[str, int]) -> None:
        next_page, next_chunk = self._standing.next_page, self._standing.next_chunk
        pages: list[tuple[Any, ...]] = []
        chunks: list[tuple[Any, ...]] = []
        for entry in entries:
            page_id = ids.get(entry.page.file)
            if page_id is None:
                page_id, next_page = next_page, next_page + 1
            own = filing.chunk_rows(page_id, next_chunk, entry)
            next_chunk += len(own)
            columns = packing.page_columns(entry) | {"id": page_id, "version": self._standing.version + 1}
            page = tuple(columns[name] for name in PAGE)
            tags = sorted(packing.folded_tags(entry.page.metadata))
            pages.append(filing.sealed_page(page, own, entry.vectors, tags, rows.link_rows(entry.page.links)))
            chunks += [(*row, field) for row, field in zip(own, rows.vector_fields(entry.vectors), strict=True)]
        if pages:
            filing.copy_pages(self._db, self._tables, pages)
        if chunks:
            filing.copy_chunks(self._db, self._tables, chunks)
        self._standing = replace(self._standing, next_page=next_page, next_chunk=next_chunk)
        self._count(pages=len(pages), chunks=len(chunks), terms=sum(page[-3] for page in pages))

    def _stand_for(self, revision: str) -> None:
        self.touched = self.touched or self._standing.revision != revision
        self._standing = replace(self._standing, revision=revision, synced_at=datetime.now(UTC).timestamp())

    def _count(self, pages: int = 0, chunks: int = 0, problems: int = 0, terms: int = 0) -> None:
        now = self._standing
        self._standing = replace(
            now,
            pages=now.pages + pages,
            chunks=now.chunks + chunks,
            problems=now.problems + problems,
            terms=now.terms + terms,
        )
