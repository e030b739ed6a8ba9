"""Migrates all wikis from one store to another: from files to PostgreSQL, or back.

Indexes are copied first, each as a backup that the target imports, publishes and verifies. The registry is copied last,
in one transaction, so that no node uses a wiki before it is complete. The source is only read. After an interruption
the migration can be run again; it skips what is already there and equal.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from wikiholt.domain.index import IndexState
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import Conflict, IndexCorrupt, IndexMissing, SourceMissing, StorageError, WikiholtError
from wikiholt.wikis.registry import find_missing_rows
from wikiholt.wikis.service import WikiService

_RETRY_HINT = "run the same command again: it skips what is already there"


class MigrationOutcome(StrEnum):
    """`there`: it was moved before. `bare`: it has no index yet and is only registered."""

    MOVED = "moved"
    ALREADY_THERE = "there"
    NO_INDEX = "bare"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WikiMigration:
    """The result for one wiki."""

    slug: str
    outcome: MigrationOutcome
    pages: int = 0
    chunks: int = 0
    error: WikiholtError | None = None


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """The results of all wikis, the number of registry rows copied, and the slugs of wikis added meanwhile."""

    wikis: tuple[WikiMigration, ...]
    registry_rows: int
    added_meanwhile: tuple[str, ...] = ()


class StoreMigration:
    """Migrates the wikis of `source` to `target`; `scratch` is a directory for one copy at a time.

    `on_wiki_done` is called with the result of each wiki.
    """

    def __init__(
        self,
        source: WikiService,
        target: WikiService,
        scratch: Path,
        on_wiki_done: Callable[[WikiMigration], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._scratch = scratch
        self._on_wiki_done = on_wiki_done
        target.registry.expect_empty()

    def plan(self) -> MigrationReport:
        """What a migration would do; writes nothing. Raises WikiExists if the target has another wiki of that name."""
        wikis, rows = self._source.list_wikis(), self._source.registry.read_rows()
        missing = find_missing_rows(self._target.registry.read_rows(), rows, {wiki.id for wiki in wikis})
        return MigrationReport(tuple(self._plan_wiki(wiki) for wiki in wikis), sum(map(len, missing.values())))

    def run(self) -> MigrationReport:
        """Migrate every wiki. A wiki that fails is reported and not registered; the others are migrated."""
        wikis = self._source.list_wikis()
        find_missing_rows(
            self._target.registry.read_rows(), self._source.registry.read_rows(), {wiki.id for wiki in wikis}
        )
        registered = {wiki.id for wiki in self._target.registry.list_wikis()}
        results: list[WikiMigration] = []
        for wiki in wikis:
            results.append(self._migrate_wiki(wiki, registered=wiki.id in registered))
            self._on_wiki_done(results[-1])
        complete = {
            wiki.id
            for wiki, result in zip(wikis, results, strict=True)
            if result.outcome is not MigrationOutcome.FAILED
        }
        rows = self._source.registry.read_rows()
        added = self._target.registry.import_rows(rows, complete)
        if any(find_missing_rows(self._target.registry.read_rows(), rows, complete).values()):
            raise Conflict("the registry was changed while it was being copied", hint=_RETRY_HINT)
        known = {wiki.id for wiki in wikis}
        added_meanwhile = tuple(wiki.slug for wiki in self._source.registry.list_wikis() if wiki.id not in known)
        return MigrationReport(tuple(results), added, added_meanwhile)

    def _plan_wiki(self, wiki: Wiki) -> WikiMigration:
        source = _read_state(self._source.components.store, wiki.id)
        if source is None:
            return WikiMigration(wiki.slug, MigrationOutcome.NO_INDEX)
        target = _read_state(self._target.components.store, wiki.id)
        is_there = target is not None and _is_same_state(source, target)
        outcome = MigrationOutcome.ALREADY_THERE if is_there else MigrationOutcome.MOVED
        return WikiMigration(wiki.slug, outcome, source.pages, source.chunks)

    def _migrate_wiki(self, wiki: Wiki, *, registered: bool) -> WikiMigration:
        try:
            self._require_pages(wiki)
            planned = self._plan_wiki(wiki)
            if registered and _read_state(self._target.components.store, wiki.id) is not None:
                # The target uses it already and may be newer. It must not be replaced.
                return replace(planned, outcome=MigrationOutcome.ALREADY_THERE)
            if planned.outcome is MigrationOutcome.ALREADY_THERE and not self._is_intact(wiki):
                planned = replace(planned, outcome=MigrationOutcome.MOVED)
            if planned.outcome is MigrationOutcome.MOVED:
                self._copy_wiki(wiki)
            return planned
        except WikiholtError as error:
            return WikiMigration(wiki.slug, MigrationOutcome.FAILED, error=error)

    def _require_pages(self, wiki: Wiki) -> None:
        """Raise SourceMissing if the target would not find the repository of a managed wiki, which is not copied."""
        path = self._target.registry.get_managed_path(wiki.id)
        if wiki.is_managed and not path.is_dir():
            raise SourceMissing(
                f"The repository of this wiki is not at {path}.",
                hint=f"Set repositories.directory to {Path(wiki.source).parent}, or copy the repository there.",
            )

    def _is_intact(self, wiki: Wiki) -> bool:
        """Whether the copy of an interrupted migration equals the source, byte for byte."""
        source, target = self._source.components.store, self._target.components.store
        try:
            with closing(source.open(wiki.id)) as here, closing(target.open(wiki.id)) as there:
                _require_equal(here, there)
        except IndexCorrupt:
            return False
        return True

    def _copy_wiki(self, wiki: Wiki) -> None:
        store, lock_timeout_s = self._target.components.store, self._target.components.lock_timeout_s
        with _open_copy(self._source.components.store, wiki.id, self._scratch) as file:
            with store.write_lock(wiki.id, lock_timeout_s):
                store.publish(wiki.id, store.import_backup(wiki.id, file))
                with closing(store.open_backup(file)) as copied, closing(store.open(wiki.id)) as there:
                    _require_equal(copied, there)
            store.remove_old_generations(wiki.id)


@contextmanager
def _open_copy(store: IndexStore, wiki_id: str, scratch: Path) -> Iterator[Path]:
    """A copy of the published index, deleted at the end of the block."""
    file = scratch / f"{wiki_id}.sqlite"
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # left by a killed process
        with closing(store.open(wiki_id)) as index:
            index.write_backup(file)
        yield file
    except OSError as error:
        raise StorageError(
            f"the index could not be copied ({error.strerror or error})", hint=f"free some space, then {_RETRY_HINT}"
        ) from error
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)
            scratch.rmdir()


def _read_state(store: IndexStore, wiki_id: str) -> IndexState | None:
    try:
        with closing(store.open(wiki_id)) as index:
            return index.get_state()
    except IndexMissing:
        return None


def _is_same_state(one: IndexState, other: IndexState) -> bool:
    """Whether both states are the same, apart from the generation, which each store counts for itself."""
    return replace(one, generation=0) == replace(other, generation=0)


def _require_equal(source: WikiIndex, target: WikiIndex) -> None:
    """Raise unless all checksums of the copy are right, and its state, blobs and problems equal the source's."""
    faults = target.check()
    if not faults and not _is_same_state(source.get_state(), target.get_state()):
        faults = ["counts, version or revision differ"]
    if not faults and (
        source.get_page_blobs() != target.get_page_blobs() or list(source.get_problems()) != list(target.get_problems())
    ):
        faults = ["pages or problems differ"]
    if faults:
        raise IndexCorrupt(
            f"the copy differs from the source: {faults[0]}", hint=f"check the disks, then {_RETRY_HINT}"
        )
