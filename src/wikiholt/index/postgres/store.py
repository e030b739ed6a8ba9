"""The store in PostgreSQL: one schema and one role per wiki, on the database of its placement.

A wiki's rows are read and written as its own role. The operator creates and drops tables and manages leases. Mirrors
and caches are in a local directory and can be deleted.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg import sql

from wikiholt.domain.index import Recipe
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import (
    Busy,
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexTooNew,
    IndexUnavailable,
    WikiholtError,
)
from wikiholt.index.postgres import generations, locks, schema, sqlite_copy
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.errors import make_missing_error
from wikiholt.index.postgres.generations import GenerationRow, SchemaStatus
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.postgres.leases import ACTIVITY_LEASE, WRITE_LEASE, Lease, LeaseManager, check_fence
from wikiholt.index.postgres.local_copy import COPY_MIN_CHUNKS, COPY_MIN_PAGES, LocalCopy
from wikiholt.index.postgres.locks import (
    INDEX_STATEMENT_TIMEOUT_S,
    SWEEP_LOCK_TIMEOUT_S,
    WIKI_WRITE_STATEMENT_TIMEOUT_S,
)
from wikiholt.index.postgres.placements import Placement, PlacementCatalog
from wikiholt.index.postgres.pool import Connection, ConnectionPool, RoleConnections
from wikiholt.index.postgres.schema import SCHEMA_LAYOUT, GenerationTables
from wikiholt.index.sqlite import wiki_directory
from wikiholt.index.sqlite.connections import open_immutable
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.vectors import CodesChoice, choose_quantized
from wikiholt.index.sqlite.wiki_directory import GenerationOrigin
from wikiholt.regular_files import make_quarantine_name

_OLD_GENERATION_LINGER_S = 60.0
"""How long a replaced generation is kept, because searches on other nodes may still use it."""


class PostgresStore:
    """An `IndexStore` in one or more PostgreSQL databases."""

    def __init__(
        self,
        catalog: Catalog,
        pool: ConnectionPool,
        scratch: Path,
        lease_s: float = 15.0,
        *,
        copy_min_pages: int = COPY_MIN_PAGES,
        choose_codes: CodesChoice = choose_quantized,
        linger_s: float = _OLD_GENERATION_LINGER_S,
    ) -> None:
        self.placements = PlacementCatalog(catalog, pool)
        self.leases = LeaseManager(self.placements, lease_s)
        self._scratch = scratch
        self._copy_min_pages = copy_min_pages
        self._choose_codes = choose_codes
        self._linger_s = linger_s
        self._write_leases: dict[str, Lease] = {}

    # ── status ───────────────────────────────────────────────────────────────────────────────────

    def get_directory(self, wiki_id: str) -> Path:
        wiki_directory.validate_wiki_id(wiki_id)
        return self._scratch / wiki_id

    def get_connections(self, wiki_id: str) -> RoleConnections:
        """Connections to the wiki's schema as its role."""
        return self.placements.get_connections(wiki_id)

    def get_write_lease(self, wiki_id: str) -> Lease | None:
        """The writer's lease; None if this process does not hold it."""
        return self._write_leases.get(wiki_id)

    def exists(self, wiki_id: str) -> bool:
        return self.placements.find(wiki_id) is not None or self.get_directory(wiki_id).exists()

    def list_wiki_ids(self) -> Sequence[str]:
        return sorted({*self.placements.list_wiki_ids(), *wiki_directory.list_wiki_directories(self._scratch)})

    def get_published(self, wiki_id: str) -> int | None:
        try:
            return self._read_status(wiki_id).published
        except IndexMissing:
            return None

    def get_change_token(self, wiki_id: str) -> str:
        try:
            return self._read_status(wiki_id).change_token
        except IndexMissing:
            return "None"

    def get_disk_bytes(self, wiki_id: str) -> int:
        local_bytes = wiki_directory.get_directory_bytes(self.get_directory(wiki_id))
        try:
            with self.get_connections(wiki_id).read_connection() as connection:
                return local_bytes + generations.get_schema_bytes(connection)
        except IndexMissing:
            return local_bytes

    def list_quarantined(self, wiki_id: str) -> Sequence[str]:
        try:
            with self.get_connections(wiki_id).read_connection() as connection:
                return generations.list_quarantined(connection)
        except IndexMissing:
            return []

    # ── generations ──────────────────────────────────────────────────────────────────────────────

    def create(self, wiki_id: str, recipe: Recipe) -> PostgresIndex:
        self._ensure_provisioned(wiki_id)
        if self.get_published(wiki_id) is None:
            with self._write_as_operator(wiki_id) as (connection, placement):
                if generations.read_status(connection).published is None:
                    generations.create_generation(
                        connection, placement, recipe, GenerationOrigin.SCRATCH, published=True
                    )
        return self.open(wiki_id)

    def open(self, wiki_id: str) -> PostgresIndex:
        while (generation := self._read_usable_status(wiki_id).published) is not None:
            try:
                return self._open_generation(wiki_id, generation)
            except IndexMissing:
                if self.get_published(wiki_id) == generation:
                    raise
        raise make_missing_error()

    def open_copy(self, index: WikiIndex) -> LocalCopy | None:
        """This node's copy of a large wiki's index; None for a small one."""
        state = index.get_state()
        is_large = state.pages > self._copy_min_pages or state.chunks >= COPY_MIN_CHUNKS
        if not is_large or not isinstance(index, PostgresIndex):
            return None
        return LocalCopy(index, self.get_directory(index.wiki_id), self._choose_codes)

    def create_generation(self, wiki_id: str, recipe: Recipe, *, from_scratch: bool = False) -> PostgresIndex:
        self.placements.provision(wiki_id)
        origin = GenerationOrigin.SCRATCH if from_scratch else GenerationOrigin.PREVIOUS
        published = self._read_usable_status(wiki_id).published or 0
        for unfinished in reversed(self._list_generations(wiki_id)):
            if unfinished.number > published and unfinished.condition == "building":
                resumed = self._resume_generation(wiki_id, unfinished, recipe, from_scratch=from_scratch)
                with self._write_as_operator(wiki_id) as (connection, placement):
                    if resumed is None:
                        generations.remove_generations(connection, placement, [unfinished.number])
                    else:
                        generations.set_origin(connection, unfinished.number, origin)
                if resumed is not None:
                    return resumed
        with self._write_as_operator(wiki_id) as (connection, placement):
            number = generations.create_generation(connection, placement, recipe, origin)
        return self._open_generation(wiki_id, number)

    def publish(self, wiki_id: str, generation: int) -> None:
        with self._write_with_fence(wiki_id) as connection:
            generations.publish_generation(connection, generation)

    def remove_old_generations(self, wiki_id: str) -> None:
        """Remove replaced generations that no search can use any more, and give the others the indexes they need."""
        with suppress(IndexMissing, Busy):  # what is still in use is removed the next time
            with self._write_as_operator(wiki_id) as (connection, placement):
                connection.execute(sql.SQL("SET LOCAL lock_timeout TO {}").format(f"{SWEEP_LOCK_TIMEOUT_S:.3f}s"))
                generations.remove_generations(
                    connection, placement, generations.find_old_generations(connection, self._linger_s)
                )
            self.create_missing_indexes(placement)

    def create_missing_indexes(self, placement: Placement) -> None:
        """Create the indexes that a wiki needs by its size. Raises LockTimeout if its tables are locked."""
        with self.placements.get_operator_connections(placement).write_transaction(
            lock_timeout_s=SWEEP_LOCK_TIMEOUT_S, statement_timeout_s=INDEX_STATEMENT_TIMEOUT_S
        ) as connection:
            locks.acquire_lock(connection, placement.schema)
            schema.create_missing_indexes(connection, placement.schema)

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def write_lock(self, wiki_id: str, timeout_s: float) -> Iterator[None]:
        self._ensure_provisioned(wiki_id)
        with self.leases.hold(wiki_id, WRITE_LEASE, timeout_s) as lease:
            if self._write_leases.setdefault(wiki_id, lease) is not lease:
                # Another writer of this process has lost its lease without noticing. It must not write with this one.
                raise Busy("another process is at work on this wiki's index", hint="try again in a moment")
            try:
                self._remove_leftovers(wiki_id)
                yield
            finally:
                self._write_leases.pop(wiki_id, None)

    @contextmanager
    def activity_lock(self, wiki_id: str) -> Iterator[Callable[[str], None]]:
        self._ensure_provisioned(wiki_id)
        with self.leases.hold(wiki_id, ACTIVITY_LEASE, 0) as lease:
            yield lambda text: self.leases.set_text(lease, text)

    def get_activity(self, wiki_id: str) -> str | None:
        try:
            with self.get_connections(wiki_id).read_connection() as connection:
                return generations.read_lease_text(connection, ACTIVITY_LEASE)
        except IndexUnavailable:
            return None

    def get_note(self, wiki_id: str, name: str) -> str | None:
        try:
            with self.get_connections(wiki_id).read_connection() as connection:
                return generations.read_note(connection, name)
        except IndexUnavailable:
            return None

    def set_note(self, wiki_id: str, name: str, text: str, *, create: bool = False) -> None:
        if create:
            self._ensure_provisioned(wiki_id)
        with suppress(IndexMissing):
            for _ in range(2):
                with self.get_connections(wiki_id).write_transaction() as connection:
                    is_current = generations.write_note(connection, name, text)
                if is_current:
                    return
                self.placements.invalidate(wiki_id)

    # ── health ───────────────────────────────────────────────────────────────────────────────────

    def recover_published(self, wiki_id: str) -> bool:
        with suppress(IndexMissing), self._write_with_fence(wiki_id) as connection:
            generation = generations.read_status(connection).published
            is_marked = any(row.published for row in generations.list_generations(connection))
            if generation is not None and not is_marked:
                generations.publish_generation(connection, generation)
                return True
        return False

    def quarantine(self, wiki_id: str, reason: str) -> str:
        name = make_quarantine_name(re.sub(r"[^a-z0-9]+", "-", reason.lower())[:40].strip("-"))
        published = self.get_published(wiki_id)
        known = [row for row in self._list_generations(wiki_id) if row.condition != "aside"]
        usable = [row.number for row in known if row.number != published and self._is_usable(wiki_id, row)]
        damaged = [row.number for row in known if row.number not in usable]
        with self._write_with_fence(wiki_id) as connection:
            generations.quarantine_generations(connection, damaged, name)
            if usable:
                generations.publish_generation(connection, usable[-1])
        return name

    def open_quarantined(self, wiki_id: str) -> None:  # noqa: ARG002 - vectors are taken from the newest backup
        return None

    # ── backups ──────────────────────────────────────────────────────────────────────────────────

    def open_backup(self, file: Path) -> SqliteIndex:
        return SqliteIndex(file, connect=open_immutable)

    def import_backup(self, wiki_id: str, file: Path) -> int:
        recipe = sqlite_copy.verify_copy(file, wiki_id)
        self.placements.provision(wiki_id)
        with self._write_as_operator(wiki_id) as (connection, placement):
            generation = generations.create_generation(connection, placement, recipe, GenerationOrigin.BACKUP)
        try:
            with self._write_with_fence(wiki_id) as connection:
                sqlite_copy.import_copy(connection, file, GenerationTables(generation, wiki_id))
            faults = self._find_faults(wiki_id, generation)
            if faults:
                raise IndexCorrupt(f"the backup is damaged: {faults[0]}", hint="choose an earlier one")
        except BaseException:
            with suppress(WikiholtError), self._write_as_operator(wiki_id) as (connection, placement):
                generations.remove_generations(connection, placement, [generation])
            raise
        return generation

    def delete(self, wiki_id: str) -> Sequence[str]:
        directory = self.get_directory(wiki_id)
        removed = [*self.placements.remove(wiki_id), *wiki_directory.list_files(directory)]
        shutil.rmtree(directory, ignore_errors=True)
        return removed

    # ── helpers ──────────────────────────────────────────────────────────────────────────────────

    def _open_generation(self, wiki_id: str, generation: int) -> PostgresIndex:
        return PostgresIndex(
            self.get_connections(wiki_id),
            generation,
            lambda: self.get_write_lease(wiki_id),
        )

    def _read_status(self, wiki_id: str) -> SchemaStatus:
        """Read the status of a wiki at its current place. Raises IndexMissing."""
        for _ in range(2):
            with self.get_connections(wiki_id).read_connection() as connection:
                status = generations.read_status(connection)
            if status.layout is not None:
                return status
            self.placements.invalidate(wiki_id)
        raise make_missing_error()

    def _read_usable_status(self, wiki_id: str) -> SchemaStatus:
        """Read the status of a wiki. Raises IndexMissing, IndexTooNew."""
        status = self._read_status(wiki_id)
        if status.layout != SCHEMA_LAYOUT:
            raise IndexTooNew(
                f"the index has a newer layout ({status.layout}, this Wikiholt knows {SCHEMA_LAYOUT})",
                hint="upgrade Wikiholt",
            )
        return status

    def _list_generations(self, wiki_id: str) -> list[GenerationRow]:
        with self.get_connections(wiki_id).read_connection() as connection:
            return generations.list_generations(connection)

    @contextmanager
    def _write_with_fence(self, wiki_id: str) -> Iterator[Connection]:
        """A write transaction as the wiki's role. Raises Busy if the writer's lease is lost."""
        with self.get_connections(wiki_id).write_transaction(
            statement_timeout_s=WIKI_WRITE_STATEMENT_TIMEOUT_S
        ) as connection:
            check_fence(connection, self.get_write_lease(wiki_id))
            yield connection

    @contextmanager
    def _write_as_operator(self, wiki_id: str) -> Iterator[tuple[Connection, Placement]]:
        """A write transaction as the operator in the wiki's schema, to create and drop tables."""
        placement = self.placements.get(wiki_id)
        database = self.placements.get_database(placement)
        path = sql.SQL("SET LOCAL search_path TO {}, {}")
        with self.placements.get_operator_connections(placement).write_transaction() as connection:
            connection.execute(path.format(sql.Identifier(placement.schema), sql.Identifier(database.types_schema)))
            locks.acquire_lock(connection, placement.schema)
            check_fence(connection, self.get_write_lease(wiki_id))
            yield connection, placement

    def _ensure_provisioned(self, wiki_id: str) -> None:
        """Create the schema and role of a wiki, or repair them, if the schema cannot be read."""
        try:
            self._read_status(wiki_id)
        except (IndexMissing, DatabaseUnavailable):
            self.placements.repair(wiki_id)

    def _remove_leftovers(self, wiki_id: str) -> None:
        """Remove the unfinished generations of killed writers."""
        with self.get_connections(wiki_id).read_connection() as connection:
            abandoned = generations.find_abandoned(connection)
        if abandoned:
            with self._write_as_operator(wiki_id) as (connection, placement):
                generations.remove_generations(connection, placement, abandoned)

    def _resume_generation(
        self, wiki_id: str, generation: GenerationRow, recipe: Recipe, *, from_scratch: bool
    ) -> PostgresIndex | None:
        """Open an unfinished generation if it can be resumed. `from_scratch` excludes ones with reused vectors."""
        if (
            generation.origin is GenerationOrigin.BACKUP
            or (from_scratch and generation.origin is not GenerationOrigin.SCRATCH)
            or generation.recipe != recipe
        ):
            return None
        return (
            None if self._find_faults(wiki_id, generation.number) else self._open_generation(wiki_id, generation.number)
        )

    def _is_usable(self, wiki_id: str, generation: GenerationRow) -> bool:
        return generation.revision is not None and not self._find_faults(wiki_id, generation.number)

    def _find_faults(self, wiki_id: str, number: int) -> Sequence[str]:
        """Describe the faults of a generation. Raises DatabaseUnavailable, which is not a fault of the generation."""
        try:
            index = self._open_generation(wiki_id, number)
        except (IndexCorrupt, IndexMissing) as error:
            return [error.message]
        try:
            return index.check()
        except IndexCorrupt as error:
            return [error.message]
        finally:
            index.close()
