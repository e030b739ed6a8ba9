"""Indexes in PostgreSQL: a schema and a role a wiki, on the database that the home placed it on.

What is read or written of a wiki goes through its Door, as its own role; the operator's connection makes and drops
tables and looks after leases. Mirrors and caches lie in a directory of this machine, and can be thrown away.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from psycopg import sql

from wikiholt.errors import Busy, DatabaseAway, IndexCorrupt, IndexFault, IndexMissing, LockTimeout, WikiholtError
from wikiholt.model import Proof, Recipe
from wikiholt.stores.postgres import copies, generations, layout, locks, notes, tending, upgrading
from wikiholt.stores.postgres.faults import missing
from wikiholt.stores.postgres.generations import Generation, Glance, Origin
from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.index import PostgresIndex
from wikiholt.stores.postgres.leases import DESK, WRITER, Leases, hold
from wikiholt.stores.postgres.placing import Placement, Placements, require_id
from wikiholt.stores.postgres.pool import Connection, Door, Doors
from wikiholt.stores.postgres.tables import HNSW_FROM, Tables
from wikiholt.stores.postgres.timeouts import SWEEP_LOCK_TIMEOUT_S, WIKI_WRITE_STATEMENT_TIMEOUT_S
from wikiholt.stores.sqlite import schema as files
from wikiholt.stores.sqlite.index import SqliteIndex

_LINGER = 60.0
"""How long a generation stays after another took its place: searches on other nodes may have begun in it."""


class PostgresStore:
    """A `Store` in one PostgreSQL or many."""

    def __init__(
        self,
        home: Home,
        doors: Doors,
        scratch: Path,
        lease: float = 15.0,
        *,
        hnsw_from: int = HNSW_FROM,
        linger: float = _LINGER,
    ) -> None:
        self.placements = Placements(home, doors)
        self.leases = Leases(self.placements, lease)
        self._scratch = scratch
        self._hnsw_from = hnsw_from
        self._tender = tending.Tender()
        self._linger = linger
        self._fences: dict[str, int] = {}

    # ── what there is ────────────────────────────────────────────────────────────────────────────

    def directory(self, wiki_id: str) -> Path:
        require_id(wiki_id)
        return self._scratch / wiki_id

    def door(self, wiki_id: str) -> Door:
        """The way into the wiki's schema, as its role."""
        return self.placements.door(wiki_id)

    def fence(self, wiki_id: str) -> int | None:
        """The number of the writer's lease, where this process holds it."""
        return self._fences.get(wiki_id)

    def holds(self, wiki_id: str) -> bool:
        return self.placements.find(wiki_id) is not None or self.directory(wiki_id).exists()

    def ids(self) -> Sequence[str]:
        return sorted({*self.placements.ids(), *notes.directories(self._scratch)})

    def published(self, wiki_id: str) -> int | None:
        try:
            return self._glance(wiki_id).published
        except IndexMissing:
            return None

    def stamp(self, wiki_id: str) -> str:
        try:
            return self._glance(wiki_id).stamp
        except IndexMissing:
            return "None"

    def sealed(self, wiki_id: str) -> bool:
        try:
            found = self._glance(wiki_id)
        except IndexMissing:
            return False
        return found.mark == found.stamp

    def confirm(self, wiki_id: str, max_age_s: float = 0.0) -> Proof:  # noqa: ARG002 - the same for every index
        """PostgreSQL compares the checksums of its pages itself, whenever it reads one."""
        return Proof.COMPARED

    def disk_bytes(self, wiki_id: str) -> int:
        here = notes.bytes_below(self.directory(wiki_id))
        try:
            with self.door(wiki_id).reading() as connection:
                return here + notes.bytes_of_schema(connection)
        except IndexMissing:
            return here

    def aside(self, wiki_id: str) -> Sequence[str]:
        try:
            with self.door(wiki_id).reading() as connection:
                return generations.aside(connection)
        except IndexMissing:
            return []

    # ── making and opening ───────────────────────────────────────────────────────────────────────

    def create(self, wiki_id: str, recipe: Recipe) -> PostgresIndex:
        self._require_place(wiki_id)
        if self.published(wiki_id) is None:
            with self._building(wiki_id) as (connection, placement):
                if generations.glance(connection).published is None:
                    generations.make(connection, placement, recipe, Origin.NOTHING, published=True)
        return self.open(wiki_id)

    def open(self, wiki_id: str) -> PostgresIndex:
        while (generation := self._usable(wiki_id).published) is not None:
            try:
                return self._index(wiki_id, generation)
            except IndexMissing:
                if self.published(wiki_id) == generation:
                    raise
        raise missing()

    def new_generation(self, wiki_id: str, recipe: Recipe, *, afresh: bool = False) -> PostgresIndex:
        self.placements.make(wiki_id)
        origin = Origin.NOTHING if afresh else Origin.BEFORE
        published = self._usable(wiki_id).published or 0
        for begun in reversed(self._known(wiki_id)):
            if begun.number > published and begun.condition == "building":
                resumed = self._resumed(wiki_id, begun, recipe, afresh=afresh)
                with self._building(wiki_id) as (connection, placement):
                    if resumed is None:
                        generations.remove(connection, placement, [begun.number])
                    else:
                        generations.begin_again(connection, begun.number, origin)
                if resumed is not None:
                    return resumed
        with self._building(wiki_id) as (connection, placement):
            number = generations.make(connection, placement, recipe, origin)
        return self._index(wiki_id, number)

    def publish(self, wiki_id: str, generation: int) -> None:
        with self._changing(wiki_id) as connection:
            generations.publish(connection, generation)

    def sweep(self, wiki_id: str) -> None:
        """Remove what was before, once no search can be in it, and look after the indexes of what is now."""
        with suppress(IndexMissing, Busy):  # what another is in just now goes the next time
            with self._building(wiki_id) as (connection, placement):
                connection.execute(sql.SQL("SET LOCAL lock_timeout TO {}").format(f"{SWEEP_LOCK_TIMEOUT_S:.3f}s"))
                generations.remove(connection, placement, generations.swept(connection, self._linger))
            self._tender.ask(self.placements.operator(placement), placement.schema, self._hnsw_from)

    def tend(self, placement: Placement) -> None:
        """Make the indexes that a wiki has come to need by its size, now, unless others hold locks on its tables."""
        with suppress(LockTimeout):
            tending.tend(self.placements.operator(placement), placement.schema, self._hnsw_from)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writing(self, wiki_id: str, timeout: float) -> Iterator[None]:
        self._require_place(wiki_id)
        with self.leases.held(wiki_id, WRITER, timeout) as lease:
            if self._fences.setdefault(wiki_id, lease.fence) != lease.fence:
                # One of this process lost its lease and does not know yet: it must not write under this one's.
                raise Busy("another is at work on this wiki's index", hint="try again in a moment")
            try:
                self._clear(wiki_id)
                yield
                with suppress(WikiholtError), self._changing(wiki_id) as connection:
                    generations.leave_mark(connection)  # without it the next sync looks more closely
            finally:
                self._fences.pop(wiki_id, None)

    @contextmanager
    def sitting(self, wiki_id: str) -> Iterator[Callable[[str], None]]:
        self._require_place(wiki_id)
        with self.leases.held(wiki_id, DESK, 0) as lease:
            yield lambda text: self.leases.leave(lease, text)

    def seated(self, wiki_id: str) -> str | None:
        try:
            with self.door(wiki_id).reading() as connection:
                return notes.of_holder(connection, DESK)
        except IndexFault:
            return None

    def note(self, wiki_id: str, name: str) -> str | None:
        try:
            with self.door(wiki_id).reading() as connection:
                return notes.read(connection, name)
        except IndexFault:
            return None

    def keep_note(self, wiki_id: str, name: str, text: str, *, make: bool = False) -> None:
        if make:
            self._require_place(wiki_id)
        with suppress(IndexMissing):
            for _ in range(2):
                with self.door(wiki_id).writing() as connection:
                    kept = notes.keep(connection, name, text)
                if kept:
                    return
                self.placements.forget(wiki_id)

    # ── health ───────────────────────────────────────────────────────────────────────────────────

    def regain(self, wiki_id: str) -> bool:
        with suppress(IndexMissing), self._changing(wiki_id) as connection:
            generation = generations.glance(connection).published
            named = any(each.published for each in generations.all_of(connection))
            if generation is not None and not named:
                generations.publish(connection, generation)
                return True
        return False

    def prove(self, wiki_id: str, *, fully: bool = False) -> None:
        generation = self.published(wiki_id)
        if generation is None or (not fully and self.sealed(wiki_id)):
            return
        for file in self.directory(wiki_id).glob(f"*-g{generation:06d}-*"):
            file.unlink(missing_ok=True)
        faults = self._faults(wiki_id, generation)
        if faults:
            raise IndexCorrupt(f"the index is damaged: {faults[0]}", hint="run `wikiholt sync` to build it again")
        with self._changing(wiki_id) as connection:
            generations.leave_mark(connection)

    def set_aside(self, wiki_id: str, why: str) -> str:
        word = re.sub(r"[^a-z0-9]+", "-", why.lower())[:40].strip("-")
        name = f"broken-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{word}"
        published = self.published(wiki_id)
        known = [each for each in self._known(wiki_id) if each.condition != "aside"]
        whole = [each.number for each in known if each.number != published and self._stands(wiki_id, each)]
        with self._changing(wiki_id) as connection:
            generations.set_aside(connection, [each.number for each in known if each.number not in whole], name)
            if whole:
                generations.publish(connection, whole[-1])
        return name

    # ── copies ───────────────────────────────────────────────────────────────────────────────────

    def copy_at(self, file: Path) -> SqliteIndex:
        return SqliteIndex(file, connect=files.connect_unchanging)

    def adopt(self, wiki_id: str, file: Path) -> int:
        recipe = copies.proven(file, wiki_id)
        self.placements.make(wiki_id)
        with self._building(wiki_id) as (connection, placement):
            generation = generations.make(connection, placement, recipe, Origin.BACKUP)
        try:
            with self._changing(wiki_id) as connection:
                copies.take_in(connection, file, Tables(generation, wiki_id))
            faults = self._faults(wiki_id, generation)
            if faults:
                raise IndexCorrupt(f"the backup is damaged: {faults[0]}", hint="choose an earlier one")
        except BaseException:
            with suppress(WikiholtError), self._building(wiki_id) as (connection, placement):
                generations.remove(connection, placement, [generation])
            raise
        return generation

    def drop(self, wiki_id: str) -> Sequence[str]:
        directory = self.directory(wiki_id)
        went = self.placements.remove(wiki_id)
        went += notes.files_below(directory)
        shutil.rmtree(directory, ignore_errors=True)
        return went

    # ── ways in ──────────────────────────────────────────────────────────────────────────────────

    def _index(self, wiki_id: str, generation: int) -> PostgresIndex:
        return PostgresIndex(self.door(wiki_id), generation, lambda: self.fence(wiki_id), self._hnsw_from)

    def _glance(self, wiki_id: str) -> Glance:
        """How the wiki stands, wherever it is now; raises IndexMissing."""
        for _ in range(2):
            with self.door(wiki_id).reading() as connection:
                found = generations.glance(connection)
            if found.layout is not None:
                return found
            self.placements.forget(wiki_id)
        raise missing()

    def _usable(self, wiki_id: str) -> Glance:
        """The same, of a schema that this program can use; one that is behind is brought to its layout first."""
        found = self._glance(wiki_id)
        if found.layout is not None:
            found.layout.require()
            if found.layout.number < layout.LAYOUT:
                upgrading.upgrade_one(self.placements, self.placements.get(wiki_id))
        return found

    def _known(self, wiki_id: str) -> list[Generation]:
        with self.door(wiki_id).reading() as connection:
            return generations.all_of(connection)

    @contextmanager
    def _changing(self, wiki_id: str) -> Iterator[Connection]:
        """One transaction as the wiki's role, of one who writes: it is lost with the lease."""
        with self.door(wiki_id).writing(statement_timeout_s=WIKI_WRITE_STATEMENT_TIMEOUT_S) as connection:
            hold(connection, self.fence(wiki_id))
            yield connection

    @contextmanager
    def _building(self, wiki_id: str) -> Iterator[tuple[Connection, Placement]]:
        """The same as the operator, for tables."""
        placement = self.placements.get(wiki_id)
        database = self.placements.database(placement)
        path = sql.SQL("SET LOCAL search_path TO {}, {}")
        with self.placements.operator(placement).writing() as connection:
            connection.execute(path.format(sql.Identifier(placement.schema), sql.Identifier(database.types)))
            locks.take(connection, placement.schema)
            hold(connection, self.fence(wiki_id))
            yield connection, placement

    def _require_place(self, wiki_id: str) -> None:
        """Have a schema for the wiki, as others have a directory; what was lost of it or its role is made again."""
        try:
            self._glance(wiki_id)
        except (IndexMissing, DatabaseAway):
            self.placements.mend(wiki_id)

    def _clear(self, wiki_id: str) -> None:
        """Remove what killed writers left half made."""
        with self.door(wiki_id).reading() as connection:
            left = generations.abandoned(connection)
        if left:
            with self._building(wiki_id) as (connection, placement):
                generations.remove(connection, placement, left)

    def _resumed(self, wiki_id: str, begun: Generation, recipe: Recipe, *, afresh: bool) -> PostgresIndex | None:
        """A generation that was begun, if it may be gone on with: one that is to take over nothing must have so far."""
        if begun.origin is Origin.BACKUP or (afresh and begun.origin is not Origin.NOTHING) or begun.recipe != recipe:
            return None
        return None if self._faults(wiki_id, begun.number) else self._index(wiki_id, begun.number)

    def _stands(self, wiki_id: str, generation: Generation) -> bool:
        return generation.revision is not None and not self._faults(wiki_id, generation.number)

    def _faults(self, wiki_id: str, number: int) -> Sequence[str]:
        """What is wrong with a generation; a database that is away is no fault of it, and is raised."""
        try:
            index = self._index(wiki_id, number)
        except (IndexCorrupt, IndexMissing) as error:
            return [error.message]
        try:
            return index.check()
        except IndexCorrupt as error:
            return [error.message]
        finally:
            index.close()
