"""Whether PostgreSQL ranks the judged collections like the embedded store: all queries, every mode, the real model."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import collections
from bench.postgres.parts import KEPT, Part
from bench.postgres.server import started
from bench.postgres.sides import PreparedEmbedder, Side
from bench.quality import DATA
from bench.search import Remembering
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.embedding import load_embedder
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import parse_query

NAMES = ("scifact", "cranfield", "wiki-dendron", "wiki-k8s-en")
DEPTH = 10


@dataclass
class Agreement:
    """The agreement of two rankings, over many queries."""

    places: list[float] = field(default_factory=list)
    """Share of the first ten places with the same page."""
    shared: list[float] = field(default_factory=list)
    """Share of the first ten pages that both have, wherever."""
    apart: float = 0.0
    """The largest difference of the scores of one page."""

    def compare(self, ours: Sequence[tuple[str, float]], theirs: Sequence[tuple[str, float]]) -> None:
        """Two rankings of pages with their scores."""
        count = max(len(ours), len(theirs))
        same = sum(a == b for (a, _), (b, _) in zip(ours, theirs, strict=False))
        scores = dict(theirs)
        both = [abs(score - scores[page]) for page, score in ours if page in scores]
        self.places.append(same / count if count else 1.0)
        self.shared.append(len(both) / count if count else 1.0)
        self.apart = max([self.apart, *both])

    def row(self, name: str, mode: str) -> str:
        alike = sum(each == 1.0 for each in self.places)
        return (
            f"| {name} | {len(self.places)} | {mode} | {np.mean(self.shared):.4f} | {np.mean(self.places):.4f} "
            f"| {alike / len(self.places):.1%} | {self.apart:.1e} |"
        )


def main(directory: Path = collections.DEFAULT, names: Sequence[str] = NAMES) -> None:
    """Index the collections in PostgreSQL, ask both, and save the result."""
    part = Part("agreement", "The same hits as the embedded store")
    part.say(
        "Every query of the judged collections, asked of an index in files and of one in PostgreSQL, synced from the same "
        "repository with the same vectors. "
        "The first ten hits: the share of pages both have, of places with the same page, of queries alike in every "
        "place, and the largest difference between the scores of one page.",
        "",
        "| collection | queries | mode | pages in both | same place | queries quite alike | score apart |",
        "|---|---|---|---|---|---|---|",
    )
    with started() as server, load_embedder() as model, tempfile.TemporaryDirectory(prefix="bench-") as place:
        embedder = PreparedEmbedder(model)
        known, files = Side("known", DATA / "quality", embedder), Side("files", KEPT / "files", embedder)
        for name in names:
            synced(known, files, name, embedder)
        known.close()
        ours = Side("PostgreSQL", Path(place) / "data", embedder, server.create_database())
        for name in names:
            compared(part, files, ours, embedder, directory / name)
        ours.close()
        files.close()
    part.keep()


def compared(part: Part, files: Side, ours: Side, embedder: PreparedEmbedder, directory: Path) -> None:
    """One collection on both sides."""
    synced(files, ours, directory.name, embedder)
    for asked in collections.queries(directory):
        for mode in (SearchMode.KEYWORD, SearchMode.SEMANTIC, SearchMode.HYBRID):
            found = Agreement()
            for text in asked.texts.values():
                request = SearchRequest(text, n=DEPTH, mode=mode)
                a, b = (side.service.get_handle(directory.name).search(request) for side in (files, ours))
                assert not a.degraded, a.notes
                assert not b.degraded, b.notes
                found.compare(ranked(b), ranked(a))
            part.say(found.row(asked.name, mode))
        part.say(by_the_store(files, ours, asked).row(asked.name, "words, by the store alone"))


def ranked(answer: SearchResult) -> list[tuple[str, float]]:
    return [(hit.path, hit.score) for hit in answer.hits]


def by_the_store(files: Side, ours: Side, asked: collections.Queries) -> Agreement:
    """Words without the cache that nodes keep for wikis of this size: what the stores themselves say."""
    found, pages = Agreement(), []
    indexes = [side.store.open(side.service.get_handle(asked.collection).wiki.id) for side in (files, ours)]
    for text in asked.texts.values():
        for index in indexes:
            hits = index.search_keywords(parse_query(text), DEPTH, PageFilter())
            stored = index.get_pages([hit.page_id for hit in hits])
            pages.append([(stored[hit.page_id].path, hit.score) for hit in hits])
        found.compare(pages.pop(), pages.pop())
    for index in indexes:
        index.close()
    return found


def synced(known: Side, side: Side, name: str, embedder: Embedder) -> None:
    """Bring the collection's repository into a side; vectors of texts that are known are taken from there."""
    wiki = known.service.get_handle(name).wiki
    index = known.store.open(wiki.id)
    side.use(PreparedEmbedder(Remembering(embedder, index)))
    if name not in [each.slug for each in side.service.list_wikis()]:
        side.service.add(name, wiki.source, {})
    report = side.service.get_handle(name).sync()
    side.service.get_handle(name).wait_for_caches(600)
    side.grown(side.service.get_handle(name).wiki.id)
    side.use(embedder)
    index.close()
    print(
        f"{side.name}, {name}: {report.added} pages, {report.chunks_embedded} chunks, {report.seconds:.0f} s",
        flush=True,
    )
