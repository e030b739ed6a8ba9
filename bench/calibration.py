"""Fits the curves that make a score a likelihood, and says how far to trust them: the figures of docs/adr/0026.

    python -m bench.calibration [--collections DIR] [--data DIR] [--write]

Uses the indexes that bench.quality made (run that first). Queries are split in two halves by a hash: curves and
thresholds come from the first and are reported on the second. Beside that, each collection is reported on by curves
that were fitted to the three others, since a user's wiki is one that nobody has seen.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import collections
from bench.evidence import HYBRID, MEANING, NAMES, NAMING, RIGHT, SHARE, Asked, gathered
from bench.fitting import brier, calibration_error, fitted, share_of
from bench.report import machine, write
from wikiholt import ranking
from wikiholt.model import Floats, Mode
from wikiholt.ranking import HIGH, MEDIUM, Candidate, Curve, Grounds, grounds, ranked, rivals

TOP = 5
FEATURES = {
    Mode.HYBRID: ("evidence", "meaning", "standing"),
    Mode.SEMANTIC: ("meaning",),
    Mode.KEYWORD: ("evidence", "standing"),
}
OWN, FOREIGN, NEAR = range(3)
UNANSWERED = 0.25
"""What foreign queries weigh in a fit beside those the collection answers: one question in five has no answer."""
FORMERLY = {Mode.HYBRID: (0.52, 0.117), Mode.SEMANTIC: (0.52, 0.09), Mode.KEYWORD: (0.42, 0.12)}
Curves = tuple[Curve, Curve]
BINS = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Hits:
    """The best hits of many queries in one mode, as arrays in one order."""

    right: Floats
    grounds: Floats
    formerly: Floats
    place: Floats
    sort: Floats
    wiki: np.ndarray
    kind: np.ndarray
    held_out: np.ndarray

    def of(self, chosen: np.ndarray) -> "Hits":
        return Hits(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @property
    def codes(self) -> np.ndarray:
        return np.char.endswith(self.kind, "(codes)")

    def column(self, name: str) -> Floats:
        return np.asarray(self.grounds[:, Grounds._fields.index(name)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--write", action="store_true", help="write bench/results/calibration.md")
    arguments = parser.parse_args()
    asked = gathered(arguments.collections, arguments.data)
    text = "\n".join(line for mode in Mode for line in told(mode, found(mode, asked)))
    print(text)
    if arguments.write:
        write("calibration", f"{__doc__}\n{machine()}\n{text}")


def found(mode: Mode, asked: list[Asked]) -> Hits:
    """The hits of every query; of those a collection answers also what comes first when the wanted pages are gone."""
    rows: list[tuple[float, Grounds, float, int, int, str, str, bool]] = []
    for each in asked:
        about = (each.wiki, each.kind, each.held_out)
        sort = FOREIGN if each.foreign else OWN
        rows += [(*hit, sort, *about) for hit in best_of(mode, each.rows, TOP)]
        if sort == OWN:
            rows += [(*hit, NEAR, *about) for hit in best_of(mode, each.rows[each.rows[:, RIGHT] == 0], 1)]
    return Hits(*(np.array(column) for column in zip(*rows, strict=True)))


def best_of(mode: Mode, rows: Floats, top: int) -> Iterator[tuple[float, Grounds, float, int]]:
    """Right or not, by what the score follows, the score it had formerly, and the place; nothing found is a wrong hit."""
    possible = {Mode.HYBRID: rows[:, HYBRID] > 0, Mode.KEYWORD: rows[:, SHARE] > 0, Mode.SEMANTIC: rows[:, MEANING] > -2}
    by_words = mode is Mode.KEYWORD
    candidates = [
        Candidate(page, 0, None if by_words else 1 - row[MEANING], row[SHARE] or None, naming=row[NAMING])
        for page, row in enumerate(rows.tolist())
        if possible[mode][page]
    ]
    best = ranked(mode, candidates)
    among = rivals(mode, best)
    for place, each in enumerate(best[:top]):
        yield float(rows[each.page_id, RIGHT]), grounds(mode, each, among), formerly(mode, each), place
    if not best:
        yield 0.0, Grounds(0.0, 0.0, 0.0, 0.0), 0.0, 0


def formerly(mode: Mode, candidate: Candidate) -> float:
    """The score of docs/adr/0024: the strongest case that evidence makes, by curves placed by eye."""
    cases = tuple(Mode) if mode is Mode.HYBRID else (mode,)
    bare = candidate._replace(naming=0.0)
    told = ((case, ranking.evidence(case, candidate if case is Mode.HYBRID else bare)) for case in cases)
    return max(1 / (1 + np.exp((FORMERLY[case][0] - amount) / FORMERLY[case][1])) for case, amount in told)


def fit(mode: Mode, hits: Hits) -> Curves:
    """Whether the wiki answers, by first hits of its own and of foreign queries; which page does, by its own alone."""
    usable = (hits.place == 0) & (hits.sort != NEAR)
    if mode is Mode.SEMANTIC:
        usable &= ~hits.codes  # a model knows nothing of them
    both = hits.of(usable)
    own = both.of(both.sort == OWN)
    whether = fitted([both.column(name) for name in FEATURES[mode]], both.sort == OWN, weights(both))
    which = fitted([own.column("lead")], own.right > 0, weights(own))
    return Curve(-whether[0], **dict(zip(FEATURES[mode], whether[1:], strict=True))), Curve(-which[0], lead=which[1])


def weights(hits: Hits) -> Floats:
    """Every set of queries weighs the same, whatever its size; the codes of all collections are one set."""
    groups = np.where(hits.codes, "codes", np.where(hits.sort == OWN, hits.kind, hits.wiki))
    found = np.zeros(len(groups))
    for sort, total in ((OWN, 1.0), (FOREIGN, UNANSWERED)):
        names = sorted(set(groups[hits.sort == sort]))
        for name in names:
            chosen = (hits.sort == sort) & (groups == name)
            found[chosen] = total / len(names) / chosen.sum()
    return found * len(found) / found.sum()


def likelihoods(mode: Mode, hits: Hits, curves: Curves | None = None) -> Floats:
    """By the curves given, or by those of the product."""
    whether, which = curves or (ranking.WHETHER[mode], ranking.WHICH[mode])
    sums = (hits.grounds @ np.array(curve[1:]) - curve.exceed for curve in (whether, which))
    return np.asarray(np.prod([1 / (1 + np.exp(-each)) for each in sums], axis=0))


def told(mode: Mode, hits: Hits) -> Iterator[str]:
    curves = fit(mode, hits.of(~hits.held_out))
    second, first = hits.of(hits.held_out), hits.of((hits.place == 0) & ~hits.codes)
    unseen = {name: fit(mode, hits.of(hits.wiki != name)) for name in NAMES}
    yield f"\n## {mode}\n"
    yield from constants({"first half": curves, **{f"without {name}": each for name, each in unseen.items()}})
    yield from chosen(likelihoods(mode, (half := first.of(~first.held_out)), curves), half)
    yield "\n| first hits | queries | right | Brier | ECE | called high | right of high | right ones called high | right of medium | low | foreign: nothing | foreign: high | without the page: nothing | high |"
    yield "|" + "---|" * 14
    held = first.of(first.held_out)
    yield row("second half, formerly (.75, .25)", held, held.formerly, 0.75, 0.25)
    yield row("second half, fitted to the first", held, likelihoods(mode, held, curves))
    yield row("second half, as in the product", held, likelihoods(mode, held))
    for name in NAMES:
        one = held.of(held.wiki == name)
        yield row(f"… {name}", one, likelihoods(mode, one))
    apart = [(one := first.of(first.wiki == name), likelihoods(mode, one, unseen[name])) for name in NAMES]
    for name, (one, scores) in zip(NAMES, apart, strict=True):
        yield row(f"{name}, fitted to the others", one, scores)
    order = np.concatenate([np.flatnonzero(first.wiki == name) for name in NAMES])
    yield row("all four, each fitted to the others", first.of(order), np.concatenate([scores for _, scores in apart]))
    coded = second.of((second.place == 0) & second.codes)
    yield row("codes, second half, as in the product", coded, likelihoods(mode, coded))
    yield from strangers(mode, held)
    yield from reliability(mode, second.of((second.sort == OWN) & ~second.codes))


def constants(curves: dict[str, Curves]) -> Iterator[str]:
    yield "| fitted to | whether: exceed | evidence | meaning | standing | which: exceed | lead |"
    yield "|---|---|---|---|---|---|---|"
    for name, (whether, which) in curves.items():
        yield f"| {name} | {' | '.join(f'{each:.2f}' for each in (*whether[:4], which.exceed, which.lead))} |"


def chosen(scores: Floats, half: Hits) -> Iterator[str]:
    """The thresholds that the first half would choose."""
    own = half.sort == OWN
    order = np.argsort(-scores[own])
    precise = np.cumsum(half.right[own][order]) / np.arange(1, len(order) + 1)
    least = scores[own][order][np.flatnonzero(precise >= 0.8)[-1]] if (precise >= 0.8).any() else 1.0
    low = np.quantile(scores[own], 0.03)
    yield f"\nOn the first half, hits from {least:.2f} on are right four times in five, and 3 % of them are below {low:.2f}."


def row(name: str, hits: Hits, scores: Floats, high: float = HIGH, medium: float = MEDIUM) -> str:
    own, foreign, near = (hits.sort == sort for sort in (OWN, FOREIGN, NEAR))
    right, mine = hits.right[own], scores[own]
    middle = (mine >= medium) & (mine < high)
    cells = (
        len(right),
        f"{right.mean():.2f}",
        f"{brier(mine, right):.3f}",
        f"{calibration_error(mine, right):.3f}",
        share_of(mine >= high),
        share_of(right[mine >= high] > 0, bounds=True),
        share_of(mine[right > 0] >= high),
        share_of(right[middle] > 0, bounds=True),
        share_of(mine < medium, places=1),
        share_of(scores[foreign] < medium, places=1),
        share_of(scores[foreign] >= high, places=1),
        share_of(scores[near] < medium),
        share_of(scores[near] >= high),
    )
    return f"| {name} | {' | '.join(map(str, cells))} |"


def strangers(mode: Mode, held: Hits) -> Iterator[str]:
    """Which foreign questions are recognised: two of the collections are handbooks of software and share its words."""
    of = np.char.partition(held.kind, " (")[:, 0]
    yield "\n| foreign questions called \"nothing relevant\", second half | " + " | ".join(f"of {name}" for name in NAMES) + " |"
    yield "|" + "---|" * (len(NAMES) + 1)
    scores = likelihoods(mode, held)
    for name in NAMES:
        cells = [(held.sort == FOREIGN) & (held.wiki == name) & (of == other) for other in NAMES]
        yield f"| asked of {name} | " + " | ".join(share_of(scores[cell] < MEDIUM) if cell.any() else "" for cell in cells) + " |"


def reliability(mode: Mode, own: Hits) -> Iterator[str]:
    """Score and truth side by side."""
    shown: tuple[tuple[str, Callable[[Floats], np.ndarray]], ...] = (
        ("first hit", lambda place: place == 0),
        ("hits 2 to 5", lambda place: place > 0),
    )
    yield "\n| score, second half | " + " | ".join(f"{name}s, mean score, right" for name, _ in shown) + " |"
    yield "|---|---|---|"
    scores = likelihoods(mode, own)
    for low, most in zip(BINS, BINS[1:], strict=False):
        cells = []
        for _, places in shown:
            within = places(own.place) & (scores >= low) & (scores < most)
            mean = f"{scores[within].mean():.2f}" if within.any() else "–"
            cells.append(f"{within.sum()}, {mean}, {share_of(own.right[within] > 0, bounds=True)}")
        yield f"| {low:g} to {most:g} | {' | '.join(cells)} |"
    for name in NAMES:
        one = (own.place == 0) & (own.wiki == name)
        surest = np.argsort(-scores[one])[: max(1, one.sum() // 5)]
        yield f"\nThe surest fifth of the first hits in {name}: {share_of(own.right[one][surest] > 0, bounds=True)} right."


if __name__ == "__main__":
    main()
