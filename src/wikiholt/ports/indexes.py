"""What the core asks of indexes, and of where they are kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from wikiholt.model import (
    Change,
    Facets,
    Filter,
    Floats,
    Ints,
    Neighbours,
    Problem,
    Proof,
    Recipe,
    State,
    StoredChunk,
    StoredLink,
    StoredPage,
    VectorDelta,
    VectorRows,
    WordDelta,
    WordHit,
    WordQuery,
    WordRow,
)


class Snapshot(Protocol):
    """All vectors of an index at one version."""

    @property
    def version(self) -> int: ...

    @property
    def count(self) -> int: ...

    def blocks(self) -> Iterator[VectorRows]: ...


class WikiIndex(Protocol):
    """One wiki's index. It was opened for one wiki and knows no other. Safe to use from many threads."""

    @property
    def generation(self) -> int: ...

    @property
    def wiki_id(self) -> str:
        """The wiki that the index says it belongs to."""

    def state(self) -> State: ...

    def version(self) -> int:
        """The version now committed; cheap enough for every search."""

    def pages(self) -> Mapping[str, str]:
        """File → blob id of every indexed page."""

    def problems(self) -> Sequence[Problem]: ...

    def apply(self, change: Change) -> int:
        """Make the change true in one transaction and return the new version; a second time changes nothing."""

    def reuse(self, hashes: Sequence[bytes]) -> Mapping[bytes, Floats]:
        """The vectors of chunks whose embedded text has one of these hashes."""

    def words(self, query: WordQuery, limit: int, where: Filter) -> Sequence[WordHit]:
        """The best pages by BM25, best first."""

    def best_possible(self, query: WordQuery) -> float:
        """The BM25 score no page can exceed for this query: what a page would have that holds it word for word."""

    def nearest(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        """The nearest chunks by an exact scan of the truth, of these pages (sorted ids) only if given."""

    def allowed(self, where: Filter) -> Ints | None:
        """The ids of the pages that pass, sorted; None when every page does."""

    def holding(self, query: WordQuery) -> Ints:
        """The ids of the pages that hold every phrase of the query and nothing it excludes, sorted."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """All vectors at one version, for building a cache."""

    def changes_since(self, version: int) -> VectorDelta | None:
        """What a cache at that version lacks; None when it is too old to be brought up to date."""

    def word_rows(self) -> AbstractContextManager[tuple[int, Iterator[WordRow]]]:
        """The version, and every page's words at it, for building a word cache."""

    def words_since(self, version: int) -> WordDelta | None:
        """What a word cache at that version lacks; None when it is too old to be brought up to date."""

    def stored_pages(self, page_ids: Sequence[int]) -> Mapping[int, StoredPage]: ...

    def find_page(self, path: str) -> StoredPage | None: ...

    def stored_chunks(self, chunk_ids: Sequence[int]) -> Mapping[int, StoredChunk]: ...

    def page_chunks(self, page_ids: Sequence[int], limit: int | None = None) -> Mapping[int, Sequence[StoredChunk]]:
        """Every chunk of these pages, in order; at most the first `limit` of each page if given."""

    def list_pages(self, where: Filter, limit: int | None, offset: int = 0) -> tuple[int, Sequence[StoredPage]]:
        """How many pages pass, and those of them from `offset` on, in the order of their paths."""

    def named(self, keys: Sequence[str]) -> Sequence[StoredPage]:
        """The pages whose path, or the last part of it, is one of these when folded (`text.links.folded`)."""

    def links(self, page_ids: Sequence[int] | None = None) -> Sequence[StoredLink]:
        """The links that stand on these pages, or on any page, in the order they stand there."""

    def links_naming(self, keys: Sequence[str]) -> Sequence[StoredLink]:
        """The links one of whose paths is one of these when folded."""

    def page_vectors(self, page_ids: Sequence[int]) -> VectorRows:
        """The vectors of every chunk of these pages."""

    def facets(self, where: Filter) -> Facets:
        """What there is to filter by among the pages that pass."""

    def check(self, stop: Callable[[], bool] = ...) -> Sequence[str]:
        """What is wrong with the index, in words; empty when nothing is. Reads every byte.

        `stop` is asked every few thousandths of a second; Busy is raised once it says so.
        """

    def backup(self, to: Path, stop: Callable[[], bool] = ...) -> State:
        """Write the index as it is at one moment to a new file, while others read and write, and say what that is.

        Raises Busy once `stop` says so; what has been written by then is no copy.
        """

    def close(self) -> None: ...


class Store(Protocol):
    """Makes, opens and drops indexes by opaque id."""

    def create(self, wiki_id: str, recipe: Recipe) -> WikiIndex:
        """A new, empty, published index; the one that is there already if there is one."""

    def open(self, wiki_id: str) -> WikiIndex:
        """The published generation; raises IndexMissing, IndexCorrupt or IndexTooNew.

        One that belongs to another wiki, or does not say whose it is, is refused: IndexForeign.
        """

    def new_generation(self, wiki_id: str, recipe: Recipe, *, afresh: bool = False) -> WikiIndex:
        """An empty index beside the published one, resumed if one was begun with the same recipe.

        One that is to be made `afresh` goes on only with what was begun so; never with a copy that was adopted.
        """

    def publish(self, wiki_id: str, generation: int) -> None:
        """Make that generation the one `open` gives, in one step; the one before stays until `sweep`."""

    def published(self, wiki_id: str) -> int | None:
        """The published generation's number, or None; cheap enough for every search."""

    def regain(self, wiki_id: str) -> bool:
        """Where the name of the published generation was lost, write down which one `open` gives; for the writer.

        Whether it was. The newest that stands for a revision is the published one then.
        """

    def writing(self, wiki_id: str, timeout: float) -> AbstractContextManager[None]:
        """Hold the wiki's one writer lock, across processes; raises Busy after the timeout."""

    def directory(self, wiki_id: str) -> Path:
        """Where this wiki's caches and mirrors may be kept on this machine; `drop` removes it with all it holds."""

    def holds(self, wiki_id: str) -> bool:
        """Whether there is anything of this wiki here, be it an index or a trace of one."""

    def note(self, wiki_id: str, name: str) -> str | None:
        """A small text that is kept with the index, for every process to read; None where none can be read."""

    def keep_note(self, wiki_id: str, name: str, text: str, *, make: bool = False) -> None:
        """Keep a small text with the index, whole or not at all; raises StorageRefused or DatabaseAway.

        Without `make` a wiki of which nothing is here is left so: it may have been removed.
        """

    def sitting(self, wiki_id: str) -> AbstractContextManager[Callable[[str], None]]:
        """Sit at the wiki's desk, across processes: whoever works on it does, and nobody else; raises Busy.

        Gives a function that leaves a note on the desk and never fails. The desk of one who dies is free.
        """

    def seated(self, wiki_id: str) -> str | None:
        """The last note of whoever sits at the desk, "" before the first; None when nobody sits there."""

    def disk_bytes(self, wiki_id: str) -> int:
        """What the wiki takes up: its index, what was set aside, caches and mirrors on this machine."""

    def aside(self, wiki_id: str) -> Sequence[str]:
        """The names under which broken indexes were set aside, oldest first."""

    def stamp(self, wiki_id: str) -> str:
        """What can be told of the published index without opening it; another after anything was written."""

    def sealed(self, wiki_id: str) -> bool:
        """Whether the published index is as its last writer left it, by its stamp."""

    def confirm(self, wiki_id: str, max_age_s: float = ...) -> Proof:
        """Compare the published index's bytes with those its last writer left; raises IndexCorrupt where one differs
        that matters.

        Not again within `max_age_s` seconds. For readers: takes a few milliseconds, and waits for nobody.
        """

    def prove(self, wiki_id: str, *, fully: bool = False) -> None:
        """Check the published index unless it is as its last writer left it, or in any case; raises IndexCorrupt.

        For the writer.
        """

    def set_aside(self, wiki_id: str, why: str) -> str:
        """Move a broken index out of the way under a name that says when and why; never deletes it.

        Another generation that is whole stays, and is published in its place.
        """

    def copy_at(self, file: Path) -> WikiIndex:
        """A copy that `WikiIndex.backup` wrote, for reading only; raises IndexMissing, IndexCorrupt or IndexTooNew.

        It may be any wiki's: its `wiki_id` says whose.
        """

    def adopt(self, wiki_id: str, file: Path) -> int:
        """Take a copy in as a generation beside the published one, checked, and return its number; for the writer.

        Raises IndexForeign for a copy of another wiki.
        """

    def sweep(self, wiki_id: str) -> None:
        """Remove generations that were published before the one that is now."""

    def drop(self, wiki_id: str) -> Sequence[str]:
        """Remove every byte of the index and name what was removed."""

    def ids(self) -> Sequence[str]: ...
