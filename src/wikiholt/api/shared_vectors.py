"""An index's vectors under a ref of the wiki's own repository, so that others embed nothing.

The ref has a manifest and parts. A part is rows of a text's hash (16 bytes) and its vector (16-bit integers, little
endian), sorted by hash. What is pulled is untrusted: the format is strict, sizes are limited, and nothing of it is used
unless a random sample, embedded again, has the same vectors.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from itertools import pairwise
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
_MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 1 << 20
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
    files = _encode(known, embedder)
    with _open_ref(handle.wiki, remote, embedder, max_bytes) as (ref, name):
        ref.push(files)
    return PushedIndex(name, len(known), sum(map(len, files.values())))


def pull_vectors(
    wiki: Wiki, config: WikiConfig, embedder: Embedder, remote: str, sample_size: int, max_bytes: int
) -> tuple[ReusingEmbedder, PushedIndex]:
    """An embedder that knows the vectors of the remote, after a sample of them was embedded again.

    Raises NotFound, ModelMismatch, SourceCorrupt for anything but the exact format, and the errors of git.
    """
    with _open_ref(wiki, remote, embedder, max_bytes) as (ref, name):
        commit = ref.fetch()
        manifest = _parse_manifest(ref.read_file(commit, _MANIFEST, _MAX_MANIFEST_BYTES), embedder, max_bytes)
        parts = [ref.read_file(commit, part, _PART_BYTES) for part in manifest["parts"]]
    vectors = _decode(manifest, parts, embedder.dimensions)
    sample = _draw_sample(config, vectors, embedder, sample_size)
    agreement = check_agreement("", sample, embedder)
    if sample and not agreement.agrees:
        raise ModelMismatch(
            f"the vectors on {remote} are not those of {embedder.fingerprint}: {agreement.reason}",
            hint="nothing of them was used; push them again from an index that you trust",
        )
    trusted = frozenset({""}) if sample else frozenset[str]()
    pulled = PushedIndex(name, len(vectors), sum(map(len, parts)), len(sample))
    return ReusingEmbedder(embedder, vectors, wiki.slug, trusted), pulled


@contextmanager
def _open_ref(wiki: Wiki, remote: str, embedder: Embedder, max_bytes: int) -> Iterator[tuple[VectorRef, str]]:
    """The ref of this model in the wiki's own repository."""
    if wiki.is_directory or wiki.is_managed or is_remote(wiki.source):
        raise InvalidSource(
            "An index is shared through the wiki's own clone, and this wiki has none.",
            hint="Clone its repository, and add the clone: `wikiholt add PATH`.",
        )
    name = f"refs/wikiholt/vectors-{blake2b(embedder.fingerprint.encode(), digest_size=6).hexdigest()}"
    with tempfile.TemporaryDirectory(prefix="wikiholt-vectors-") as directory:
        yield VectorRef(Path(wiki.source), remote, name, Path(directory), max_bytes), name


def _encode(vectors: Mapping[bytes, FloatArray], embedder: Embedder) -> dict[str, bytes]:
    hashes = sorted(vectors)
    rows_per_part = _count_rows_per_part(embedder)
    files: dict[str, bytes] = {}
    for start in range(0, len(hashes), rows_per_part):
        part = hashes[start : start + rows_per_part]
        codes = np.round(np.stack([vectors[digest] for digest in part]) * _SCALE).astype("<i2")
        rows = (digest + code.tobytes() for digest, code in zip(part, codes, strict=True))
        files[f"part-{len(files):04d}"] = b"".join(rows)
    manifest = {
        "format": _FORMAT,
        "model": embedder.fingerprint,
        "dimensions": embedder.dimensions,
        "texts": len(hashes),
        "parts": {name: sha256(data).hexdigest() for name, data in files.items()},
    }
    return files | {_MANIFEST: json.dumps(manifest, indent=1).encode()}


def _count_rows_per_part(embedder: Embedder) -> int:
    return max(1, _PART_BYTES // (_HASH_BYTES + 2 * embedder.dimensions))


def _parse_manifest(data: bytes, embedder: Embedder, max_bytes: int) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
        names = list(manifest["parts"])
        is_valid = (
            manifest.keys() == {"format", "model", "dimensions", "texts", "parts"}
            and manifest["format"] == _FORMAT
            and names == [f"part-{number:04d}" for number in range(len(names))]
            and all(isinstance(digest, str) for digest in manifest["parts"].values())
            and type(manifest["texts"]) is int
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise _make_damage_error("its manifest is not one of this version of Wikiholt")
    if (manifest["model"], manifest["dimensions"]) != (embedder.fingerprint, embedder.dimensions):
        raise ModelMismatch(
            f"the pushed index is of {str(manifest['model'])[:100]}, not of {embedder.fingerprint}",
            hint="use the same model and precision in both places",
        )
    if not 0 <= manifest["texts"] * (_HASH_BYTES + 2 * embedder.dimensions) <= max_bytes:
        raise _make_damage_error(f"it would have {manifest['texts']} texts, more than remote.max_bytes allows")
    if len(names) > -(
        -manifest["texts"] // _count_rows_per_part(embedder)
    ):  # all of them are read before any is checked
        raise _make_damage_error("its manifest has more parts than its texts need")
    return dict(manifest)


def _decode(manifest: Mapping[str, Any], parts: Sequence[bytes], dimensions: int) -> SharedVectors:
    if [sha256(part).hexdigest() for part in parts] != list(manifest["parts"].values()):
        raise _make_damage_error("a part is not the one that was pushed")
    row = np.dtype([("hash", "V16"), ("codes", "<i2", (dimensions,))])
    data = b"".join(parts)
    if len(data) != manifest["texts"] * row.itemsize:
        raise _make_damage_error("its size is not that of its texts")
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
