"""Estimate the time and disk space of a reindex: read and chunk pages as a sync does, embed a sample, write nothing."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from wikiholt.domain.index import ReindexEstimate
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.page_process import PageProcess
from wikiholt.index.pipeline import PreparedPage, TextPipeline, iter_batches

_SAMPLE_TEXTS = 96
_SAMPLE_TIME_S = 2.0
_EMBED_BATCH_TEXTS = 16
"""Texts per embedding call: enough to use the cores of a small machine."""
_BYTES_PER_PAGE = 2200
_BYTES_PER_CHUNK = 900
"""Disk space of a page and of a chunk in tables and indexes, without text and vector; measured (docs/health.md)."""
WRITE_SECONDS_PER_CHUNK = 0.0006
"""Seconds to write and check a chunk; measured (docs/health.md)."""


@dataclass(slots=True)
class _PageStats:
    """Totals over the pages read so far."""

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
    """Estimate a reindex at HEAD. Pages not read within `time_limit_s` are extrapolated from those that were."""
    tree = source.read_tree(source.get_head())
    stats = _PageStats()
    with PageProcess(pipeline, embedder) as pages:
        # Blob order is random, so the pages read before the time limit are a fair sample.
        for files in iter_batches(sorted(tree, key=lambda file: tree[file].blob)):
            began = time.monotonic()
            for page in pages.prepare_files(source, {file: tree[file] for file in files}):
                if isinstance(page, PreparedPage):
                    stats.add(page)
            stats.pages += len(files)
            stats.seconds += time.monotonic() - began
            if stats.seconds > time_limit_s:
                break
    reusable = _count_reusable(index, embedder, stats.hashes)
    scale = len(tree) / stats.pages if stats.pages else 1.0
    seconds_per_text = measure_seconds_per_text(embedder, stats.sample)
    fixed_seconds = (stats.seconds + WRITE_SECONDS_PER_CHUNK * stats.chunks) * scale
    disk_bytes = stats.pages * _BYTES_PER_PAGE + 3 * stats.text_bytes
    disk_bytes += stats.chunks * (_BYTES_PER_CHUNK + 6 * embedder.dimensions)
    return ReindexEstimate(
        pages=len(tree),
        chunks=round(stats.chunks * scale),
        chunks_to_embed=round(len(stats.hashes) * scale),
        reusable_vectors=round(reusable * scale),
        seconds=round(len(stats.hashes) * scale * seconds_per_text + fixed_seconds, 3),
        seconds_reusing=round((len(stats.hashes) - reusable) * scale * seconds_per_text + fixed_seconds, 3),
        disk_bytes=round(disk_bytes * scale),
        disk_free=shutil.disk_usage(next(path for path in (directory, *directory.parents) if path.exists())).free,
        exact=stats.pages == len(tree),
    )


def _count_reusable(index: WikiIndex | None, embedder: Embedder, hashes: set[bytes]) -> int:
    if index is None or index.get_state().recipe.fingerprint != embedder.fingerprint:
        return 0
    remaining, count = iter(hashes), 0
    while batch := list(islice(remaining, 500)):
        count += len(index.find_vectors_by_hash(batch))
    return count


def measure_seconds_per_text(embedder: Embedder, sample: Sequence[str]) -> float:
    """Measure the embedding time per text, after a warm-up call."""
    embedder.embed_passages(sample[:1])
    done, began = 0, time.monotonic()
    while done < len(sample) and (not done or time.monotonic() - began < _SAMPLE_TIME_S):
        done += len(embedder.embed_passages(sample[done : done + _EMBED_BATCH_TEXTS]))
    return (time.monotonic() - began) / done if done else 0.0
