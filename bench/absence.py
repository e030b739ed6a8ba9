"""Whether "nothing relevant" notices that the answer's page is missing, by further features: figures of docs/adr/0038 and 0044.

    python -m bench.absence [--collections DIR] [--data DIR] [--model NAME] [--every 6] [--write]

Uses the indexes of bench.quality (run that first) and the signals that bench.signals keeps. First hits of three sorts:
questions of the collection, every n-th question of the others (foreign), and questions of the collection with their
relevant pages removed. Each collection is judged by curves and a threshold from the others: 1.3 % of their questions are
below it. "Own thresholds" are a bound: in each collection 1.5 % of its own questions are below. High starts at .7.
"""

import argparse
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import collections
from bench.regression import compute_brier, fit_logistic, format_share
from bench.report import describe_machine, write_result
from bench.signals import NAMES, IndexSignals, Signals, open_indexes, read_signals
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.search.ranking import (
    ANSWERABLE_CURVES,
    COMPETING_PAGES,
    HIGH_SCORE,
    IS_THE_PAGE_CURVES,
    KEYWORD_WEIGHT,
    MEDIUM_SCORES,
    PAGE_WEIGHT,
    TITLE_WEIGHT,
    TRAILING_LEAD_WEIGHT,
)

OWN, FOREIGN, REMOVED = range(3)
REJECTED, MOST_REJECTED = 0.013, 0.015
FOREIGN_WEIGHT, REMOVED_WEIGHT = 0.25, 0.25
BASE = ("evidence", "meaning", "word_margin")
EXTRA = (
    *("passages", "meaning_gap", "evidence_gap", "coverage", "coverage_top", "rarest", "meaning_lead"),
    *("lead", "one_passage", "sentence", "unknown", "agreement", "stand_out", "name"),
)
LEADS = ("lead", "meaning_lead", "evidence_gap", "agreement", "stand_out")
WORDS = ("coverage", "one_passage", "rarest", "sentence", "unknown")


class FirstHit(NamedTuple):
    """The features of a first hit."""

    evidence: float
    meaning: float
    word_margin: float
    lead: float
    meaning_lead: float
    passages: float
    """The mean of its three nearest passages."""
    meaning_gap: float
    """Its meaning minus the mean of the best five others."""
    evidence_gap: float
    """Its evidence minus the mean of the next ten."""
    coverage: float
    """The share of the query's terms in its nearest passage and name."""
    coverage_top: float
    """The highest such share of the first five hits."""
    rarest: float
    one_passage: float
    """The highest such share of any passage of any candidate."""
    sentence: float
    """The closest sentence of its nearest passage, by word vectors."""
    unknown: float
    """The share of the query's terms that no page contains."""
    agreement: float
    """The mean of its reciprocal ranks by meaning and by words."""
    stand_out: float
    """Its meaning minus the mean of all candidates, in standard deviations."""
    name: float
    nearest: float
    """The highest meaning of any candidate: the first hit of semantic search."""
    nearest_lead: float
    nearest_right: float


class FirstHitArrays(NamedTuple):
    """First hits as arrays in one order."""

    features: FloatArray
    right: FloatArray
    sort: np.ndarray
    wiki: np.ndarray
    kind: np.ndarray

    def column(self, name: str) -> FloatArray:
        return np.asarray(self.features[:, FirstHit._fields.index(name)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--model", default="", help="with the indexes of this model instead of the default one")
    parser.add_argument("--every", type=int, default=6, help="ask every n-th question of the other collections")
    parser.add_argument("--write", action="store_true", help="write bench/results/absence.md")
    arguments = parser.parse_args()
    hits = collect_hits(arguments)
    text = "\n".join(format_table(hits))
    print(text)
    if arguments.write:
        counts = [int((hits.sort == sort).sum()) for sort in (OWN, FOREIGN, REMOVED)]
        about = f"{counts[OWN]} questions, {counts[FOREIGN]} foreign ones, {counts[REMOVED]} with the pages removed."
        write_result(
            f"absence{f'-{arguments.model}' if arguments.model else ''}",
            f"{__doc__}\n{describe_machine()} {about}\n\n{text}\n",
        )


def collect_hits(arguments: argparse.Namespace) -> FirstHitArrays:
    rows = []
    for name in NAMES:
        for each in read_signals(name, arguments.collections, arguments.data, arguments.model):
            rows.append((*describe(each), OWN, name, each.kind))
            left = select(each, each.grade == 0)
            rows += [(*describe(left), REMOVED, name, each.kind)] if len(left.share) else []
        foreign = read_foreign(name, arguments)
        rows += [(*describe(each), FOREIGN, name, each.kind) for each in foreign if len(each.share)]
    return FirstHitArrays(*(np.array(column) for column in zip(*rows, strict=True)))


def read_foreign(name: str, arguments: argparse.Namespace) -> list[Signals]:
    """The signals of questions of other collections, from the file if there is one."""
    file = arguments.data / "signals" / f"{name}{arguments.model}-foreign.pickle"
    if not file.exists():
        service = open_indexes(arguments.data, arguments.model)
        index = service.components.store.open(service.get_handle(name).wiki.id)
        reader = IndexSignals(index, service.components.embedder())  # type: ignore[arg-type]
        found = []
        for kind in (
            kind for each in NAMES if each != name for kind in collections.read_queries(arguments.collections / each)
        ):
            texts = dict(list(kind.texts.items())[:: arguments.every])
            asked = replace(kind, texts=texts, relevant={query: {} for query in texts}, exclude={})
            found += reader.read_kind(asked)
        service.close()
        file.write_bytes(pickle.dumps([vars(each) for each in found]))
        print(name, len(found), flush=True)
    return [Signals(**fields) for fields in pickle.loads(file.read_bytes())]


def select(signals: Signals, kept: np.ndarray) -> Signals:
    """The same query with these candidates only."""
    per_page = {name: value[kept] for name, value in vars(signals).items() if np.shape(value) == np.shape(kept)}
    return replace(signals, **{name: value for name, value in per_page.items() if name != "ideal"})


def describe(signals: Signals) -> tuple[FirstHit, float]:
    """The features of the first hit, and whether it is right."""
    meaning, share = (1 - PAGE_WEIGHT) * signals.cosine + PAGE_WEIGHT * signals.page, signals.share
    evidence = (1 - KEYWORD_WEIGHT) * meaning + KEYWORD_WEIGHT * share + TITLE_WEIGHT * signals.name * meaning
    order = np.lexsort((-meaning, -evidence))
    first = int(order[0])
    meanings, shares = (np.sort(np.delete(values, first))[::-1] for values in (meaning, share))
    later = evidence[order[1:]]
    return FirstHit(
        evidence[first],
        meaning[first],
        share[first] - shares[:COMPETING_PAGES].sum() / COMPETING_PAGES,
        evidence[first] - (later[0] if len(later) else 0.0),
        meaning[first] - (meanings[0] if len(meanings) else 0.0),
        signals.passages[first],
        meaning[first] - meanings[:5].sum() / 5,
        evidence[first] - later[:10].sum() / 10,
        signals.coverage[first],
        signals.coverage[order[:5]].max(),
        signals.rarest[first],
        signals.one_passage.max(),
        signals.sentence[first],
        signals.unknown,
        sum(0.5 / (1 + (values > values[first]).sum()) for values in (meaning, share)),
        (meaning[first] - meaning.mean()) / (meaning.std() + 0.01),
        signals.name[first],
        *describe_nearest(signals),
    ), float(signals.grade[first] > 0)


def describe_nearest(signals: Signals) -> tuple[float, float, float]:
    """The meaning of the first hit of semantic search, its lead, and whether it is right."""
    order = np.argsort(-signals.cosine, kind="stable")
    best, *others = signals.cosine[order[:2]].tolist()
    return best, best - sum(others), float(signals.grade[order[0]] > 0)


def weigh(hits: FirstHitArrays, chosen: np.ndarray, removed_weight: float = 0.0) -> FloatArray:
    """Every set of queries has the same weight; foreign ones together a quarter of the own ones."""
    groups, found = np.where(hits.sort == FOREIGN, hits.wiki, hits.kind), np.zeros(len(hits.sort))
    for sort, total in ((OWN, 1.0), (FOREIGN, FOREIGN_WEIGHT), (REMOVED, removed_weight)):
        names = set(groups[chosen & (hits.sort == sort)])
        for name in names:
            here = chosen & (hits.sort == sort) & (groups == name)
            found[here] = total / len(names) / here.sum()
    kept = found[chosen]
    return np.asarray(kept * len(kept) / kept.sum(), np.float32)


def apply_curve(total: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1 + np.tanh(total / 2)))


def score_product(hits: FirstHitArrays, mode: SearchMode, lead: str) -> FloatArray:
    """The score of the product by the curves of a mode, without the floor of hybrid search."""
    answerable, which = ANSWERABLE_CURVES[mode], IS_THE_PAGE_CURVES[mode]
    total = sum(getattr(answerable, name) * hits.column(name) for name in BASE) - answerable.bias
    gap = hits.column(lead)
    return apply_curve(total) * apply_curve(np.where(gap < 0, TRAILING_LEAD_WEIGHT, which.lead) * gap - which.bias)


def score_fitted(hits: FirstHitArrays, names: Sequence[str], seen: np.ndarray, removed_weight: float) -> FloatArray:
    """The score by curves fitted to the hits that are seen. Its floor is fitted to the first hits of semantic search."""
    usable, own = seen & ((hits.sort != REMOVED) | (removed_weight > 0)), seen & (hits.sort == OWN)
    weights = weigh(hits, usable, removed_weight)
    bias, *slopes = fit_logistic([hits.column(n)[usable] for n in names], hits.sort[usable] == OWN, weights)
    total = bias + sum(weight * hits.column(name) for weight, name in zip(slopes, names, strict=True))
    which = fit_logistic([hits.column("lead")[own]], hits.right[own] > 0, weigh(hits, own))
    scores = apply_curve(total) * apply_lead(which, hits.column("lead"))
    plain = seen & (hits.sort != REMOVED)
    bias, slope = fit_logistic([hits.column("nearest")[plain]], hits.sort[plain] == OWN, weigh(hits, plain))
    which = fit_logistic([hits.column("nearest_lead")[own]], hits.column("nearest_right")[own] > 0, weigh(hits, own))
    floor = apply_curve(bias + slope * hits.column("meaning")) * apply_lead(which, hits.column("meaning_lead"))
    return np.maximum(scores, floor)


def apply_lead(curve: Sequence[float], lead: FloatArray) -> FloatArray:
    bias, slope = curve
    return apply_curve(bias + np.where(lead < 0, TRAILING_LEAD_WEIGHT, slope) * lead)


def format_table(hits: FirstHitArrays) -> Iterator[str]:
    yield (
        "| answerable by | Brier | high is right | right ones called high | nothing relevant | foreign: nothing relevant "
        f"| removed: nothing relevant | the same with own thresholds | {' | '.join(NAMES)} |"
    )
    yield "|---" * (8 + len(NAMES)) + "|"
    product = np.maximum(
        score_product(hits, SearchMode.HYBRID, "lead"), score_product(hits, SearchMode.SEMANTIC, "meaning_lead")
    )
    for medium in (MEDIUM_SCORES[SearchMode.HYBRID], 0.29, 0.33):
        yield format_row(f"the product's curves (seen), medium from {medium:g}", hits, product, product < medium)
    yield format_row(
        "the product's curves (seen), medium by the others", hits, product, find_low(hits, lambda _: product)[1]
    )
    for names in (BASE, *((*BASE, each) for each in EXTRA), (*BASE, *EXTRA)):
        yield format_fitted(hits, names, 0.0)
    for names in (BASE, (*BASE, *LEADS), (*BASE, *LEADS, *WORDS), (*BASE, *EXTRA)):
        yield format_fitted(hits, names, REMOVED_WEIGHT)


def format_fitted(hits: FirstHitArrays, names: Sequence[str], removed_weight: float) -> str:
    further = ", ".join(name.replace("_", " ") for name in names if name not in BASE)
    label = f"fitted to the others{' with removed pages' if removed_weight else ''}"
    label += f": + {'all' if set(EXTRA) <= set(names) else further}" if further else ""
    return format_row(label, hits, *find_low(hits, lambda seen: score_fitted(hits, names, seen, removed_weight)))


def find_low(hits: FirstHitArrays, score: Callable[[np.ndarray], FloatArray]) -> tuple[FloatArray, np.ndarray]:
    """The scores of each collection by what the others teach, and which are below the threshold of the others."""
    scores, low = np.zeros(len(hits.sort)), np.zeros(len(hits.sort), bool)
    for name in NAMES:
        seen = hits.wiki != name
        found = score(seen)
        threshold = np.quantile(found[seen & (hits.sort == OWN)], REJECTED)
        scores[~seen], low[~seen] = found[~seen], found[~seen] < threshold
    return scores, low


def format_row(label: str, hits: FirstHitArrays, scores: FloatArray, low: np.ndarray) -> str:
    own, foreign, removed = (hits.sort == sort for sort in (OWN, FOREIGN, REMOVED))
    high, right = scores >= HIGH_SCORE, hits.right > 0
    best = np.zeros(len(scores), bool)
    for here in (hits.wiki == name for name in NAMES):
        best[here] = scores[here] < np.quantile(scores[here & own], MOST_REJECTED)
    cells = (right[own & high], high[own & right], low[own], low[foreign], low[removed], best[removed])
    shares = [format_share(cell, places=1) for cell in cells] + [
        format_share(low[removed & (hits.wiki == n)]) for n in NAMES
    ]
    return f"| {label} | {compute_brier(scores[own], hits.right[own]):.3f} | {' | '.join(shares)} |"


if __name__ == "__main__":
    main()
