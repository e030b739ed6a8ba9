"""The word cache of one index: follows its versions, keeps postings in a file, mends itself from the truth.

Any number of threads may search while one refreshes; refreshing threads wait for one another. A search works on one
view from end to end. Merging and large builds run in one background thread and are taken up by the next refresh.
"""

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wikiholt.cachefile.faults import CacheBroken, CacheNotReady
from wikiholt.cachefile.file import MappedFile
from wikiholt.cachefile.folder import CacheName, Folder
from wikiholt.cachefile.worker import Worker
from wikiholt.model import Ints, WordDelta, WordHit, WordQuery
from wikiholt.ports import Lexicon, WikiIndex
from wikiholt.words import filing, ranking
from wikiholt.words.building import Builder
from wikiholt.words.lexicon import ViewLexicon
from wikiholt.words.merging import merged
from wikiholt.words.postings import Postings
from wikiholt.words.proof import agrees
from wikiholt.words.view import View, view_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Standing:
    """What searches use: a view, the file under it if there is one, and whether the index has confirmed it."""

    view: View
    file: MappedFile | None
    proven: bool


class PostingsCache:
    """A `WordCache` over one index: the same pages and scores as its store, but for phrases (NotHere)."""

    def __init__(
        self, index: WikiIndex, directory: Path, *, background: bool = True, build_at_once: int = 2_000
    ) -> None:
        self._index = index
        self._folder = Folder(directory, filing.FAMILY)
        self._background = background
        self._build_at_once = build_at_once
        self._standing: _Standing | None = None
        self._failed_at: int | None = None
        self._unchecked: MappedFile | None = None
        self._closed = False
        self._begin_process()

    def _begin_process(self) -> None:
        """Locks and threads belong to one process; a forked child gets its own."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._worker: Worker[_Standing] = Worker("wikiholt-words", background=self._background)

    # ── the contract ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int | None:
        """The version of the index this cache stands for; None before it is ready."""
        standing = self._standing
        return None if standing is None else standing.view.version

    def refresh(self) -> None:
        """Bring the cache to the index's version: by what changed since, by a file on disk, or by building."""
        if self._process != os.getpid():
            self._begin_process()
        with self._lock:
            if self._closed:
                raise CacheNotReady("The word cache was closed.")
            standing = self._take_up(self._sound(self._standing))
            if standing is None or standing.view.version != self._index.version():
                standing = self._reached(standing)
            self._standing = self._confirmed(standing)
            if self._standing is not None:
                self._tend(self._standing)

    def search(self, query: WordQuery, limit: int, pages: Ints | None) -> Sequence[WordHit]:
        """The best pages by BM25, of these (sorted ids) only if given; NotHere for phrases, CacheNotReady before."""
        return ranking.search(self._view(), query, limit, pages)

    def best_possible(self, query: WordQuery) -> float:
        """The score no page can exceed for this query; fails as `search` does."""
        return ranking.best_possible(self._view(), query)

    def lexicon(self) -> Lexicon:
        """The terms of the version it stands for; CacheNotReady before."""
        return ViewLexicon(self._view())

    def _view(self) -> View:
        standing = self._standing
        if standing is None:
            raise CacheNotReady("The word cache is not built yet.", hint="searches read the index meanwhile")
        if standing.file is not None:
            standing.file.watch()
        return standing.view

    def verify(self) -> None:
        """Compare every byte of the file with its checksums; a damaged file is dropped and CacheBroken raised."""
        standing = self._standing
        if standing is not None and standing.file is not None:
            try:
                standing.file.check()
            except CacheBroken as error:
                self._condemn(standing.file, error)
                raise

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for work in the background to end; says whether it has. The next refresh takes it up."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Stop work in the background and let the file go."""
        self._closed = True
        if self._process == os.getpid() and not self._worker.stop(timeout=10.0):
            _log.warning("the word cache's background work did not stop in time; it ends with the process")
        self._standing = None

    # ── getting there ────────────────────────────────────────────────────────────────────────────

    def _take_up(self, standing: _Standing | None) -> _Standing | None:
        """Continue from what the background made, if it is of use."""
        made, failure = self._worker.take()
        if failure is not None:
            self._failed_at = self._index.version()
            _log.warning("the word cache could not be made: %s", failure)
        fresh = self._advanced(made)
        return fresh if fresh is not None else standing

    def _reached(self, standing: _Standing | None) -> _Standing | None:
        """The cache at the index's version; None while the background is on its way there."""
        standing = self._advanced(standing)
        if standing is None and not self._worker.busy:
            standing = self._from_disk()
        if standing is None and not self._worker.busy:
            standing = self._from_index()
        return standing

    def _advanced(self, standing: _Standing | None) -> _Standing | None:
        """The same at the index's version, by the pages changed since; None when that cannot be."""
        if standing is None:
            return None
        delta = self._index.words_since(standing.view.version)
        if delta is None:
            return None
        if delta.version == standing.view.version:
            return standing
        if self._background and len(delta.changed) > self._build_at_once:
            self._worker.start(lambda: self._grown(standing, delta))
            return None
        return self._grown(standing, delta)

    @staticmethod
    def _grown(standing: _Standing, delta: WordDelta) -> _Standing:
        return _Standing(standing.view.after(delta), standing.file, standing.proven)

    def _from_disk(self) -> _Standing | None:
        """The newest file that can be used, brought up to date; files that cannot are removed."""
        for name in self._folder.names(self._index.generation, filing.KIND):
            try:
                standing = self._advanced(self._opened(name))
            except FileNotFoundError:
                continue
            except (CacheBroken, OSError) as error:
                _log.warning("dropping the word cache %s: %s", name, error)
                standing = None
            if standing is not None or self._worker.busy:
                return standing
            # Broken, too old, or of a version this index never had: nobody can use it.
            self._folder.remove(name)
        return None

    def _opened(self, name: CacheName) -> _Standing:
        postings, file, checked = filing.open_mapped(self._folder, name)
        if not checked and not self._background:
            file.check()
        elif not checked:
            self._unchecked = file
        return _Standing(view_of(postings), file, proven=False)

    def _verify(self, file: MappedFile) -> None:
        try:
            file.check()
        except CacheBroken as error:
            self._condemn(file, error)

    def _from_index(self) -> _Standing | None:
        """Build from the truth: small ones at once, large ones in the background (None until then)."""
        if self._failed_at == self._index.version():
            return None
        if self._background and self._index.state().pages > self._build_at_once:
            self._worker.start(self._build)
            return None
        return self._advanced(self._build())

    def _build(self) -> _Standing:
        builder = Builder()
        with self._index.word_rows() as (version, rows):
            for row in self._worker.steps(rows):
                builder.add(row)
        return self._kept(builder.finish(version))

    def _tend(self, standing: _Standing) -> None:
        """Begin what the state calls for: a merge, or the check of a large file's every byte."""
        view, file = standing.view, standing.file
        if file is not None and file is self._unchecked:
            if self._worker.start(lambda: self._verify(file)):
                self._unchecked = None
        elif view.overgrown:
            self._worker.start(lambda: self._kept(merged(view)))
            if not self._background:
                self._standing = self._take_up(standing)

    def _kept(self, postings: Postings) -> _Standing:
        """The postings in a file, or in memory where the disk does not take them."""
        try:
            filing.write(self._folder, self._index.generation, postings)
            name = filing.name_of(self._index.generation, postings.version)
            postings, file, _ = filing.open_mapped(self._folder, name)
        except (OSError, CacheBroken) as error:
            _log.warning("the word cache stays in memory: %s", error)
            return _Standing(view_of(postings), None, proven=True)
        return _Standing(view_of(postings), file, proven=True)

    # ── trust ────────────────────────────────────────────────────────────────────────────────────

    def _sound(self, standing: _Standing | None) -> _Standing | None:
        """What we have, unless its file was condemned or changed since, or the truth went back behind it."""
        if standing is None or standing.view.version > self._index.version():
            return None
        if standing.file is not None:
            try:
                standing.file.watch()
            except CacheBroken as error:
                self._condemn(standing.file, error)
                return None
        return standing

    def _confirmed(self, standing: _Standing | None) -> _Standing | None:
        """What came from a file, once the index has confirmed it; otherwise what the index itself gives."""
        if standing is None or standing.proven:
            return standing
        verdict = agrees(standing.view, self._index)
        if verdict is None:
            return standing
        if verdict:
            return _Standing(standing.view, standing.file, proven=True)
        if standing.file is not None:
            self._condemn(standing.file, CacheBroken("it was made from another index"))
        return self._from_index()

    def _condemn(self, file: MappedFile, error: Exception) -> None:
        """Never believe this file again, and remove it if it still lies there."""
        _log.warning("dropping the word cache of version %d: %s", file.header.version, error)
        file.condemned = True
        self._folder.remove(filing.name_of(file.header.generation, file.header.version))
