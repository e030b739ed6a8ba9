"""The page as a whole in the ranking, and other uses of the vectors and words of its passages: figures of docs/adr/0044.

    python -m bench.pages [--collections DIR] [--data DIR] [--model NAME] [--write]

Uses the indexes of bench.quality, also of the collections that bench.mining writes, and keeps the signals of all queries
in bench/data/pages, so that a further trial takes seconds; delete them after a change of an index. A page's vector is the
mean of its passages. Every choice for a collection is made by the others. The signals not taken are added to hybrid
search as it is.
"""

import argparse
import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import collections
from bench.report import machine, write
from bench.signals import open_indexes
from wikiholt.domain.index import CosineScale, FloatArray, IntArray
from wikiholt.domain.page_means import sample_rows
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import KEYWORD_WEIGHT, PAGE_WEIGHT, TITLE_WEIGHT
from wikiholt.search.searcher import KEYWORD_CANDIDATES, VECTOR_CANDIDATES
from wikiholt.search.title_match import compute_dice
from wikiholt.text.bm25 import K1, B, compute_idf, to_terms
from wikiholt.text.keyword_query import get_significant_terms, parse_query, to_plain_query

SIGNALS = (
    *("nearest", "page", "share", "title", "three", "first", "centred", "without_top", "hub", "common", "rocchio"),
    *("passage_words", "name_words", "pairs"),
)
FORMER = (0.0, 0.5, 0.3)
"""The weights of page, keywords and title before docs/adr/0044."""
GRID = tuple(itertools.product((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6), (0.35, 0.4, 0.45, 0.5, 0.55), (0.2, 0.3, 0.4)))
TRIED: dict[str, tuple[str, tuple[float, ...]]] = {
    "mean of the three nearest passages": ("three", (0.1, 0.2)),
    "mean of the first three passages": ("first", (0.1, 0.2)),
    "cosine without the wiki's mean": ("centred", (0.05, 0.1, 0.2)),
    "… and without the first principal direction": ("without_top", (0.05, 0.1, 0.2)),
    "nearness to the nearest passages of other pages": ("hub", (-0.05, -0.1, -0.2)),
    "nearness to the passages of the other candidates": ("common", (-0.05, -0.1, -0.2)),
    "query moved to the best three passages": ("rocchio", (0.1, 0.2)),
    "BM25 of the best passage": ("passage_words", (0.05, 0.1)),
    "terms in the name, rare ones weigh more": ("name_words", (0.05, 0.1)),
    "adjacent terms of the query that are adjacent on the page": ("pairs", (0.05, 0.1)),
}
NEIGHBOURS, SAMPLED_PASSAGES, ROCCHIO_WEIGHT = 10, 5_000, 0.5
EXCHANGES = 10_000
Weights = tuple[float, float, float]


@dataclass(frozen=True)
class JudgedCandidates:
    """The candidates of one query: a row each, a column per signal. Cosines are on the common scale."""

    kind: str
    collection: str
    ideal: float
    grades: FloatArray
    signals: FloatArray

    def column(self, name: str) -> FloatArray:
        return np.asarray(self.signals[:, SIGNALS.index(name)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--model", default="", help="with the indexes of this model instead of the default one")
    parser.add_argument("--only", nargs="*", default=[], help="these collections only")
    parser.add_argument("--write", action="store_true", help="write bench/results/pages.md, or pages-MODEL.md")
    arguments = parser.parse_args()
    found = collections.find_all(arguments.collections, arguments.data)
    queries = [
        query
        for name, directory in found.items()
        if name in (arguments.only or found)
        for query in read_candidates(name, directory, arguments.data, arguments.model)
    ]
    trial = Trial(queries)
    parts = (format_change, format_held_out, format_semantic, format_tried, format_learned)
    text = "\n\n".join("\n".join(part(trial)) for part in parts)
    print(text)
    if arguments.write:
        ending = f"-{arguments.model}" if arguments.model else ""
        write(f"pages{ending}", f"{__doc__}\n{machine()} {len(queries)} queries.\n\n{text}\n")


def read_candidates(name: str, directory: Path, data: Path, model: str) -> list[JudgedCandidates]:
    """The candidates of a collection's queries, from the file if there is one."""
    file = data / "pages" / f"{name}{model}.pickle"
    if not file.exists():
        service = open_indexes(data, model)
        index = service.components.store.open(service.get_handle(name).wiki.id)
        reader = SignalReader(index, service.components.embedder())
        found = [reader.read(kind, query) for kind in collections.queries(directory) for query in kind.texts]
        service.close()
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(pickle.dumps([vars(each) for each in found if each is not None]))
        print(name, len(found), flush=True)
    return [JudgedCandidates(**fields) for fields in pickle.loads(file.read_bytes())]


class SignalReader:
    """Computes the signals of queries to one index, which it has in memory."""

    def __init__(self, index: WikiIndex, embedder: Embedder) -> None:
        self._index, self._embedder = index, embedder
        _, listed = index.list_pages(PageFilter(), None)
        self._pages = {page.page_id: page for page in listed}
        rows = index.get_page_vectors(sorted(self._pages))
        order = np.lexsort((rows.chunk_ids, rows.page_ids))
        self._page_of, self._vectors = rows.page_ids[order], rows.vectors[order]
        ids, starts = np.unique(self._page_of, return_index=True)
        self._rows = dict(zip(ids.tolist(), map(slice, starts, np.append(starts[1:], len(order))), strict=True))
        chunks = {c.chunk_id: c for each in index.get_page_chunks(sorted(self._pages)).values() for c in each}
        self._counts = [Counter(to_terms(chunks[chunk_id].text)) for chunk_id in rows.chunk_ids[order].tolist()]
        self._average = float(np.mean([counts.total() for counts in self._counts]))
        self._names = {page_id: get_significant_terms(page.name) for page_id, page in self._pages.items()}
        with index.open_keyword_rows() as (_, keyword_rows):
            self._fields = {row.page_id: row.terms.fields for row in keyword_rows}
        self._name_terms = {page_id: frozenset(fields[0].split()) for page_id, fields in self._fields.items()}
        self._page_counts = Counter(t for fields in self._fields.values() for t in set(" ".join(fields).split()))
        self._mean = self._vectors.mean(axis=0)
        centred = self._vectors - self._mean
        step = -(-len(centred) // SAMPLED_PASSAGES)
        self._top = np.linalg.svd(centred[::step], full_matrices=False)[2][0]
        self._sample, self._sample_pages = self._vectors[::step], self._page_of[::step]
        self._centred = _to_unit(centred)
        self._without_top = _to_unit(centred - np.outer(centred @ self._top, self._top))

    def read(self, kind: collections.Queries, query: str) -> JudgedCandidates | None:
        words, vector = parse_query(kind.texts[query]), self._embedder.embed_query(to_plain_query(kind.texts[query]))
        if not words:
            return None
        cosines, scale = self._vectors @ vector, self._embedder.scale
        best = self._index.get_max_keyword_score(words) or 1.0
        hits = self._index.search_keywords(words, KEYWORD_CANDIDATES, PageFilter())
        shares = {hit.page_id: min(1.0, hit.score / best) for hit in hits}
        near = self._page_of[np.argsort(-cosines, kind="stable")[:VECTOR_CANDIDATES]].tolist()
        left_out, relevant = kind.exclude.get(query, set()), kind.relevant[query]
        pages = sorted(
            page for page in {*near, *shares} if self._pages[page].path not in left_out and page in self._rows
        )
        nearest = np.array([self._rows[page].start + int(np.argmax(cosines[self._rows[page]])) for page in pages])
        columns = self._read_vectors(pages, nearest, vector, cosines, scale)
        columns["share"] = np.array([shares.get(page, 0.0) for page in pages])
        columns["title"] = np.array([compute_dice(frozenset(words.terms), self._names[page]) for page in pages])
        columns |= self._read_words(pages, words.terms)
        ideal = np.array(sorted(relevant.values(), reverse=True)[:10], np.float32)
        return JudgedCandidates(
            kind.name,
            kind.collection,
            float((ideal / np.log2(np.arange(2, len(ideal) + 2))).sum()),
            np.array([relevant.get(self._pages[page].path, 0) for page in pages], np.float32),
            np.column_stack([columns[name] for name in SIGNALS]).astype(np.float32),
        )

    def _read_vectors(
        self, pages: Sequence[int], nearest: IntArray, vector: FloatArray, cosines: FloatArray, scale: CosineScale
    ) -> dict[str, FloatArray]:
        near = self._vectors[nearest]
        common = near @ near.T
        np.fill_diagonal(common, 0)
        moved = _to_unit(vector + ROCCHIO_WEIGHT * near[np.argsort(-cosines[nearest])[:3]].mean(axis=0))
        centred = _to_unit(vector - self._mean)
        without_top = _to_unit(centred - (centred @ self._top) * self._top)
        scaled = {
            "nearest": cosines[nearest],
            "page": self._score(pages, lambda rows: self._get_mean(rows) @ vector),
            "three": self._score(pages, lambda rows: np.sort(cosines[rows])[-3:].mean()),
            "first": self._score(pages, lambda rows: _to_unit(self._vectors[rows][:3].mean(axis=0)) @ vector),
            "hub": self._score_neighbours(nearest),
            "common": common.sum(axis=1) / max(1, len(pages) - 1),
            "rocchio": self._score(pages, lambda rows: (self._vectors[rows] @ moved).max()),
        }
        columns = {
            name: np.maximum(0, (v - scale.unrelated) / (scale.related - scale.unrelated)) for name, v in scaled.items()
        }
        columns["centred"] = self._score(pages, lambda rows: (self._centred[rows] @ centred).max())
        columns["without_top"] = self._score(pages, lambda rows: (self._without_top[rows] @ without_top).max())
        return columns

    def _score(self, pages: Sequence[int], score: Callable[[slice], float]) -> FloatArray:
        return np.array([score(self._rows[page]) for page in pages], np.float32)

    def _get_mean(self, rows: slice) -> FloatArray:
        vectors = self._vectors[rows]
        return _to_unit(vectors[sample_rows(np.zeros(len(vectors), np.int64))].sum(axis=0))

    def _score_neighbours(self, nearest: IntArray) -> FloatArray:
        """The mean cosine of each passage and its nearest passages of other pages, of a sample."""
        cosines = self._vectors[nearest] @ self._sample.T
        cosines[self._page_of[nearest][:, None] == self._sample_pages[None]] = -1
        return np.asarray(np.partition(cosines, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:].mean(axis=1))

    def _read_words(self, pages: Sequence[int], terms: Sequence[str]) -> dict[str, FloatArray]:
        weights = {term: compute_idf(len(self._pages), self._page_counts[term]) for term in terms}
        total = sum(weights.values()) or 1.0
        pairs = [f" {one} {other} " for one, other in itertools.pairwise(terms)]
        texts = [[f" {field} " for field in self._fields.get(page, ())] for page in pages]
        return {
            "passage_words": self._score(
                pages, lambda rows: max(self._score_passage(at, weights) for at in range(rows.start, rows.stop)) / total
            ),
            "name_words": np.array(
                [sum(w for term, w in weights.items() if term in self._name_terms[page]) / total for page in pages]
            ),
            "pairs": np.array(
                [sum(any(pair in f for f in fields) for pair in pairs) / max(1, len(pairs)) for fields in texts]
            ),
        }

    def _score_passage(self, at: int, weights: Mapping[str, float]) -> float:
        counts = self._counts[at]
        norm = K1 * (1 - B + B * counts.total() / self._average)
        return sum(weight * counts[term] / (counts[term] + norm) for term, weight in weights.items() if term in counts)


def _to_unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=-1, keepdims=True)), np.float32)


class Trial:
    """All queries as arrays, one row each, padded to the same number of candidates."""

    def __init__(self, queries: Sequence[JudgedCandidates]) -> None:
        self.kinds = list(dict.fromkeys(query.kind for query in queries))
        homes = {query.kind: collections.get_group(query.collection) for query in queries}
        self.groups = np.array([homes[kind] for kind in self.kinds])
        self.kind_of = np.array([self.kinds.index(query.kind) for query in queries])
        width = max(11, *(len(query.grades) for query in queries))
        self._ideal = np.array([query.ideal for query in queries])
        self._grades, self._exists = np.zeros((len(queries), width)), np.zeros((len(queries), width), bool)
        self.signals = {name: np.zeros((len(queries), width), np.float32) for name in SIGNALS}
        for row, query in enumerate(queries):
            self._grades[row, : len(query.grades)], self._exists[row, : len(query.grades)] = query.grades, True
            for name in SIGNALS:
                self.signals[name][row, : len(query.grades)] = query.column(name)

    def compute_evidence(self, weights: Weights) -> FloatArray:
        page, keywords, title = weights
        meaning = self.compute_meaning(page)
        return (1 - keywords) * meaning + keywords * self.signals["share"] + title * self.signals["title"] * meaning

    def compute_meaning(self, page: float) -> FloatArray:
        return np.asarray((1 - page) * self.signals["nearest"] + page * self.signals["page"])

    def measure(self, scores: FloatArray) -> FloatArray:
        """nDCG@10 of each query. Ties go to the nearer page."""
        ranked = np.where(self._exists, scores + 1e-6 * self.signals["nearest"], -np.inf)
        best = np.argsort(-ranked, axis=1, kind="stable")[:, :10]
        gains = np.take_along_axis(self._grades, best, 1) / np.log2(np.arange(2, 12))
        return np.asarray(gains.sum(axis=1) / self._ideal)

    def average(self, values: FloatArray) -> FloatArray:
        """The mean of each kind of queries."""
        return np.array([values[self.kind_of == kind].mean() for kind in range(len(self.kinds))])

    def learn(self, names: Sequence[str], left_out: str) -> FloatArray:
        """Weights of signals by logistic regression over pairs of a relevant and another page of the other groups."""
        product = self.signals["title"] * self.compute_meaning(PAGE_WEIGHT)
        columns = np.stack([*(self.signals[name] for name in names), product], axis=-1)
        order = np.argsort(-np.where(self._exists, self.compute_evidence(NOW), -np.inf), axis=1)[:, :20]
        differences, weights = [], []
        for row in np.flatnonzero(self.groups[self.kind_of] != left_out):
            right = np.flatnonzero(self._grades[row] > 0)
            wrong = [at for at in order[row] if self._exists[row, at] and not self._grades[row, at]]
            pairs = (columns[row][right][:, None] - columns[row][wrong][None]).reshape(-1, columns.shape[-1])
            differences.append(pairs)
            weights.append(np.full(len(pairs), 1 / max(1, len(pairs)) / (self.kind_of == self.kind_of[row]).sum()))
        slopes = fit_pairs(np.concatenate(differences), np.concatenate(weights))
        return np.asarray(columns @ slopes)


NOW: Weights = (PAGE_WEIGHT, KEYWORD_WEIGHT, TITLE_WEIGHT)


def fit_pairs(differences: FloatArray, weights: FloatArray, ridge: float = 1e-2) -> FloatArray:
    """The slopes with which most differences are positive, by Newton's method."""
    spread, weights = differences.std(axis=0) + 1e-6, weights / weights.sum()
    known, slopes = differences / spread, np.zeros(differences.shape[1])
    for _ in range(30):
        wrong = 1 / (1 + np.exp(np.clip(known @ slopes, -30, 30)))
        bend = (known * (weights * wrong * (1 - wrong))[:, None]).T @ known + ridge * np.eye(len(slopes))
        slopes += np.linalg.solve(bend, known.T @ (weights * wrong) - ridge * slopes)
    return np.asarray(slopes / spread)


def format_row(label: str, values: FloatArray, sign: str = "+") -> str:
    return f"| {label} | {' | '.join(f'{value:{sign}.4f}' for value in values)} | {values.mean():{sign}.4f} |"


def format_head(trial: Trial, label: str) -> Iterator[str]:
    yield f"| {label} | {' | '.join(trial.kinds)} | mean |"
    yield "|---" * (len(trial.kinds) + 2) + "|"


def format_change(trial: Trial) -> Iterator[str]:
    """Hybrid search formerly and now, with the chance of such a difference without a cause."""
    formerly, now = (trial.measure(trial.compute_evidence(weights)) for weights in (FORMER, NOW))
    yield from format_head(trial, "hybrid search, nDCG@10")
    yield format_row("formerly: .5 nearest + .5 share + .3 title × nearest", trial.average(formerly), "")
    yield format_row("now", trial.average(now), "")
    yield format_row("difference", trial.average(now) - trial.average(formerly))
    random = np.random.default_rng(1)
    chances = []
    for kind in range(len(trial.kinds)):
        differences = (now - formerly)[trial.kind_of == kind]
        signs = random.choice((-1, 1), (EXCHANGES, len(differences)))
        chances.append(np.mean(np.abs((signs * differences).mean(axis=1)) >= abs(differences.mean()) - 1e-12))
    differences = now - formerly
    signs = random.choice((-1, 1), (EXCHANGES // 10, len(differences)))
    overall = np.mean(np.abs((signs * differences).mean(axis=1)) >= abs(differences.mean()))
    yield f"| p (exchanged {EXCHANGES:,} times) | {' | '.join(f'{p:.3f}' for p in chances)} | {overall:.3f} |"


def format_held_out(trial: Trial) -> Iterator[str]:
    results = np.stack([trial.average(trial.measure(trial.compute_evidence(weights))) for weights in GRID])
    formerly = results[GRID.index(FORMER)]
    yield "| left out | weights of page, keywords, title chosen by the others | gain seen | gain on the one left out |"
    yield "|---|---|---|---|"
    for name in dict.fromkeys(trial.groups.tolist()):
        unseen = trial.groups == name
        best = int(np.argmax(results[:, ~unseen].mean(axis=1)))
        seen_gain, gain = ((results[best] - formerly)[part].mean() for part in (~unseen, unseen))
        yield f"| {name} | {', '.join(f'{w:g}' for w in GRID[best])} | {seen_gain:+.4f} | {gain:+.4f} |"


def format_semantic(trial: Trial) -> Iterator[str]:
    nearest = trial.average(trial.measure(trial.compute_meaning(0.0)))
    yield from format_head(trial, "semantic search (with the same candidates)")
    yield format_row("nearest passage", nearest, "")
    for page in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        yield format_row(f"page {page}", trial.average(trial.measure(trial.compute_meaning(page))) - nearest)


def format_tried(trial: Trial) -> Iterator[str]:
    evidence = trial.compute_evidence(NOW)
    now = trial.average(trial.measure(evidence))
    yield from format_head(trial, "added to hybrid search as it is")
    for label, (name, weights) in TRIED.items():
        for weight in weights:
            gains = trial.average(trial.measure(evidence + weight * trial.signals[name])) - now
            yield format_row(f"{label}, {weight}", gains)


def format_learned(trial: Trial) -> Iterator[str]:
    now = trial.average(trial.measure(trial.compute_evidence(NOW)))
    yield from format_head(trial, "weights learned from pairs of pages of the others")
    for label, names in (("the signals in use", ("nearest", "page", "share")), ("all", SIGNALS)):
        values = np.zeros(len(trial.kinds))
        for name in dict.fromkeys(trial.groups.tolist()):
            unseen = trial.groups == name
            values[unseen] = trial.average(trial.measure(trial.learn(names, name)))[unseen]
        yield format_row(label, values - now)


if __name__ == "__main__":
    main()
