"""What a wiki has at HEAD, and for how much of that there are vectors already. Reads and writes nothing but memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import SystemRandom

from wikiholt.importing.spool import WikiVectors
from wikiholt.model import EntryKind, Floats
from wikiholt.pages import Draft
from wikiholt.ports import Embedder, WikiIndex
from wikiholt.serving import Parts

_AT_ONCE = 48
_TIMED = 96
"""Texts kept for measuring how long embedding takes."""


@dataclass(frozen=True, slots=True)
class Survey:
    """One wiki at one revision; texts are counted once, however often they stand there."""

    revision: str
    pages: int
    chunks: Mapping[str, int]
    """File → how many chunks it has."""
    indexed: int
    matched: int
    to_embed: int


@dataclass(slots=True)
class Samples:
    """Matched texts with their vectors, drawn at random for each model, every one with the same chance."""

    size: int
    drawn: dict[str, list[tuple[str, Floats]]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    """Some texts that are to be embedded."""
    _dice: SystemRandom = field(default_factory=SystemRandom)

    def place(self, model: str) -> int | None:
        """Where the next matched text of this model goes in its sample; None when it was not drawn."""
        self.seen[model] = self.seen.get(model, 0) + 1
        place = self._dice.randrange(self.seen[model])
        return place if place < self.size else None

    def put(self, model: str, place: int, text: str, vector: Floats) -> None:
        drawn = self.drawn.setdefault(model, [])
        if len(drawn) < self.size:
            drawn.append((text, vector))
        else:
            drawn[place] = (text, vector)


def drafts(parts: Parts, revision: str, embedder: Embedder) -> Iterator[list[Draft]]:
    """Every page that can be indexed at this revision, some at a time."""
    tree = parts.source.tree(revision)
    files = iter(file for file, entry in tree.items() if entry.kind is EntryKind.FILE)
    while some := list(islice(files, _AT_ONCE)):
        blobs = parts.source.read((tree[file].blob for file in some), parts.pipeline.max_bytes)
        made = (parts.pipeline.draft(file, blob, None, embedder) for file, blob in zip(some, blobs, strict=True))
        yield [draft for draft in made if isinstance(draft, Draft)]


def chunk_counts(parts: Parts, revision: str, embedder: Embedder) -> Mapping[str, int]:
    """How many chunks each page has at a revision."""
    return {draft.page.file: len(draft.texts) for some in drafts(parts, revision, embedder) for draft in some}


def survey(parts: Parts, embedder: Embedder, index: WikiIndex | None, known: WikiVectors, samples: Samples) -> Survey:
    """Compare HEAD with the index there is (None for none that could give vectors) and with the shared one's rows."""
    revision = parts.source.head()
    chunks: dict[str, int] = {}
    seen: set[bytes] = set()
    indexed = matched = 0
    for some in drafts(parts, revision, embedder):
        chunks |= {draft.page.file: len(draft.texts) for draft in some}
        texts = {h: text for draft in some for h, text in zip(draft.hashes, draft.texts, strict=True) if h not in seen}
        seen.update(texts)
        have = index.reuse(list(texts)) if index is not None else {}
        indexed += len(have)
        found = known.models([h for h in texts if h not in have])
        matched += len(found)
        _draw(samples, found, texts, known)
        if len(samples.fresh) < _TIMED:
            samples.fresh += [text for h, text in texts.items() if h not in have and h not in found][:_TIMED]
    pages = len(parts.source.tree(revision))
    return Survey(revision, pages, chunks, indexed, matched, len(seen) - indexed - matched)


def _draw(samples: Samples, found: Mapping[bytes, str], texts: Mapping[bytes, str], known: WikiVectors) -> None:
    places = {h: place for h, model in found.items() if (place := samples.place(model)) is not None}
    vectors = known.vectors(list(places), frozenset(found.values()))
    for digest, place in places.items():
        samples.put(found[digest], place, texts[digest], vectors[digest])
