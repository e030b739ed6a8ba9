"""How a wiki stands: what is indexed, how fresh and how whole that is, and what is wrong."""

from dataclasses import dataclass, field, replace

from wikiholt.domain.index import IndexHealth, IndexState
from wikiholt.domain.page import PageProblem
from wikiholt.domain.protocols import Source
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.indexing.repair import IndexRepair


@dataclass(frozen=True, slots=True)
class WikiStatus:
    """How a wiki stands. `error` says why, where the index or the repository cannot be read."""

    wiki: Wiki
    state: IndexState | None
    head: str | None
    stale: bool
    problems: tuple[PageProblem, ...] = ()
    disk_bytes: int = 0
    error: WikiholtError | None = None
    health: IndexHealth = field(default_factory=IndexHealth)
    quarantined: tuple[str, ...] = ()
    """Broken indexes that were set aside and wait for somebody to look at them, or to delete them."""


class StatusReader:
    """Looks at one wiki, to which it is bound when made."""

    def __init__(self, wiki: Wiki, source: Source, store: IndexStore, repair: IndexRepair) -> None:
        self._wiki = wiki
        self._source = source
        self._store = store
        self._repair = repair

    def read(self) -> WikiStatus:
        """How the wiki stands now; never raises for a wiki that is in trouble."""
        found, store, wiki_id = self._read_index(), self._store, self._wiki.id
        try:
            disk, aside = store.get_disk_bytes(wiki_id), tuple(store.list_quarantined(wiki_id))
        except WikiholtError as trouble:
            return replace(found, error=found.error or trouble)
        return replace(found, disk_bytes=disk, health=self._repair.health, quarantined=aside)

    def _read_index(self) -> WikiStatus:
        head: str | None = None
        error: WikiholtError | None = None
        try:
            head = self._source.get_last_known_head()
        except WikiholtError as trouble:
            error = trouble
        try:
            index = self._store.open(self._wiki.id)
        except WikiholtError as trouble:
            return WikiStatus(self._wiki, None, head, True, error=error or trouble)
        try:
            state = index.get_state()
            return WikiStatus(self._wiki, state, head, state.revision != head, tuple(index.get_problems()), error=error)
        except WikiholtError as trouble:
            return WikiStatus(self._wiki, None, head, True, error=error or trouble)
        finally:
            index.close()
