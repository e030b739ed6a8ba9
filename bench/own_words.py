"""Questions in other words than their pages: order, verdict and snippet of the product, and the fit of the ranker.

    python -m bench.own_words WIKIS QUESTIONS [--foreign FILE] [--folds FILE] [--fit] [--together] [--mode MODE]
        [--set NAME=VALUE …]

WIKIS is a directory with a wiki in each folder. QUESTIONS has one JSON object per line: `wiki`, `q`, `kind`, `page`, `line` and
`last_line` of the answer; the file of `--foreign` has `wiki` and `q` of questions that the wiki does not answer. Indexes are kept
in bench/data/own_words. A page other than the one the question was written from counts as wrong, even if it answers.

`--fit` prints the weights of the ranker fitted to all questions, and the ranks with weights fitted to the other wikis. `--folds`
names a JSON file, {wiki: directory of a model}: a question is then asked with a model that was trained without its wiki.
`--together` also asks every question to all wikis of QUESTIONS in one search.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np

from bench.report import make_head, make_parser
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.index import CosineScale
from wikiholt.domain.search import Confidence, PageFilter, SearchInterface, SearchMode, SearchResult
from wikiholt.errors import InvalidQuery
from wikiholt.search import searcher
from wikiholt.search.ranking import (
    Candidates,
    QueryShape,
    RankFeatures,
    compute_features,
    rank_candidates,
    select_first,
)
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.multi_search import search_wikis

JUDGED_PAGES = 60
"""Pages of a question that the fit compares."""
SNIPPET_WORDS = 5
"""A snippet has the answer if it has this number of words in a row of an answering line."""
PENALTY, RATE, STEPS = 1e-3, 0.05, 1500
_WORD = re.compile(r"[a-z0-9]+")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
Question = dict[str, str | int]
Judged = tuple[str, np.ndarray, np.ndarray]
"""The wiki of a question, the features of its pages, and which of them is right."""


class Wikis:
    """The indexed wikis; each may have a model of its own."""

    def __init__(self, data: Path, wikis: Path, models: Mapping[str, str], overrides: Mapping[str, object]) -> None:
        self._data, self._wikis, self._models, self._overrides = data, wikis, models, overrides
        self._handles: dict[str, WikiHandle] = {}

    def open(self, name: str) -> WikiHandle:
        if name not in self._handles:
            model = self._models.get(name)
            service = open_service(
                self._data / "own_words" / Path(model or "default").name,
                overrides={**self._overrides, **({"model": model} if model else {})},
            )
            if name not in {wiki.slug for wiki in service.registry.list_wikis()}:
                service.add(name, str((self._wikis / name).resolve()), {})
            self._handles[name] = service.get_handle(name)
            self._handles[name].sync()
        return self._handles[name]

    def has_answer(self, question: Question, result: SearchResult) -> bool:
        """Whether the snippet of the first hit has words of an answering line."""
        shown = fold_words(result.hits[0].snippet.text)
        return any(fold_words(run) in shown for run in self.find_answer_runs(question))

    def find_answer_runs(self, question: Question) -> frozenset[str]:
        """The runs of SNIPPET_WORDS words of the answering lines, or fewer if a line has no more."""
        lines = (self._wikis / str(question["wiki"]) / str(question["page"])).read_text("utf-8").split("\n")
        runs: set[str] = set()
        for line in lines[int(question["line"]) - 1 : int(question["last_line"])]:
            words = _WORD.findall(_LINK_TARGET.sub(" ", line).lower())
            length = min(SNIPPET_WORDS, len(words))
            if length > 1:
                runs.update(" ".join(words[at : at + length]) for at in range(len(words) - length + 1))
        return frozenset(runs)


def fold_words(text: str) -> str:
    """The words of a text in small letters, with a space before and after each."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def read_lines(path: Path | None) -> list[Question]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path else []


def count_answers(wikis: Wikis, questions: Sequence[Question], mode: SearchMode) -> dict[str, Counter[str]]:
    """For each kind of question and for all, how often something holds."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for question in questions:
        result = search(wikis, question, mode)
        right = [hit.file == question["page"] for hit in result.hits]
        is_first = right[:1] == [True]
        is_high = bool(result.hits) and result.hits[0].confidence is Confidence.HIGH
        found = {
            "questions": True,
            "first": is_first,
            "three": any(right[:3]),
            "ten": any(right[:10]),
            "nothing": result.nothing_relevant,
            "high": is_high,
            "high and right": is_high and is_first,
            "answer shown": is_first and wikis.has_answer(question, result),
        }
        for kind in (str(question["kind"]), "all"):
            counts[kind].update({name: int(value) for name, value in found.items()})
    return counts


def search(wikis: Wikis, question: Question, mode: SearchMode) -> SearchResult:
    return wikis.open(str(question["wiki"])).search(SearchRequest(str(question["q"]), 10, mode))


def search_together(wikis: Wikis, questions: Sequence[Question], mode: SearchMode) -> Iterator[str]:
    """How often the right page is first, and in three, among the hits of all wikis."""
    handles = [wikis.open(name) for name in sorted({str(question["wiki"]) for question in questions})]
    first = three = 0
    for question in questions:
        result = search_wikis(handles, SearchRequest(str(question["q"]), 10, mode), interface=SearchInterface.CLI)
        right = [(hit.wiki, hit.file) == (question["wiki"], question["page"]) for hit in result.hits]
        first += right[:1] == [True]
        three += any(right[:3])
    yield f"\n{len(handles)} wikis together: first {first}, three {three} of {len(questions)}."


def format_counts(counts: Mapping[str, Counter[str]]) -> Iterator[str]:
    titles = (
        "first | three | ten | nothing relevant | high is right | right ones that are high | snippet has the answer"
    )
    yield make_head(f"| kind | questions | {titles} |")
    for kind, count in counts.items():
        n, first = count["questions"], max(count["first"], 1)
        shares = [count[name] / n for name in ("first", "three", "ten", "nothing")]
        shares += [count["high and right"] / max(count["high"], 1), count["high and right"] / first]
        yield f"| {kind} | {n} | " + " | ".join(f"{x:.3f}" for x in [*shares, count["answer shown"] / first]) + " |"


def collect_features(wikis: Wikis, questions: Sequence[Question], mode: SearchMode) -> Iterator[Judged]:
    """The features of the candidates of each question that has its page among them, as the product computes them."""
    kept: list[tuple[np.ndarray, np.ndarray, QueryShape]] = []

    def rank_and_keep(mode: SearchMode, candidates: Candidates, shape: QueryShape, scale: CosineScale) -> Candidates:
        ranked = rank_candidates(mode, candidates, shape, scale)
        best = ranked[select_first(ranked["page_id"])][:JUDGED_PAGES]
        kept.append((best["page_id"], np.column_stack(compute_features(best, scale)), shape))
        return ranked

    pages: dict[str, dict[int, str]] = {}
    for question in questions:
        name, kept[:] = str(question["wiki"]), []
        if name not in pages:
            with wikis.open(name).open_snapshot() as snapshot:
                pages[name] = {
                    page.page_id: page.file for page in snapshot.live_index.index.list_pages(PageFilter(), None)[1]
                }
        with mock.patch.object(searcher, "rank_candidates", rank_and_keep):
            try:
                search(wikis, question, mode)
            except InvalidQuery:
                continue
        if not kept:
            continue
        page_ids, features, shape = kept[0]
        right = np.array([pages[name].get(page_id) == question["page"] for page_id in page_ids.tolist()])
        if right.any():
            yield name, np.array([expand_features(RankFeatures(*row), shape) for row in features.tolist()]), right


def expand_features(features: RankFeatures, shape: QueryShape) -> list[float]:
    """The features, the features times the share of function words, and the words times the rest of the shape."""
    sentence, *of_words = shape
    return [*features, *(sentence * value for value in features), *(features.words * value for value in of_words)]


def fit(judged: Sequence[Judged]) -> np.ndarray:
    """The weights that make the right page likely among the pages of its question; a wiki counts by its square root."""
    features = np.concatenate([each for _, each, _ in judged])
    right = np.concatenate([each / each.sum() for _, _, each in judged])
    sizes = np.array([len(each) for _, each, _ in judged])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    counts = Counter(wiki for wiki, _, _ in judged)
    weight = np.repeat([counts[wiki] ** -0.5 for wiki, _, _ in judged], sizes)
    weight /= weight[starts].sum()
    spread = features.std(axis=0) + 1e-9
    scaled, weights = features / spread, np.zeros(features.shape[1])
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        ranks = scaled @ weights
        ranks = np.exp(ranks - np.repeat(np.maximum.reduceat(ranks, starts), sizes))
        likely = ranks / np.repeat(np.add.reduceat(ranks, starts), sizes)
        slope = scaled.T @ (weight * (likely - right)) + 2 * PENALTY * weights
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weights -= RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-9)
    return weights / spread


def cross_validate(judged: Sequence[Judged]) -> tuple[int, int]:
    """How many right pages are first, and in three, with weights fitted to the other wikis; five groups of wikis."""
    names = sorted({wiki for wiki, _, _ in judged})
    first = three = 0
    for group in range(5):
        left_out = set(names[group::5])
        if not left_out or len(left_out) == len(names):
            continue
        weights = fit([each for each in judged if each[0] not in left_out])
        for wiki, features, right in judged:
            if wiki in left_out:
                order = np.argsort(-(features @ weights), kind="stable")
                first += bool(right[order[0]])
                three += bool(right[order[:3]].any())
    return first, three


def main() -> None:
    parser = make_parser(__doc__, "", "data")
    parser.add_argument("wikis", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--foreign", type=Path)
    parser.add_argument("--folds", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--mode", type=SearchMode, default=SearchMode.HYBRID)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    print("\n".join(measure(arguments)))


def measure(arguments: argparse.Namespace) -> Iterator[str]:
    models = json.loads(arguments.folds.read_text()) if arguments.folds else {}
    wikis = Wikis(arguments.data, arguments.wikis, models, dict(each.split("=", 1) for each in arguments.set))
    questions = read_lines(arguments.questions)
    yield from format_counts(count_answers(wikis, questions, arguments.mode))
    if foreign := read_lines(arguments.foreign):
        results = [search(wikis, question, arguments.mode) for question in foreign]
        high = sum(bool(each.hits) and each.hits[0].confidence is Confidence.HIGH for each in results)
        yield f"\nForeign: noticed {sum(each.nothing_relevant for each in results)} of {len(results)}; high {high}."
    if arguments.together:
        yield from search_together(wikis, questions, arguments.mode)
    if arguments.fit:
        judged = list(collect_features(wikis, questions, arguments.mode))
        first, three = cross_validate(judged)
        yield f"\nFitted to the other wikis: first {first}, three {three} of {len(questions)}."
        names = [*RankFeatures._fields, *(f"{name} × function words" for name in RankFeatures._fields)]
        names += [f"words × {name}" for name in QueryShape._fields[1:]]
        yield "\n".join(f"{name} {weight:.2f}" for name, weight in zip(names, fit(judged), strict=True))


if __name__ == "__main__":
    main()
