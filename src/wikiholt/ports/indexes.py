"""What the core asks of indexes, and of where they are kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from wikiholt.model import (
    IndexChange,
    Facets,
    PageFilter,
    FloatArray,
    IntArray,
    VectorHits,
    PageProblem,
    VerificationResult,
    Recipe,
    IndexState,
    StoredChunk,
    StoredLink,
    StoredPage,
    VectorDelta,
    VectorRows,
    KeywordDelta,
    KeywordHit,
    KeywordQuery,
    KeywordRow,
)


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
