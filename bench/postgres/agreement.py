"""Whether PostgreSQL ranks the judged collections like the embedded store: all queries, every mode, the real model."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import collections
from bench.embedders import CachingEmbedder, IndexedEmbedder
from bench.postgres.parts import SAVED_RESULTS, ReportPart
from bench.postgres.server import run_server
from bench.postgres.sides import Side
from bench.report import DATA, make_head
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.models import load_embedder
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import parse_query

DEPTH = 10


@dataclass
class Agreement:
    """The agreement of two rankings, over many queries."""

    places: list[float] = field(default_factory=list)
    """Share of the first ten places with the same page."""
    shared: list[float] = field(default_factory=list)
    """Share of the first ten pages that both have, in any place."""
    apart: float = 0.0
    """The largest difference of the scores of one page."""

    def add(self, ours: Sequence[tuple[str, float]], theirs: Sequence[tuple[str, float]]) -> None:
        """Two rankings of pages with their scores."""
        count = max(len(ours), len(theirs))
        same = sum(a == b for (a, _), (b, _) in zip(ours, theirs, strict=False))
        scores = dict(theirs)
        both = [abs(score - scores[page]) for page, score in ours if page in scores]
        self.places.append(same / count if count else 1.0)
        self.shared.append(len(both) / count if count else 1.0)
        self.apart = max([self.apart, *both])

    def format_row(self, name: str, mode: str) -> str:
        alike = sum(each == 1.0 for each in self.places)
        return (
            f"| {name} | {len(self.places)} | {mode} | {np.mean(self.shared):.4f} | {np.mean(self.places):.4f} "
            f"| {alike / len(self.places):.1%} | {self.apart:.1e} |"
        )


def run(directory: Path = collections.DEFAULT, names: Sequence[str] = collections.SHARED_NAMES) -> None:
    """Index the collections in PostgreSQL, search both stores, and save the result."""
    part = ReportPart("agreement", "The same hits as the embedded store")
    part.add(
        "Every query of the judged collections, in an index in files and in one in PostgreSQL, synced from the same "
        "repository with the same vectors. "
        "The first ten hits: the share of pages that both have, of places with the same page, of queries with equal "
        "rankings, and the largest difference between the scores of one page.",
        "",
        make_head(
            "| collection | queries | mode | pages in both | same place | equal rankings | largest difference of scores |"
        ),
    )
    with run_server() as server, load_embedder() as model, tempfile.TemporaryDirectory(prefix="bench-") as place:
        embedder = CachingEmbedder(model)
        known, files = Side("known", DATA / "quality", embedder), Side("files", SAVED_RESULTS / "files", embedder)
        for name in names:
            sync_collection(known, files, name, embedder)
        known.close()
        ours = Side("PostgreSQL", Path(place) / "data", embedder, server.create_database())
        for name in names:
            compare_collection(part, files, ours, embedder, directory / name)
        ours.close()
        files.close()
    part.save()


def compare_collection(part: ReportPart, files: Side, ours: Side, embedder: CachingEmbedder, directory: Path) -> None:
    """One collection on both sides."""
    sync_collection(files, ours, directory.name, embedder)
    for queries in collections.read_queries(directory):
        for mode in (SearchMode.KEYWORD, SearchMode.SEMANTIC, SearchMode.HYBRID):
            found = Agreement()
            for text in queries.texts.values():
                request = SearchRequest(text, n=DEPTH, mode=mode)
                a, b = (side.service.get_handle(directory.name).search(request) for side in (files, ours))
                assert not a.degraded, a.notes
                assert not b.degraded, b.notes
                found.add(get_ranking(b), get_ranking(a))
            part.add(found.format_row(queries.name, mode))
        part.add(compare_stores(files, ours, queries).format_row(queries.name, "words, by the store alone"))


def get_ranking(answer: SearchResult) -> list[tuple[str, float]]:
    return [(hit.path, hit.score) for hit in answer.hits]


def compare_stores(files: Side, ours: Side, queries: collections.Queries) -> Agreement:
    """Compare keyword search of the stores themselves, without the cache that nodes have for wikis of this size."""
    found, pages = Agreement(), []
    indexes = [side.store.open(side.service.get_handle(queries.collection).wiki.id) for side in (files, ours)]
    for text in queries.texts.values():
        for index in indexes:
            hits = index.search_keywords(parse_query(text), DEPTH, PageFilter())
            stored = index.get_pages([hit.page_id for hit in hits])
            pages.append([(stored[hit.page_id].path, hit.score) for hit in hits])
        found.add(pages.pop(), pages.pop())
    for index in indexes:
        index.close()
    return found


def sync_collection(known: Side, side: Side, name: str, embedder: Embedder) -> None:
    """Sync a collection into a side, with the vectors that the index of another side has."""
    wiki = known.service.get_handle(name).wiki
    index = known.store.open(wiki.id)
    side.set_embedder(IndexedEmbedder(embedder, index))
    if name not in [each.slug for each in side.service.list_wikis()]:
        side.service.add(name, wiki.source, {})
    report = side.service.get_handle(name).sync()
    side.service.get_handle(name).wait_for_caches(600)
    side.build_indexes(side.service.get_handle(name).wiki.id)
    side.set_embedder(embedder)
    index.close()
    print(
        f"{side.name}, {name}: {report.added} pages, {report.chunks_embedded} chunks, {report.seconds:.0f} s",
        flush=True,
    )
