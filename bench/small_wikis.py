"""The score in small wikis: how often high, medium and "nothing relevant" are right in wikis of 30, 60 and 120 pages.

    python -m bench.small_wikis [--collections DIR] [--data DIR] [--model NAME] [--only NAME …] [--write]

Uses the vectors of the indexes of bench.quality (run that first, also for what bench.extra_collections writes). A small wiki has
pages that answer some questions of a collection, and random other pages of it. It is indexed and searched by the code of
the product, so that its keyword statistics are its own. Every question is asked in one wiki of each size. *Foreign*
questions are of other collections. *Near* questions are of the same collection, but no page of the wiki answers them.

The questions of bench/user_questions.tsv were written for this test, in other words than the pages have: for the two
example wikis (14 pages each), and for parts of two collections with 50 pages. For near questions their page is removed.

Scores are those of pages, without the limit by the shown passage (docs/adr/0046). Neither these questions nor XQuAD
were used for a fit or a weight. Candidates are kept in bench/data/small_wikis.
"""

import argparse
import math
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench import codes, collections
from bench.calibration import FOREIGN, NEAR, OWN, TOP, UNANSWERED, align_list, list_best_hits
from bench.evidence import NAMES
from bench.regression import format_share
from bench.report import describe_machine, write_result
from bench.signals import open_indexes
from bench.small_wiki_plans import (
    Question,
    SmallWiki,
    plan_user_wikis,
    plan_wikis,
    read_questions,
    read_user_questions,
)
from wikiholt.caches.keywords.lexicon import LexiconProvider
from wikiholt.caches.vectors.factory import create_vector_cache
from wikiholt.domain.git import Blob
from wikiholt.domain.index import FloatArray, IndexChange, PageEntry
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery
from wikiholt.indexing.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.search import ranking
from wikiholt.search.hits import HitBuilder
from wikiholt.search.ranking import HIGH_SCORE, MEDIUM_SCORES, Candidate, compute_smallness, rank_candidates
from wikiholt.search.request import SearchRequest
from wikiholt.search.search_context import SearchContext
from wikiholt.search.searcher import Searcher
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.wikis.service import WikiService

SIZES = (30, 60, 120)
TESTED = "xquad"
DEMO_WIKIS = Path("src/wikiholt/interfaces/cli/demo_wikis")
MAX_PAGE_CHARS = 9_000
WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
HEADS = (
    "| wiki | questions | right | high is right | right ones called high | nothing relevant | foreign: nothing relevant "
    "| near: nothing relevant | near: high | codes: nothing relevant | foreign codes |"
)


@dataclass(frozen=True)
class SmallSearch:
    """A search in a small wiki with all candidates, best first, as rows of bench.evidence. `size` is 0 for wikis with
    the questions of a user."""

    wiki: str
    size: int
    pages: int
    sort: int
    is_code: bool
    mode: SearchMode
    rows: FloatArray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--model", default="", help="with the indexes of this model instead of the default one")
    parser.add_argument("--only", nargs="*", default=[*NAMES, TESTED], help="these collections only")
    parser.add_argument("--write", action="store_true", help="write bench/results/small_wikis.md")
    arguments = parser.parse_args()
    found = load_searches(arguments)
    text = "\n".join(line for mode in SearchMode for line in format_report(mode, found))
    print(text)
    if arguments.write:
        name = f"small_wikis{f'-{arguments.model}' if arguments.model else ''}"
        write_result(name, f"{__doc__}\n{describe_machine()} {len(found):,} searches.\n{text}\n")


# Searches


class PagePool:
    """Pages as entries of an index. Vectors are those of the complete index, if it has them."""

    def __init__(self, texts: Mapping[str, str], index: WikiIndex, embedder: Embedder) -> None:
        self._texts, self._index, self._embedder = texts, index, embedder
        self.recipe = index.get_state().recipe
        pipeline = TextPipeline.from_recipe(self.recipe)
        assert pipeline is not None
        self.pipeline = pipeline
        self.get = cache(self._get)

    def _get(self, path: str) -> PageEntry:
        data = self._texts[path].encode()
        blob = Blob(blake2b(data, digest_size=20).hexdigest(), len(data), data)
        page = self.pipeline.prepare(PageTask(f"{path}.md", blob, None), self._embedder)
        assert isinstance(page, PreparedPage)
        known = self._index.find_vectors_by_hash(page.hashes)
        missing = [text for text, each in zip(page.texts, page.hashes, strict=True) if each not in known]
        embedded = iter(self._embedder.embed_passages(missing))
        rows = [known[each] if each in known else next(embedded) for each in page.hashes]
        vectors = np.stack(rows) if rows else np.empty((0, self.recipe.dimensions), np.float32)
        return PageEntry(page.blob, page.page, page.chunks, page.hashes, vectors, page.terms)


class KnownQueries:
    """An embedder that embeds each query once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.embed_query = cache(embedder.embed_query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)


class RecordingSearcher(Searcher):
    """Keeps the candidates of the last search."""

    found: Sequence[Candidate] = ()

    def _find_candidates(
        self, context: SearchContext, vector: FloatArray | None, shares: Mapping[int, float]
    ) -> list[Candidate]:
        candidates = super()._find_candidates(context, vector, shares)
        self.found = candidates
        return candidates


def search_wiki(name: str, size: int, pool: PagePool, wiki: SmallWiki, embedder: Embedder) -> Iterator[SmallSearch]:
    """Index a wiki and ask its questions in all modes."""
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory))
        index = store.create("0" * 32, pool.recipe)
        index.apply(IndexChange(tuple(map(pool.get, wiki.pages)), revision="0" * 40))
        searcher = open_searcher(index, store.get_directory(index.wiki_id), pool, embedder)
        paths = {page.page_id: page.path for page in index.list_pages(PageFilter(), None)[1]}
        for sort, questions in wiki.questions.items():
            for question in questions:
                for mode in SearchMode:
                    rows = search(searcher, question, mode, paths)
                    if rows is not None:
                        yield SmallSearch(name, size, len(wiki.pages), sort, question.is_code, mode, rows)
        index.close()


def open_searcher(index: WikiIndex, directory: Path, pool: PagePool, embedder: Embedder) -> RecordingSearcher:
    vectors, _ = create_vector_cache("exact", index, directory, background=False)
    language = pool.pipeline.language
    return RecordingSearcher(
        index,
        vectors,
        None,
        lambda: embedder,
        get_head=None,
        hit_builder=HitBuilder(index, "", language, pool.pipeline.dialect),
        language=language,
        scale=embedder.scale,
        get_lexicon=LexiconProvider(index, None),
    )


def search(
    searcher: RecordingSearcher, question: Question, mode: SearchMode, paths: Mapping[int, str]
) -> FloatArray | None:
    """The candidates, best first. None if the question has no word in this mode."""
    searcher.found = ()
    try:
        searcher.search(SearchRequest(question.text, 1, mode))
    except InvalidQuery:
        return None
    rows = [
        (paths[each.page_id] in question.relevant, each.meaning, each.keyword_share or 0.0, each.title_overlap, 1)
        for each in rank_candidates(mode, searcher.found)
    ]
    return np.array(rows, np.float32).reshape(-1, 5)


def load_searches(arguments: argparse.Namespace) -> list[SmallSearch]:
    """All searches, from the files if they exist."""
    to, names = arguments.data / "small_wikis", arguments.only
    to.mkdir(parents=True, exist_ok=True)
    places = collections.find_collections(arguments.collections, arguments.data)
    ending = f"-{arguments.model}" if arguments.model else ""
    found = []
    for name in (*names, "user"):
        file = to / f"{name}{ending}.pickle"
        if not file.exists():
            with CollectionIndexes({each: places[each] for each in names}, arguments) as indexes:
                searches = indexes.search_users() if name == "user" else indexes.search_collection(name)
                file.write_bytes(pickle.dumps([vars(each) for each in searches]))
            print(name, flush=True)
        found += [SmallSearch(**fields) for fields in pickle.loads(file.read_bytes())]
    return found


class CollectionIndexes:
    """The complete indexes, and the questions of their collections."""

    def __init__(self, places: Mapping[str, Path], arguments: argparse.Namespace) -> None:
        self._service: WikiService = open_indexes(arguments.data, arguments.model)
        self._embedder: Embedder = KnownQueries(self._service.components.embedder())  # type: ignore[assignment]
        open_index = self._service.components.store.open
        self._indexes = {name: open_index(self._service.get_handle(name).wiki.id) for name in places}
        self._held = {name: codes.index_codes(index) for name, index in self._indexes.items()}
        self._questions = {name: read_questions(place, self._held[name]) for name, place in places.items()}
        self._places = places

    def __enter__(self) -> "CollectionIndexes":
        return self

    def __exit__(self, *_: object) -> None:
        for index in self._indexes.values():
            index.close()
        self._service.close()

    def search_collection(self, name: str) -> Iterator[SmallSearch]:
        """Ask all questions in small wikis of a collection."""
        texts = self._read_texts(name)
        pool = PagePool(texts, self._indexes[name], self._embedder)
        paths, foreign = sorted(texts), self._get_foreign(name)
        for size in SIZES:
            for wiki in plan_wikis(paths, self._questions[name], foreign, size):
                yield from search_wiki(name, size, pool, wiki, self._embedder)

    def search_users(self) -> Iterator[SmallSearch]:
        """Ask the questions of a user in wikis for them."""
        questions = [
            each for each in read_user_questions() if each.collection not in NAMES or each.collection in self._places
        ]
        for name in sorted({question.collection for question in questions}):
            texts = self._read_texts(name)
            index = self._indexes.get(name) or next(iter(self._indexes.values()))
            pool = PagePool(texts, index, self._embedder)
            short = sorted(path for path, text in texts.items() if len(text) < MAX_PAGE_CHARS)
            own = [question for question in questions if question.collection == name]
            foreign = [question for question in questions if question.collection != name]
            judged = [question for question in self._get_foreign(name) if not question.is_code]
            for wiki in plan_user_wikis(short, own, foreign, judged):
                yield from search_wiki(f"{name} (user)", 0, pool, wiki, self._embedder)

    def _get_foreign(self, name: str) -> list[Question]:
        others = (each for other in NAMES if other != name for each in self._questions.get(other, ()))
        return [each for each in others if not (each.is_code and each.text in self._held.get(name, ()))]

    def _read_texts(self, name: str) -> dict[str, str]:
        """Path → text of each page of a collection, as far as it is in the index, or of an example wiki."""
        if name not in self._places:
            files = sorted((DEMO_WIKIS / name).rglob("*.md"))
            return {str(file.relative_to(DEMO_WIKIS / name))[:-3]: file.read_text(encoding="utf-8") for file in files}
        paths = {page.path for page in self._indexes[name].list_pages(PageFilter(), None)[1]}
        pages = {collections.get_page_path(each["id"]): each for each in collections.read_documents(self._places[name])}
        return {path: collections.to_page(pages[path]) for path in paths & pages.keys()}


# Report


@dataclass(frozen=True)
class FirstHits:
    """The first hits of one mode as arrays in one order."""

    features: FloatArray
    """Of the first hits, and of those that follow; not a number if there are fewer."""
    pages: np.ndarray
    right: np.ndarray
    sort: np.ndarray
    wiki: np.ndarray
    size: np.ndarray
    is_code: np.ndarray

    def of(self, chosen: np.ndarray) -> "FirstHits":
        return FirstHits(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def collect_hits(mode: SearchMode, found: Sequence[SmallSearch]) -> FirstHits:
    rows = []
    for each in (each for each in found if each.mode is mode):
        best = list(list_best_hits(mode, each.rows, TOP))
        smallness = compute_smallness(each.pages)
        features = [hit[1]._replace(smallness=smallness) for hit in best]
        features += [ranking.ScoreFeatures(*[math.nan] * 4)] * (TOP - len(best))
        rows.append((features, each.pages, best[0][0] > 0, each.sort, each.wiki, each.size, each.is_code))
    return FirstHits(*(np.array(column) for column in zip(*rows, strict=True)))


def score_hits(mode: SearchMode, hits: FirstHits, weights: Mapping[SearchMode, float] | None = None) -> FloatArray:
    """The scores by the curves of the product, or with these weights of smallness."""
    curves = {
        each: ranking.ANSWERABLE_CURVES[each]._replace(smallness=weight) for each, weight in (weights or {}).items()
    }
    scores = []
    with patch.dict(ranking.ANSWERABLE_CURVES, curves):
        for features, pages in zip(hits.features.tolist(), hits.pages.tolist(), strict=True):
            rows = (ranking.ScoreFeatures(*row) for row in features if not math.isnan(row[0]))
            scores.append(align_list(mode, [ranking.compute_likelihood(mode, row) for row in rows], pages)[0])
    return np.array(scores)


def format_report(mode: SearchMode, found: Sequence[SmallSearch]) -> Iterator[str]:
    hits = collect_hits(mode, found)
    now, before = score_hits(mode, hits), score_hits(mode, hits, dict.fromkeys(SearchMode, 0.0))
    yield f"\n## {mode}\n"
    for label, scores in (("Without the size of the wiki", before), ("As in the product", now)):
        yield f"{label}:\n\n{HEADS}\n|{'---|' * HEADS.count('|', 1)}"
        for size in SIZES:
            judged = (hits.size == size) & (hits.wiki != TESTED)
            yield format_row(f"**{size} pages, all but {TESTED}**", mode, hits.of(judged), scores[judged])
            yield from format_wikis(mode, hits, scores, hits.size == size)
        users = hits.size == 0
        yield format_row("**questions of a user**", mode, hits.of(users), scores[users])
        yield from format_wikis(mode, hits, scores, users)
        yield ""
    yield from format_weights(mode, hits)
    yield ""
    yield from format_fits(mode, hits)


def format_wikis(mode: SearchMode, hits: FirstHits, scores: FloatArray, chosen: np.ndarray) -> Iterator[str]:
    for name in sorted(set(hits.wiki[chosen])):
        here = chosen & (hits.wiki == name)
        yield format_row(f"… {name}", mode, hits.of(here), scores[here])


def format_row(label: str, mode: SearchMode, hits: FirstHits, scores: FloatArray) -> str:
    own, foreign, near = ((hits.sort == sort) & ~hits.is_code for sort in (OWN, FOREIGN, NEAR))
    own_codes, foreign_codes = ((hits.sort == sort) & hits.is_code for sort in (OWN, FOREIGN))
    low, high = scores < MEDIUM_SCORES[mode], scores >= HIGH_SCORE
    cells = (hits.right[own], hits.right[own & high], high[own & hits.right], low[own], low[foreign], low[near])
    shares = [format_share(cell, places=1) for cell in (*cells, high[near], low[own_codes], low[foreign_codes])]
    return f"| {label} | {own.sum()} | {' | '.join(shares)} |"


def format_weights(mode: SearchMode, hits: FirstHits) -> Iterator[str]:
    """Other weights of smallness: what is called "nothing relevant" of questions, foreign, near and user questions."""
    product = {each: ranking.ANSWERABLE_CURVES[each].smallness for each in SearchMode}
    parts: dict[str, Callable[[int], np.ndarray]] = {
        f"{size} pages": lambda sort, size=size: (hits.size == size) & (hits.wiki != TESTED) & (hits.sort == sort)
        for size in SIZES
    }
    parts["user"] = lambda sort: (hits.size == 0) & (hits.sort == sort)
    yield 'Called "nothing relevant" by the weight of smallness in this mode (questions, foreign, near; without codes):\n'
    yield f"| weight | {' | '.join(parts)} |\n|{'---|' * (len(parts) + 1)}"
    for weight in WEIGHTS:
        low = score_hits(mode, hits, product | {mode: weight}) < MEDIUM_SCORES[mode]
        cells = [
            ", ".join(format_share(low[part(sort) & ~hits.is_code], places=1) for sort in (OWN, FOREIGN, NEAR))
            for part in parts.values()
        ]
        yield f"| {weight:g} | {' | '.join(cells)} |"


def format_fits(mode: SearchMode, hits: FirstHits) -> Iterator[str]:
    """The weight of smallness that is most likely by the other collections, and what it does to the log loss."""
    yield "Log loss of *answerable*, with no weight and with the weight that fits the other collections best:\n"
    yield "| collection | weight by the others | log loss without | with |\n|---|---|---|---|"
    judged = (hits.size > 0) & (hits.sort != NEAR) & ~(hits.is_code & (mode is SearchMode.SEMANTIC))
    for name in sorted(set(hits.wiki[judged])):
        own = judged & (hits.wiki == name)
        others = hits.of(judged & (hits.wiki != name) & (hits.wiki != TESTED))
        weight = min(np.arange(0, 1, 0.02), key=lambda weight: compute_log_loss(mode, others, float(weight)))
        losses = (compute_log_loss(mode, hits.of(own), each) for each in (0.0, float(weight)))
        yield f"| {name} | {weight:.2f} | {' | '.join(f'{loss:.3f}' for loss in losses)} |"


def compute_log_loss(mode: SearchMode, hits: FirstHits, weight: float) -> float:
    """The log loss of the curve *answerable*. Each set of questions has the same weight, foreign ones a quarter."""
    curve = ranking.ANSWERABLE_CURVES[mode]._replace(smallness=weight)
    total = sum(
        getattr(curve, name) * hits.features[:, 0, ranking.ScoreFeatures._fields.index(name)]
        for name in ("evidence", "meaning", "word_margin", "smallness")
    )
    losses = np.logaddexp(0, np.where(hits.sort == OWN, -1, 1) * (total - curve.bias))
    found = 0.0
    for sort, part in ((OWN, 1.0), (FOREIGN, UNANSWERED)):
        sets = {(name, size) for name, size in zip(hits.wiki.tolist(), hits.size.tolist(), strict=True)}
        means = [losses[(hits.sort == sort) & (hits.wiki == name) & (hits.size == size)].mean() for name, size in sets]
        found += part * float(np.mean(means))
    return found / (1 + UNANSWERED)


if __name__ == "__main__":
    main()
