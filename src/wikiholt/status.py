"""How a wiki stands: what is indexed, how fresh and how whole that is, and what is wrong."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from wikiholt.errors import WikiholtError
from wikiholt.healing import Healing
from wikiholt.model import Health, Problem, State, Wiki
from wikiholt.ports import Source, Store


@dataclass(frozen=True, slots=True)
class Status:
    """How a wiki stands. `error` says why, where the index or the repository cannot be read."""

    wiki: Wiki
    state: State | None
    head: str | None
    stale: bool
    problems: tuple[Problem, ...] = ()
    disk_bytes: int = 0
    error: WikiholtError | None = None
    health: Health = field(default_factory=Health)
    aside: tuple[str, ...] = ()
    """Broken indexes that were set aside and wait for somebody to look at them, or to delete them."""


class Survey:
    """Looks at one wiki, to which it is bound when made."""

    def __init__(self, wiki: Wiki, source: Source, store: Store, healing: Healing) -> None:
        self._wiki = wiki
        self._source = source
        self._store = store
        self._healing = healing

    def status(self) -> Status:
        """How the wiki stands now; never raises for a wiki that is in trouble."""
        place = self._store.directory(self._wiki.id)
        found = self._indexed()
        aside = sorted(path.name for path in place.glob("broken-*"))
        return replace(found, disk_bytes=_bytes_below(place), health=self._healing.health, aside=tuple(aside))

    def _indexed(self) -> Status:
        head: str | None = None
        error: WikiholtError | None = None
        try:
            head = self._source.head()
        except WikiholtError as trouble:
            error = trouble
        try:
            index = self._store.open(self._wiki.id)
        except WikiholtError as trouble:
            return Status(self._wiki, None, head, True, error=error or trouble)
        try:
            state = index.state()
            return Status(self._wiki, state, head, state.revision != head, tuple(index.problems()), error=error)
        except WikiholtError as trouble:
            return Status(self._wiki, None, head, True, error=error or trouble)
        finally:
            index.close()


def _bytes_below(directory: Path) -> int:
    """What the files below take, as far as they stay: a writer at work makes and removes some meanwhile."""
    total = 0
    for file in directory.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total
