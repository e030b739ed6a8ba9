"""From one store to another, wiki by wiki: an embedded service to PostgreSQL, or back.

Indexes go first, each as a backup that the other store adopts, publishes and checks to the last byte; what is
registered goes last, in one transaction, so that nobody there looks after a wiki before it is whole. The source is only
read. Whoever was cut off begins again: what is there and equal is left as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from wikiholt.domain.index import IndexState
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import Conflict, IndexCorrupt, IndexMissing, StorageError, WikiholtError
from wikiholt.wikis.registry import find_missing_rows
from wikiholt.wikis.service import WikiService

_RETRY_HINT = "run the same command again: what is there already is left as it is"


class MigrationOutcome(StrEnum):
    """`there` was moved before; `bare` has no index yet, and is only registered."""

    MOVED = "moved"
    ALREADY_THERE = "there"
    NO_INDEX = "bare"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WikiMigration:
    """What became of one wiki."""

    slug: str
    outcome: MigrationOutcome
    pages: int = 0
    chunks: int = 0
    error: WikiholtError | None = None


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What became of all of them; `rows` are the registry's that were added, `left` wikis that came meanwhile."""

    wikis: tuple[WikiMigration, ...]
    registry_rows: int
    added_meanwhile: tuple[str, ...] = ()


class StoreMigration:
    """Bound to the service that is read and the one that is written; `scratch` is a directory for one copy at a time.

    `seen` is told of each wiki when it is done.
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
        """What a move would do; writes nothing. Raises WikiExists where the target has others of the same name."""
        wikis, rows = self._source.list_wikis(), self._source.registry.read_rows()
        missing = find_missing_rows(self._target.registry.read_rows(), rows, {wiki.id for wiki in wikis})
        return MigrationReport(tuple(self._plan_wiki(wiki) for wiki in wikis), sum(map(len, missing.values())))

    def run(self) -> MigrationReport:
        """Move every wiki. One that fails is told of and keeps no other from it; it is not registered there."""
        wikis = self._source.list_wikis()
        find_missing_rows(
            self._target.registry.read_rows(), self._source.registry.read_rows(), {wiki.id for wiki in wikis}
        )
        there = {wiki.id for wiki in self._target.registry.list_wikis()}
        done: list[WikiMigration] = []
        for wiki in wikis:
            done.append(self._migrate_wiki(wiki, registered=wiki.id in there))
            self._on_wiki_done(done[-1])
        whole = {wiki.id for wiki, each in zip(wikis, done, strict=True) if each.outcome is not MigrationOutcome.FAILED}
        rows = self._source.registry.read_rows()
        added = self._target.registry.import_rows(rows, whole)
        if any(find_missing_rows(self._target.registry.read_rows(), rows, whole).values()):
            raise Conflict("the registry was changed while it was being copied", hint=_RETRY_HINT)
        known = {wiki.id for wiki in wikis}
        left = tuple(wiki.slug for wiki in self._source.registry.list_wikis() if wiki.id not in known)
        return MigrationReport(tuple(done), added, left)

    def _plan_wiki(self, wiki: Wiki) -> WikiMigration:
        ours = _read_state(self._source.components.store, wiki.id)
        if ours is None:
            return WikiMigration(wiki.slug, MigrationOutcome.NO_INDEX)
        theirs = _read_state(self._target.components.store, wiki.id)
        there = theirs is not None and _is_same_state(ours, theirs)
        return WikiMigration(
            wiki.slug, MigrationOutcome.ALREADY_THERE if there else MigrationOutcome.MOVED, ours.pages, ours.chunks
        )

    def _migrate_wiki(self, wiki: Wiki, *, registered: bool) -> WikiMigration:
        try:
            expected = self._plan_wiki(wiki)
            if registered and _read_state(self._target.components.store, wiki.id) is not None:
                # It lives there by now, and may have gone on since: what is here must not take its place.
                return replace(expected, outcome=MigrationOutcome.ALREADY_THERE)
            if expected.outcome is MigrationOutcome.ALREADY_THERE and not self._is_intact(wiki):
                expected = replace(expected, outcome=MigrationOutcome.MOVED)
            if expected.outcome is MigrationOutcome.MOVED:
                self._copy_wiki(wiki)
            return expected
        except WikiholtError as error:
            return WikiMigration(wiki.slug, MigrationOutcome.FAILED, error=error)

    def _is_intact(self, wiki: Wiki) -> bool:
        """Whether what one who was cut off has left there is what is here, byte for byte."""
        source, target = self._source.components.store, self._target.components.store
        try:
            with closing(source.open(wiki.id)) as here, closing(target.open(wiki.id)) as there:
                _require_equal(here, there)
        except IndexCorrupt:
            return False
        return True

    def _copy_wiki(self, wiki: Wiki) -> None:
        shop, store = self._target.components, self._target.components.store
        with _open_copy(self._source.components.store, wiki.id, self._scratch) as file:
            with store.write_lock(wiki.id, shop.lock_timeout):
                store.publish(wiki.id, store.import_backup(wiki.id, file))
                with closing(store.open_backup(file)) as copied, closing(store.open(wiki.id)) as there:
                    _require_equal(copied, there)
            store.remove_old_generations(wiki.id)


@contextmanager
def _open_copy(store: IndexStore, wiki_id: str, scratch: Path) -> Iterator[Path]:
    """A copy of the published index, for as long as the block lasts."""
    file = scratch / f"{wiki_id}.sqlite"
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # of one who was killed
        with closing(store.open(wiki_id)) as index:
            index.write_backup(file)
        yield file
    except OSError as error:
        raise StorageError(
            f"no copy of the index could be written ({error.strerror or error})", hint=f"make room, then {_RETRY_HINT}"
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
    """Whether the two stand for the same; generations are counted by each store for itself."""
    return replace(one, generation=0) == replace(other, generation=0)


def _require_equal(source: WikiIndex, target: WikiIndex) -> None:
    """Raise unless every byte that arrived is right, by its seals, and all of it arrived, by state and blobs."""
    faults = target.check()
    if not faults and not _is_same_state(source.get_state(), target.get_state()):
        faults = ["counts, version or revision differ"]
    if not faults and (
        source.get_page_blobs() != target.get_page_blobs() or list(source.get_problems()) != list(target.get_problems())
    ):
        faults = ["pages or problems differ"]
    if faults:
        raise IndexCorrupt(
            f"what arrived is not what was sent: {faults[0]}", hint=f"check the disks, then {_RETRY_HINT}"
        )
