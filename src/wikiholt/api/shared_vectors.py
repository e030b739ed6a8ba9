"""An index's vectors under a ref of the wiki's own repository, so that others embed nothing.

Its name has the format and the model. Its files are parts of one sequence of rows, the last one shorter than the
others: a text's hash (16 bytes) and its vector (16-bit integers, little endian), sorted by hash. Git checks that they
are what was pushed. What is pulled is untrusted: the format is strict, sizes are limited, and nothing of it is used
unless a random sample, embedded again, has the same vectors.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count, pairwise
from pathlib import Path
from random import SystemRandom
from typing import Any

import numpy as np

from wikiholt.api.importer.importer import iter_prepared_pages
from wikiholt.api.importer.reuse import ReusingEmbedder, VectorSamples, check_agreement
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidSource, ModelMismatch, NothingIndexed, SourceCorrupt
from wikiholt.git.remote_url import is_remote
from wikiholt.git.vector_ref import VectorRef
from wikiholt.index.page_process import PageProcess
from wikiholt.index.pipeline import PreparedPage, iter_batches
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import WikiConfig

DEFAULT_SAMPLE = 64
_FORMAT = "wikiholt vectors 1"
_PART_NAME = "part-{:04d}"
_PART_BYTES = 32 << 20
"""Hosts refuse files that are several times larger."""
_HASH_BYTES = 16
_SCALE = 32767
_UNIT_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class PushedIndex:
    """What was pushed, or pulled and verified."""

    ref: str
    texts: int
    bytes: int
    sampled: int = 0


class SharedVectors:
    """Vectors by the hash of their text, as pulled."""

    def __init__(self, hashes: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]) -> None:
        self._rows = {bytes(digest): number for number, digest in enumerate(hashes)}
        self._codes = codes

    def __len__(self) -> int:
        return len(self._rows)

    def find_vectors(self, _: str, hashes: Sequence[bytes]) -> Mapping[bytes, tuple[str, FloatArray]]:
        """The vectors of these texts, each with the model that `check_agreement` was asked about."""
        numbers = [self._rows[digest] for digest in hashes if digest in self._rows]
        rows = self._codes[numbers].astype(np.float32)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
        found = (digest for digest in hashes if digest in self._rows)
        return {digest: ("", vector) for digest, vector in zip(found, rows, strict=True)}


def push_index(handle: WikiHandle, config: WikiConfig, embedder: Embedder, remote: str, max_bytes: int) -> PushedIndex:
    """Push the vectors of all texts of the indexed commit. Replaces what was pushed before for this model.

    Raises NothingIndexed if vectors are missing, ModelMismatch, and the errors of git.
    """
    with handle.open_contents() as (index, _, pipeline):
        state = index.get_state()
        if state.revision is None or state.pending_chunks:
            raise NothingIndexed("not all pages are embedded yet", hint="run `wikiholt sync`, then push again")
        if state.recipe.fingerprint != embedder.fingerprint:
            raise ModelMismatch("the index is of another model", hint="run `wikiholt sync`, then push again")
        config = replace(config, pipeline=pipeline.with_detected(state.recipe))
        known: dict[bytes, FloatArray] = {}
        for pages in iter_prepared_pages(config, state.revision, embedder):
            known |= index.find_vectors_by_hash([digest for page in pages for digest in page.hashes])
    data = _encode(known)
    starts = range(0, len(data) + 1, _PART_BYTES)
    with _open_ref(handle.wiki, remote, embedder, max_bytes) as (ref, name):
        ref.push({_PART_NAME.format(n): data[start : start + _PART_BYTES] for n, start in enumerate(starts)})
    return PushedIndex(name, len(known), len(data))


def pull_vectors(
    wiki: Wiki, config: WikiConfig, embedder: Embedder, remote: str, sample_size: int, max_bytes: int
) -> tuple[ReusingEmbedder, PushedIndex]:
    """An embedder that knows the vectors of the remote, after a sample of them was embedded again.

    Raises NotFound, ModelMismatch, SourceCorrupt for anything but the exact format, and the errors of git.
    """
    with _open_ref(wiki, remote, embedder, max_bytes) as (ref, name):
        commit, data = ref.fetch(), bytearray()
        for number in count():
            part = ref.read_file(commit, _PART_NAME.format(number), min(_PART_BYTES, max_bytes - len(data)))
            data += part
            if len(part) < _PART_BYTES:
                break
    vectors = _decode(data, embedder.dimensions)
    sample = _draw_sample(config, vectors, embedder, sample_size)
    agreement = check_agreement("", sample, embedder)
    if sample and not agreement.agrees:
        raise ModelMismatch(
            f"the vectors on {remote} are not those of {embedder.fingerprint}: {agreement.reason}",
            hint="nothing of them was used; push them again from an index that you trust",
        )
    trusted = frozenset({""}) if sample else frozenset[str]()
    pulled = PushedIndex(name, len(vectors), len(data), len(sample))
    return ReusingEmbedder(embedder, vectors, wiki.slug, trusted), pulled


@contextmanager
def _open_ref(wiki: Wiki, remote: str, embedder: Embedder, max_bytes: int) -> Iterator[tuple[VectorRef, str]]:
    """The ref of this model in the wiki's own repository."""
    if wiki.is_directory or wiki.is_managed or is_remote(wiki.source):
        raise InvalidSource(
            "An index is shared through the wiki's own clone, and this wiki has none.",
            hint="Clone its repository, and add the clone: `wikiholt add PATH`.",
        )
    digest = blake2b(f"{_FORMAT}\0{embedder.fingerprint}".encode(), digest_size=6).hexdigest()
    name = f"refs/wikiholt/vectors-{digest}"
    with tempfile.TemporaryDirectory(prefix="wikiholt-vectors-") as directory:
        yield VectorRef(Path(wiki.source), remote, name, Path(directory), max_bytes), name


def _encode(vectors: Mapping[bytes, FloatArray]) -> bytes:
    return b"".join(digest + np.round(vectors[digest] * _SCALE).astype("<i2").tobytes() for digest in sorted(vectors))


def _decode(data: bytearray, dimensions: int) -> SharedVectors:
    row = np.dtype([("hash", f"V{_HASH_BYTES}"), ("codes", "<i2", (dimensions,))])
    if len(data) % row.itemsize:
        raise _make_damage_error("its size is not that of vectors of this model")
    rows = np.frombuffer(data, row)
    hashes = [bytes(digest) for digest in rows["hash"]]
    if any(first >= second for first, second in pairwise(hashes)):
        raise _make_damage_error("its texts are not in order")
    codes = rows["codes"]
    for start in range(0, len(codes), 10_000):
        norms = np.linalg.norm(codes[start : start + 10_000].astype(np.float32) / _SCALE, axis=1)
        if not (np.abs(norms - 1) < _UNIT_TOLERANCE).all():
            raise _make_damage_error("a vector is not of unit length")
    return SharedVectors(rows["hash"], codes)


def _draw_sample(
    config: WikiConfig, vectors: SharedVectors, embedder: Embedder, size: int
) -> Sequence[tuple[str, FloatArray]]:
    """Texts at HEAD of pages in random order, with their pulled vectors; a uniform choice of at least as many."""
    source, samples, matched = config.source, VectorSamples(size), 0
    tree = source.read_tree(source.get_head())
    files = SystemRandom().sample(sorted(tree), len(tree))
    with PageProcess(config.pipeline, embedder) as pages:
        for batch in iter_batches(files):
            for page in pages.prepare_files(source, {file: tree[file] for file in batch}):
                if isinstance(page, PreparedPage):
                    texts = dict(zip(page.hashes, page.texts, strict=True))
                    for digest, (_, vector) in vectors.find_vectors("", list(texts)).items():
                        samples.draw("", texts[digest], vector)
                        matched += 1
            if matched >= 4 * size:
                break
    return samples.samples.get("", [])


def _make_damage_error(reason: str) -> SourceCorrupt:
    return SourceCorrupt(f"The pushed index is damaged: {reason}.", hint="Push it again: `wikiholt index push`.")
