"""The reranker for unclear answers only: its effect and cost by two bounds. The figures of docs/adr/0038.

    python -m bench.unclear [--collections DIR] [--data DIR] [--model NAME] [--every 1] [--foreign 40] [--search NAME …] [--write]

Uses the indexes of bench.quality (run that first), and the extra `models`. Each question is searched by hybrid search
without and with the reranker, which has a minute. The outcomes are kept in bench/data/unclear; `--search` adds those of a
collection. A search is reranked if the score of its first hit without the reranker is between the two bounds. The bounds
for a collection are chosen by the others. Cost is CPU time, because the machines are shared.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import collections
from bench.quality import RERANKER
from bench.regression import format_share
from bench.report import DATA, describe_machine, write_result
from bench.signals import open_indexes
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.search.ranking import HIGH_SCORE, MEDIUM_SCORES
from wikiholt.search.request import SearchRequest
from wikiholt.search.reranking import UNCLEAR_LIKELIHOODS
from wikiholt.wikis.evaluation.quality_metrics import compute_ndcg
from wikiholt.wikis.handle import WikiHandle

NAMES = ("scifact", "cranfield", "wiki-dendron", "wiki-k8s-en")
LOWER, UPPER = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3), (0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.01)
TOLERANCE = 0.001
"""The loss of nDCG@10 against always reranking that is accepted for a lower cost."""


class Outcome(NamedTuple):
    """A question asked without and with the reranker: the score of the first hit, which is the same, and of each search
    the gain, whether the first hit is right, and CPU time."""

    collection: str
    kind: str
    query: str
    score: float
    gains: tuple[float, float]
    right: tuple[bool, bool]
    cpu_ms: tuple[float, float]

    @property
    def is_foreign(self) -> bool:
        return not self.kind.startswith(self.collection)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="", help="with the indexes of this model instead of the default one")
    parser.add_argument("--every", type=int, default=1, help="ask every n-th question only")
    parser.add_argument("--foreign", type=int, default=40, help="questions of each other set that are asked too")
    parser.add_argument("--search", nargs="*", default=[], choices=NAMES, help="search these collections first")
    parser.add_argument("--write", action="store_true", help="write bench/results/unclear.md, or unclear-MODEL.md")
    arguments = parser.parse_args()
    for name in arguments.search:
        search_collection(name, arguments)
    outcomes = [each for name in NAMES for each in read_outcomes(get_file(name, arguments))]
    text = "\n".join([*format_bounds(outcomes), "", *format_held_out(outcomes), "", *format_confidence(outcomes)])
    print(text)
    if arguments.write:
        ending = f"-{arguments.model}" if arguments.model else ""
        write_result(f"unclear{ending}", f"{__doc__}\n{describe_machine()} {len(outcomes)} questions.\n\n{text}\n")


def get_file(name: str, arguments: argparse.Namespace) -> Path:
    """Where the outcomes of a collection are kept."""
    file: Path = arguments.data / "unclear" / f"{name}{arguments.model}.jsonl"
    return file


def search_collection(name: str, arguments: argparse.Namespace) -> None:
    """Ask the collection its own questions and some of the others, and add the outcomes to its file."""
    file = get_file(name, arguments)
    file.parent.mkdir(exist_ok=True)
    known = {(each.kind, each.query) for each in read_outcomes(file)}
    settings = {"rerank.model": RERANKER, "rerank.budget": "60000"}
    service = open_indexes(arguments.data, arguments.model, settings)
    wiki = service.get_handle(name)
    wiki.search(SearchRequest("load both models", rerank=True))
    with file.open("a", encoding="utf-8", buffering=1) as stream:
        for kind in (kind for each in NAMES for kind in collections.read_queries(arguments.collections / each)):
            own = kind.collection == name
            for query in list(kind.texts)[:: arguments.every] if own else list(kind.texts)[: arguments.foreign]:
                if (kind.name, query) not in known:
                    stream.write(json.dumps(ask(wiki, name, kind, query)) + "\n")
            print(name, "was asked", kind.name, flush=True)
    service.close()


def ask(wiki: WikiHandle, name: str, kind: collections.Queries, query: str) -> Outcome:
    relevant = kind.relevant[query] if kind.collection == name else {}
    left_out = kind.exclude.get(query, set()) if kind.collection == name else set()
    found: list[tuple[float, bool, float]] = []
    score = 0.0
    for rerank in (False, True):
        began = time.process_time()
        result = wiki.search(SearchRequest(kind.texts[query], 10 + len(left_out), rerank=rerank))
        took = 1000 * (time.process_time() - began)
        hits = [hit for hit in result.hits if hit.path not in left_out]
        gain = compute_ndcg([hit.path for hit in hits], relevant) if relevant else 0.0
        found.append((gain, bool(hits and hits[0].path in relevant), took))
        score = hits[0].score if hits else 0.0
    gains, right, cpu_ms = zip(*found, strict=True)
    return Outcome(name, kind.name, query, score, gains, right, cpu_ms)


def read_outcomes(file: Path) -> list[Outcome]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Outcome(*row[:4], *(tuple(pair) for pair in row[4:])) for row in map(json.loads, lines)]


class Effect(NamedTuple):
    """Mean gain over sets of questions, share of searches that are reranked, and CPU time of a search."""

    gains: dict[str, float]
    share: float
    cpu_ms: float

    @property
    def gain(self) -> float:
        return float(np.mean(list(self.gains.values())))


def measure(outcomes: Sequence[Outcome], lower: float, upper: float) -> Effect:
    """The effect of reranking the own questions whose first hit has a score between the bounds."""
    own = [each for each in outcomes if not each.is_foreign]
    chosen = [lower <= each.score < upper for each in own]
    by_kind: dict[str, list[float]] = {}
    for each, is_reranked in zip(own, chosen, strict=True):
        by_kind.setdefault(each.kind, []).append(each.gains[is_reranked])
    cpu_ms = [each.cpu_ms[is_reranked] for each, is_reranked in zip(own, chosen, strict=True)]
    gains = {kind: float(np.mean(values)) for kind, values in by_kind.items()}
    return Effect(gains, float(np.mean(chosen)), float(np.mean(cpu_ms)))


def choose_bounds(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """The cheapest bounds whose mean gain is within the tolerance of always reranking."""
    least = measure(outcomes, 0.0, 1.01).gain - TOLERANCE
    effects = {bounds: measure(outcomes, *bounds) for bounds in product(LOWER, UPPER)}
    return min((bounds for bounds in effects if effects[bounds].gain >= least), key=lambda each: effects[each].share)


def format_bounds(outcomes: Sequence[Outcome]) -> Iterator[str]:
    plain = measure(outcomes, 2.0, 2.0)
    yield f"| reranked from, below | {' | '.join(plain.gains)} | mean | reranked | CPU ms |"
    yield "|---" * (len(plain.gains) + 4) + "|"
    for bounds in ((2.0, 2.0), (0.0, 1.01), (0.0, 0.98), (0.0, 0.95), (0.0, 0.9), (0.2, 0.9), (0.0, 0.8), (0.25, 0.65)):
        effect = measure(outcomes, *bounds)
        name = {(2.0, 2.0): "never", (0.0, 1.01): "always"}.get(bounds, f"{bounds[0]:g}, {bounds[1]:g}")
        cells = " | ".join(f"{gain:.4f}" for gain in effect.gains.values())
        yield f"| {name} | {cells} | {effect.gain:.4f} | {effect.share:.0%} | {effect.cpu_ms:.0f} |"


def format_held_out(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "| left out | bounds chosen by the others | never | always | within the bounds | reranked |"
    yield "|---|---|---|---|---|---|"
    for name in dict.fromkeys(each.collection for each in outcomes):
        bounds = choose_bounds([each for each in outcomes if each.collection != name])
        own = [each for each in outcomes if each.collection == name]
        effects = [measure(own, *each) for each in ((2.0, 2.0), (0.0, 1.01), bounds)]
        cells = " | ".join(f"{effect.gain:.4f}" for effect in effects)
        yield f"| {name} | {bounds[0]:g}, {bounds[1]:g} | {cells} | {effects[2].share:.0%} |"


def format_confidence(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How often the confidence of the first hit is right, without, always with, and with the product's bounds."""
    lower, upper = UNCLEAR_LIKELIHOODS
    medium = MEDIUM_SCORES[SearchMode.HYBRID]
    yield "| first hits | high | high is right | right ones called high | nothing relevant | foreign: nothing relevant |"
    yield "|---|---|---|---|---|---|"
    chosen = np.array([lower <= each.score < upper for each in outcomes])
    own = np.array([not each.is_foreign for each in outcomes])
    scores: FloatArray = np.array([each.score for each in outcomes])
    high, low = scores >= HIGH_SCORE, scores < medium
    always = np.ones(len(outcomes), bool)
    for name, used in (("never reranked", ~always), ("always", always), (f"{lower:g}, {upper:g}", chosen)):
        right = np.array([each.right[int(at)] for each, at in zip(outcomes, used, strict=True)])
        cells = (high[own], right[own & high], high[own & right], low[own], low[~own])
        yield f"| {name} | {' | '.join(format_share(cell, places=1) for cell in cells)} |"


if __name__ == "__main__":
    main()
