"""Fits the curves that make a score a likelihood, and tests their calibration: the figures of docs/adr/0026.

    python -m bench.calibration [--collections DIR] [--data DIR] [--model NAME] [--write]

Uses the indexes of bench.quality (run that first). Queries are split in two halves by a hash: curves and
thresholds come from the first and are reported on the second. Each collection is also reported with curves
fitted to the three others, because a user's wiki is always unseen.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import collections
from bench.evidence import HYBRID, MEANING, NAMES, NAMING, RIGHT, SHARE, JudgedQuery, load_queries
from bench.regression import compute_brier, compute_calibration_error, fit_logistic, format_share
from bench.report import describe_machine, write_result
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.search import ranking
from wikiholt.search.ranking import (
    HIGH_SCORE,
    LARGE_WIKI_PAGES,
    MEDIUM_SCORES,
    TRAILING_LEAD_WEIGHT,
    Candidate,
    ScoreCurve,
    ScoreFeatures,
    align_likelihoods,
    get_competition,
    get_score_features,
    limit_likelihoods,
    rank_candidates,
)

TOP = 5
FEATURES = {
    SearchMode.HYBRID: ("evidence", "meaning", "word_margin"),
    SearchMode.SEMANTIC: ("meaning",),
    SearchMode.KEYWORD: ("evidence", "word_margin"),
}
OWN, FOREIGN, NEAR = range(3)
UNANSWERED = 0.25
"""Weight of foreign queries in a fit relative to answerable ones: one question in five has no answer."""
FORMERLY = {SearchMode.HYBRID: (0.52, 0.117), SearchMode.SEMANTIC: (0.52, 0.09), SearchMode.KEYWORD: (0.42, 0.12)}
HEADS = (
    "| first hits | queries | right | Brier | ECE | called high | right of high | right ones called high | right of medium "
    "| called low | foreign: nothing relevant | foreign: high | without the page: nothing relevant | high |"
)
BINS = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Curves(NamedTuple):
    """The two curves of a mode. Hybrid search has those of semantic search as its floor."""

    whether: ScoreCurve
    which: ScoreCurve
    floor: "Curves | None" = None


@dataclass(frozen=True)
class Hits:
    """The best hits of many queries in one mode, as arrays in one order."""

    right: FloatArray
    features: FloatArray
    former_scores: FloatArray
    place: FloatArray
    sort: FloatArray
    wiki: np.ndarray
    kind: np.ndarray
    held_out: np.ndarray

    def select(self, chosen: np.ndarray) -> "Hits":
        return Hits(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @property
    def codes(self) -> np.ndarray:
        return np.char.endswith(self.kind, "(codes)")

    def get_column(self, name: str) -> FloatArray:
        return np.asarray(self.features[:, ScoreFeatures._fields.index(name)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--model", default="", help="with the indexes of this model instead of the default one")
    parser.add_argument("--write", action="store_true", help="write bench/results/calibration-MODEL.md")
    arguments = parser.parse_args()
    queries = load_queries(arguments.collections, arguments.data, arguments.model)
    found = {mode: collect_hits(mode, queries) for mode in SearchMode}
    text = "\n".join(line for mode in SearchMode for line in format_report(mode, found))
    print(text)
    if arguments.write:
        write_result(f"calibration-{arguments.model or 'granite'}", f"{__doc__}\n{describe_machine()}\n{text}")


def collect_hits(mode: SearchMode, queries: list[JudgedQuery]) -> Hits:
    """The hits of every query; for answerable queries also those without the relevant pages."""
    rows: list[tuple[float, ScoreFeatures, float, int, int, str, str, bool]] = []
    for each in queries:
        about = (each.wiki, each.kind, each.held_out)
        sort = FOREIGN if each.foreign else OWN
        rows += [(*hit, sort, *about) for hit in list_best_hits(mode, each.rows, TOP)]
        if sort == OWN:
            rows += [(*hit, NEAR, *about) for hit in list_best_hits(mode, each.rows[each.rows[:, RIGHT] == 0], TOP)]
    return Hits(*(np.array(column) for column in zip(*rows, strict=True)))


def list_best_hits(mode: SearchMode, rows: FloatArray, top: int) -> Iterator[tuple[float, ScoreFeatures, float, int]]:
    """Relevance, features, former score and rank of each hit; no hit counts as a wrong hit."""
    possible = {
        SearchMode.HYBRID: rows[:, HYBRID] > 0,
        SearchMode.KEYWORD: rows[:, SHARE] > 0,
        SearchMode.SEMANTIC: np.isfinite(rows[:, MEANING]),
    }
    by_words = mode is SearchMode.KEYWORD
    candidates = [
        Candidate(page, 0, None if by_words else 1 - row[MEANING], row[SHARE] or None, title_overlap=row[NAMING])
        for page, row in enumerate(rows.tolist())
        if possible[mode][page]
    ]
    best = rank_candidates(mode, candidates)
    among = get_competition(mode, best)
    for place, each in enumerate(best[:top]):
        yield (
            float(rows[each.page_id, RIGHT]),
            get_score_features(mode, each, among),
            compute_former_score(mode, each),
            place,
        )
    if not best:
        yield 0.0, ScoreFeatures(0.0, 0.0, 0.0, 0.0), 0.0, 0


def compute_former_score(mode: SearchMode, candidate: Candidate) -> float:
    """The score of docs/adr/0024: the maximum over curves that were set by hand."""
    cases = tuple(SearchMode) if mode is SearchMode.HYBRID else (mode,)
    bare = candidate._replace(title_overlap=0.0)
    evidence = (
        (case, ranking.compute_evidence(case, candidate if case is SearchMode.HYBRID else bare)) for case in cases
    )
    return max(1 / (1 + math.exp((FORMERLY[case][0] - amount) / FORMERLY[case][1])) for case, amount in evidence)


def fit_with_floor(mode: SearchMode, found: dict[SearchMode, Hits], choose: Callable[[Hits], np.ndarray]) -> Curves:
    """Fit a mode to the chosen hits; for hybrid search also its floor."""
    fits = {each: fit(each, found[each].select(choose(found[each]))) for each in {mode, SearchMode.SEMANTIC}}
    return fits[mode]._replace(floor=fits[SearchMode.SEMANTIC] if mode is SearchMode.HYBRID else None)


def fit(mode: SearchMode, hits: Hits) -> Curves:
    """Fit "answerable" to first hits of own and foreign queries, and "is the page" to own queries only."""
    usable = (hits.place == 0) & (hits.sort != NEAR)
    if mode is SearchMode.SEMANTIC:
        usable &= ~hits.codes  # a model does not know them
    both = hits.select(usable)
    own = both.select(both.sort == OWN)
    whether = fit_logistic([both.get_column(name) for name in FEATURES[mode]], both.sort == OWN, compute_weights(both))
    which = fit_logistic([own.get_column("lead")], own.right > 0, compute_weights(own))
    return Curves(
        ScoreCurve(-whether[0], **dict(zip(FEATURES[mode], whether[1:], strict=True))),
        ScoreCurve(-which[0], lead=which[1]),
    )


def compute_weights(hits: Hits) -> FloatArray:
    """Every set of queries has the same weight, whatever its size; the codes of all collections are one set."""
    groups = np.where(hits.codes, "codes", np.where(hits.sort == OWN, hits.kind, hits.wiki))
    found = np.zeros(len(groups))
    for sort, total in ((OWN, 1.0), (FOREIGN, UNANSWERED)):
        names = sorted(set(groups[hits.sort == sort]))
        for name in names:
            chosen = (hits.sort == sort) & (groups == name)
            found[chosen] = total / len(names) / chosen.sum()
    return np.asarray(found * len(found) / found.sum(), np.float32)


def compute_likelihoods(hits: Hits, curves: Curves) -> FloatArray:
    score = _multiply_curves(hits.features[:, :4], hits.get_column("lead"), curves)
    if curves.floor is None:
        return score
    by_meaning = hits.features[:, :4] * np.array([0, 1, 0, 0], np.float32)
    return np.maximum(score, _multiply_curves(by_meaning, hits.get_column("meaning_lead"), curves.floor))


def _multiply_curves(features: FloatArray, lead: FloatArray, curves: Curves) -> FloatArray:
    sums = (
        features @ np.array(curves.whether[1:5]) - curves.whether.bias,
        np.where(lead < 0, TRAILING_LEAD_WEIGHT, curves.which.lead) * lead - curves.which.bias,
    )
    return np.asarray(np.prod([1 / (1 + np.exp(-each)) for each in sums], axis=0))


@dataclass(frozen=True)
class Scored:
    """Hits with scores, and the thresholds for high and medium."""

    hits: Hits
    scores: FloatArray
    medium: float
    high: float = HIGH_SCORE

    def select(self, chosen: np.ndarray) -> "Scored":
        return replace(self, hits=self.hits.select(chosen), scores=self.scores[chosen])

    def get_first(self, sort: int) -> tuple[FloatArray, FloatArray]:
        """The scores of the first hits of such queries, and which are right."""
        chosen = (self.hits.sort == sort) & (self.hits.place == 0)
        return self.scores[chosen], self.hits.right[chosen]


def score_hits(mode: SearchMode, hits: Hits, curves: Curves) -> Scored:
    return Scored(hits, align_scores(mode, hits, compute_likelihoods(hits, curves)), MEDIUM_SCORES[mode])


def align_scores(mode: SearchMode, hits: Hits, scores: FloatArray) -> FloatArray:
    """The scores of each query's hits, made consistent as in the product."""
    aligned: list[float] = []
    starts = np.flatnonzero(hits.place == 0)
    for part in np.split(scores, starts[1:]):
        aligned += align_list(mode, part.tolist())
    return np.array(aligned, np.float32)


def align_list(mode: SearchMode, scores: Sequence[float], page_count: int = LARGE_WIKI_PAGES) -> list[float]:
    """The same for the hits of one query, best first."""
    candidates = limit_likelihoods([Candidate(place, likelihood=score) for place, score in enumerate(scores)])
    return [each.likelihood or 0.0 for each in align_likelihoods(mode, candidates, page_count)]


def format_report(mode: SearchMode, found: dict[SearchMode, Hits]) -> Iterator[str]:
    hits = found[mode]
    curves = fit_with_floor(mode, found, lambda each: ~each.held_out)
    unseen = {name: fit_with_floor(mode, found, partial(_is_elsewhere, name)) for name in NAMES}
    overall = fit_with_floor(mode, found, lambda each: np.ones(len(each.right), bool))
    ours, codes = hits.select(~hits.codes), hits.select(hits.codes)
    held, apart = score_hits(mode, ours.select(ours.held_out), curves), score_unseen(mode, ours, unseen)
    yield f"\n## {mode}\n"
    yield from format_curves(
        {"first half": curves, **{f"without {name}": each for name, each in unseen.items()}, "all": overall}
    )
    yield from format_thresholds(score_hits(mode, ours.select(~ours.held_out), curves))
    yield "\n" + HEADS
    yield "|" + "---|" * HEADS.count("|", 1)
    before = replace(held, scores=held.hits.former_scores, high=0.75, medium=0.25)
    yield format_row("second half, formerly (.75, .25)", before)
    yield format_row("**second half, fitted to the first**", held)
    for name in NAMES:
        yield format_row(f"… {name}", held.select(held.hits.wiki == name))
    yield format_row("**all, each collection by curves fitted to the others**", apart)
    for name in NAMES:
        yield format_row(f"… {name}", apart.select(apart.hits.wiki == name))
    coded = score_hits(mode, codes.select(codes.held_out), curves)
    yield format_row(
        "codes, second half, formerly", replace(coded, scores=coded.hits.former_scores, high=0.75, medium=0.25)
    )
    yield format_row("codes, second half, fitted to the first", coded)
    yield format_row("codes, all, fitted to the others", score_unseen(mode, codes, unseen))
    product = score_hits(mode, ours, _get_product_curves(mode))
    yield format_row("all but codes, as in the product (seen)", product)
    yield from format_foreign_table(held)
    yield from format_reliability(held, apart)


def _is_elsewhere(name: str, hits: Hits) -> np.ndarray:
    return np.asarray(hits.wiki != name)


def _get_product_curves(mode: SearchMode) -> Curves:
    floor = _get_product_curves(SearchMode.SEMANTIC) if mode is SearchMode.HYBRID else None
    return Curves(ranking.ANSWERABLE_CURVES[mode], ranking.IS_THE_PAGE_CURVES[mode], floor)


def score_unseen(mode: SearchMode, hits: Hits, unseen: dict[str, Curves]) -> Scored:
    """Each collection's hits, scored by curves fitted without it."""
    scores = np.zeros(len(hits.right))
    for name, curves in unseen.items():
        scores[hits.wiki == name] = compute_likelihoods(hits.select(hits.wiki == name), curves)
    return Scored(hits, align_scores(mode, hits, scores), MEDIUM_SCORES[mode])


def format_curves(curves: dict[str, Curves]) -> Iterator[str]:
    yield "| fitted to | answerable: bias | evidence | meaning | word margin | is the page: bias | lead |"
    yield "|---|---|---|---|---|---|---|"
    for name, (whether, which, _) in curves.items():
        yield f"| {name} | {' | '.join(f'{each:.2f}' for each in (*whether[:4], which.bias, which.lead))} |"


def format_thresholds(half: Scored) -> Iterator[str]:
    """The thresholds chosen on the first half."""
    scores, right = half.get_first(OWN)
    order = np.argsort(-scores)
    precise = np.flatnonzero(np.cumsum(right[order]) / np.arange(1, len(order) + 1) >= 0.8)
    least = f"{scores[order][precise[-1]]:.2f}" if len(precise) else "no score"
    low = np.quantile(scores, 0.03)
    yield f"\nOn the first half, first hits from {least} on are right four times in five, and 3 % are below {low:.2f}."


def format_row(name: str, scored: Scored) -> str:
    mine, right = scored.get_first(OWN)
    foreign, near = (scored.get_first(sort)[0] for sort in (FOREIGN, NEAR))
    high, medium = scored.high, scored.medium
    cells = (
        len(right),
        f"{right.mean():.2f}",
        f"{compute_brier(mine, right):.3f}",
        f"{compute_calibration_error(mine, right):.3f}",
        format_share(mine >= high),
        format_share(right[mine >= high] > 0, bounds=True),
        format_share(mine[right > 0] >= high),
        format_share(right[(mine >= medium) & (mine < high)] > 0, bounds=True),
        format_share(mine < medium, places=1),
        format_share(foreign < medium, places=1),
        format_share(foreign >= high, places=1),
        format_share(near < medium),
        format_share(near >= high),
    )
    return f"| {name} | {' | '.join(map(str, cells))} |"


def format_foreign_table(held: Scored) -> Iterator[str]:
    """Which foreign questions are recognized; two of the collections are software manuals with common words."""
    hits = held.hits
    of = np.char.partition(hits.kind, " (")[:, 0]
    yield '\n| foreign questions called "nothing relevant", second half | of ' + " | of ".join(NAMES) + " |"
    yield "|" + "---|" * (len(NAMES) + 1)
    for name in NAMES:
        cells = [(hits.sort == FOREIGN) & (hits.place == 0) & (hits.wiki == name) & (of == other) for other in NAMES]
        called = (format_share(held.scores[cell] < held.medium) if cell.any() else "" for cell in cells)
        yield f"| asked of {name} | {' | '.join(called)} |"


def format_reliability(held: Scored, apart: Scored) -> Iterator[str]:
    """Mean score and share of right hits by score interval."""
    columns = [(held, 0, 0), (apart, 0, 0), (held, 1, TOP), (apart, 1, TOP)]
    yield "\nNumber of hits in each score interval, their mean score, and the share of right ones:\n"
    yield (
        "| score | first hits, second half | first hits, fitted to the others "
        f"| hits 2 to {TOP}, second half | hits 2 to {TOP}, fitted to the others |"
    )
    yield "|---|---|---|---|---|"
    for low, most in pairwise(BINS):
        cells = []
        for scored, first, last in columns:
            place, scores = scored.hits.place, scored.scores
            within = (place >= first) & (place <= last) & (scored.hits.sort == OWN) & (scores >= low) & (scores < most)
            mean = f"{scores[within].mean():.2f}" if within.any() else "–"
            cells.append(f"{within.sum()}, {mean}, {format_share(scored.hits.right[within] > 0, bounds=True)}")
        yield f"| {low:g} to {most:g} | {' | '.join(cells)} |"
    later = apart.select((apart.hits.place > 0) & (apart.hits.sort == OWN))
    means = []
    for name in NAMES:
        here = later.hits.wiki == name
        right, medium = later.hits.right[here], later.scores[here] >= later.medium
        summary = f"mean score {later.scores[here].mean():.2f}, {format_share(right > 0)} right"
        means.append(
            f"{name} {summary}; {format_share(medium)} medium, of which {format_share(right[medium] > 0)} right"
        )
    yield f"\nHits 2 to {TOP}, fitted to the others: {' · '.join(means)}."
    surest = []
    for name in NAMES:
        scores, right = apart.select(apart.hits.wiki == name).get_first(OWN)
        surest.append(f"{name} {format_share(right[np.argsort(-scores)[: len(scores) // 5]] > 0, bounds=True)}")
    yield f"\nRight of the surest fifth of first hits, fitted to the others: {', '.join(surest)}."


if __name__ == "__main__":
    main()
