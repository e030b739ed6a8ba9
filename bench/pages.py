"""The page as a whole in the ranking, and other uses of the vectors of its passages: figures of docs/adr/0044.

    python -m bench.pages [--collections DIR] [--data DIR] [--model NAME] [--only NAME …] [--write]

Uses the indexes of bench.quality, also of the collections that bench.extra_collections writes, and keeps the signals of all queries
in bench/data/pages, so that a further trial takes seconds; delete them after a change of an index. A page's vector is the
mean of its passages. Every choice for a collection is made by the others; the two parts of MDN are left out together. The
signals not taken are added to hybrid search as it is.
"""

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import collections
from bench.report import make_head, make_parser, publish
from bench.signals import open_indexes
from wikiholt.domain.index import CosineScale, FloatArray, IntArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import KeywordQuery, PageFilter, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.query import KeywordScores
from wikiholt.search.ranking import KEYWORD_WEIGHT, PAGE_WEIGHT, TITLE_WEIGHT
from wikiholt.search.searcher import KEYWORD_SHARES, VECTOR_CANDIDATES, select_competing
from wikiholt.search.title_match import compute_overlap, make_title_terms
from wikiholt.search.vector_channel import compute_page_means
from wikiholt.text.keyword_query import parse_query, to_plain_query

SIGNALS = ("nearest", "page", "share", "title", "three", "first", "centred", "hub", "moved")
Weights = tuple[float, float, float]
FORMER: Weights = (0.0, 0.5, 0.3)
"""The weights of page, keywords and title before docs/adr/0044."""
NOW: Weights = (PAGE_WEIGHT, KEYWORD_WEIGHT, TITLE_WEIGHT)
PAGE_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
GRID: tuple[Weights, ...] = tuple(itertools.product(PAGE_WEIGHTS, (0.35, 0.4, 0.45, 0.5, 0.55), (0.2, 0.3, 0.4)))
TRIED: dict[str, tuple[str, tuple[float, ...]]] = {
    "mean of the three nearest passages": ("three", (0.1, 0.2)),
    "mean of the first three passages": ("first", (0.1, 0.2)),
    "cosine without the wiki's mean": ("centred", (0.1, 0.2)),
    "nearness to passages of other pages": ("hub", (-0.1, -0.2)),
    "query moved to the best three passages": ("moved", (0.1, 0.2)),
}
NEIGHBOURS, SAMPLED_PASSAGES, MOVED_WEIGHT = 10, 5_000, 0.5
EXCHANGES = 10_000


@dataclass(frozen=True)
class JudgedCandidates:
    """The candidates of one query: a row each, a column per signal. Cosines are on the common scale."""

    kind: str
    collection: str
    ideal: float
    grades: FloatArray
    signals: FloatArray


def main() -> None:
    parser = make_parser(__doc__, "pages", "collections", "data", "model")
    parser.add_argument("--only", nargs="*", default=[], help="these collections only")
    arguments = parser.parse_args()
    found = collections.find_collections(arguments.collections, arguments.data)
    queries = [
        query
        for name, directory in found.items()
        if name in (arguments.only or found)
        for query in read_candidates(name, directory, arguments.data, arguments.model)
    ]
    trial = RankingTrial(queries)
    parts = (format_change, format_held_out, format_semantic, format_tried)
    text = "\n\n".join("\n".join(part(trial)) for part in parts)
    ending = f"-{arguments.model}" if arguments.model else ""
    publish(f"pages{ending}", __doc__, text, write=arguments.write, note=f"{len(queries)} queries.")


def read_candidates(name: str, directory: Path, data: Path, model: str) -> list[JudgedCandidates]:
    def read() -> Iterator[JudgedCandidates | None]:
        service = open_indexes(data, model)
        with closing(service.components.store.open(service.get_handle(name).wiki.id)) as index:
            reader = SignalReader(index, service.components.embedder())
            yield from reader.read_all(collections.read_queries(directory))
        service.close()

    return load_candidates(data / "pages" / f"{name}{model}.pickle", read)


def load_candidates(file: Path, read: Callable[[], Iterable[JudgedCandidates | None]]) -> list[JudgedCandidates]:
    """The candidates in a file. If it does not exist, they are read and written to it."""
    if not file.exists():
        found = [vars(each) for each in read() if each is not None]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(pickle.dumps(found))
        print(file.stem, len(found), flush=True)
    return [JudgedCandidates(**fields) for fields in pickle.loads(file.read_bytes())]


class SignalReader:
    """Computes the signals of queries to one index, which it has in memory."""

    names: tuple[str, ...] = SIGNALS

    def __init__(self, index: WikiIndex, embedder: Embedder) -> None:
        self._index, self._embedder = index, embedder
        _, listed = index.list_pages(PageFilter(), None)
        self.pages = {page.page_id: page for page in listed}
        self._titles = {page.page_id: make_title_terms(page.name, page.path) for page in listed}
        rows = index.get_page_vectors(sorted(self.pages))
        order = np.lexsort((rows.chunk_ids, rows.page_ids))
        self._page_of, self._vectors = rows.page_ids[order], rows.vectors[order]
        ids, starts = np.unique(self._page_of, return_index=True)
        self._rows = dict(zip(ids.tolist(), map(slice, starts, np.append(starts[1:], len(order))), strict=True))
        self._means = dict(zip(ids.tolist(), compute_page_means(rows, ids), strict=True))
        self._mean = self._vectors.mean(axis=0)
        self._centered = _to_unit(self._vectors - self._mean)
        step = -(-len(order) // SAMPLED_PASSAGES)
        self._sample, self._sample_pages = self._vectors[::step], self._page_of[::step]

    def read_all(self, kinds: Iterable[collections.Queries]) -> Iterator[JudgedCandidates | None]:
        return (self.read(kind, query) for kind in kinds for query in kind.texts)

    def read(self, kind: collections.Queries, query: str) -> JudgedCandidates | None:
        words, vector = parse_query(kind.texts[query]), self._embedder.embed_query(to_plain_query(kind.texts[query]))
        if not words:
            return None
        cosines = self._vectors @ vector
        shares = self.score_keywords(words)
        near = self._page_of[np.argsort(-cosines, kind="stable")[:VECTOR_CANDIDATES]].tolist()
        left_out, relevant = kind.exclude.get(query, set()), kind.relevant[query]
        pages = sorted(
            page
            for page in {*near, *select_competing(shares)}
            if self.pages[page].path not in left_out and page in self._rows
        )
        columns = self.score_vectors(pages, vector, cosines, self._embedder.scale)
        columns["share"] = np.array([shares.get(page, 0.0) for page in pages])
        columns |= self.score_titles(frozenset(words.terms), [self.pages[page] for page in pages])
        ideal = np.array(sorted(relevant.values(), reverse=True)[:10], np.float32)
        return JudgedCandidates(
            kind.name,
            kind.collection,
            float((ideal / np.log2(np.arange(2, len(ideal) + 2))).sum()),
            np.array([relevant.get(self.pages[page].path, 0) for page in pages], np.float32),
            np.column_stack([columns[name] for name in self.names]).astype(np.float32),
        )

    def score_keywords(self, words: KeywordQuery) -> dict[int, float]:
        """Page id → keyword share, best first."""
        return KeywordScores(
            lambda query: self._index.search_keywords(query, KEYWORD_SHARES, PageFilter()),
            self._index.get_max_keyword_score,
            self._index.find_matching_page_ids,
            len(self.pages),
        ).compute_shares(words)

    def score_titles(self, terms: frozenset[str], pages: Sequence[StoredPage]) -> dict[str, FloatArray]:
        return {"title": np.array([compute_overlap(terms, self._titles[page.page_id]) for page in pages])}

    def score_vectors(
        self, pages: Sequence[int], vector: FloatArray, cosines: FloatArray, scale: CosineScale
    ) -> dict[str, FloatArray]:
        nearest = np.array([self._rows[page].start + int(np.argmax(cosines[self._rows[page]])) for page in pages])
        best = self._vectors[nearest[np.argsort(-cosines[nearest])[:3]]]
        moved, centered = _to_unit(vector + MOVED_WEIGHT * best.mean(axis=0)), _to_unit(vector - self._mean)
        raw = {
            "three": self._score(pages, lambda rows: float(np.sort(cosines[rows])[-3:].mean())),
            "first": self._score(pages, lambda rows: float(_to_unit(self._vectors[rows][:3].mean(axis=0)) @ vector)),
            "hub": self._score_neighbours(nearest),
            "moved": self._score(pages, lambda rows: float((self._vectors[rows] @ moved).max())),
        }
        scaled = {name: _to_scale(each, scale) for name, each in raw.items()}
        centered_cosines = self._score(pages, lambda rows: float((self._centered[rows] @ centered).max()))
        return {**self.score_pages(pages, vector, cosines, scale), **scaled, "centred": centered_cosines}

    def score_pages(
        self, pages: Sequence[int], vector: FloatArray, cosines: FloatArray, scale: CosineScale
    ) -> dict[str, FloatArray]:
        """The signals of the product."""
        return {
            "nearest": _to_scale(self._score(pages, lambda rows: float(cosines[rows].max())), scale),
            "page": _to_scale(np.array([self._means[page] @ vector for page in pages]), scale),
        }

    def _score(self, pages: Sequence[int], score: Callable[[slice], float]) -> FloatArray:
        return np.array([score(self._rows[page]) for page in pages], np.float32)

    def _score_neighbours(self, nearest: IntArray) -> FloatArray:
        """The mean cosine of each passage and its nearest passages of other pages, of a sample."""
        cosines = self._vectors[nearest] @ self._sample.T
        cosines[self._page_of[nearest][:, None] == self._sample_pages[None]] = -1
        return np.asarray(np.partition(cosines, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:].mean(axis=1))


def _to_scale(cosines: FloatArray, scale: CosineScale) -> FloatArray:
    return np.asarray((cosines - scale.unrelated) / (scale.related - scale.unrelated))


def _to_unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=-1, keepdims=True)), np.float32)


class RankingTrial:
    """All queries as arrays, one row each, padded to the same number of candidates."""

    def __init__(self, queries: Sequence[JudgedCandidates], names: Sequence[str] = SIGNALS) -> None:
        self.kinds = list(dict.fromkeys(query.kind for query in queries))
        homes = {query.kind: query.collection for query in queries}
        self.groups = np.array([collections.get_group(homes[kind]) for kind in self.kinds])
        self.is_shared = np.array(
            [homes[kind] in collections.SHARED_NAMES and not kind.endswith("(titles)") for kind in self.kinds]
        )
        self.kind_of = np.array([self.kinds.index(query.kind) for query in queries])
        width = max(11, *(len(query.grades) for query in queries))
        self._ideal = np.array([query.ideal for query in queries])
        self._grades, self._exists = np.zeros((len(queries), width)), np.zeros((len(queries), width), bool)
        self.signals = {name: np.zeros((len(queries), width), np.float32) for name in names}
        for row, query in enumerate(queries):
            self._grades[row, : len(query.grades)], self._exists[row, : len(query.grades)] = query.grades, True
            for column, name in enumerate(names):
                self.signals[name][row, : len(query.grades)] = query.signals[:, column]

    def compute_evidence(self, weights: Weights, overlap: str = "title") -> FloatArray:
        page, keywords, title = weights
        meaning = np.maximum(0, self.compute_meaning(page))
        return np.asarray(
            (1 - keywords) * meaning + keywords * self.signals["share"] + title * self.signals[overlap] * meaning
        )

    def compute_meaning(self, page: float) -> FloatArray:
        return np.asarray((1 - page) * self.signals["nearest"] + page * self.signals["page"])

    def measure(self, scores: FloatArray) -> FloatArray:
        """nDCG@10 of each query. Ties go to the nearer page."""
        ranked = np.where(self._exists, scores + 1e-6 * self.signals["nearest"], -np.inf)
        best = np.argsort(-ranked, axis=1, kind="stable")[:, :10]
        gains = np.take_along_axis(self._grades, best, 1) / np.log2(np.arange(2, 12))
        return np.asarray(gains.sum(axis=1) / self._ideal)

    def compute_mean_ndcg(self, scores: FloatArray) -> FloatArray:
        """The mean nDCG@10 of each kind of queries."""
        return self.compute_means(self.measure(scores))

    def compute_means(self, values: FloatArray) -> FloatArray:
        """The mean of each kind of queries."""
        return np.array([values[self.kind_of == kind].mean() for kind in range(len(self.kinds))])

    def format_head(self, label: str) -> Iterator[str]:
        yield make_head(f"| {label} | {' | '.join(self.kinds)} | mean of the shared ones | of the others |")

    def format_row(self, label: str, values: FloatArray, sign: str = "+") -> str:
        means = [values[part].mean() if part.any() else 0.0 for part in (self.is_shared, ~self.is_shared)]
        return f"| {label} | {' | '.join(f'{value:{sign}.4f}' for value in (*values, *means))} |"

    def format_chances(self, changes: FloatArray) -> str:
        """A row with the chance of such differences of the queries without a cause, for each kind and for all."""
        random, chances = np.random.default_rng(1), []
        for kinds in (*np.eye(len(self.kinds), dtype=bool), self.is_shared, ~self.is_shared):
            differences = changes[kinds[self.kind_of]]
            signs = random.choice(np.array((-1, 1), np.int8), (EXCHANGES, len(differences)))
            chances.append(float(np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9)))
        return f"| p, of all queries (exchanged {EXCHANGES:,} times) | {' | '.join(f'{p:.3f}' for p in chances)} |"


def format_change(trial: RankingTrial) -> Iterator[str]:
    """Hybrid search formerly and now, with the chance of such a difference without a cause."""
    formerly, now = (trial.compute_evidence(weights) for weights in (FORMER, NOW))
    yield from trial.format_head("hybrid search, nDCG@10")
    yield trial.format_row(
        "formerly: .5 nearest + .5 share + .3 title × nearest", trial.compute_mean_ndcg(formerly), ""
    )
    yield trial.format_row("now", trial.compute_mean_ndcg(now), "")
    yield trial.format_row("difference", trial.compute_mean_ndcg(now) - trial.compute_mean_ndcg(formerly))
    yield trial.format_chances(trial.measure(now) - trial.measure(formerly))


def format_held_out(trial: RankingTrial) -> Iterator[str]:
    """What weights chosen by the others give, with all collections or only the shared ones to choose."""
    results = np.stack([trial.compute_mean_ndcg(trial.compute_evidence(weights)) for weights in GRID])
    gains = results - results[GRID.index(FORMER)]
    yield make_head(
        "| left out | weights of page, keywords, title chosen by the others | gain seen | gain on the one left out |"
    )
    for label, known in (("", np.ones(len(trial.kinds), bool)), (" (by the shared ones)", trial.is_shared)):
        unseen_gains = np.zeros(len(trial.kinds))
        for name in dict.fromkeys(trial.groups[known].tolist()):
            unseen = trial.groups == name
            seen = known & ~unseen
            best = int(np.argmax(results[:, seen].mean(axis=1)))
            unseen_gains[unseen] = gains[best, unseen]
            weights = ", ".join(f"{weight:g}" for weight in GRID[best])
            yield f"| {name}{label} | {weights} | {gains[best, seen].mean():+.4f} | {gains[best, unseen].mean():+.4f} |"
        yield f"| **mean of the shared sets{label}** | | | **{unseen_gains[trial.is_shared].mean():+.4f}** |"
        if (known & ~trial.is_shared).any():
            yield f"| **mean of the other sets** | | | **{unseen_gains[~trial.is_shared].mean():+.4f}** |"


def format_semantic(trial: RankingTrial) -> Iterator[str]:
    nearest = trial.compute_mean_ndcg(trial.compute_meaning(0.0))
    yield from trial.format_head("semantic search (with the same candidates)")
    yield trial.format_row("nearest passage", nearest, "")
    for page in PAGE_WEIGHTS[1:]:
        yield trial.format_row(f"page {page}", trial.compute_mean_ndcg(trial.compute_meaning(page)) - nearest)


def format_tried(trial: RankingTrial) -> Iterator[str]:
    evidence = trial.compute_evidence(NOW)
    now = trial.compute_mean_ndcg(evidence)
    yield from trial.format_head("added to hybrid search as it is")
    for label, (name, weights) in TRIED.items():
        for weight in weights:
            gains = trial.compute_mean_ndcg(evidence + weight * trial.signals[name]) - now
            yield trial.format_row(f"{label}, {weight}", gains)


if __name__ == "__main__":
    main()
