"""Surveys a wiki at HEAD before an import, and verifies its vectors and its index."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom

import numpy as np

from wikiholt.app.importer.import_report import ImportProof, ModelAgreement
from wikiholt.app.importer.vector_spool import WikiVectors
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder, Source
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.errors import SyncFailed
from wikiholt.indexing.pipeline import PreparedPage, iter_batches
from wikiholt.wikis.live_index import WikiConfig

_TIMING_TEXTS = 96
"""Texts kept to measure the speed of embedding."""


@dataclass(frozen=True, slots=True)
class ImportSurvey:
    """One wiki at one revision. Equal texts are counted once."""

    revision: str
    pages: int
    chunks: Mapping[str, int]
    """Number of chunks by file."""
    indexed: int
    matched: int
    to_embed: int


@dataclass(slots=True)
class VectorSamples:
    """A uniform random sample (reservoir sampling) of the matched texts and vectors of each model."""

    size: int
    samples: dict[str, list[tuple[str, FloatArray]]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    new_texts: list[str] = field(default_factory=list)
    """Some of the texts to embed."""
    _random: SystemRandom = field(default_factory=SystemRandom)

    def pick_slot(self, model: str) -> int | None:
        """The slot of the next matched text in the sample of its model; None if it is not drawn."""
        self.seen[model] = self.seen.get(model, 0) + 1
        slot = self._random.randrange(self.seen[model])
        return slot if slot < self.size else None

    def add(self, model: str, slot: int, text: str, vector: FloatArray) -> None:
        sample = self.samples.setdefault(model, [])
        if len(sample) < self.size:
            sample.append((text, vector))
        else:
            sample[slot] = (text, vector)


def iter_prepared_pages(config: WikiConfig, revision: str, embedder: Embedder) -> Iterator[list[PreparedPage]]:
    """Every page that can be indexed at this revision, in batches."""
    tree = config.source.read_tree(revision)
    for files in iter_batches(tree):
        results = config.pipeline.prepare_batch(config.source, {file: tree[file] for file in files}, embedder)
        yield [page for page in results if isinstance(page, PreparedPage)]


def count_chunks(config: WikiConfig, revision: str, embedder: Embedder) -> Mapping[str, int]:
    """The number of chunks of each page at a revision."""
    return {
        page.page.file: len(page.texts) for batch in iter_prepared_pages(config, revision, embedder) for page in batch
    }


def build_survey(
    config: WikiConfig, embedder: Embedder, index: WikiIndex | None, known_vectors: WikiVectors, samples: VectorSamples
) -> ImportSurvey:
    """Count which texts at HEAD have vectors: in `index` (None if it has no usable ones), or in the shared index."""
    revision = config.source.get_head()
    chunks: dict[str, int] = {}
    seen: set[bytes] = set()
    indexed = matched = 0
    for batch in iter_prepared_pages(config, revision, embedder):
        chunks |= {page.page.file: len(page.texts) for page in batch}
        texts = {h: text for page in batch for h, text in zip(page.hashes, page.texts, strict=True) if h not in seen}
        seen.update(texts)
        in_index = index.find_vectors_by_hash(list(texts)) if index is not None else {}
        indexed += len(in_index)
        models = known_vectors.find_models([h for h in texts if h not in in_index])
        matched += len(models)
        _draw_samples(samples, models, texts, known_vectors)
        if len(samples.new_texts) < _TIMING_TEXTS:
            new_texts = [text for h, text in texts.items() if h not in in_index and h not in models]
            samples.new_texts += new_texts[:_TIMING_TEXTS]
    pages = len(config.source.read_tree(revision))
    return ImportSurvey(revision, pages, chunks, indexed, matched, len(seen) - indexed - matched)


def _draw_samples(
    samples: VectorSamples, models_by_hash: Mapping[bytes, str], texts: Mapping[bytes, str], known_vectors: WikiVectors
) -> None:
    slots = {h: slot for h, model in models_by_hash.items() if (slot := samples.pick_slot(model)) is not None}
    vectors = known_vectors.find_vectors(list(slots), frozenset(models_by_hash.values()))
    for digest, slot in slots.items():
        samples.add(models_by_hash[digest], slot, texts[digest], vectors[digest])


# Verification: foreign vectors equal those of our model, and an index contains exactly its wiki's HEAD.


MIN_SAME_COSINE = 0.9999
"""The lowest cosine of equal vectors. Between int8 and fp32 of one model it was as low as 0.9959."""
_MIN_NEAR_COSINE = 0.98
"""Above this it is probably the same model at another precision."""


def check_agreement(model: str, sample: Sequence[tuple[str, FloatArray]], embedder: Embedder) -> ModelAgreement:
    """Embed the sample again. One different vector is enough to reuse none."""
    if not sample:
        return ModelAgreement(model, 0, None, agrees=False, reason="no text matches a text that Wikiholt would embed")
    ours = embedder.embed_passages([text for text, _ in sample])
    theirs = np.stack([vector for _, vector in sample])
    lowest = float(np.min(np.sum(ours * theirs, axis=1)))
    if lowest >= MIN_SAME_COSINE:
        return ModelAgreement(model, len(sample), lowest, agrees=True)
    if lowest >= _MIN_NEAR_COSINE:
        reason = f"they are close but not equal: probably another precision than {embedder.precision or 'this'}"
    else:
        reason = "they are from another model, or damaged"
    return ModelAgreement(model, len(sample), lowest, agrees=False, reason=reason)


def verify_index(
    wiki_id: str,
    store: IndexStore,
    source: Source,
    get_chunk_counts: Callable[[str], Mapping[str, int]],
    lock_timeout: float,
) -> ImportProof:
    """Compare the index with its wiki's tree, page by page, and check its checksums. Raises SyncFailed."""
    with store.write_lock(wiki_id, lock_timeout):
        index = store.open(wiki_id)
        try:
            state, pages, faults = index.get_state(), index.get_page_blobs(), index.check()
            problems = {problem.file for problem in index.get_problems()}
        finally:
            index.close()
    if state.revision is None:
        raise _build_failure("it has no revision")
    if faults:
        raise _build_failure(faults[0])
    tree = source.read_tree(state.revision)
    foreign = [file for file, blob in pages.items() if file not in tree or tree[file].blob != blob]
    missing = tree.keys() - pages.keys() - problems
    counts = get_chunk_counts(state.revision)
    chunks = sum(counts.get(file, 0) for file in pages)
    if foreign or missing:
        raise _build_failure(f"{len(foreign)} of its pages are not in the wiki's tree, {len(missing)} are missing")
    if chunks != state.chunks:
        raise _build_failure(f"it has {state.chunks} chunks, but its pages have {chunks}")
    return ImportProof(state.revision, len(pages), state.chunks, len(problems), len(foreign))


def _build_failure(reason: str) -> SyncFailed:
    return SyncFailed(
        f"the index does not match the wiki at HEAD: {reason}", hint="run `wikiholt reindex`, and please report this"
    )
