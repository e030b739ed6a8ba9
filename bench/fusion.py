"""Ways to merge keyword and semantic results, on the collections: the figures of docs/adr/0049.

    python -m bench.fusion [--collections DIR] [--write]

Uses the indexes of bench.quality (run that first). Each channel's ranking is computed once, then combined in every
way. Also shows the evidence of the best hit, for a collection's own questions and for those of other collections.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import collections
from bench.measures import get_max_keyword_score
from bench.report import make_head, make_parser, publish
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.index import VectorHits
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import select_first
from wikiholt.text.keyword_query import parse_query, to_plain_query
from wikiholt.wikis.evaluation.quality_metrics import compute_ndcg

DEPTH = 100


class ChannelResults(NamedTuple):
    """Both channels' results of a query: pages by distance, by BM25 score, and the cosine of every page of either."""

    meaning: dict[int, float]
    words: dict[int, float]
    cosines: dict[int, float]
    best_possible: float


Merge = Callable[[ChannelResults], Mapping[int, float]]


def search_channels(index: WikiIndex, embedder: Embedder, text: str) -> ChannelResults:
    query, vector = parse_query(text), embedder.embed_query(to_plain_query(text))
    words = {hit.page_id: hit.score for hit in index.search_keywords(query, DEPTH, PageFilter())} if query else {}
    near = get_distances(index.search_vectors(vector, DEPTH * 12, None))
    meaning = dict(list(near.items())[:DEPTH])
    missing = np.array(sorted(set(words) - set(near)), np.int64)
    if len(missing):
        near |= get_distances(index.search_vectors(vector, 10**6, missing))
    cosines = {page: 1 - near[page] for page in {*meaning, *words} if page in near}
    return ChannelResults(meaning, words, cosines, get_max_keyword_score(index, query) if words else 1.0)


def get_distances(hits: VectorHits) -> dict[int, float]:
    """Page id → the distance of its nearest chunk, nearest first."""
    rows = select_first(hits.page_ids)
    return dict(zip(hits.page_ids[rows].tolist(), hits.distances[rows].tolist(), strict=True))


def merge_by_rank(constant: int, weight: float) -> Merge:
    def merge(found: ChannelResults) -> Mapping[int, float]:
        points = {page: 1 / (constant + rank) for rank, page in enumerate(found.meaning, 1)}
        for rank, page in enumerate(found.words, 1):
            points[page] = points.get(page, 0.0) + weight / (constant + rank)
        return points

    return merge


def compute_shares(found: ChannelResults, *, own: bool = False) -> dict[int, float]:
    best = max(found.words.values(), default=1.0) if own else found.best_possible
    return {page: min(1.0, score / best) for page, score in found.words.items()}


def merge_by_weight(cosine: float, *, own: bool = False) -> Merge:
    def merge(found: ChannelResults) -> Mapping[int, float]:
        by_words = compute_shares(found, own=own)
        pages = {*found.cosines, *by_words}
        return {p: cosine * found.cosines.get(p, 0.0) + (1 - cosine) * by_words.get(p, 0.0) for p in pages}

    return merge


def merge_by_doubt(found: ChannelResults) -> Mapping[int, float]:
    def compute_likelihood(amount: float, even: float) -> float:
        return 1 / (1 + math.exp((even - amount) / 0.2))

    by_words = compute_shares(found)
    pages = {*found.cosines, *by_words}
    doubts = {
        p: (1 - compute_likelihood(found.cosines.get(p, 0.0), 0.6))
        * (1 - compute_likelihood(by_words.get(p, 0.0), 0.5))
        for p in pages
    }
    return {page: 1 - doubt for page, doubt in doubts.items()}


def merge_fewer(found: ChannelResults) -> Mapping[int, float]:
    """As in the product: fewer pages from either channel."""
    words = dict(list(found.words.items())[:50])
    meaning = dict(list(found.meaning.items())[:30])
    kept = {page: cosine for page, cosine in found.cosines.items() if page in words or page in meaning}
    return merge_by_weight(0.5)(found._replace(words=words, meaning=meaning, cosines=kept))


WAYS: dict[str, Merge] = {
    "words alone": lambda found: found.words,
    "meaning alone": lambda found: {page: -distance for page, distance in found.meaning.items()},
    "reciprocal ranks, constant 60": merge_by_rank(60, 1.0),
    "reciprocal ranks, constant 10, words × 1.5": merge_by_rank(10, 1.5),
    "cosine .6 + words scaled to their best hit .4": merge_by_weight(0.6, own=True),
    "either channel suffices (1 − product of doubts)": merge_by_doubt,
    "cosine .4 + share of the best possible .6": merge_by_weight(0.4),
    "cosine .5 + share of the best possible .5": merge_by_weight(0.5),
    "cosine .6 + share of the best possible .4": merge_by_weight(0.6),
    "cosine .7 + share of the best possible .3": merge_by_weight(0.7),
    "cosine .5 + share .5, fifty pages by words, thirty by meaning": merge_fewer,
}


def main() -> None:
    parser = make_parser(__doc__, "fusion", "collections")
    arguments = parser.parse_args()
    service = open_service(Path("bench/data/quality"))
    embedder = service.components.embedder()
    queries = {name: collections.read_queries(arguments.collections / name) for name in collections.SHARED_NAMES}
    columns: list[str] = []
    means: dict[str, list[float]] = {way: [] for way in WAYS}
    evidence: list[str] = []
    for name in collections.SHARED_NAMES:
        index = service.components.store.open(service.get_handle(name).wiki.id)
        for kind in queries[name]:
            columns.append(kind.name)
            for way, value in score_queries(index, embedder, kind).items():
                means[way].append(value)
            print(columns[-1], flush=True)
        own = [text for kind in queries[name] for text in list(kind.texts.values())[:60]]
        others = [
            t
            for other in collections.SHARED_NAMES
            if other != name
            for t in list(queries[other][0].texts.values())[:40]
        ]
        evidence += [
            format_spread(index, embedder, name, "its own", own),
            format_spread(index, embedder, name, "others'", others),
        ]
        index.close()
    rows = [make_head(f"| way | {' | '.join(columns)} | mean |")]
    for way, values in means.items():
        rows.append(f"| {way} | {' | '.join(f'{v:.3f}' for v in values)} | {statistics.fmean(values):.4f} |")
    rows += [
        "",
        make_head("| collection | questions | best hit's hybrid evidence: p10 | p50 | p90 |"),
        *evidence,
    ]
    publish("fusion", __doc__, rows, write=arguments.write)


def score_queries(index: WikiIndex, embedder: Embedder, kind: collections.Queries) -> dict[str, float]:
    values: dict[str, list[float]] = {way: [] for way in WAYS}
    for query, text in kind.texts.items():
        found = search_channels(index, embedder, text)
        pages = index.get_pages(sorted({*found.cosines, *found.words}))
        left_out = kind.exclude.get(query, set())
        for way, combine in WAYS.items():
            points = combine(found)
            order = [pages[p].path for p in sorted(points, key=lambda p: (-points[p], p)) if p in pages]
            values[way].append(compute_ndcg([path for path in order if path not in left_out], kind.relevant[query]))
    return {way: statistics.fmean(each) for way, each in values.items()}


def format_spread(index: WikiIndex, embedder: Embedder, name: str, whose: str, texts: list[str]) -> str:
    best = [max(merge_by_weight(0.5)(search_channels(index, embedder, text)).values(), default=0.0) for text in texts]
    low, middle, high = np.quantile(best, [0.1, 0.5, 0.9])
    return f"| {name} | {whose} | {low:.2f} | {middle:.2f} | {high:.2f} |"


if __name__ == "__main__":
    main()
