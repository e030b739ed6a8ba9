"""What the core asks of where pages come from."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from wikiholt.domain.git import (
    AttachedFile,
    Author,
    Blob,
    Commit,
    FileEdit,
    FileVersion,
    LogEntry,
    TreeChange,
    TreeEntry,
)
from wikiholt.domain.index import CosineScale, FloatArray, IntArray, VectorHits
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.domain.wiki import Wiki


def never_stop() -> bool:
    """The default for `stop` callbacks: never stop."""
    return False


class Source(Protocol):
    """Where a wiki's pages come from: one git repository, read at a revision."""

    def get_head(self) -> str:
        """The commit at HEAD; raises SourceMissing, SourceBroken or NoCommits."""

    def get_last_known_head(self) -> str:
        """HEAD as far as anybody knows it, for saying whether an answer is behind; brings nothing, so it never waits.

        Raises what `head` raises.
        """

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision (relative to the wiki's sub-directory) with its blob."""

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions, at a cost of the difference; None when that is unknown."""

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs, in the order asked for; one larger than `limit` bytes comes without its data."""

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file was last changed by a commit; `since` is a commit to stop at if it is an ancestor."""

    def resolve_revision(self, revision: str) -> str:
        """The full id of a commit named by at least 7 of its digits; only commits that HEAD descends from count."""

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        """The page file's entry at the revision, or None when there is no such page; cheap in any wiki."""

    def list_attached_files(self, folder: str, revision: str) -> Mapping[str, AttachedFile]:
        """The files right in a folder that are no pages, by name; none where there is no such folder."""

    def read_history(self, file: str, limit: int = 50, revision: str | None = None) -> Sequence[Commit]:
        """The commits that changed a file, newest first, its earlier names followed; none for an unknown file."""

    def read_log(self, limit: int, skip: int = 0) -> Sequence[LogEntry]:
        """The commits that touched a page, newest first."""

    def find_old_versions(self, revision: str, limit: int) -> Sequence[FileVersion]:
        """At most so many former versions of the pages at the revision, newest first, followed through renames."""

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Make one commit of these edits on HEAD and return its id.

        Raises RevisionMismatch when a file is not the one expected, NotWritable, Busy, and InvalidPage for a path,
        author or message that makes no sense.
        """

    def fetch(self, stop: Callable[[], bool] = ...) -> bool:
        """Bring what is new from where the pages really live, if that is elsewhere; whether something came.

        Ends soon, with Busy, once `stop` says so.
        """

    def check_readable(self) -> None:
        """Raise what would keep the pages from being read; a source without commits yet is welcome."""


class RepositoryIdentities(Protocol):
    """Tells the repository of a wiki from another one that takes its place at the same path."""

    def identify(self, source: str) -> str:
        """When the repository at this path was created, in a form to compare; empty where that cannot be told."""

    def bind(self, wiki: Wiki) -> str:
        """Mark the wiki's repository as its own, if possible; returns what to record of it."""

    def release(self, wiki: Wiki) -> None:
        """Take the mark away, where it can be; never raises."""

    def matches(self, wiki: Wiki) -> bool:
        """Whether the repository at the wiki's path is the one that was recorded; cheap enough for every request."""


# What the core asks of a model.


class Reranker(Protocol):
    """Reads a query and a text together and says how well the text answers it. Safe to use from many threads."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        """A logit a text; None when they are not all there within that time, and then no work is left behind."""

    def run_self_test(self) -> None:
        """Raise ModelUnproven unless known pairs get the known scores."""


class ModelInfo(Protocol):
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

    @property
    def scale(self) -> CosineScale:
        """What the cosines of its vectors mean."""


class Embedder(ModelInfo, Protocol):
    """Turns text into unit vectors. Safe to use from many threads."""

    @property
    def max_tokens(self) -> int:
        """How many tokens of text one vector can stand for, the model's own special tokens not counted."""

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token of the text, in order, special tokens left out, nothing truncated."""

    def is_known_word(self, word: str) -> bool:
        """Whether the word is one of its tokens, whole: a word it has often read, and no slip of one."""

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        """One unit vector a text; a text over the window is an error."""

    def embed_query(self, text: str) -> FloatArray:
        """The unit vector of a query; a query over the window is cut."""

    def run_self_test(self) -> None:
        """Raise ModelUnproven unless known sentences give the known vectors; a proof may hold for a while."""


@runtime_checkable
class SupportsSentenceScoring(Protocol):
    """What a model may also be: quick to say which of some sentences is closest to a query, without being run."""

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], Sequence[float]] | None:
        """What says how close each sentence of a passage is to the query, comparable within the passage and the same
        whatever else is asked; None if this model cannot say."""


# What the core asks of faster forms of an index: thrown away at any moment, allowed to fail in any way.


class VectorCache(Protocol):
    """A faster form of one index's vectors. Thrown away at any moment; may fail in any way."""

    @property
    def version(self) -> int | None:
        """The version of the index this cache stands for; None before it is ready."""

    def refresh(self) -> None:
        """Bring the cache to the index's version: by the rows changed since, by a file on disk, or by building."""

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks, of these pages (sorted ids) only if given."""

    def verify(self) -> None:
        """Read every byte of its file; raises where one is not as it was written, and never uses that file again."""

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait for work in the background to end; the next refresh takes it up."""

    def close(self) -> None: ...


class VectorEngine(Protocol):
    """What vector caches lean on that is no file: one for all wikis of a process. May be away at any moment."""

    @property
    def name(self) -> str: ...

    @property
    def is_up(self) -> bool:
        """Whether it answered when it was last needed."""

    def get_metrics(self) -> Mapping[str, tuple[str, int]]:
        """Each counter with what it counts; none belongs to a wiki."""

    def check(self) -> str:
        """What is wrong with it, in words for the operator; empty when nothing is."""

    def delete_wiki(self, wiki_id: str, slug: str) -> None:
        """Remove what it holds of a wiki that was removed; later, if it is away. Never raises."""

    def close(self) -> None: ...


class Lexicon(Protocol):
    """The terms of one index at one version; a term that no living page holds is not in it."""

    def count_pages(self, term: str) -> int:
        """How many pages hold the term."""

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        """At most so many terms that begin so, of so many letters if given."""

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        """At most so many terms that end so, of so many letters if given."""


class KeywordCache(Protocol):
    """A faster form of one index's words: the same pages with the same scores. May fail in any way."""

    @property
    def version(self) -> int | None: ...

    def refresh(self) -> None: ...

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]: ...

    def get_max_score(self, query: KeywordQuery) -> float: ...

    def get_lexicon(self) -> Lexicon:
        """The terms of the version it stands for; fails as `search` does."""

    def verify(self) -> None: ...

    def wait_idle(self, timeout: float | None = None) -> bool: ...

    def close(self) -> None: ...
