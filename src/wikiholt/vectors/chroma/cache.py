"""The vector cache of one wiki with Chroma's help: Chroma guesses which chunks are nearest, exact scores decide.

The rows lie in a mapped file as they do without Chroma. So an answer of Chroma's is never believed, only scored; a
chunk that came since its collection's version is scored too; and while Chroma is away, slow or wrong the same rows
answer alone, exactly, and say so. A search never waits longer for Chroma than its time, and once it has waited in
vain no other search does until Chroma has proved itself again.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from wikiholt.model import Floats, Ints, Neighbours
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Api, Found
from wikiholt.vectors.chroma.comparing import SLACK
from wikiholt.vectors.chroma.faults import ChromaAway, ChromaRefused, OthersAtWork
from wikiholt.vectors.chroma.figures import Figures
from wikiholt.vectors.chroma.mirror import Mirror, Standing, Whose
from wikiholt.vectors.chroma.worker import Caretaker
from wikiholt.vectors.exact import ExactCache

MOST = 1000
"""Whoever asks for more neighbours than this wants all of them, and is answered by exact scores."""
_WATCHED_EVERY, _WATCHED = 16, 4
"""With every so many searches, and with the first over a new connection, so many rows are looked for that are there."""

_CHECKED_EVERY, _CHECKED_AGAIN = 900.0, 60.0
"""Seconds between two comparisons of a collection that is in use, and for no better reason than a new connection."""


class ChromaCache:
    """A VectorCache over one index and its collection."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        whose: Whose,
        caretaker: Caretaker,
        *,
        timeout: float,
        published: Callable[[], bool] = lambda: True,
        background: bool = True,
    ) -> None:
        self._exact = ExactCache(index, directory, background=background)
        self._index = index
        self._caretaker = caretaker
        self._timeout = timeout
        self._figures: Figures = caretaker.figures
        self._mirror = Mirror(index, self._exact, directory, whose, caretaker.figures, caretaker.known, published)
        self._checked_at = time.monotonic()
        self._standing: Standing | None = None
        self._searches = itertools.count()
        self._first = True
        self._lock = threading.Lock()

    # ── the contract ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int | None:
        return self._exact.version

    def refresh(self) -> None:
        """Bring the rows to the index's version, and have the collection follow in the background."""
        self._exact.refresh()
        standing = self._standing
        if standing is None or standing.version != self._index.version():
            self._caretaker.want(self)
        elif time.monotonic() - self._checked_at > _CHECKED_EVERY:
            self._check_soon()
        if self._first:
            # A command that searches once is to find Chroma ready; nobody waits for it a second time.
            self._first = False
            self._caretaker.wait(self, self._timeout)
        self._keep_up()

    def search(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        """The nearest chunks, of these pages only if given: those are scored, for a filter of Chroma's loses some."""
        if pages is not None or limit > MOST:
            return self._exact.search(vector, limit, pages)
        standing = self._standing
        if standing is not None:
            try:
                return self._guessed(standing, np.ascontiguousarray(vector, np.float32), limit)
            except (ChromaAway, ChromaRefused) as error:
                self._figures.add("timeouts" if isinstance(error, ChromaAway) and error.hung else "failures")
                self._lose(standing, wrong=isinstance(error, ChromaRefused))
        self._figures.add("fallbacks")
        return replace(self._exact.search(vector, limit, None), degraded=True)

    def verify(self) -> None:
        """Compare every byte of the rows' file, and have the collection compared with the truth."""
        self._check_soon()
        self._exact.verify()

    def settle(self, timeout: float | None = None) -> bool:
        return self._exact.settle(timeout) and self._caretaker.wait(self, timeout)

    def close(self) -> None:
        self._caretaker.leave(self)
        self._standing = None
        self._exact.close()

    # ── for the caretaker ────────────────────────────────────────────────────────────────────────

    def bring(self, api: Api, incarnation: str, stop: Callable[[], bool]) -> None:
        """Make the collection equal to the index; from then on searches ask it."""
        self._exact.refresh()
        if self._exact.version is None:
            raise OthersAtWork("The rows of a large wiki are being built.")
        self._standing = self._mirror.bring(api, incarnation, stop)

    def lost(self) -> None:
        """Chroma is away: ask it no more."""
        self._standing = None

    def behind(self) -> bool:
        """Whether there is something to do again."""
        standing = self._standing
        return standing is None or standing.version != self._index.version()

    # ── asking ───────────────────────────────────────────────────────────────────────────────────

    def _guessed(self, standing: Standing, vector: Floats, limit: int) -> Neighbours:
        """Chroma's guess and what came since, scored; where too few were found, every row is."""
        wanted = min(limit + SLACK, standing.rows)
        if wanted == 0:
            return self._exact.search(vector, limit, None)
        watched = self._exact.sample(_WATCHED).vectors if next(self._searches) % _WATCHED_EVERY == 0 else vector[:0]
        found = self._asked(standing, vector, watched.reshape(-1, len(vector)), wanted)
        if found.fresh:
            self._look_closer(standing, vector)
        chunks = self._mirror.chunks(found.rows[0])
        if len(chunks) < 0.9 * wanted:
            raise ChromaRefused("Chroma finds fewer rows than there are.")
        near = self._exact.scored(vector, np.union1d(chunks, standing.behind), limit)
        self._figures.add("queries")
        if len(near.chunk_ids) < min(limit, standing.rows):
            return self._exact.search(vector, limit, None)
        return near

    def _look_closer(self, standing: Standing, vector: Floats) -> None:
        """Behind a new connection there may be another server: have rows found, and soon all of them compared."""
        self._asked(standing, vector, self._exact.sample(_WATCHED).vectors, 1)
        if not standing.incarnation and time.monotonic() - self._checked_at > _CHECKED_AGAIN:
            self._check_soon()

    def _check_soon(self) -> None:
        """Have the collection compared with the truth in the background; it is asked meanwhile."""
        self._checked_at = time.monotonic()
        self._mirror.doubt()
        self._caretaker.want(self)

    def _asked(self, standing: Standing, vector: Floats, watched: Floats, wanted: int) -> Found:
        """Ask for the neighbours of a vector and of rows that are there, each of which must find itself."""
        vectors = np.concatenate((vector[None], watched))
        found = standing.collection.nearest(vectors, wanted, with_marks=self._mirror.marked, timeout=self._timeout)
        if found.incarnation != standing.incarnation:
            raise ChromaAway("Chroma is another process than the one that proved itself.")
        for row, rows in zip(watched, found.rows[1:], strict=True):
            itself = self._exact.scored(row, self._mirror.chunks(rows), 1)
            if not len(itself.distances) or itself.distances[0] > 1e-3:
                raise ChromaRefused("Chroma does not find a row that is there.")
        return found

    def _keep_up(self) -> None:
        """Know which chunks came since the collection's version."""
        standing = self._standing
        if standing is None or standing.version == self._index.version():
            return
        delta = self._index.changes_since(standing.version)
        with self._lock:
            if self._standing is standing:
                fresh = None if delta is None else replace(standing, behind=delta.added.chunk_ids)
                self._standing = fresh

    def _lose(self, standing: Standing, *, wrong: bool) -> None:
        with self._lock:
            if self._standing is standing:
                self._standing = None
        if wrong or not standing.incarnation:
            self._mirror.doubt()
        self._caretaker.want(self)
