"""The score in small wikis: how often high, medium and "nothing relevant" are right in wikis of 30, 60 and 120 pages.

    python -m bench.small_wikis [--collections DIR] [--data DIR] [--model NAME] [--write]

Uses the vectors of the indexes of bench.quality (run that first). Each small wiki has pages that answer some questions of
a collection, and random other pages of it. It is indexed and searched by the product's code, so that its keyword
statistics are its own. Every question of a collection is asked in one wiki of each size. *Foreign* questions are those
of other collections; *near* questions are of the same collection, and no page of the wiki answers them. What the
searches found is kept in bench/data/small_wikis. XQuAD is only tested: its questions are asked nowhere else.
"""

import argparse
import pickle
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import collections
from bench.calibration import FOREIGN, NEAR, OWN, TOP
from bench.evidence import NAMES
from bench.signals import open_indexes
from wikiholt.caches.keywords.lexicon import LexiconProvider
from wikiholt.caches.vectors.factory import DatabaseVectorCache
from wikiholt.domain.git import Blob
from wikiholt.domain.index import FloatArray, IndexChange, PageEntry
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery
from wikiholt.indexing.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.search.hits import HitBuilder
from wikiholt.search.ranking import Candidate, rank_candidates
from wikiholt.search.request import SearchRequest
from wikiholt.search.search_context import SearchContext
from wikiholt.search.searcher import Searcher
from wikiholt.storage.sqlite.store import SqliteStore
from wikiholt.wikis.service import WikiService

SIZES = (30, 60, 120)
TESTED = "xquad"
PAGES_PER_QUESTION = 6
"""A wiki has a question for this many pages, as many near ones, and twice as many foreign ones."""
MAX_ANSWERS = 2
"""Relevant pages of a question that are put into a wiki; cranfield has dozens for some."""
KEPT = 40
"""Candidates that are kept of a search."""


class Question(NamedTuple):
    """A question of a collection, the pages that answer it and the pages that must not be in a wiki."""

    collection: str
    kind: str
    number: str
    text: str
    relevant: frozenset[str]
    excluded: frozenset[str]


@dataclass(frozen=True)
class SmallWiki:
    """A part of a collection and the questions that are asked there, by sort."""

    collection: str
    number: int
    pages: tuple[str, ...]
    questions: Mapping[int, Sequence[Question]]


@dataclass(frozen=True)
class SmallSearch:
    """What a search found: the first hit's score and whether it is right, and the candidates as in bench.evidence."""

    wiki: str
    pages: int
    sort: int
    kind: str
    number: str
    mode: SearchMode
    score: float
    right: float
    nothing_relevant: bool
    rows: FloatArray


def read_questions(directory: Path) -> list[Question]:
    return [
        Question(
            kind.collection,
            kind.name,
            number,
            text,
            frozenset(kind.relevant[number]),
            frozenset(kind.exclude.get(number, ())),
        )
        for kind in collections.queries(directory)
        for number, text in kind.texts.items()
    ]


def plan_wikis(
    paths: Sequence[str], own: Sequence[Question], foreign: Sequence[Question], size: int
) -> Iterator[SmallWiki]:
    """Wikis of this size, so that every question that has an answer is asked in one of them."""
    rng = random.Random(f"{own[0].collection} {size}")
    existing = set(paths)
    left = rng.sample(own, len(own))
    count = size // PAGES_PER_QUESTION
    for number in range(-(-len(left) // count)):
        asked = left[number * count : (number + 1) * count]
        pages: dict[str, None] = {}
        for question in asked:
            answers = sorted(question.relevant & existing)
            pages |= dict.fromkeys(rng.sample(answers, min(MAX_ANSWERS, len(answers))))
        left_out = frozenset[str]().union(*(question.excluded for question in asked))
        others = [path for path in rng.sample(paths, len(paths)) if path not in pages and path not in left_out]
        chosen = [*pages, *others][:size]
        asked = [each for each in asked if not each.relevant.isdisjoint(chosen) and each.excluded.isdisjoint(chosen)]
        near = [each for each in own if (each.relevant | each.excluded).isdisjoint(chosen)]
        questions = {
            OWN: asked,
            NEAR: rng.sample(near, min(count, len(near))),
            FOREIGN: rng.sample(foreign, 2 * count),
        }
        yield SmallWiki(own[0].collection, number, tuple(chosen), questions)


class PagePool:
    """The pages of a collection as entries of an index. The complete index has their vectors."""

    def __init__(self, directory: Path, index: WikiIndex, embedder: Embedder) -> None:
        self._index, self._embedder = index, embedder
        self.recipe = index.get_state().recipe
        pipeline = TextPipeline.from_recipe(self.recipe)
        assert pipeline is not None
        self.pipeline = pipeline
        self._texts = {collections.page_path(each["id"]): each for each in collections.documents(directory)}
        self._entries: dict[str, PageEntry] = {}
        self.paths = sorted(page.path for page in index.list_pages(PageFilter(), None)[1])

    def get(self, path: str) -> PageEntry:
        if path not in self._entries:
            data = collections.to_page(self._texts[path]).encode()
            task = PageTask(f"{path}.md", Blob(f"{len(self._entries):040x}", len(data), data), None)
            page = self.pipeline.prepare(task, self._embedder)
            assert isinstance(page, PreparedPage)
            vectors = self._index.find_vectors_by_hash(page.hashes)
            rows = [vectors[each] for each in page.hashes]
            matrix = np.stack(rows) if rows else np.empty((0, self.recipe.dimensions), np.float32)
            self._entries[path] = PageEntry(page.blob, page.page, page.chunks, page.hashes, matrix, page.terms)
        return self._entries[path]


class KnownQueries:
    """An embedder that embeds each query once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, FloatArray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed_query(self, text: str) -> FloatArray:
        if text not in self._vectors:
            self._vectors[text] = self._embedder.embed_query(text)
        return self._vectors[text]


class RecordingSearcher(Searcher):
    """Remembers the candidates of the last search."""

    found: Sequence[Candidate] = ()

    def _find_candidates(
        self, context: SearchContext, vector: FloatArray | None, shares: Mapping[int, float]
    ) -> list[Candidate]:
        candidates = super()._find_candidates(context, vector, shares)
        self.found = candidates
        return candidates


class SmallIndex:
    """A small wiki, indexed."""

    def __init__(self, store: SqliteStore, pool: PagePool, wiki: SmallWiki, embedder: Embedder) -> None:
        self._wiki = wiki
        self.index = store.create(f"{wiki.number:032x}", pool.recipe)
        self.index.apply(IndexChange(tuple(map(pool.get, wiki.pages)), revision="0" * 40))
        self._paths = {page.page_id: page.path for page in self.index.list_pages(PageFilter(), None)[1]}
        language = pool.pipeline.language
        self._searcher = RecordingSearcher(
            self.index,
            DatabaseVectorCache(self.index),
            None,
            lambda: embedder,
            get_head=None,
            hit_builder=HitBuilder(self.index, "", language, pool.pipeline.dialect),
            language=language,
            scale=embedder.scale,
            get_lexicon=LexiconProvider(self.index, None),
        )

    def search(self, sort: int, question: Question, mode: SearchMode) -> SmallSearch | None:
        """None if the query has no word in this mode."""
        try:
            result = self._searcher.search(SearchRequest(question.text, TOP, mode))
        except InvalidQuery:
            return None
        best = rank_candidates(mode, self._searcher.found)[:KEPT]
        rows = [
            (self._paths[each.page_id] in question.relevant, each.meaning, each.keyword_share or 0.0, each.title_overlap, 1)
            for each in best
        ]
        first = result.hits[0] if result.hits else None
        return SmallSearch(
            self._wiki.collection,
            len(self._wiki.pages),
            sort,
            question.kind,
            question.number,
            mode,
            first.score if first else 0.0,
            float(first is not None and first.path in question.relevant),
            result.nothing_relevant,
            np.array(rows, np.float32).reshape(-1, 5),
        )


def load_searches(directory: Path, data: Path, model: str) -> list[SmallSearch]:
    """All searches, from the files if they exist."""
    to = data / "small_wikis"
    to.mkdir(parents=True, exist_ok=True)
    places = {name: directory / name for name in NAMES} | {TESTED: data / "extra" / TESTED}
    found = []
    for name in places:
        file = to / f"{name}{f'-{model}' if model else ''}.pickle"
        if not file.exists():
            searches = search_collection(name, places, open_indexes(data, model))
            file.write_bytes(pickle.dumps([vars(each) for each in searches]))
        found += [SmallSearch(**fields) for fields in pickle.loads(file.read_bytes())]
    return found


def search_collection(name: str, places: Mapping[str, Path], service: WikiService) -> Iterator[SmallSearch]:
    """Ask all questions in small wikis of this collection."""
    embedder: Embedder = KnownQueries(service.components.embedder())  # type: ignore[assignment]
    index = service.components.store.open(service.get_handle(name).wiki.id)
    pool = PagePool(places[name], index, embedder)
    own = read_questions(places[name])
    foreign = [question for other in NAMES if other != name for question in read_questions(places[other])]
    for size in SIZES:
        for wiki in plan_wikis(pool.paths, own, foreign, size):
            yield from search_wiki(pool, wiki, embedder)
        print(name, size, flush=True)
    index.close()
    service.close()


def search_wiki(pool: PagePool, wiki: SmallWiki, embedder: Embedder) -> Iterator[SmallSearch]:
    with tempfile.TemporaryDirectory() as directory:
        small = SmallIndex(SqliteStore(Path(directory)), pool, wiki, embedder)
        for sort, questions in wiki.questions.items():
            for question in questions:
                for mode in SearchMode:
                    found = small.search(sort, question, mode)
                    if found is not None:
                        yield found
        small.index.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collections", type=Path, default=collections.DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("bench/data"))
    parser.add_argument("--model", default="", help="with the indexes of this model instead of the default one")
    parser.add_argument("--write", action="store_true", help="write bench/results/small_wikis.md")
    arguments = parser.parse_args()
    load_searches(arguments.collections, arguments.data, arguments.model)


if __name__ == "__main__":
    main()
