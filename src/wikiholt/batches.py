"""The working loop of a sync: read, draft, embed what is new, commit; batch after batch.

While one batch is being embedded (outside Python's lock) the next one is read and drafted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from itertools import islice

import numpy as np

from wikiholt.errors import ModelCorrupt, ModelMismatch, ModelMissing, ModelUnproven
from wikiholt.model import Change, Floats, PageEntry, Problem, TreeEntry
from wikiholt.pages import Draft, Pipeline, not_a_file
from wikiholt.ports import Embedder, Source, WikiIndex

_BROKEN = (ModelMissing, ModelCorrupt, ModelMismatch)
"""Faults of the model itself; a vector that is none (ModelUnproven) may be the fault of one text."""

_PAGES = 48
"""Pages a batch: enough to keep every core busy, few enough that little is redone after a crash."""


_TEXTS = 64
"""Texts embedded at a time: enough to keep every core busy, few enough to stop within a second or two."""


class Pause(IntEnum):
    """What a sync is to do when it asks whether to pause."""

    GO_ON = 0
    AFTER_THIS = 1
    """Commit the batch in hand, then stop."""
    AT_ONCE = 2
    """Commit those pages of it that are ready, then stop."""


def never() -> Pause:
    return Pause.GO_ON


class Paused(Exception):
    """A sync was asked to let others go first; what it committed stays, and the next one goes on from there."""


@dataclass(slots=True)
class Tally:
    """What has been done so far."""

    pages: int = 0
    embedded: int = 0
    reused: int = 0


@dataclass(slots=True)
class _Batch:
    drafts: list[Draft]
    problems: list[Problem]
    known: dict[bytes, Floats]
    fresh: dict[bytes, str]
    vectors: "Future[_Embedded] | None" = None


@dataclass(frozen=True, slots=True)
class _Embedded:
    vectors: dict[bytes, Floats]
    untried: frozenset[bytes]
    """Hashes of texts that were not come to before the sync was to stop."""


class Batches:
    """Puts files into one index. `donor` is an index whose vectors may be taken over if its model is the same."""

    def __init__(
        self,
        index: WikiIndex,
        donor: WikiIndex,
        source: Source,
        embedder: Embedder,
        pipeline: Pipeline,
        times: Mapping[str, datetime],
    ) -> None:
        self._index = index
        self._donors = [index]
        if donor is not index and donor.state().recipe.fingerprint == embedder.fingerprint:
            self._donors.append(donor)
        self._source = source
        self._embedder = embedder
        self._pipeline = pipeline
        self._times = times

    def run(
        self,
        files: Mapping[str, TreeEntry],
        moved: Mapping[str, str],
        progress: Callable[[Tally], None],
        pause: Callable[[], Pause] = never,
    ) -> Tally:
        """Index every file; a moved one takes the place of the one it was, in the same transaction.

        `pause` is asked between batches and texts, from two threads; when it says so, Paused is raised after a commit.
        """
        tally = Tally()
        progress(tally)
        with ThreadPoolExecutor(1, "embed") as executor:
            waiting: _Batch | None = None
            for some in _slices(files):
                if waiting is not None and pause():
                    self._commit(waiting, moved, tally)
                    progress(tally)
                    raise Paused
                batch = self._prepared(some, files)
                batch.vectors = executor.submit(self._embedded, batch.fresh, pause)
                if waiting is not None:
                    self._commit(waiting, moved, tally)
                    progress(tally)
                waiting = batch
            if waiting is not None:
                self._commit(waiting, moved, tally)
                progress(tally)
        return tally

    def _prepared(self, some: Sequence[str], files: Mapping[str, TreeEntry]) -> _Batch:
        drafts: list[Draft] = []
        problems = [problem for file in some if (problem := not_a_file(file, files[file]))]
        odd = {problem.file for problem in problems}
        wanted = [file for file in some if file not in odd]
        blobs = self._source.read((files[file].blob for file in wanted), self._pipeline.max_bytes)
        for file, blob in zip(wanted, blobs, strict=True):
            draft = self._pipeline.draft(file, blob, self._times.get(file), self._embedder)
            if isinstance(draft, Problem):
                problems.append(draft)
            else:
                drafts.append(draft)
        texts = {h: text for draft in drafts for h, text in zip(draft.hashes, draft.texts, strict=True)}
        known: dict[bytes, Floats] = {}
        for donor in self._donors:
            known |= donor.reuse([h for h in texts if h not in known])
        return _Batch(drafts, problems, known, {h: text for h, text in texts.items() if h not in known})

    def _embedded(self, fresh: Mapping[bytes, str], pause: Callable[[], Pause]) -> _Embedded:
        """Vectors for these texts, as far as it came; those a fault of the model spoils are left out."""
        found: dict[bytes, Floats] = {}
        hashes = list(fresh)
        for start in range(0, len(hashes), _TEXTS):
            if pause() is Pause.AT_ONCE:
                return _Embedded(found, frozenset(hashes[start:]))
            some = hashes[start : start + _TEXTS]
            vectors = self._some([fresh[h] for h in some])
            found |= {h: vector for h, vector in zip(some, vectors, strict=True) if _sound(vector)}
        return _Embedded(found, frozenset())

    def _some(self, texts: Sequence[str]) -> Sequence[Floats]:
        try:
            return list(self._embedder.passages(texts))
        except _BROKEN:
            raise
        except Exception:  # noqa: BLE001 - one text may be at fault: find out which
            return [self._one(text) for text in texts]

    def _one(self, text: str) -> Floats:
        try:
            return np.asarray(self._embedder.passages([text])[0], np.float32)
        except _BROKEN:
            raise
        except Exception:  # noqa: BLE001 - becomes a problem of its page
            return np.zeros(self._embedder.dimensions, np.float32)

    def _commit(self, batch: _Batch, moved: Mapping[str, str], tally: Tally) -> None:
        assert batch.vectors is not None
        embedded = batch.vectors.result()
        fresh = embedded.vectors
        tried = len(batch.fresh) > len(embedded.untried)
        if tried and not fresh and not _sound(self._one("a sentence that any model can embed")):
            raise ModelUnproven("the model gave no usable vector for a whole batch", hint="run `wikiholt doctor`")
        entries, problems = _entries(batch, embedded, self._embedder.dimensions)
        gone = [moved[entry.page.file] for entry in entries if entry.page.file in moved]
        gone += [moved[problem.file] for problem in problems if problem.file in moved]
        self._index.apply(Change(tuple(entries), tuple(gone), tuple(problems)))
        tally.pages += len(entries) + len(problems)
        tally.embedded += len(fresh)
        tally.reused += max(0, sum(len(entry.chunks) for entry in entries) - len(fresh))
        if embedded.untried:
            raise Paused


def _entries(batch: _Batch, embedded: _Embedded, dimensions: int) -> tuple[list[PageEntry], list[Problem]]:
    vectors = {**batch.known, **embedded.vectors}
    entries, problems = [], list(batch.problems)
    for draft in batch.drafts:
        if not embedded.untried.isdisjoint(draft.hashes):
            continue
        if any(h not in vectors for h in draft.hashes):
            problems.append(Problem(draft.page.file, draft.blob, "failed", "the model could not embed this page"))
            continue
        rows = [vectors[h] for h in draft.hashes]
        matrix = np.stack(rows) if rows else np.empty((0, dimensions), np.float32)
        entries.append(PageEntry(draft.blob, draft.page, draft.chunks, draft.hashes, matrix, draft.words))
    return entries, problems


def _sound(vector: Floats) -> bool:
    """Whether a vector is one: finite and of unit length."""
    norm = float(np.linalg.norm(vector))
    return bool(np.isfinite(norm)) and abs(norm - 1) < 1e-2


def _slices(files: Mapping[str, TreeEntry]) -> Iterator[list[str]]:
    names = iter(files)
    while some := list(islice(names, _PAGES)):
        yield some
