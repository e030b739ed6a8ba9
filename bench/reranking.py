"""The effect of reranking the best pages with a cross-encoder, by the weight of what it reads: figures of docs/adr/0025.

    python -m bench.reranking [--collections DIR] [--data DIR] [--score] [--every 1] [--write]

Uses the indexes of bench.quality (run that first), and the extra `models`. `--score` asks every n-th question and keeps
the reranker's scores of the best ten pages in bench/data/reranking (10 to 20 minutes of two cores; existing scores are
kept). Figures are differences of nDCG@10 to the search without reranking, with one setting for all sets of questions.
The last table of a mode says what is left if the weights for a collection are chosen by the others.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from bench import collections
from bench.quality import RERANKER
from bench.report import make_head, make_parser, publish
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchMode
from wikiholt.search.ranking import Candidate, Competition, compute_evidence
from wikiholt.search.request import SearchRequest
from wikiholt.search.reranking import (
    MAX_GAP,
    NAME_WEIGHTS,
    PASSAGE_WEIGHT,
    RERANK_DEPTH,
    PageReranker,
    RerankResult,
    RerankTexts,
)
from wikiholt.wikis.evaluation.quality_metrics import compute_ndcg

MODES = (SearchMode.HYBRID, SearchMode.SEMANTIC)
TIMEOUT_S = 60.0


class RerankedQuestion(NamedTuple):
    """A question with its pages, best first, and of the first ten their evidence and the reranker's logits."""

    kind: str
    query: str
    relevant: dict[str, int]
    paths: list[str]
    evidence: list[float]
    names: list[float]
    passages: list[float]


Adjustment = Callable[[FloatArray, FloatArray], FloatArray]
"""What the logits of names and passages add to the evidence of the pages."""


def make_logit_bonus(name: float, passage: float) -> Adjustment:
    """The logits on an absolute scale, from a clear no to a clear yes."""
    return lambda names, passages: sum(
        weight * np.clip(logits, -12, 12) / 24 for weight, logits in ((name, names), (passage, passages))
    )


def make_gap_penalty(name: float, passage: float, most: float) -> Adjustment:
    """The distance of each logit to the best of the ten, up to a limit."""
    return lambda names, passages: sum(
        -weight * np.minimum(logits.max() - logits, most) / most
        for weight, logits in ((name, names), (passage, passages))
    )


FAMILIES: dict[str, dict[str, Adjustment]] = {
    "logits": {
        f"name {name}, passage {passage}": make_logit_bonus(name, passage)
        for name, passage in product((0, 0.05, 0.1, 0.15, 0.2, 0.3), (0, 0.05, 0.1, 0.15, 0.2, 0.3))
    },
    "gaps": {
        f"name {name}, passage {passage}, up to {most}": make_gap_penalty(name, passage, most)
        for name, passage, most in product(
            (0, 0.01, 0.02, 0.05, 0.1, 0.15), (0, 0.05, 0.07, 0.1, 0.15, 0.2), (6, 8, 12)
        )
    },
}
FORMER = "name 0.2, passage 0.1"


def main() -> None:
    parser = make_parser(__doc__, "reranking", "collections", "data")
    parser.add_argument("--score", action="store_true", help="make the scores that are not there yet")
    parser.add_argument("--every", type=int, default=1, help="ask every n-th question only")
    arguments = parser.parse_args()
    text = []
    for mode in MODES:
        if arguments.score:
            score_mode(mode, arguments)
        scored = [each for name in collections.SHARED_NAMES for each in read_scores(arguments.data, mode, name)]
        text += [f"## {mode}, {len(scored)} questions", "", *format_mode(mode, scored), ""]
    publish("reranking", __doc__, text, write=arguments.write)


class RerankRecorder:
    """Takes the place of the reranker's work in the product: keeps what it would read, and changes nothing."""

    def __init__(self) -> None:
        self.texts: list[RerankTexts] = []
        self.evidence: list[float] = []

    @contextmanager
    def install(self) -> Iterator[None]:
        def rerank(
            reranker: PageReranker, _: str, mode: SearchMode, candidates: list[Candidate], __: Competition
        ) -> RerankResult:
            head = candidates[:RERANK_DEPTH]
            self.texts, self.evidence = reranker.get_texts(head), [compute_evidence(mode, each) for each in head]
            return RerankResult(candidates)

        with mock.patch.object(PageReranker, "rerank", rerank):
            yield


def score_mode(mode: SearchMode, arguments: argparse.Namespace) -> None:
    """Ask the collections their questions, and add the reranker's logits to their files."""
    recorder = RerankRecorder()
    service = open_service(arguments.data / "quality", overrides={"rerank.model": RERANKER})
    assert service.components.reranking is not None
    reranker = service.components.reranking.get_reranker()
    for name in collections.SHARED_NAMES:
        known = {(each.kind, each.query) for each in read_scores(arguments.data, mode, name)}
        file = _get_file(arguments.data, mode, name)
        file.parent.mkdir(exist_ok=True)
        wiki = service.get_handle(name)
        with file.open("a", encoding="utf-8", buffering=1) as stream, recorder.install():
            for kind in collections.read_queries(arguments.collections / name):
                for query in list(kind.texts)[:: arguments.every]:
                    if (kind.name, query) in known:
                        continue
                    left_out = kind.exclude.get(query, set())
                    request = SearchRequest(kind.texts[query], 20 + len(left_out), mode, rerank=True)
                    hits = wiki.search(request).hits
                    texts = [*(each.name for each in recorder.texts), *(each.passage for each in recorder.texts)]
                    logits = reranker.score(kind.texts[query], texts, TIMEOUT_S)
                    assert logits is not None
                    half = len(texts) // 2
                    relevant = {path: grade for path, grade in kind.relevant[query].items() if path not in left_out}
                    paths = ["" if hit.path in left_out else hit.path for hit in hits]
                    row = RerankedQuestion(
                        kind.name, query, relevant, paths, recorder.evidence, [*logits[:half]], [*logits[half:]]
                    )
                    stream.write(json.dumps(row) + "\n")
                print(mode, kind.name, flush=True)
    service.close()


def _get_file(data: Path, mode: SearchMode, name: str) -> Path:
    return data / "reranking" / f"{mode}-{name}.jsonl"


def read_scores(data: Path, mode: SearchMode, name: str) -> list[RerankedQuestion]:
    file = _get_file(data, mode, name)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [RerankedQuestion(*row) for row in map(json.loads, lines)]


def compute_gains(scored: Sequence[RerankedQuestion], way: Adjustment | None) -> dict[str, float]:
    """The mean nDCG@10 of every set of questions."""
    gains: dict[str, list[float]] = {}
    for each in scored:
        evidence: FloatArray = np.array(each.evidence)
        if way is not None:
            evidence = evidence + way(np.array(each.names), np.array(each.passages))
        order = np.argsort(-evidence, kind="stable").tolist()
        paths = [*(each.paths[at] for at in order), *each.paths[len(order) :]]
        gains.setdefault(each.kind, []).append(compute_ndcg([path for path in paths if path], each.relevant))
    return {kind: float(np.mean(values)) for kind, values in gains.items()}


def format_mode(mode: SearchMode, scored: Sequence[RerankedQuestion]) -> Iterator[str]:
    plain = compute_gains(scored, None)
    kinds = list(plain)
    yield make_head(f"| | {' | '.join(kinds)} | mean |")
    yield f"| not reranked | {' | '.join(f'{plain[kind]:.4f}' for kind in kinds)} | {np.mean(list(plain.values())):.4f} |"
    taken = make_gap_penalty(NAME_WEIGHTS[mode], PASSAGE_WEIGHT, MAX_GAP)
    rows = {"taken: gaps": taken, f"before: logits, {FORMER}": FAMILIES["logits"][FORMER]}
    differences = {label: _subtract(compute_gains(scored, way), plain) for label, way in rows.items()}
    held_out = []
    for family, ways in FAMILIES.items():
        found = {label: _subtract(compute_gains(scored, way), plain) for label, way in ways.items()}
        best = max(found, key=lambda label: _get_mean(found[label], kinds))
        differences[f"best {family}: {best}"] = found[best]
        held_out.append(format_held_out(family, found, kinds))
    for label, difference in differences.items():
        cells = " | ".join(f"{difference[kind]:+.4f}" for kind in kinds)
        yield f"| {label} | {cells} | {_get_mean(difference, kinds):+.4f} |"
    yield ""
    yield make_head("| weights chosen by the other collections | mean difference | chosen |")
    yield from held_out


def format_held_out(family: str, found: Mapping[str, Mapping[str, float]], kinds: Sequence[str]) -> str:
    """The mean difference if the weights for each collection are chosen by the others."""
    gains: list[float] = []
    chosen = []
    for name in collections.SHARED_NAMES:
        own = [kind for kind in kinds if kind.startswith(name)]
        others = [kind for kind in kinds if kind not in own]
        best = max(found, key=lambda label: _get_mean(found[label], others))
        gains += [found[best][kind] for kind in own]
        chosen.append(f"{name}: {best}")
    return f"| {family} | {np.mean(gains):+.4f} | {'; '.join(chosen)} |"


def _subtract(gains: Mapping[str, float], plain: Mapping[str, float]) -> dict[str, float]:
    return {kind: gains[kind] - plain[kind] for kind in plain}


def _get_mean(values: Mapping[str, float], kinds: Sequence[str]) -> float:
    return float(np.mean([values[kind] for kind in kinds]))


if __name__ == "__main__":
    main()
