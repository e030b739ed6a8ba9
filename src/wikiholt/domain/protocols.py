"""Protocols of sources, models and caches: what the core needs from git, from models and from faster index copies."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from wikiholt.domain.git import (
    AttachedFile,
    Author,
    Blob,
    Commit,
    FileEdit,
    FileHistories,
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


class HeadProbe(Protocol):
    """Reads HEAD of a source at rest."""

    def read_head(self) -> str | None:
        """The commit at HEAD, at the cost of a few system calls; None if only `Source.get_head` can tell."""


class Source(Protocol):
    """A wiki's git repository, read at a revision."""

    def get_head(self) -> str:
        """The commit at HEAD. Raises SourceMissing, SourceCorrupt or NoCommits."""

    def get_head_and_probe(self) -> tuple[str, HeadProbe | None]:
        """HEAD after a complete check, and a probe for later checks if the source is at rest and has one.

        Raises what `get_head` raises.
        """

    def get_last_known_head(self) -> str:
        """The last fetched HEAD, for reporting whether an answer is stale. Fetches nothing, so it never waits.

        Raises what `get_head` raises.
        """

    def read_tree(self, revision: str) -> Mapping[str, TreeEntry]:
        """Every page file at the revision, relative to the wiki's subdirectory."""

    def list_other_files(self, revision: str) -> Sequence[str]:
        """The files at the revision that are not pages, relative to the wiki's subdirectory, except ignored ones.

        Hidden directories are included, or files in them, and files directly in the directories above, as
        `../mkdocs.yml`.
        """

    def count_ignored(self, revision: str) -> Mapping[str, int]:
        """How many files that are named like a page each ignore pattern of the wiki excludes."""

    def read_all_files(self, revision: str) -> tuple[Mapping[str, TreeEntry], Sequence[str]]:
        """What `read_tree` and `list_other_files` return, at the cost of one of them."""

    def get_changes(self, old: str, new: str) -> Sequence[TreeChange] | None:
        """The page files that differ between two revisions, at the cost of the difference; None if that is unknown."""

    def read_blobs(self, blobs: Iterable[str], limit: int) -> Iterator[Blob]:
        """The blobs in the requested order. A blob larger than `limit` bytes comes without its data."""

    def get_change_dates(self, files: Sequence[str], revision: str, since: str | None) -> Mapping[str, datetime]:
        """When each file was last changed by a commit. The search stops at the commit `since` if it is an ancestor."""

    def read_file_histories(self, files: Sequence[str], revision: str, since: str | None) -> FileHistories:
        """What `get_change_dates` and `get_former_files` return, as far as the history can be read."""

    def get_former_files(self, files: Sequence[str], revision: str) -> Mapping[str, Sequence[str]]:
        """The names that these files had before renames, newest first; files without any are left out."""

    def resolve_revision(self, revision: str) -> str:
        """The full id of a commit given by at least 7 digits. Only ancestors of HEAD count."""

    def find_file(self, file: str, revision: str) -> TreeEntry | None:
        """The entry of a page file at the revision, or None if there is no such page. Cheap in any wiki."""

    def list_attached_files(self, folder: str, revision: str, *, hidden: bool = False) -> Mapping[str, AttachedFile]:
        """The files directly in a folder (empty for the root) that are not pages, by name; none if it is missing.

        A folder whose name begins with a dot has none, unless `hidden` is set.
        """

    def read_history(self, file: str, limit: int = 50, revision: str | None = None) -> Sequence[Commit]:
        """The commits that changed a file, newest first, following renames; empty for an unknown file."""

    def read_log(self, limit: int, skip: int = 0, *, all_commits: bool = False) -> Sequence[LogEntry]:
        """The commits that touched a page, newest first."""

    def find_old_versions(self, revision: str, limit: int) -> Sequence[FileVersion]:
        """At most `limit` earlier versions of the pages at the revision, newest first, following renames."""

    def commit(self, edits: Sequence[FileEdit], author: Author, message: str) -> str:
        """Commit these edits on top of HEAD and return the commit id.

        Raises RevisionMismatch if a file is not at its expected blob, NotWritable, Busy, and InvalidPage for an invalid
        path, author or message.
        """

    def check_page_file(self, file: str) -> None:
        """Raise InvalidPage unless a page may be written to this file, whatever is there now. Cheap."""

    def fetch(self, stop: Callable[[], bool] = never_stop) -> bool:
        """Fetch from the remote, if there is one, and return whether something changed.

        Raises Busy soon after `stop` returns True.
        """

    def check_readable(self) -> None:
        """Raise the error that keeps the pages from being read. A source without commits is accepted."""


class SourceWatcher(Protocol):
    """Notices changes of sources at once, where the platform supports that. May miss some."""

    def start(self, on_change: Callable[[str], None]) -> None:
        """Call `on_change` with the id of a wiki whose source may have changed, from another thread."""

    def update(self, wikis: Sequence[Wiki]) -> None:
        """Watch the sources of these wikis and no others."""

    def is_watching(self, wiki_id: str) -> bool: ...

    def close(self) -> None: ...


# Models.


class Reranker(Protocol):
    """Scores how well a text answers a query by reading both together. Safe to use from many threads."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        """One logit per text; None if not all are ready in time, and then no work continues."""

    def run_self_test(self) -> None:
        """Raise ModelSelfTestFailed unless known pairs get the known scores."""


class ModelInfo(Protocol):
    """Identifies a model, to check whether an index was built with it."""

    @property
    def fingerprint(self) -> str:
        """Identifies weights and precision; vectors of different fingerprints are never mixed."""

    @property
    def model(self) -> str:
        """The name or directory that loads the model."""

    @property
    def precision(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def scale(self) -> CosineScale:
        """Calibration of the cosines of its vectors."""


class PageTokenizer(Protocol):
    """What cutting a page into chunks needs of a model."""

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens per text, not counting the model's special tokens."""

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """The character range of each token in order, without special tokens and without truncation."""


class Embedder(ModelInfo, PageTokenizer, Protocol):
    """Turns text into unit vectors. Safe to use from many threads."""

    def is_known_word(self, word: str) -> bool:
        """Whether the word is a single token of the model: a common word, not a misspelling."""

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        """One unit vector per text. A text longer than `max_tokens` is an error."""

    def embed_query(self, text: str) -> FloatArray:
        """The unit vector of a query. A query longer than `max_tokens` is truncated."""

    def run_self_test(self) -> None:
        """Raise ModelSelfTestFailed unless known sentences get the known vectors. The result may be cached."""


@runtime_checkable
class SupportsSentenceScoring(Protocol):
    """A model that can also rank sentences by closeness to a query without running inference."""

    def make_sentence_scorer(self, query: str) -> Callable[[Sequence[str]], Sequence[float]] | None:
        """A function that scores the sentences of a passage; None if the model cannot score this query.

        Scores are comparable within one passage and depend on nothing else.
        """


@runtime_checkable
class SupportsQueryThreads(Protocol):
    """A model that can embed a query while the caller does other work."""

    def start_query(self, text: str) -> Callable[[], FloatArray] | None:
        """Start to embed a query in another thread; None if no thread is idle.

        The returned function waits for the vector and raises what `embed_query` raises.
        """


@runtime_checkable
class SupportsPageWorkers(Protocol):
    """A model whose tokenizer other processes can load."""

    @property
    def uses_gpu(self) -> bool:
        """Whether it embeds faster than one process prepares pages. Does not wait for the GPU."""

    def get_tokenizer_factory(self) -> Callable[[], PageTokenizer]:
        """A function that other processes call for a tokenizer of their own."""


@runtime_checkable
class SupportsMemoryRelease(Protocol):
    """A model that keeps memory for its next texts."""

    def release_memory(self) -> None:
        """Release that memory. Safe to call from any thread at any time."""


# Caches: may be deleted at any moment and may fail in any way.


class _IndexCache(Protocol):
    @property
    def version(self) -> int | None:
        """The index version of this cache; None before it is ready."""

    def refresh(self) -> None:
        """Update the cache to the index's version: from changed rows, from a file on disk, or by building it."""

    def verify(self) -> None:
        """Verify every byte of its file. Raises on damage and never uses that file again."""

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until background work ends; the next refresh uses its result."""

    def close(self) -> None: ...


class VectorCache(_IndexCache, Protocol):
    """Finds candidates for the nearest chunks of one index outside of it."""

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks; with `page_ids` (sorted), only of these pages."""


class Lexicon(Protocol):
    """The terms of one index at one version. Terms of deleted pages are not included."""

    def count_pages(self, term: str) -> int:
        """The number of pages that contain the term."""

    def has_any(self, term_groups: Sequence[Sequence[str]]) -> Sequence[bool]:
        """Of each group of terms: whether a page contains any of them. Looks all of them up at once."""

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        """At most `limit` terms with this prefix; with `lengths`, only terms of these lengths."""

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        """At most `limit` terms with this suffix; with `lengths`, only terms of these lengths."""


class KeywordCache(_IndexCache, Protocol):
    """A fast copy of one index's keywords: same pages, same scores. Phrases raise CacheCannotAnswer."""

    def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> Sequence[KeywordHit]: ...

    def count_pages(self, terms: Sequence[str]) -> Mapping[str, int]: ...

    def get_lexicon(self) -> Lexicon:
        """The terms of its version. Fails as `search` does."""
