"""What a wiki has at HEAD, and for how much of that there are vectors already. Reads and writes nothing but memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import SystemRandom

from wikiholt.importing.spool import WikiVectors
from wikiholt.model import EntryKind, FloatArray
from wikiholt.pages import PreparedPage
from wikiholt.ports import Embedder, WikiIndex
from wikiholt.serving import WikiConfig

_BATCH_PAGES = 48
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
    """Every page that can be indexed at this revision, some at a time."""
    tree = config.source.read_tree(revision)
    files = iter(file for file, entry in tree.items() if entry.kind is EntryKind.FILE)
    while some := list(islice(files, _BATCH_PAGES)):
        blobs = config.source.read_blobs((tree[file].blob for file in some), config.pipeline.max_bytes)
        made = (config.pipeline.prepare(file, blob, None, embedder) for file, blob in zip(some, blobs, strict=True))
        yield [draft for draft in made if isinstance(draft, PreparedPage)]


def count_chunks(config: WikiConfig, revision: str, embedder: Embedder) -> Mapping[str, int]:
    """How many chunks each page has at a revision."""
    return {draft.page.file: len(draft.texts) for some in iter_prepared_pages(config, revision, embedder) for draft in some}


def build_survey(config: WikiConfig, embedder: Embedder, index: WikiIndex | None, known_vectors: WikiVectors, samples: VectorSamples) -> ImportSurvey:
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


def _draw_samples(samples: VectorSamples, models_by_hash: Mapping[bytes, str], texts: Mapping[bytes, str], known_vectors: WikiVectors) -> None:
    places = {h: place for h, model in models_by_hash.items() if (place := samples.pick_slot(model)) is not None}
    vectors = known_vectors.find_vectors(list(places), frozenset(models_by_hash.values()))
    for digest, place in places.items():
        samples.add(models_by_hash[digest], place, texts[digest], vectors[digest])
