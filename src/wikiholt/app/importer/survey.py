"""What a wiki has at HEAD, and for how much of that there are vectors already. Reads and writes nothing but memory."""

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
"""Texts kept for measuring how long embedding takes."""


@dataclass(frozen=True, slots=True)
class ImportSurvey:
    """One wiki at one revision; texts are counted once, however often they stand there."""

    revision: str
    pages: int
    chunks: Mapping[str, int]
    """File → how many chunks it has."""
    indexed: int
    matched: int
    to_embed: int


@dataclass(slots=True)
class VectorSamples:
    """Matched texts with their vectors, drawn at random for each model, every one with the same chance."""

    size: int
    samples: dict[str, list[tuple[str, FloatArray]]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    new_texts: list[str] = field(default_factory=list)
    """Some texts that are to be embedded."""
    _random: SystemRandom = field(default_factory=SystemRandom)

    def pick_slot(self, model: str) -> int | None:
        """Where the next matched text of this model goes in its sample; None when it was not drawn."""
        self.seen[model] = self.seen.get(model, 0) + 1
        place = self._random.randrange(self.seen[model])
        return place if place < self.size else None

    def add(self, model: str, slot: int, text: str, vector: FloatArray) -> None:
        drawn = self.samples.setdefault(model, [])
        if len(drawn) < self.size:
            drawn.append((text, vector))
        else:
            drawn[slot] = (text, vector)


def iter_prepared_pages(config: WikiConfig, revision: str, embedder: Embedder) -> Iterator[list[PreparedPage]]:
    """Every page that can be indexed at this revision, in batches."""
    tree = config.source.read_tree(revision)
    for files in iter_batches(tree):
        results = config.pipeline.prepare_batch(config.source, {file: tree[file] for file in files}, embedder)
        yield [page for page in results if isinstance(page, PreparedPage)]


def count_chunks(config: WikiConfig, revision: str, embedder: Embedder) -> Mapping[str, int]:
    """How many chunks each page has at a revision."""
    return {
        draft.page.file: len(draft.texts) for some in iter_prepared_pages(config, revision, embedder) for draft in some
    }


def build_survey(
    config: WikiConfig, embedder: Embedder, index: WikiIndex | None, known_vectors: WikiVectors, samples: VectorSamples
) -> ImportSurvey:
    """Compare HEAD with the index there is (None for none that could give vectors) and with the shared one's rows."""
    revision = config.source.get_head()
    chunks: dict[str, int] = {}
    seen: set[bytes] = set()
    indexed = matched = 0
    for some in iter_prepared_pages(config, revision, embedder):
        chunks |= {draft.page.file: len(draft.texts) for draft in some}
        texts = {h: text for draft in some for h, text in zip(draft.hashes, draft.texts, strict=True) if h not in seen}
        seen.update(texts)
        have = index.find_vectors_by_hash(list(texts)) if index is not None else {}
        indexed += len(have)
        found = known_vectors.find_models([h for h in texts if h not in have])
        matched += len(found)
        _draw_samples(samples, found, texts, known_vectors)
        if len(samples.new_texts) < _TIMING_TEXTS:
            samples.new_texts += [text for h, text in texts.items() if h not in have and h not in found][:_TIMING_TEXTS]
    pages = len(config.source.read_tree(revision))
    return ImportSurvey(revision, pages, chunks, indexed, matched, len(seen) - indexed - matched)


def _draw_samples(
    samples: VectorSamples, models_by_hash: Mapping[bytes, str], texts: Mapping[bytes, str], known_vectors: WikiVectors
) -> None:
    places = {h: place for h, model in models_by_hash.items() if (place := samples.pick_slot(model)) is not None}
    vectors = known_vectors.find_vectors(list(places), frozenset(models_by_hash.values()))
    for digest, place in places.items():
        samples.add(models_by_hash[digest], place, texts[digest], vectors[digest])


# Two proofs of an import: foreign vectors are our model's own, and an index holds its wiki's HEAD and no more.


MIN_SAME_COSINE = 0.9999
"""The least cosine that counts as the same vector; int8 and fp32 of one model were alike down to 0.9959."""
_MIN_NEAR_COSINE = 0.98
"""From here on it is the same model at another precision, most likely."""


def check_agreement(model: str, sample: Sequence[tuple[str, FloatArray]], embedder: Embedder) -> ModelAgreement:
    """Embed the sample anew; one vector that is another is enough to trust none."""
    if not sample:
        return ModelAgreement(model, 0, None, agrees=False, reason="none is of a text that Wikiholt would embed")
    ours = embedder.embed_passages([text for text, _ in sample])
    theirs = np.stack([vector for _, vector in sample])
    least = float(np.min(np.sum(ours * theirs, axis=1)))
    if least >= MIN_SAME_COSINE:
        return ModelAgreement(model, len(sample), least, agrees=True)
    if least >= _MIN_NEAR_COSINE:
        reason = f"they are near ours and not the same: likely another precision than {embedder.precision or 'this'}"
    else:
        reason = "another model made them, or they are damaged"
    return ModelAgreement(model, len(sample), least, agrees=False, reason=reason)


def verify_index(
    wiki_id: str,
    store: IndexStore,
    source: Source,
    get_chunk_counts: Callable[[str], Mapping[str, int]],
    lock_timeout: float,
) -> ImportProof:
    """Compare the index with its wiki's tree, page by page and byte by byte; raises SyncFailed where they differ."""
    with store.write_lock(wiki_id, lock_timeout):
        index = store.open(wiki_id)
        try:
            state, pages, faults = index.get_state(), index.get_page_blobs(), index.check()
            odd = {problem.file for problem in index.get_problems()}
        finally:
            index.close()
    if state.revision is None:
        raise _build_failure("it stands for no revision")
    if faults:
        raise _build_failure(faults[0])
    tree = source.read_tree(state.revision)
    foreign = [file for file, blob in pages.items() if file not in tree or tree[file].blob != blob]
    missing = tree.keys() - pages.keys() - odd
    counts = get_chunk_counts(state.revision)
    chunks = sum(counts.get(file, 0) for file in pages)
    if foreign or missing:
        raise _build_failure(f"{len(foreign)} of its pages are not in the wiki's tree, {len(missing)} are missing")
    if chunks != state.chunks:
        raise _build_failure(f"it holds {state.chunks} chunks, and its pages have {chunks}")
    return ImportProof(state.revision, len(pages), state.chunks, len(odd), len(foreign))


def _build_failure(reason: str) -> SyncFailed:
    return SyncFailed(
        f"the index is not what the wiki has at HEAD: {reason}", hint="run `wikiholt reindex`, and please report this"
    )
