"""The effect of reranking the best pages of hybrid search with a cross-encoder: the figures of docs/adr/0025.

    python -m bench.reranking [--collections DIR] [--data DIR] [--score] [--write]

Uses the indexes of bench.quality (run that first) and the raw scores in bench/data/rerank, which --score makes
(hours of a core; existing scores are kept). The reranker is ms-marco-MiniLM-L-12-v2, int8, one pair per call. Queries
are split in two halves by a hash of their ids, as in bench.ranking: settings are chosen by the mean of the eight sets on
the first half and reported on both; hundreds were tried, so figures of the first half are too high. One setting for all. Figures are differences of nDCG@10 to hybrid search
without reranking; pages that were not reranked follow in their old order.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from bench import collections
from bench.report import machine, write
from bench.rerankers import KEPT, CollectionPages, JudgedQuery, evidence, load_queries, score, scores
from wikiholt.domain.index import FloatArray
from wikiholt.search.title_match import compute_dice
from wikiholt.text.keyword_query import get_significant_terms, parse_query
from wikiholt.wikis.evaluation.quality_metrics import compute_difference

READ = (("named", 128, 10), ("name", 128, 10), ("outline", 96, 10), ("path", 128, 10))
"""What is read, how many tokens of it, of how many pages."""

_DISCOUNT = 1 / np.log2(np.arange(10) + 2)


@dataclass(frozen=True)
class CandidateTable:
    """All queries and candidates as arrays: one row per query, one column per rank of hybrid search."""

    evidence: FloatArray
    meaning: FloatArray
    headings: FloatArray
    gains: FloatArray
    ideal: FloatArray
    gone: np.ndarray
    """Where there is no candidate, or one the collection leaves out."""
    kinds: np.ndarray
    held_out: np.ndarray

    def ndcg(self, fused: FloatArray, depth: int) -> FloatArray:
        """Of the order by `fused` among the first `depth`; the others come after them."""
        ranks = np.arange(KEPT)[None]
        keys = np.where(self.gone, np.inf, np.where(ranks < depth, -fused, 1e6 + ranks))
        order = np.argsort(keys, axis=1, kind="stable")[:, :10]
        gains = np.take_along_axis(np.where(self.gone, 0.0, self.gains), order, 1)
        return np.asarray((gains * _DISCOUNT).sum(axis=1) / self.ideal)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(self.kinds.tolist()))

    def mean(self, values: FloatArray, chosen: np.ndarray) -> float:
        """The mean over sets of queries, each weighing the same."""
        parts = [values[chosen & (self.kinds == name)] for name in self.names]
        return float(np.mean([part.mean() for part in parts if len(part)]))


Fusion = Callable[[FloatArray, FloatArray], FloatArray]


def linear(weight: float, low: float = -12.0, high: float = 12.0) -> Fusion:
    return lambda ours, logits: ours + weight * (np.clip(logits, low, high) - low) / (high - low)


def sigmoid(weight: float, even: float, width: float) -> Fusion:
    return lambda ours, logits: ours + weight / (1 + np.exp(-(logits - even) / width))


def ranks(weight: float, constant: float) -> Fusion:
    def fused(ours: FloatArray, logits: FloatArray) -> FloatArray:
        places = [np.argsort(np.argsort(-each, axis=1, kind="stable"), axis=1) for each in (ours, logits)]
        return np.asarray((1 - weight) / (constant + places[0]) + weight / (constant + places[1]))

    return fused


FUSIONS: dict[str, Fusion] = {
    "the reranker's order alone": lambda _, logits: logits,
    **{f"evidence + {w} · logit in ±12": linear(w) for w in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)},
    **{f"evidence + {w} · logit in −12…0": linear(w, -12, 0) for w in (0.1, 0.2)},
    **{
        f"evidence + {w} · sigmoid((logit − {m}) / {s})": sigmoid(w, m, s)
        for w in (0.1, 0.2, 0.4)
        for m in (-4, 0, 4)
        for s in (1, 2, 5)
    },
    **{f"reciprocal ranks, {w} of the reranker": ranks(w, 5) for w in (0.3, 0.5)},
}


def both(
    passage: float, name: float, headings: float = 0.0
) -> Callable[[CandidateTable, FloatArray, FloatArray], FloatArray]:
    """A passage and the name read by themselves, each with its weight, and headings without a reader."""

    def fused(candidates: CandidateTable, passages: FloatArray, names: FloatArray) -> FloatArray:
        ours = linear(name)(linear(passage)(candidates.evidence, passages), names)
        return np.asarray(ours + headings * candidates.headings * candidates.meaning)

    return fused


TAKEN = "passage .1, name .2"
"""As in wikiholt.search.reranking; headings would have to be read for every page."""
PLAIN = ("the reranker's order alone", "evidence + 0.1 · logit in ±12", "reciprocal ranks, 0.3 of the reranker")
BOTH = {
    "passage .1": both(0.1, 0),
    "name .1": both(0, 0.1),
    "name .2": both(0, 0.2),
    "name .3": both(0, 0.3),
    "passage .05, name .1": both(0.05, 0.1),
    "passage .1, name .1": both(0.1, 0.1),
    "passage .05, name .2": both(0.05, 0.2),
    TAKEN: both(0.1, 0.2),
    "passage .2, name .2": both(0.2, 0.2),
    "passage .1, name .3": both(0.1, 0.3),
    "headings .2": both(0, 0, 0.2),
    "name .2, headings .2": both(0, 0.2, 0.2),
    "passage .05, name .2, headings .2": both(0.05, 0.2, 0.2),
    "passage .1, name .2, headings .2": both(0.1, 0.2, 0.2),
    "passage .1, name .2, headings .1": both(0.1, 0.2, 0.1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--score", action="store_true", help="make the raw scores that are not there yet")
    parser.add_argument("--write", action="store_true", help="write bench/results/reranking.md")
    arguments = parser.parse_args()
    asked, pages_by_collection = load_queries(arguments.collections, arguments.data)
    if arguments.score:
        for reading, most, pages in READ:
            score(asked, pages_by_collection, arguments.data, reading, most, range(pages))
    text = "\n".join(format_report(asked, pages_by_collection, arguments.data))
    print(text)
    if arguments.write:
        write("reranking", f"{__doc__}\n{machine()}\n\n{text}")


def format_report(
    asked: list[JudgedQuery], pages_by_collection: dict[str, CollectionPages], data: Path
) -> Iterator[str]:
    candidates = build_table(asked, pages_by_collection)
    yield "## What could be reached\n"
    yield from ceilings(candidates)
    raw = {(reading, most): scores(data, reading, most, len(asked)) for reading, most, _ in READ}
    passages, names = raw["named", 128], raw["name", 128]
    yield "\n## A passage (128 tokens) and path and name, each read by itself, 10 pages\n"
    ways = {way: fused(candidates, known(passages), known(names)) for way, fused in BOTH.items()}
    yield from compared(
        candidates, ways, there(candidates, passages, 10) & there(candidates, names, 10), 10, len(ways), TAKEN
    )
    for reading, most, pages in READ:
        for depth in sorted({10, pages}):
            logits = raw[reading, most]
            usable = there(candidates, logits, depth)
            if usable.any():
                yield f"\n## {reading}, {most} tokens, {depth} pages ({usable.sum()} queries)\n"
                ways = {way: fused(candidates.evidence, known(logits)) for way, fused in FUSIONS.items()}
                yield from compared(candidates, ways, usable, depth, 5, "")


def known(raw: FloatArray) -> FloatArray:
    """The raw scores; a page without a score gets a neutral one."""
    return np.where(np.isnan(raw), -4.0, raw)


def there(candidates: CandidateTable, raw: FloatArray, depth: int) -> np.ndarray:
    """The queries of which all pages that count were read."""
    return np.asarray(~(np.isnan(raw) & ~candidates.gone & (np.arange(KEPT)[None] < depth)).any(axis=1))


def build_table(asked: list[JudgedQuery], pages_by_collection: dict[str, CollectionPages]) -> CandidateTable:
    def table(rows: Iterator[FloatArray | list[float]]) -> FloatArray:
        found = np.zeros((len(asked), KEPT))
        for row, values in enumerate(rows):
            found[row, : len(values)] = values
        return found

    ideal = [sorted(each.relevant.values(), reverse=True)[:10] for each in asked]
    gone = table([path in each.exclude for path in each.paths] for each in asked) > 0
    gone |= np.arange(KEPT)[None] >= np.array([len(each.pages) for each in asked])[:, None]
    return CandidateTable(
        table(evidence(each.meaning, each.share, each.name) for each in asked),
        table(each.meaning for each in asked),
        table(heading_similarity(each, pages_by_collection[each.collection]) for each in asked),
        table([each.relevant.get(path, 0) for path in each.paths] for each in asked),
        np.array([sum(grade / math.log2(rank + 2) for rank, grade in enumerate(grades)) for grades in ideal]),
        gone,
        np.array([each.kind for each in asked]),
        np.array([each.held_out for each in asked]),
    )


def heading_similarity(asked: JudgedQuery, collection_pages: CollectionPages) -> list[float]:
    """How far the query names a page's best heading together with the page."""
    terms = frozenset(parse_query(asked.text).terms)
    found = []
    for page_id in asked.pages[:20]:
        name = words_of(collection_pages.names[page_id])
        found.append(
            max(
                (compute_dice(terms, name | words_of(each)) for each in collection_pages.headings.get(page_id, [])),
                default=0.0,
            )
        )
    return found


@cache
def words_of(text: str) -> frozenset[str]:
    return get_significant_terms(text)


def ceilings(candidates: CandidateTable) -> Iterator[str]:
    """nDCG@10 without reranking, and with a perfect reranker."""
    yield f"| nDCG@10 | {' | '.join(candidates.names)} |"
    yield "|" + "---|" * (len(candidates.names) + 1)
    for depth in (0, 10, 20, 30):
        found = candidates.ndcg(candidates.gains, depth)
        means = (f"{found[candidates.kinds == name].mean():.3f}" for name in candidates.names)
        yield f"| {f'the first {depth} in the right order' if depth else 'hybrid search'} | {' | '.join(means)} |"


def compared(
    candidates: CandidateTable, ways: dict[str, FloatArray], usable: np.ndarray, depth: int, shown: int, taken: str
) -> Iterator[str]:
    """The ways that do best on the first half, best first, and the plainest; then a test of the best and of what was taken."""
    before = candidates.ndcg(candidates.evidence, 0)
    gains = {way: candidates.ndcg(fused, depth) - before for way, fused in ways.items()}
    first, second = usable & ~candidates.held_out, usable & candidates.held_out
    order = sorted(gains, key=lambda way: -candidates.mean(gains[way], first))
    yield f"| way | {' | '.join(candidates.names)} | first half | second half |"
    yield "|" + "---|" * (len(candidates.names) + 3)
    for way in dict.fromkeys([*order[:shown], *(each for each in PLAIN if each in gains)]):
        cells = [gains[way][usable & (candidates.kinds == kind)] for kind in candidates.names]
        halves = (f"{candidates.mean(gains[way], half):+.4f}" if half.any() else "" for half in (first, second))
        yield f"| {way} | {' | '.join(f'{c.mean():+.3f}' if len(c) else '' for c in cells)} | {' | '.join(halves)} |"
    if second.any():
        for way in dict.fromkeys(each for each in (order[0], taken) if each):
            yield from tested(candidates, gains[way], way, second)


def tested(candidates: CandidateTable, gains: FloatArray, name: str, second: np.ndarray) -> Iterator[str]:
    """Whether this way gains more than chance on the second half."""
    yield f"\n| {name}, second half | difference | p | better | worse |"
    yield "|---|---|---|---|---|"
    for kind in (*candidates.names, ""):
        part = gains[second & (candidates.kinds == kind)] if kind else gains[second]
        if len(part):
            gap = compute_difference(part.tolist(), [0.0] * len(part))
            bounds = f"{gap.interval.mean:+.4f} [{gap.interval.low:+.4f} {gap.interval.high:+.4f}]"
            yield f"| {kind or 'all queries'} | {bounds} | {gap.p_value:.3f} | {gap.better} | {gap.worse} |"


if __name__ == "__main__":
    main()
