"""The status of a wiki: what is indexed, whether it is fresh and intact, and what is wrong."""

from contextlib import closing
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
    """The status of a wiki. `error` is set if the index or the repository cannot be read."""

    wiki: Wiki
    state: IndexState | None
    head: str | None
    stale: bool
    problems: tuple[PageProblem, ...] = ()
    disk_bytes: int = 0
    error: WikiholtError | None = None
    health: IndexHealth = field(default_factory=IndexHealth)
    quarantined: tuple[str, ...] = ()
    """Damaged indexes that were quarantined, for the operator to inspect or delete."""


class StatusReader:
    """Reads the status of one wiki."""

    def __init__(self, wiki: Wiki, source: Source, store: IndexStore, repair: IndexRepair) -> None:
        self._wiki = wiki
        self._source = source
        self._store = store
        self._repair = repair

    def read(self) -> WikiStatus:
        """The current status. Never raises; errors are part of the status."""
        status, store, wiki_id = self._read_index(), self._store, self._wiki.id
        try:
            disk_bytes, quarantined = store.get_disk_bytes(wiki_id), tuple(store.list_quarantined(wiki_id))
        except WikiholtError as store_error:
            return replace(status, error=status.error or store_error)
        return replace(status, disk_bytes=disk_bytes, health=self._repair.health, quarantined=quarantined)

    def _read_index(self) -> WikiStatus:
        head: str | None = None
        error: WikiholtError | None = None
        try:
            head = self._source.get_last_known_head()
        except WikiholtError as source_error:
            error = source_error
        try:
            with closing(self._store.open(self._wiki.id)) as index:
                state, problems = index.get_state(), tuple(index.get_problems())
        except WikiholtError as index_error:
            return WikiStatus(self._wiki, None, head, True, error=error or index_error)
        return WikiStatus(self._wiki, state, head, state.revision != head, problems, error=error)
