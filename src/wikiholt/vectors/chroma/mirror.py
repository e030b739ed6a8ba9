"""One wiki's collection: made from the truth, brought to its version, compared with it, made again where it differs.

For the one background worker of a process; between processes the writer of a collection is the one that holds its
lock. Each step may be cut off at any moment: the version a collection stands for is written last, so what was done is
done again. Rows are replaced by one upsert, never by deleting and adding.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wikiholt.cachefile.worker import Abandoned
from wikiholt.model import Ints
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Api, Collection, Mark, Rows
from wikiholt.vectors.chroma.comparing import Comparing
from wikiholt.vectors.chroma.faults import ChromaAway, ChromaRefused, NotOurs, OthersAtWork
from wikiholt.vectors.chroma.figures import Figures
from wikiholt.vectors.chroma.filling import Filling, Stop
from wikiholt.vectors.chroma.layout import Layout
from wikiholt.vectors.exact import ExactCache

_LOG = logging.getLogger(__name__)

FORMAT = 1
_LOCK = "chroma.lock"


@dataclass(frozen=True, slots=True)
class Standing:
    """A collection that was compared with the truth: searches may ask it."""

    collection: Rows
    version: int
    rows: int
    incarnation: str
    behind: Ints
    """Chunks that came after its version, which it may lack."""


@dataclass(frozen=True, slots=True)
class Whose:
    """To whom a collection belongs, and how it is made."""

    wiki_id: str
    slug: str
    owner: str
    layout: Layout

    @property
    def name(self) -> str:
        return self.layout.collection(self.wiki_id, self.slug)

    @property
    def draft(self) -> str:
        return f"{self.name}.new"


class Mirror:
    """The collection of one index. `known` says which wikis this installation has."""

    def __init__(
        self,
        index: WikiIndex,
        exact: ExactCache,
        directory: Path,
        whose: Whose,
        figures: Figures,
        known: Callable[[], Iterable[str]],
        published: Callable[[], bool],
    ) -> None:
        """`published` says whether this index is still the one its wiki is searched by."""
        self._index = index
        self._directory = directory
        self._whose = whose
        self._figures = figures
        self._filling = Filling(index, whose.layout, figures)
        self._comparing = Comparing(index, exact, whose.layout, figures, self._filling)
        self.chunks = self._comparing.chunks
        self._known = known
        self._published = published
        self._proven = ""
        self._strikes = 0
        self._condemned = False
        self._check_all = False

    @property
    def marked(self) -> bool:
        """Whether rows have to be asked for with their marks."""
        return self._whose.layout.with_marks

    def doubt(self) -> None:
        """Have it compared with the truth before it is asked again."""
        self._proven, self._check_all = "", True

    def bring(self, api: Api, incarnation: str, stop: Stop) -> Standing:
        """Make the collection equal to the index and say so; raises ChromaAway, ChromaRefused, NotOurs."""
        try:
            with self._writing() as writes:
                standing = self._brought(api, incarnation, stop, writes=writes)
        except ChromaAway:
            # Nobody else was at work: if Chroma dies of this collection twice, the collection goes.
            self._strikes += 1
            self._condemned = self._condemned or self._strikes >= 2
            raise
        self._strikes, self._condemned = 0, False
        return standing

    def _brought(self, api: Api, incarnation: str, stop: Stop, *, writes: bool) -> Standing:
        found = self._found(api)
        if writes and (found is None or self._condemned or not self._fits(found)):
            if not self._published():
                raise Abandoned  # the collection belongs to the generation that is
            found = self._built(api, stop)
        if found is None or not self._fits(found):
            raise OthersAtWork("Another process is filling the collection.")
        try:
            return self._current(api, found, incarnation, stop, writes=writes)
        except ChromaRefused as refusal:
            if not writes:
                raise
            _LOG.warning("a collection of Chroma's is damaged and filled anew: %s", refusal.message)
        return self._current(api, self._built(api, stop), incarnation, stop, writes=True)

    def _current(self, api: Api, found: Collection, incarnation: str, stop: Stop, *, writes: bool) -> Standing:
        version = _version(found)
        if writes and version != self._index.version():
            version = self._follow(api, found, version, stop)
        if self._check_all or self._proven != f"{found.id} {incarnation}":
            self._comparing.prove(api.rows_of(found), version, stop, writes=writes)
        delta = self._index.changes_since(version)
        if delta is None:
            raise OthersAtWork("Another process is bringing the collection up to date.")
        rows = max(0, self._index.state().chunks - len(delta.added.chunk_ids))
        self._proven, self._check_all = f"{found.id} {incarnation}", False
        return Standing(api.rows_of(found), version, rows, incarnation, delta.added.chunk_ids)

    # ── whose it is ──────────────────────────────────────────────────────────────────────────────

    def _found(self, api: Api) -> Collection | None:
        """The collection, if it is this wiki's; one that was left by a wiki we no longer have makes way."""
        for name in (self._whose.draft, self._whose.name):
            found = api.find(name)
            if found is None or found.marks.get("wikiholt_wiki") == self._whose.wiki_id:
                continue
            left = bool(self._whose.owner) and found.marks.get("wikiholt_owner") == self._whose.owner
            if not left or found.marks.get("wikiholt_wiki") in set(self._known()):
                raise NotOurs(
                    "In Chroma there is a collection of the name ours would have, and Wikiholt did not make it.",
                    hint="rename or remove it, or choose another chroma.database or chroma.layout",
                )
            api.drop(name)
            found = None
        return found

    def _marks(self, version: int) -> Mapping[str, Mark]:
        state = self._index.state()
        return {
            "wikiholt_wiki": self._whose.wiki_id,
            "wikiholt_owner": self._whose.owner,
            "wikiholt_format": FORMAT,
            "wikiholt_layout": self._whose.layout.name,
            "wikiholt_model": state.recipe.fingerprint,
            "wikiholt_generation": state.generation,
            "wikiholt_version": version,
        }

    def _fits(self, found: Collection) -> bool:
        """Whether the collection was made of this index, in today's way, and to its end."""
        version = _version(found)
        alike = dict(found.marks) == dict(self._marks(version))
        dimension = found.dimension in (None, self._index.state().recipe.dimensions)
        return alike and dimension and 0 <= version <= self._index.version()

    # ── filling ──────────────────────────────────────────────────────────────────────────────────

    def _built(self, api: Api, stop: Stop) -> Collection:
        """A collection filled from the truth beside the one there is, which it then replaces."""
        self._figures.add("rebuilds")
        api.drop(self._whose.draft)
        made = api.create(self._whose.draft, self._marks(-1))
        with self._index.snapshot() as snapshot:
            version = snapshot.version
            for block in snapshot.blocks():
                self._filling.put(api.rows_of(made), block, stop)
        marks = self._marks(version)
        if not self._directory.exists():
            raise Abandoned  # the wiki was removed meanwhile
        api.drop(self._whose.name)
        api.rows_of(made).change(marks, self._whose.name)
        return Collection(made.id, self._whose.name, made.dimension, marks)

    def _follow(self, api: Api, found: Collection, version: int, stop: Stop) -> int:
        """Write what changed since; where that is unknown, every id is compared."""
        delta = self._index.changes_since(version)
        if delta is None:
            now = self._index.version()
            self._comparing.mend(api.rows_of(found), stop)
        else:
            now = delta.version
            self._filling.put(api.rows_of(found), delta.added, stop)
            self._filling.take_out(api.rows_of(found), np.setdiff1d(delta.dropped, delta.added.chunk_ids), stop)
        api.rows_of(found).change(self._marks(now))
        return now

    @contextlib.contextmanager
    def _writing(self) -> Iterator[bool]:
        """Whether this process is the one that may write the collection, while the block runs."""
        # Where the directory is gone, the wiki was removed and nothing of it may come back.
        descriptor = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def _version(found: Collection) -> int:
    version = found.marks.get("wikiholt_version")
    return version if isinstance(version, int) else -1
