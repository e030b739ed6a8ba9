"""What building an index anew would take: pages are read and cut as a sync does, a few of their texts are embedded, and
nothing is written."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wikiholt.model import EntryKind, Forecast, TreeEntry
from wikiholt.pages import Draft, Pipeline
from wikiholt.ports import Embedder, Source, WikiIndex

_AT_ONCE = 48
_SAMPLE = 96
_SAMPLE_SECONDS = 2.0
_GROUP = 16
"""Texts embedded at a time, as many as keep the cores of a small machine busy."""
_PAGE_BYTES = 2200
_CHUNK_BYTES = 900
"""What a page and a chunk take in tables and indexes beside text and vector, as measured (docs/health.md)."""
WRITING = 0.0006
"""Seconds to write a chunk and to check it, measured likewise."""


@dataclass(slots=True)
class _Seen:
    """What the pages read so far hold."""

    pages: int = 0
    chunks: int = 0
    text_bytes: int = 0
    hashes: set[bytes] = field(default_factory=set)
    sample: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def take(self, draft: Draft) -> None:
        self.chunks += len(draft.texts)
        for digest, text in zip(draft.hashes, draft.texts, strict=True):
            self.text_bytes += len(text.encode())
            if digest not in self.hashes and len(self.sample) < _SAMPLE:
                self.sample.append(text)
            self.hashes.add(digest)


def foresee(
    source: Source, pipeline: Pipeline, embedder: Embedder, index: WikiIndex | None, place: Path, limit: float
) -> Forecast:
    """The forecast for HEAD; what is not read within `limit` seconds is taken to be like what was."""
    tree = source.tree(source.head())
    seen = _Seen()
    for some in _slices(tree):
        began = time.monotonic()
        _read(some, tree, source, pipeline, embedder, seen)
        seen.seconds += time.monotonic() - began
        if seen.seconds > limit:
            break
    reusable = _reusable(index, embedder, seen.hashes)
    share = len(tree) / seen.pages if seen.pages else 1.0
    embedding = seconds_a_text(embedder, seen.sample)
    fixed = (seen.seconds + WRITING * seen.chunks) * share
    bytes_ = (
        seen.pages * _PAGE_BYTES + seen.chunks * (_CHUNK_BYTES + 8 * embedder.dimensions) + 3 * seen.text_bytes
    ) * share
    return Forecast(
        pages=len(tree),
        chunks=round(seen.chunks * share),
        chunks_to_embed=round(len(seen.hashes) * share),
        reusable_vectors=round(reusable * share),
        seconds=round(len(seen.hashes) * share * embedding + fixed, 3),
        seconds_reusing=round((len(seen.hashes) - reusable) * share * embedding + fixed, 3),
        disk_bytes=round(bytes_),
        disk_free=shutil.disk_usage(next(at for at in (place, *place.parents) if at.exists())).free,
        exact=seen.pages == len(tree),
    )


def _slices(tree: Mapping[str, TreeEntry]) -> Iterator[Sequence[str]]:
    """All files, in the order of their blobs: as good as any for a whole, and a fair sample at every point."""
    files = iter(sorted(tree, key=lambda file: tree[file].blob))
    while some := list(islice(files, _AT_ONCE)):
        yield some


def _read(
    some: Sequence[str],
    tree: Mapping[str, TreeEntry],
    source: Source,
    pipeline: Pipeline,
    embedder: Embedder,
    seen: _Seen,
) -> None:
    files = [file for file in some if tree[file].kind is EntryKind.FILE]
    blobs = source.read((tree[file].blob for file in files), pipeline.max_bytes)
    for file, blob in zip(files, blobs, strict=True):
        draft = pipeline.draft(file, blob, None, embedder)
        if isinstance(draft, Draft):
            seen.take(draft)
    seen.pages += len(some)


def _reusable(index: WikiIndex | None, embedder: Embedder, hashes: set[bytes]) -> int:
    if index is None or index.state().recipe.fingerprint != embedder.fingerprint:
        return 0
    wanted, found = iter(hashes), 0
    while some := list(islice(wanted, 500)):
        found += len(index.reuse(some))
    return found


def seconds_a_text(embedder: Embedder, sample: Sequence[str]) -> float:
    """Measured, after one group that wakes the model up."""
    embedder.passages(sample[:1])
    done, began = 0, time.monotonic()
    while done < len(sample) and (not done or time.monotonic() - began < _SAMPLE_SECONDS):
        done += len(embedder.passages(sample[done : done + _GROUP]))
    return (time.monotonic() - began) / done if done else 0.0
