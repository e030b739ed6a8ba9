"""What building an index anew would take: pages are read and cut as a sync does, a few of their texts are embedded, and
nothing is written."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wikiholt.domain.git import EntryKind, TreeEntry
from wikiholt.domain.index import ReindexEstimate
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.indexing.pipeline import PreparedPage, TextPipeline

_BATCH_PAGES = 48
_SAMPLE_TEXTS = 96
_SAMPLE_TIME_S = 2.0
_EMBED_BATCH_TEXTS = 16
"""Texts embedded at a time, as many as keep the cores of a small machine busy."""
_BYTES_PER_PAGE = 2200
_BYTES_PER_CHUNK = 900
"""What a page and a chunk take in tables and indexes beside text and vector, as measured (docs/health.md)."""
WRITE_SECONDS_PER_CHUNK = 0.0006
"""Seconds to write a chunk and to check it, measured likewise."""


@dataclass(slots=True)
class _PageStats:
    """What the pages read so far hold."""

    pages: int = 0
    chunks: int = 0
    text_bytes: int = 0
    hashes: set[bytes] = field(default_factory=set)
    sample: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, page: PreparedPage) -> None:
        self.chunks += len(page.texts)
        for digest, text in zip(page.hashes, page.texts, strict=True):
            self.text_bytes += len(text.encode())
            if digest not in self.hashes and len(self.sample) < _SAMPLE_TEXTS:
                self.sample.append(text)
            self.hashes.add(digest)


def estimate_reindex(
    source: Source,
    pipeline: TextPipeline,
    embedder: Embedder,
    index: WikiIndex | None,
    directory: Path,
    time_limit_s: float,
) -> ReindexEstimate:
    """The forecast for HEAD; what is not read within `limit` seconds is taken to be like what was."""
    tree = source.read_tree(source.get_head())
    seen = _PageStats()
    for some in _iter_batches(tree):
        began = time.monotonic()
        _read_batch(some, tree, source, pipeline, embedder, seen)
        seen.seconds += time.monotonic() - began
        if seen.seconds > time_limit_s:
            break
    reusable = _count_reusable(index, embedder, seen.hashes)
    share = len(tree) / seen.pages if seen.pages else 1.0
    embedding = measure_seconds_per_text(embedder, seen.sample)
    fixed = (seen.seconds + WRITE_SECONDS_PER_CHUNK * seen.chunks) * share
    bytes_ = (
        seen.pages * _BYTES_PER_PAGE + seen.chunks * (_BYTES_PER_CHUNK + 8 * embedder.dimensions) + 3 * seen.text_bytes
    ) * share
    return ReindexEstimate(
        pages=len(tree),
        chunks=round(seen.chunks * share),
        chunks_to_embed=round(len(seen.hashes) * share),
        reusable_vectors=round(reusable * share),
        seconds=round(len(seen.hashes) * share * embedding + fixed, 3),
        seconds_reusing=round((len(seen.hashes) - reusable) * share * embedding + fixed, 3),
        disk_bytes=round(bytes_),
        disk_free=shutil.disk_usage(next(at for at in (directory, *directory.parents) if at.exists())).free,
        exact=seen.pages == len(tree),
    )


def _iter_batches(tree: Mapping[str, TreeEntry]) -> Iterator[Sequence[str]]:
    """All files, in the order of their blobs: as good as any for a whole, and a fair sample at every point."""
    files = iter(sorted(tree, key=lambda file: tree[file].blob))
    while some := list(islice(files, _BATCH_PAGES)):
        yield some


def _read_batch(
    batch_files: Sequence[str],
    tree: Mapping[str, TreeEntry],
    source: Source,
    pipeline: TextPipeline,
    embedder: Embedder,
    stats: _PageStats,
) -> None:
    files = [file for file in batch_files if tree[file].kind is EntryKind.FILE]
    blobs = source.read_blobs((tree[file].blob for file in files), pipeline.max_bytes)
    for file, blob in zip(files, blobs, strict=True):
        draft = pipeline.prepare(file, blob, None, embedder)
        if isinstance(draft, PreparedPage):
            stats.add(draft)
    stats.pages += len(batch_files)


def _count_reusable(index: WikiIndex | None, embedder: Embedder, hashes: set[bytes]) -> int:
    if index is None or index.get_state().recipe.fingerprint != embedder.fingerprint:
        return 0
    wanted, found = iter(hashes), 0
    while some := list(islice(wanted, 500)):
        found += len(index.find_vectors_by_hash(some))
    return found


def measure_seconds_per_text(embedder: Embedder, sample: Sequence[str]) -> float:
    """Measured, after one group that wakes the model up."""
    embedder.embed_passages(sample[:1])
    done, began = 0, time.monotonic()
    while done < len(sample) and (not done or time.monotonic() - began < _SAMPLE_TIME_S):
        done += len(embedder.embed_passages(sample[done : done + _EMBED_BATCH_TEXTS]))
    return (time.monotonic() - began) / done if done else 0.0
