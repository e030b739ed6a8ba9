"""What the core asks of indexes, and of where they are kept."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from wikiholt.domain.index import (
    FloatArray,
    IndexChange,
    IndexState,
    IntArray,
    KeywordDelta,
    KeywordRow,
    Recipe,
    VectorDelta,
    VectorHits,
    VectorRows,
    VerificationResult,
)
from wikiholt.domain.page import Facets, PageProblem
from wikiholt.domain.search import (
    KeywordHit,
    KeywordQuery,
    PageFilter,
    QueryRecord,
    QueryRecords,
    QueryRetention,
    StoredChunk,
    StoredLink,
    StoredPage,
)
from wikiholt.domain.wiki import DatabaseStatus


class VectorSnapshot(Protocol):
    """All vectors of an index at one version."""

    @property
    def version(self) -> int: ...

    @property
    def count(self) -> int: ...

    def iter_blocks(self) -> Iterator[VectorRows]: ...


class WikiIndex(Protocol):
    """One wiki's index. It was opened for one wiki and knows no other. Safe to use from many threads."""

    @property
    def generation(self) -> int: ...

    @property
    def wiki_id(self) -> str:
        """The wiki that the index says it belongs to."""

    def get_state(self) -> IndexState: ...

    def get_version(self) -> int:
        """The version now committed; cheap enough for every search."""

    def get_page_blobs(self) -> Mapping[str, str]:
        """File → blob id of every indexed page."""

    def get_problems(self) -> Sequence[PageProblem]: ...

    def apply(self, change: IndexChange) -> int:
        """Make the change true in one transaction and return the new version; a second time changes nothing."""

    def find_vectors_by_hash(self, hashes: Sequence[bytes]) -> Mapping[bytes, FloatArray]:
        """The vectors of chunks whose embedded text has one of these hashes."""

    def search_keywords(self, query: KeywordQuery, limit: int, where: PageFilter) -> Sequence[KeywordHit]:
        """The best pages by BM25, best first."""

    def get_max_keyword_score(self, query: KeywordQuery) -> float:
        """The BM25 score no page can exceed for this query: what a page would have that holds it word for word."""

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks by an exact scan of the truth, of these pages (sorted ids) only if given."""

    def filter_page_ids(self, where: PageFilter) -> IntArray | None:
        """The ids of the pages that pass, sorted; None when every page does."""

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        """The ids of the pages that hold every phrase of the query and nothing it excludes, sorted."""

    def open_vector_snapshot(self) -> AbstractContextManager[VectorSnapshot]:
        """All vectors at one version, for building a cache."""

    def get_vector_changes(self, version: int) -> VectorDelta | None:
        """What a cache at that version lacks; None when it is too old to be brought up to date."""

    def open_keyword_rows(self) -> AbstractContextManager[tuple[int, Iterator[KeywordRow]]]:
        """The version, and every page's words at it, for building a word cache."""

    def get_keyword_changes(self, version: int) -> KeywordDelta | None:
        """What a word cache at that version lacks; None when it is too old to be brought up to date."""

    def get_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]: ...

    def find_page(self, path: str) -> StoredPage | None: ...

    def get_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]: ...

    def get_page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        """Every chunk of these pages, in order; at most the first `limit` of each page if given."""

    def list_pages(self, where: PageFilter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        """How many pages pass, and those of them from `offset` on, in the order of their paths."""

    def find_pages_by_key(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        """The pages whose path, or the last part of it, is one of these when folded (`text.links.folded`)."""

    def get_links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        """The links that stand on these pages, or on any page, in the order they stand there."""

    def find_links_by_key(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        """The links one of whose paths is one of these when folded."""

    def get_page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        """The vectors of every chunk of these pages."""

    def get_facets(self, where: PageFilter) -> Facets:
        """What there is to filter by among the pages that pass."""

    def check(self, stop: Callable[[], bool] = ...) -> Sequence[str]:
        """What is wrong with the index, in words; empty when nothing is. Reads every byte.

        `stop` is asked every few thousandths of a second; Busy is raised once it says so.
        """

    def write_backup(self, to: Path, stop: Callable[[], bool] = ...) -> IndexState:
        """Write the index as it is at one moment to a new file, while others read and write, and say what that is.

        Raises Busy once `stop` says so; what has been written by then is no copy.
        """

    def close(self) -> None: ...


class IndexStore(Protocol):
    """Makes, opens and drops indexes by opaque id."""

    def create(self, wiki_id: str, recipe: Recipe) -> WikiIndex:
        """A new, empty, published index; the one that is there already if there is one."""

    def open(self, wiki_id: str) -> WikiIndex:
        """The published generation; raises IndexMissing, IndexCorrupt or IndexTooNew.

        One that belongs to another wiki, or does not say whose it is, is refused: IndexForeign.
        """

    def create_generation(self, wiki_id: str, recipe: Recipe, *, from_scratch: bool = False) -> WikiIndex:
        """An empty index beside the published one, resumed if one was begun with the same recipe.

        One that is to be made `afresh` goes on only with what was begun so; never with a copy that was adopted.
        """

    def publish(self, wiki_id: str, generation: int) -> None:
        """Make that generation the one `open` gives, in one step; the one before stays until `sweep`."""

    def get_published(self, wiki_id: str) -> int | None:
        """The published generation's number, or None; cheap enough for every search."""

    def recover_published(self, wiki_id: str) -> bool:
        """Where the name of the published generation was lost, write down which one `open` gives; for the writer.

        Whether it was. The newest that stands for a revision is the published one then.
        """

    def write_lock(self, wiki_id: str, timeout: float) -> AbstractContextManager[None]:
        """Hold the wiki's one writer lock, across processes; raises Busy after the timeout."""

    def get_directory(self, wiki_id: str) -> Path:
        """Where this wiki's caches and mirrors may be kept on this machine; `drop` removes it with all it holds."""

    def exists(self, wiki_id: str) -> bool:
        """Whether there is anything of this wiki here, be it an index or a trace of one."""

    def get_note(self, wiki_id: str, name: str) -> str | None:
        """A small text that is kept with the index, for every process to read; None where none can be read."""

    def set_note(self, wiki_id: str, name: str, text: str, *, create: bool = False) -> None:
        """Keep a small text with the index, whole or not at all; raises StorageRefused or DatabaseAway.

        Without `make` a wiki of which nothing is here is left so: it may have been removed.
        """

    def activity_lock(self, wiki_id: str) -> AbstractContextManager[Callable[[str], None]]:
        """Sit at the wiki's desk, across processes: whoever works on it does, and nobody else; raises Busy.

        Gives a function that leaves a note on the desk and never fails. The desk of one who dies is free.
        """

    def get_activity(self, wiki_id: str) -> str | None:
        """The last note of whoever sits at the desk, "" before the first; None when nobody sits there."""

    def get_disk_bytes(self, wiki_id: str) -> int:
        """What the wiki takes up: its index, what was set aside, caches and mirrors on this machine."""

    def list_quarantined(self, wiki_id: str) -> Sequence[str]:
        """The names under which broken indexes were set aside, oldest first."""

    def get_change_token(self, wiki_id: str) -> str:
        """What can be told of the published index without opening it; another after anything was written."""

    def is_unmodified(self, wiki_id: str) -> bool:
        """Whether the published index is as its last writer left it, by its stamp."""

    def compare_checksum(self, wiki_id: str, max_age_s: float = ...) -> VerificationResult:
        """Compare the published index's bytes with those its last writer left; raises IndexCorrupt where one differs
        that matters.

        Not again within `max_age_s` seconds. For readers: takes a few milliseconds, and waits for nobody.
        """

    def verify(self, wiki_id: str, *, full: bool = False) -> None:
        """Check the published index unless it is as its last writer left it, or in any case; raises IndexCorrupt.

        For the writer.
        """

    def quarantine(self, wiki_id: str, reason: str) -> str:
        """Move a broken index out of the way under a name that says when and why; never deletes it.

        Another generation that is whole stays, and is published in its place.
        """

    def open_backup(self, file: Path) -> WikiIndex:
        """A copy that `WikiIndex.backup` wrote, for reading only; raises IndexMissing, IndexCorrupt or IndexTooNew.

        It may be any wiki's: its `wiki_id` says whose.
        """

    def import_backup(self, wiki_id: str, file: Path) -> int:
        """Take a copy in as a generation beside the published one, checked, and return its number; for the writer.

        Raises IndexForeign for a copy of another wiki.
        """

    def remove_old_generations(self, wiki_id: str) -> None:
        """Remove generations that were published before the one that is now."""

    def delete(self, wiki_id: str) -> Sequence[str]:
        """Remove every byte of the index and name what was removed."""

    def list_wiki_ids(self) -> Sequence[str]: ...


# What the core asks of where searches are written down.


class QueryLog(Protocol):
    """What was searched for in one wiki. It was made for one wiki and knows no other. Safe to use from many threads.

    All may raise Busy, StorageRefused or DatabaseAway, and others of IndexFault; what was committed stays.
    """

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        """Add these, and forget what is out of bounds, in one transaction; a damaged log is begun anew.

        Of a wiki of which nothing is here nothing is written: it was removed.
        """

    def read(self, since: float) -> QueryRecords | None:
        """What was written since then; None where nothing was ever written."""

    def trim(self, retention: QueryRetention) -> None:
        """Forget what is out of bounds."""

    def clear(self) -> int:
        """Forget everything; how many entries that were."""


# What the core asks of databases that several machines share, and of the other machines.


class DatabaseAdmin(Protocol):
    """The databases that hold indexes, where those are no files: one for all wikis of a process."""

    def get_statuses(self) -> Sequence[DatabaseStatus]:
        """How each stands: asks each of them, for a few seconds at most; raises DatabaseAway if nobody knows them."""

    def find_unfinished_moves(self) -> Sequence[str]:
        """The ids of wikis of which a move that was cut off has left something at another place."""

    def finish_move(self, wiki_id: str) -> None:
        """Remove what such a move has left; raises Busy while somebody is just moving the wiki."""

    def add(self, name: str, address: str, weight: float) -> DatabaseStatus:
        """Make a database ready for wikis, and have new ones go there; raises InvalidSetting and DatabaseAway."""

    def remove(self, name: str) -> None:
        """Know it no more, and touch nothing in it; raises Conflict while there are wikis on it."""

    def set_open(self, name: str, *, accept_new: bool) -> None:
        """Whether new wikis may go there."""

    def upgrade(self, progress: Callable[[int, int], None]) -> Sequence[tuple[str, str]]:
        """Bring every wiki to the layout of this program; goes on where another left off. Ids of those that could not
        be brought along, with the reason.
        """

    def get_database_name(self, wiki_id: str) -> str | None:
        """The name of the database a wiki is on; None for one that has no index yet."""

    def move(self, wiki_id: str, to: str) -> bool:
        """Move a wiki to another database while it answers; whether it was not there already."""

    def remove_leftovers(self, wiki_ids: Collection[str]) -> None:
        """Remove what this machine keeps of wikis other than these: caches and mirrors of wikis that were removed.

        Also what moves to another database have left behind that were cut off.
        """

    def get_metrics(self) -> Mapping[str, int]:
        """Connections that are open, and leases held, by this process."""

    def get_timeout_counts(self) -> Mapping[str, int]:
        """How many statements of this process the databases ended, by kind: `lock` for those that waited too long for
        a lock, `statement` for those that ran too long.
        """

    def get_availability(self) -> Mapping[str, bool]:
        """Of each database that is known here, whether it answered when it was last needed; asks nobody."""

    def close(self) -> None: ...


class NodeMessage(StrEnum):
    """Why a node is called: for a wiki it looks after, or because which wikis those are may have changed."""

    CHANGED = "wake"
    REPAIR = "mend"
    TOUCH = "asked"
    REINDEX = "reindex"
    ASSIGNMENTS = "shifts"


class NodeAssignments(Protocol):
    """Which wikis this node looks after, where several share the work. Safe to use from many threads.

    It only divides the work: that two never write one index is the store's to see to.
    """

    def get_assigned(self) -> Set[str] | None:
        """The ids of the wikis this node looks after; None where there is no other node."""

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        """Call the node that looks after the wiki, or that will; raises DatabaseAway."""

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        """Take on wikis, and tell of calls: with the wiki's id, or with none for SHIFTS. It must not raise."""

    def close(self) -> None:
        """Leave all wikis to others."""
