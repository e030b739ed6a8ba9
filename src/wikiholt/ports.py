"""What the core asks of the world. Each Protocol is bound to its scope when made: none takes a wiki beside a query."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from wikiholt.model import (
    AttachedFile,
    Author,
    Blob,
    Change,
    Commit,
    DatabaseStanding,
    Facets,
    FileEdit,
    Filter,
    Floats,
    Ints,
    LogEntry,
    Neighbours,
    Problem,
    Recipe,
    State,
    StoredChunk,
    StoredLink,
    StoredPage,
    TreeChange,
    TreeEntry,
    VectorDelta,
    VectorRows,
    Version,
    WordDelta,
    WordHit,
    WordQuery,
    WordRow,
)


class Identity(Protocol):
    """What a model is: enough to say whether an index was made with it."""

    @property
    def fingerprint(self) -> str:
        """Identifies weights and precision; vectors of different fingerprints are never mixed."""

    @property
    def model(self) -> str:
        """By what it was loaded, and can be again: the name or directory of a model."""

    @property
    def precision(self) -> str: ...

    @property
    def dimensions(self) -> int: ...


class Embedder(Identity, Protocol):
    """Turns text into unit vectors. Safe to use from many threads."""

    @property
    def max_tokens(self) -> int:
        """How many tokens of text one vector can stand for, the model's own special tokens not counted."""

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token of the text, in order, special tokens left out, nothing truncated."""

    def passages(self, texts: Sequence[str]) -> Floats:
        """One unit vector a text; a text over the window is an error."""

    def query(self, text: str) -> Floats:
        """The unit vector of a query; a query over the window is cut."""

    def prove(self) -> None:
        """Raise ModelUnproven unless known sentences give the known vectors; a proof may hold for a while."""


class Source(Protocol):
    """Where a wiki's pages come from: one git repository, read at a revision."""

    def head(self) -> str:
        """The commit at HEAD; raises SourceMissing, SourceBroken or NoCommits."""

    def seen(self) -> str:
        """HEAD as far as anybody knows it, for saying whether an answer is behind; brings nothing, so it never waits.

        Raises what `head` raises.
        """

    def tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision (relative to the wiki's sub-directory) with its blob."""

    def changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions, at a cost of the difference; None when that is unknown."""

    def read(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs, in the order asked for; one larger than `limit` bytes comes without its data."""

    def last_changed(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file was last changed by a commit; `since` is a commit to stop at if it is an ancestor."""

    def resolve(self, revision: str) -> str:
        """The full id of a commit named by at least 7 of its digits; only commits that HEAD descends from count."""

    def find(self, file: str, revision: str) -> TreeEntry | None:
        """The page file's entry at the revision, or None when there is no such page; cheap in any wiki."""

    def attached(self, folder: str, revision: str) -> Mapping[str, AttachedFile]:
        """The files right in a folder that are no pages, by name; none where there is no such folder."""

    def history(self, file: str, limit: int = 50, revision: str | None = None) -> Sequence[Commit]:
        """The commits that changed a file, newest first, its earlier names followed; none for an unknown file."""

    def log(self, limit: int, skip: int = 0) -> Sequence[LogEntry]:
        """The commits that touched a page, newest first."""

    def versions(self, revision: str, limit: int) -> Sequence[Version]:
        """At most so many former versions of the pages at the revision, newest first, followed through renames."""

    def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Make one commit of these edits on HEAD and return its id.

        Raises RevisionMismatch when a file is not the one expected, NotWritable, Busy, and InvalidPage for a path,
        author or message that makes no sense.
        """

    def fetch(self, stop: Callable[[], bool] = ...) -> bool:
        """Bring what is new from where the pages really live, if that is elsewhere; whether something came.

        Ends soon, with Busy, once `stop` says so.
        """

    def prove(self) -> None:
        """Raise what would keep the pages from being read; a source without commits yet is welcome."""


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
        """The published generation; raises IndexMissing, IndexCorrupt or IndexTooNew."""

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

    def prove(self, wiki_id: str, *, fully: bool = False) -> None:
        """Check the published index unless it is as its last writer left it, or in any case; raises IndexCorrupt.

        For the writer.
        """

    def set_aside(self, wiki_id: str, why: str) -> str:
        """Move a broken index out of the way under a name that says when and why; never deletes it.

        Another generation that is whole stays, and is published in its place.
        """

    def copy_at(self, file: Path) -> WikiIndex:
        """A copy that `WikiIndex.backup` wrote, for reading only; raises IndexMissing, IndexCorrupt or IndexTooNew."""

    def adopt(self, wiki_id: str, file: Path) -> int:
        """Take a copy in as a generation beside the published one, checked, and return its number; for the writer."""

    def sweep(self, wiki_id: str) -> None:
        """Remove generations that were published before the one that is now."""

    def drop(self, wiki_id: str) -> Sequence[str]:
        """Remove every byte of the index and name what was removed."""

    def ids(self) -> Sequence[str]: ...


class VectorCache(Protocol):
    """A faster form of one index's vectors. Thrown away at any moment; may fail in any way."""

    @property
    def version(self) -> int | None:
        """The version of the index this cache stands for; None before it is ready."""

    def refresh(self) -> None:
        """Bring the cache to the index's version: by the rows changed since, by a file on disk, or by building."""

    def search(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        """The nearest chunks, of these pages (sorted ids) only if given."""

    def verify(self) -> None:
        """Read every byte of its file; raises where one is not as it was written, and never uses that file again."""

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for work in the background to end; the next refresh takes it up."""

    def close(self) -> None: ...


class VectorEngine(Protocol):
    """What vector caches lean on that is no file: one for all wikis of a process. May be away at any moment."""

    @property
    def name(self) -> str: ...

    @property
    def up(self) -> bool:
        """Whether it answered when it was last needed."""

    def figures(self) -> Mapping[str, tuple[str, int]]:
        """Each counter with what it counts; none belongs to a wiki."""

    def examine(self) -> str:
        """What is wrong with it, in words for the operator; empty when nothing is."""

    def forget(self, wiki_id: str, slug: str) -> None:
        """Remove what it holds of a wiki that was removed; later, if it is away. Never raises."""

    def close(self) -> None: ...


class Databases(Protocol):
    """The databases that hold indexes, where those are no files: one for all wikis of a process."""

    def standing(self) -> Sequence[DatabaseStanding]:
        """How each stands: asks each of them, for a few seconds at most; raises DatabaseAway if nobody knows them."""

    def unfinished(self) -> Sequence[str]:
        """The ids of wikis of which a move that was cut off has left something at another place."""

    def finish(self, wiki_id: str) -> None:
        """Remove what such a move has left; raises Busy while somebody is just moving the wiki."""

    def add(self, name: str, address: str, weight: float) -> DatabaseStanding:
        """Make a database ready for wikis, and have new ones go there; raises InvalidSetting and DatabaseAway."""

    def remove(self, name: str) -> None:
        """Know it no more, and touch nothing in it; raises Conflict while there are wikis on it."""

    def open(self, name: str, *, to_new: bool) -> None:
        """Whether new wikis may go there."""

    def upgrade(self, progress: Callable[[int, int], None]) -> Sequence[tuple[str, str]]:
        """Bring every wiki to the layout of this program; goes on where another left off. Ids of those that could not
        be brought along, with the reason.
        """

    def place(self, wiki_id: str) -> str | None:
        """The name of the database a wiki is on; None for one that has no index yet."""

    def move(self, wiki_id: str, to: str) -> bool:
        """Move a wiki to another database while it answers; whether it was not there already."""

    def tidy(self, wiki_ids: Collection[str]) -> None:
        """Remove what this machine keeps of wikis other than these: caches and mirrors of wikis that were removed.

        Also what moves to another database have left behind that were cut off.
        """

    def figures(self) -> Mapping[str, int]:
        """Connections that are open, and leases held, by this process."""

    def up(self) -> Mapping[str, bool]:
        """Of each database that is known here, whether it answered when it was last needed; asks nobody."""

    def close(self) -> None: ...


class WordCache(Protocol):
    """A faster form of one index's words: the same pages with the same scores. May fail in any way."""

    @property
    def version(self) -> int | None: ...

    def refresh(self) -> None: ...

    def search(self, query: WordQuery, limit: int, pages: Ints | None) -> Sequence[WordHit]: ...

    def best_possible(self, query: WordQuery) -> float: ...

    def verify(self) -> None: ...

    def settle(self, timeout: float | None = None) -> bool: ...

    def close(self) -> None: ...


class Call(StrEnum):
    """Why a node is called: for a wiki it looks after, or because which wikis those are may have changed."""

    WAKE = "wake"
    MEND = "mend"
    ASKED = "asked"
    REINDEX = "reindex"
    SHIFTS = "shifts"


class Shifts(Protocol):
    """Which wikis this node looks after, where several share the work. Safe to use from many threads.

    It only divides the work: that two never write one index is the store's to see to.
    """

    def mine(self) -> Set[str] | None:
        """The ids of the wikis this node looks after; None where there is no other node."""

    def wake(self, wiki_id: str, why: Call) -> None:
        """Call the node that looks after the wiki, or that will; raises DatabaseAway."""

    def begin(self, called: Callable[[str, Call], None]) -> None:
        """Take on wikis, and tell of calls: with the wiki's id, or with none for SHIFTS. It must not raise."""

    def close(self) -> None:
        """Leave all wikis to others."""
