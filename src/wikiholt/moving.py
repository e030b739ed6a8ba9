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

from wikiholt.errors import Conflict, IndexCorrupt, IndexMissing, StorageRefused, WikiholtError
from wikiholt.model import State, Wiki
from wikiholt.ports import Store, WikiIndex
from wikiholt.registry import lacking
from wikiholt.service import Service

_AGAIN = "run the same command again: what is there already is left as it is"


class Outcome(StrEnum):
    """`there` was moved before; `bare` has no index yet, and is only registered."""

    MOVED = "moved"
    THERE = "there"
    BARE = "bare"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one wiki."""

    slug: str
    outcome: Outcome
    pages: int = 0
    chunks: int = 0
    error: WikiholtError | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What became of all of them; `rows` are the registry's that were added, `left` wikis that came meanwhile."""

    wikis: tuple[Moved, ...]
    rows: int
    left: tuple[str, ...] = ()


class Mover:
    """Bound to the service that is read and the one that is written; `scratch` is a directory for one copy at a time.

    `seen` is told of each wiki when it is done.
    """

    def __init__(
        self, source: Service, target: Service, scratch: Path, seen: Callable[[Moved], None] = lambda _: None
    ) -> None:
        self._source = source
        self._target = target
        self._scratch = scratch
        self._seen = seen
        target.registry.expect_empty()

    def foresee(self) -> Move:
        """What a move would do; writes nothing. Raises WikiExists where the target has others of the same name."""
        wikis, rows = self._source.wikis(), self._source.registry.rows()
        missing = lacking(self._target.registry.rows(), rows, {wiki.id for wiki in wikis})
        return Move(tuple(self._expected(wiki) for wiki in wikis), sum(map(len, missing.values())))

    def move(self) -> Move:
        """Move every wiki. One that fails is told of and keeps no other from it; it is not registered there."""
        wikis = self._source.wikis()
        lacking(self._target.registry.rows(), self._source.registry.rows(), {wiki.id for wiki in wikis})
        there = {wiki.id for wiki in self._target.registry.list()}
        done: list[Moved] = []
        for wiki in wikis:
            done.append(self._moved(wiki, registered=wiki.id in there))
            self._seen(done[-1])
        whole = {wiki.id for wiki, each in zip(wikis, done, strict=True) if each.outcome is not Outcome.FAILED}
        rows = self._source.registry.rows()
        added = self._target.registry.take_over(rows, whole)
        if any(lacking(self._target.registry.rows(), rows, whole).values()):
            raise Conflict("the registry was changed while it was being copied", hint=_AGAIN)
        known = {wiki.id for wiki in wikis}
        left = tuple(wiki.slug for wiki in self._source.registry.list() if wiki.id not in known)
        return Move(tuple(done), added, left)

    def _expected(self, wiki: Wiki) -> Moved:
        ours = _state(self._source.workshop.store, wiki.id)
        if ours is None:
            return Moved(wiki.slug, Outcome.BARE)
        theirs = _state(self._target.workshop.store, wiki.id)
        there = theirs is not None and _same(ours, theirs)
        return Moved(wiki.slug, Outcome.THERE if there else Outcome.MOVED, ours.pages, ours.chunks)

    def _moved(self, wiki: Wiki, *, registered: bool) -> Moved:
        try:
            expected = self._expected(wiki)
            if registered and _state(self._target.workshop.store, wiki.id) is not None:
                # It lives there by now, and may have gone on since: what is here must not take its place.
                return replace(expected, outcome=Outcome.THERE)
            if expected.outcome is Outcome.THERE and not self._whole(wiki):
                expected = replace(expected, outcome=Outcome.MOVED)
            if expected.outcome is Outcome.MOVED:
                self._copied(wiki)
            return expected
        except WikiholtError as error:
            return Moved(wiki.slug, Outcome.FAILED, error=error)

    def _whole(self, wiki: Wiki) -> bool:
        """Whether what one who was cut off has left there is what is here, byte for byte."""
        source, target = self._source.workshop.store, self._target.workshop.store
        try:
            with closing(source.open(wiki.id)) as here, closing(target.open(wiki.id)) as there:
                _require_equal(here, there)
        except IndexCorrupt:
            return False
        return True

    def _copied(self, wiki: Wiki) -> None:
        shop, store = self._target.workshop, self._target.workshop.store
        with _copy(self._source.workshop.store, wiki.id, self._scratch) as file:
            with store.writing(wiki.id, shop.lock_timeout):
                store.publish(wiki.id, store.adopt(wiki.id, file))
                with closing(store.copy_at(file)) as copied, closing(store.open(wiki.id)) as there:
                    _require_equal(copied, there)
            store.sweep(wiki.id)


@contextmanager
def _copy(store: Store, wiki_id: str, scratch: Path) -> Iterator[Path]:
    """A copy of the published index, for as long as the block lasts."""
    file = scratch / f"{wiki_id}.sqlite"
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # of one who was killed
        with closing(store.open(wiki_id)) as index:
            index.backup(file)
        yield file
    except OSError as error:
        raise StorageRefused(
            f"no copy of the index could be written ({error.strerror or error})", hint=f"make room, then {_AGAIN}"
        ) from error
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)
            scratch.rmdir()


def _state(store: Store, wiki_id: str) -> State | None:
    try:
        with closing(store.open(wiki_id)) as index:
            return index.state()
    except IndexMissing:
        return None


def _same(one: State, other: State) -> bool:
    """Whether the two stand for the same; generations are counted by each store for itself."""
    return replace(one, generation=0) == replace(other, generation=0)


def _require_equal(copied: WikiIndex, there: WikiIndex) -> None:
    """Raise unless every byte that arrived is right, by its seals, and all of it arrived, by state and blobs."""
    faults = there.check()
    if not faults and not _same(copied.state(), there.state()):
        faults = ["counts, version or revision differ"]
    if not faults and (copied.pages() != there.pages() or list(copied.problems()) != list(there.problems())):
        faults = ["pages or problems differ"]
    if faults:
        raise IndexCorrupt(f"what arrived is not what was sent: {faults[0]}", hint=f"check the disks, then {_AGAIN}")
