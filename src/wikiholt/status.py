"""How a wiki stands: what is indexed, how fresh and how whole that is, and what is wrong."""

from dataclasses import dataclass, field, replace

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
        found, store, wiki_id = self._indexed(), self._store, self._wiki.id
        try:
            disk, aside = store.disk_bytes(wiki_id), tuple(store.aside(wiki_id))
        except WikiholtError as trouble:
            return replace(found, error=found.error or trouble)
        return replace(found, disk_bytes=disk, health=self._healing.health, aside=aside)

    def _indexed(self) -> Status:
        head: str | None = None
        error: WikiholtError | None = None
        try:
            head = self._source.seen()
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
