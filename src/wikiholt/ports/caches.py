"""What the core asks of faster forms of an index: thrown away at any moment, allowed to fail in any way."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from wikiholt.model import FloatArray, IntArray, VectorHits, KeywordHit, KeywordQuery


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
