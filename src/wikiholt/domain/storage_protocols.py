"""Protocols of storage: indexes and their store, the query log, shared databases and node assignments."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from wikiholt.domain.index import (
    FloatArray,
    IndexChange,
    IndexState,
    IntArray,
    PageContents,
    Recipe,
    VectorHits,
    VectorRows,
)
from wikiholt.domain.page import Facets, PageProblem, PageTerms, PageWarnings
from wikiholt.domain.protocols import never_stop
from wikiholt.domain.search import (
    KeywordHit,
    KeywordQuery,
    OrderOverride,
    PageFilter,
    StoredChunk,
    StoredLink,
    StoredPage,
)
from wikiholt.domain.wiki import DatabaseStatus


@dataclass(frozen=True, slots=True)
class VectorSnapshot:
    """All vectors of an index at one version, while its transaction is open."""

    version: int
    count: int
    _iter_blocks: Callable[[], Iterator[VectorRows]]

    def iter_blocks(self) -> Iterator[VectorRows]:
        return self._iter_blocks()


@dataclass(frozen=True, slots=True)
class KeywordSnapshot:
    """The terms of all pages of an index at one version, while its transaction is open."""

    version: int
    page_keys: IntArray
    """For each page its id times 2³² plus its checksum, sorted. While a key is the same, the terms of the page are."""
    _iter_terms: Callable[[Sequence[int] | None], Iterator[tuple[int, PageTerms]]]

    def iter_terms(self, page_ids: Sequence[int] | None = None) -> Iterator[tuple[int, PageTerms]]:
        """The ids and terms of these pages (sorted ids), or of all, by id. A page hidden from search has none."""
        return self._iter_terms(page_ids)


class VectorSource(Protocol):
    """Where vectors of texts are known, so that these texts need not be embedded."""

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        """The intact vectors of chunks whose embedded text has one of these hashes, by hash."""


class WikiIndex(VectorSource, Protocol):
    """One wiki's index, with no access to any other wiki. Safe to use from many threads."""

    @property
    def generation(self) -> int: ...

    @property
    def wiki_id(self) -> str:
        """The owner recorded in the index."""

    def get_state(self) -> IndexState: ...

    def get_version(self) -> int:
        """The committed version. Cheap enough for every search."""

    def open_search(self) -> AbstractContextManager[None]:
        """Begin a search by this thread, which may read the version only once."""

    def get_page_blobs(self) -> Mapping[str, str]:
        """File → blob id of every indexed page."""

    def get_problems(self) -> Sequence[PageProblem]: ...

    def list_warnings(self, limit: int) -> tuple[int, Sequence[PageWarnings]]:
        """The number of indexed pages with warnings, and the first `limit` (1 or more) of them by file."""

    def apply(self, change: IndexChange) -> int:
        """Apply the change in one transaction and return the new version. Idempotent.

        Raises IndexCorrupt if a page to move does not match its checksum.
        """

    def find_pending_page_ids(self) -> IntArray:
        """The sorted ids of the pages with chunks that are not embedded yet."""

    def get_page_contents(self, files: Sequence[str]) -> Mapping[str, PageContents]:
        """File → contents, of those of these pages that exist."""

    def search_keywords(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        """The best pages by BM25, best first."""

    def count_pages(self, terms: Sequence[str]) -> Mapping[str, int]:
        """The number of pages with each of these terms. Terms with spaces between them are a phrase."""

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks by exact scores; with `page_ids` (sorted), only of these pages.

        In a large index, candidates may be found in a way that misses one in a hundred.
        """

    def read_ahead(self, page_ids: IntArray) -> VectorRows | None:
        """The vectors of all chunks of these pages (sorted ids), before the query's vector is known.

        None if a search in these pages takes no longer than that.
        """

    def get_page_means(self, page_ids: IntArray) -> FloatArray | None:
        """The mean of the vectors of each of these pages (sorted ids) as a unit vector, as `compute_page_means`
        computes it. None if the index has none.
        """

    def filter_page_ids(self, where: PageFilter) -> IntArray | None:
        """The sorted ids of the pages that match; None if the filter is empty."""

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        """The sorted ids of the pages with every phrase and no excluded phrase of the query."""

    def open_vector_snapshot(self) -> AbstractContextManager[VectorSnapshot]:
        """All vectors at one version, to build a copy from."""

    def open_keywords(self) -> AbstractContextManager[KeywordSnapshot]:
        """The terms of all pages at one version, to build a keyword cache from, or to bring one to that version."""

    def count_terms(self) -> tuple[int, Mapping[str, int]]:
        """The version, and every term, sorted, with the number of pages that contain it."""

    def get_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]: ...

    def find_page(self, path: str) -> StoredPage | None: ...

    def get_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]: ...

    def get_page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        """The chunks of these pages in order; with `limit`, at most that many per page."""

    def list_pages(self, where: PageFilter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        """The number of pages that match, and up to `limit` of them from `offset` on, ordered by path."""

    def find_pages_by_key(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        """The pages whose folded path, its last part, or a folded alias is one of these keys.

        Keys are folded by `text.links.fold_path`.
        """

    def get_links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        """The links on these pages, or on all pages, in document order."""

    def find_links_by_key(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        """The links with one of these keys among their folded target paths."""

    def get_page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        """The vectors of all chunks of these pages."""

    def get_facets(self, where: PageFilter, properties: Sequence[str] = ()) -> Facets:
        """The values to filter by among the pages that match, and those of these frontmatter properties."""

    def get_numbers(self, properties: Sequence[str]) -> Mapping[str, float]:
        """The first number in one of these frontmatter properties of each page that has one, by path."""

    def count_languages(self) -> Mapping[str, int]:
        """The number of pages in each language, the most frequent first; no hidden ones."""

    def get_order_overrides(self) -> Sequence[OrderOverride]:
        """The pages whose frontmatter changes their place among the hits, by path; no hidden ones."""

    def check(self, stop: Callable[[], bool] = never_stop) -> Sequence[str]:
        """Read every byte and return descriptions of the faults; empty if there are none.

        `stop` is called every few milliseconds; raises Busy once it returns True.
        """

    def write_backup(self, to: Path, stop: Callable[[], bool] = never_stop) -> IndexState:
        """Write a consistent copy to a new file while others read and write, and return the copied state.

        Raises Busy once `stop` returns True; the file is unusable then.
        """

    def close(self) -> None: ...


class IndexStore(Protocol):
    """Creates, opens and deletes indexes by opaque wiki id."""

    def create(self, wiki_id: str, recipe: Recipe) -> WikiIndex:
        """Create an empty published index, or open the existing one."""

    def open(self, wiki_id: str) -> WikiIndex:
        """Open the published generation. Raises IndexMissing, IndexCorrupt or IndexTooNew.

        Raises IndexForeign if it belongs to another wiki or does not name its wiki.
        """

    def create_generation(self, wiki_id: str, recipe: Recipe, *, from_scratch: bool = False) -> WikiIndex:
        """Create an empty index beside the published one, or resume one that was started with the same recipe.

        With `from_scratch`, resume only one that was also started from scratch, never an imported backup.
        """

    def publish(self, wiki_id: str, generation: int) -> None:
        """Atomically make `open` return that generation. The previous one stays until `remove_old_generations`."""

    def get_published(self, wiki_id: str) -> int | None:
        """The number of the published generation, or None. Cheap enough for every search."""

    def recover_published(self, wiki_id: str) -> bool:
        """If the pointer to the published generation is lost, restore it and return True. Requires the write lock.

        The newest generation that has a revision counts as published.
        """

    def write_lock(self, wiki_id: str, timeout_s: float) -> AbstractContextManager[None]:
        """Hold the wiki's exclusive write lock across processes. Raises Busy after the timeout."""

    def get_directory(self, wiki_id: str) -> Path:
        """The directory for this wiki's caches and mirrors on this machine; `delete` removes it."""

    def exists(self, wiki_id: str) -> bool:
        """Whether the store has any data of this wiki."""

    def get_note(self, wiki_id: str, name: str) -> str | None:
        """A small text stored with the index, readable by every process; None if there is none."""

    def set_note(self, wiki_id: str, name: str, text: str, *, create: bool = False) -> None:
        """Store a small text with the index atomically. Raises StorageError or DatabaseUnavailable.

        Without `create`, does nothing if the store has no data of this wiki: it may have been removed.
        """

    def activity_lock(self, wiki_id: str) -> AbstractContextManager[Callable[[str], None]]:
        """Hold the wiki's activity lock across processes. Raises Busy if it is taken.

        Yields a function that publishes a progress text and never fails. The lock of a dead process is released.
        """

    def get_activity(self, wiki_id: str) -> str | None:
        """The last progress text of the lock's holder, "" before the first; None if nobody holds the lock."""

    def get_disk_bytes(self, wiki_id: str) -> int:
        """Disk use of the wiki: its index, quarantined indexes, and caches and mirrors on this machine."""

    def list_quarantined(self, wiki_id: str) -> Sequence[str]:
        """The names of quarantined indexes, oldest first."""

    def get_change_token(self, wiki_id: str) -> str:
        """A token of the published index that changes with every write. Does not open the index."""

    def quarantine(self, wiki_id: str, reason: str) -> str:
        """Move a damaged index aside under a name with the time and reason, which is returned. Never deletes it."""

    def open_quarantined(self, wiki_id: str) -> WikiIndex | None:
        """Open the last quarantined index to take over its vectors; None if that is not possible."""

    def open_backup(self, file: Path) -> WikiIndex:
        """Open a copy written by `WikiIndex.write_backup` read-only. Raises IndexMissing, IndexCorrupt or IndexTooNew.

        The copy may be of any wiki; see its `wiki_id`.
        """

    def import_backup(self, wiki_id: str, file: Path) -> int:
        """Import a copy as a new unpublished generation, verify it, and return its number. Requires the write lock.

        Raises IndexForeign for a copy of another wiki.
        """

    def remove_old_generations(self, wiki_id: str) -> None:
        """Remove generations older than the published one."""

    def delete(self, wiki_id: str) -> Sequence[str]:
        """Delete all data of the wiki and return the names of what was deleted."""

    def list_wiki_ids(self) -> Sequence[str]: ...


# Shared databases and nodes.


class DatabaseAdmin(Protocol):
    """Administration of the databases that store indexes, for all wikis of a process."""

    def get_statuses(self) -> Sequence[DatabaseStatus]:
        """The status of each database; waits a few seconds at most. Raises DatabaseUnavailable."""

    def find_unfinished_moves(self) -> Sequence[str]:
        """The ids of wikis with data left at their old place by an interrupted move."""

    def finish_move(self, wiki_id: str) -> None:
        """Remove the data left by an interrupted move. Raises Busy while the wiki is being moved."""

    def add(self, name: str, address: str, weight: float, max_wikis: int = ...) -> DatabaseStatus:
        """Set up a database and open it for up to `max_wikis` wikis. Raises InvalidSetting and DatabaseUnavailable."""

    def remove(self, name: str) -> None:
        """Unregister a database without changing its data. Raises Conflict while it has wikis."""

    def set_open(self, name: str, *, accept_new: bool, max_wikis: int | None = None) -> None:
        """Set whether the database accepts new wikis, and how many it may have."""

    def get_database_name(self, wiki_id: str) -> str | None:
        """The name of a wiki's database; None if it has no index yet."""

    def find_strays(self, wiki_id: str) -> Sequence[str]:
        """The databases that have data of a wiki which is placed in another one."""

    def move(self, wiki_id: str, to: str, max_mb_per_s: float = ...) -> bool:
        """Move a wiki to another database while it serves searches; returns False if it is already there.

        Raises Conflict if that database is full.
        """

    def remove_leftovers(self, wiki_ids: Collection[str]) -> None:
        """Remove local caches and mirrors of all wikis except these.

        Also removes data left at old places by interrupted moves.
        """

    def get_metrics(self) -> Mapping[str, int]:
        """The numbers of open connections and active leases of this process."""

    def get_timeout_counts(self) -> Mapping[str, int]:
        """The number of this process's statements that timed out, by kind: `lock` while waiting for a lock, `statement`
        while running.
        """

    def get_refusal_counts(self) -> Mapping[str, int]:
        """The number of refused connections of this process, by reason: `connections` (too many), `login`."""

    def check_wiki_login(self, name: str) -> str:
        """Log in to a database as a new wiki would. Returns the server's reason if that fails, else an empty text."""

    def list_unexpected_roles(self, wiki_id: str) -> Sequence[str]:
        """The roles besides the operator and the wiki's own that have rights to the wiki's schema, its tables or role.

        PUBLIC is one of them. Changes nothing.
        """

    def repair_access(self, wiki_id: str) -> None:
        """Create what is missing of a wiki's schema and role, and give the role its password again."""

    def get_availability(self) -> Mapping[str, bool]:
        """Whether each known database answered its last request. Sends no request."""

    def close(self) -> None: ...


class NodeMessage(StrEnum):
    """A message to the node a wiki is assigned to, or about a change of assignments."""

    CHANGED = "changed"
    REPAIR = "repair"
    TOUCH = "touch"
    REINDEX = "reindex"
    ASSIGNMENTS = "assignments"


class NodeAssignments(Protocol):
    """Divides the wikis among the nodes of a cluster. Safe to use from many threads.

    It only divides work: the store's write lock keeps two nodes from writing one index.
    """

    def get_assigned(self) -> Set[str] | None:
        """The ids of the wikis assigned to this node; None if there is no other node."""

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        """Send a message to the node the wiki is assigned to. Raises DatabaseUnavailable."""

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        """Join the cluster. `on_message` gets the wiki's id, or "" for ASSIGNMENTS, and must not raise."""

    def close(self) -> None:
        """Leave the cluster; other nodes take over the wikis."""
