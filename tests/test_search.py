"""Searching one wiki: modes, filters, grouping, freshness, and caches that fail."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from git_repository import Repository

from wikiholt.errors import InvalidQuery, ModelMismatch, ModelMissing, NothingIndexed
from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.model import Answer, Filter, Floats, Ints, Mode, Neighbours, Wiki, WordHit, WordQuery
from wikiholt.pages import Pipeline
from wikiholt.ports import VectorCache, WikiIndex, WordCache
from wikiholt.search import Request
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.text.queries import plain_query
from wikiholt.vectors.exact import ExactCache

ID = "eeeeeeeeeeeeeeeeeeee"
PAGES: dict[str, str | bytes | None] = {
    "home.md": "# Home\n\nWelcome to the garden. Start with the [[Compost]] page.",
    "compost.md": "---\ntags: [soil, autumn]\ncategory: Guide\n---\n# Compost\n\nKitchen scraps turn into soil.\n\n"
    "## Turning the heap\n\nTurn the heap every two weeks so that air gets in.",
    "tools/spade.md": "---\ntags: tools\ncategory: Tools\n---\n# Spade\n\nA spade digs. Oil the handle in winter.",
    "tools/rake.md": "---\ntags: tools\ncategory: Tools\n---\n# Rake\n\nA rake gathers leaves. Leaves feed the heap.",
    "日本.md": "# 日本語のページ\n\n庭の土を耕す。",
}


class Garden:
    """An indexed wiki and a handle on it."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.vector_cache: Callable[[WikiIndex, str], VectorCache] = self._exact
        self.word_cache: Callable[[WikiIndex, str], WordCache | None] = lambda index, wiki_id: None

    def _exact(self, index: WikiIndex, wiki_id: str) -> VectorCache:
        return ExactCache(index, self.store.directory(wiki_id), background=False)

    def handle(self) -> WikiHandle:
        wiki = Wiki(ID, "garden", str(self.repository.path), datetime.now(UTC))
        parts = Parts(GitSource(self.repository.path), Pipeline(), "/wiki/{path}")
        shop = Workshop(self.store, lambda: self.embedder, self.vector_cache, self.word_cache, 1)
        return WikiHandle(wiki, parts, shop)


@pytest.fixture
def garden(tmp_path: Path) -> Garden:
    made = Garden(tmp_path)
    made.repository.commit(PAGES)
    return made


@pytest.fixture
def wiki(garden: Garden) -> Iterator[WikiHandle]:
    handle = garden.handle()
    handle.sync()
    yield handle
    handle.close()


def paths(answer: Answer) -> list[str]:
    return [hit.path for hit in answer.hits]


@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_finds_the_page_that_answers(wiki: WikiHandle, mode: Mode) -> None:
    answer = wiki.search(Request("oil the handle of a spade", mode=mode))
    assert paths(answer)[0] == "tools/spade"
    hit = answer.hits[0]
    assert hit.name == "Spade"
    assert hit.url == "/wiki/tools/spade#spade"
    assert "handle" in hit.snippet.text
    assert 0 <= hit.score <= 1
    assert hit.category == "Tools"
    assert hit.first_line >= 1
    assert (hit.distance is None) == (mode is Mode.KEYWORD)


def test_hits_are_pages_each_once_with_their_best_chunk(garden: Garden) -> None:
    long = "\n\n".join(f"## Section {i}\n\n" + f"word{i} about the heap and compost. " * 30 for i in range(12))
    garden.repository.commit({"long.md": long})
    handle = garden.handle()
    handle.sync()
    answer = handle.search(Request("word7 heap", n=100, mode=Mode.SEMANTIC))
    assert len(paths(answer)) == len(set(paths(answer))) == len(PAGES) + 1
    best = next(hit for hit in answer.hits if hit.path == "long")
    assert best.heading_path == ("Section 7",)
    assert best.anchor == "section-7"
    handle.close()


def test_a_longer_list_begins_like_a_shorter_one(wiki: WikiHandle) -> None:
    for mode in Mode:
        short = wiki.search(Request("leaves and soil", n=2, mode=mode))
        long = wiki.search(Request("leaves and soil", n=100, mode=mode))
        assert [(h.path, h.score) for h in short.hits] == [(h.path, h.score) for h in long.hits[:2]]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_hundred_pages_can_be_asked_for(garden: Garden, mode: Mode) -> None:
    garden.repository.commit(
        {f"pond/{i}.md": f"# Pond {i}\n\nThe heron stands in pond number {i}." for i in range(120)}
    )
    handle = garden.handle()
    handle.sync()
    long = handle.search(Request("heron in the pond", n=100, mode=mode))
    assert len(paths(long)) == len(set(paths(long))) == 100
    short = handle.search(Request("heron in the pond", n=60, mode=mode))
    assert paths(short) == paths(long)[:60]
    handle.close()


def test_scores_never_rise_down_the_list(wiki: WikiHandle) -> None:
    scores = [hit.score for hit in wiki.search(Request("turn the heap", n=100)).hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Filter(tags=("TOOLS",)), {"tools/spade", "tools/rake"}),
        (Filter(tags=("soil", "autumn")), {"compost"}),
        (Filter(categories=("guide",)), {"compost"}),
        (Filter(categories=("guide", "tools")), {"compost", "tools/spade", "tools/rake"}),
        (Filter(path_prefix="tools"), {"tools/spade", "tools/rake"}),
        (Filter(path_prefix="tool"), set()),
        (Filter(updated_since=datetime(2000, 1, 1, tzinfo=UTC)), {path.removesuffix(".md") for path in PAGES}),
        (Filter(updated_since=datetime(2100, 1, 1, tzinfo=UTC)), set()),
    ],
)
def test_filters_narrow_every_mode(wiki: WikiHandle, where: Filter, expected: set[str]) -> None:
    semantic = wiki.search(Request("heap", n=100, mode=Mode.SEMANTIC, where=where))
    assert set(paths(semantic)) == expected
    assert semantic.total == len(expected)
    for mode in (Mode.KEYWORD, Mode.HYBRID):
        assert set(paths(wiki.search(Request("heap leaves", n=100, mode=mode, where=where)))) <= expected


def test_phrases_and_exclusions_hold_in_hybrid_too(wiki: WikiHandle) -> None:
    assert paths(wiki.search(Request('"gathers leaves"', n=100))) == ["tools/rake"]
    assert "tools/rake" not in paths(wiki.search(Request("heap -rake", n=100)))
    assert "tools/rake" not in paths(wiki.search(Request("heap -rake", n=100, mode=Mode.SEMANTIC)))


def test_prefix_of_the_last_word_finds_while_typing(wiki: WikiHandle) -> None:
    assert paths(wiki.search(Request("kitch", mode=Mode.KEYWORD))) == ["compost"]


def test_chinese_and_japanese_are_found_without_spaces(wiki: WikiHandle) -> None:
    assert paths(wiki.search(Request("庭の土", mode=Mode.KEYWORD)))[0] == "日本"


@pytest.mark.parametrize("n", [0, -1, 101, True])
def test_a_bad_n_is_an_error(n: int) -> None:
    with pytest.raises(InvalidQuery) as caught:
        Request("x", n=n)
    assert "1 to 100" in caught.value.hint


@pytest.mark.parametrize("query", ["", "   \n", "x" * 2001, "nul\0"])
def test_a_bad_query_is_an_error(query: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        Request(query)
    assert caught.value.hint


def test_a_query_that_only_excludes_is_an_error(wiki: WikiHandle) -> None:
    with pytest.raises(InvalidQuery):
        wiki.search(Request("-heap"))


@pytest.mark.parametrize(
    "query", ["?!", '"', "-", "AND OR NOT", "a*b^c:d(e)", "NEAR(x y)", "'; DROP TABLE pages;--", "\u202e"]
)
def test_odd_queries_are_answered(wiki: WikiHandle, query: str) -> None:
    for mode in (Mode.HYBRID, Mode.SEMANTIC):
        assert wiki.search(Request(query, mode=mode)).mode is mode
    if any(char.isalnum() for char in query):
        assert wiki.search(Request(query, mode=Mode.KEYWORD)).mode is Mode.KEYWORD
    else:
        with pytest.raises(InvalidQuery, match="no word"):
            wiki.search(Request(query, mode=Mode.KEYWORD))


def test_an_index_without_pages_is_an_error_not_an_empty_list(garden: Garden) -> None:
    handle = garden.handle()
    garden.store.create(ID, Pipeline().recipe(garden.embedder)).close()
    with pytest.raises(NothingIndexed):
        handle.search(Request("anything"))
    handle.close()


def test_an_answer_says_how_fresh_it_is(garden: Garden, wiki: WikiHandle) -> None:
    fresh = wiki.search(Request("heap"))
    assert fresh.indexed_revision == fresh.head_revision == garden.repository.head()
    assert not fresh.stale
    garden.repository.commit({"new.md": "brand new"})
    stale = wiki.search(Request("heap"))
    assert stale.stale
    assert stale.head_revision == garden.repository.head() != stale.indexed_revision
    wiki.sync()
    assert paths(wiki.search(Request("brand new")))[0] == "new"


def test_an_answer_survives_its_repository(garden: Garden, wiki: WikiHandle) -> None:
    garden.repository.path.rename(garden.repository.path.with_name("away"))
    answer = wiki.search(Request("heap"))
    assert answer.hits
    assert answer.head_revision is None
    assert answer.stale
    assert answer.notes


def test_a_new_generation_is_picked_up_by_an_open_handle(garden: Garden, wiki: WikiHandle) -> None:
    assert wiki.search(Request("heap")).hits
    garden.embedder = FakeEmbedder(40, "other")
    other = garden.handle()
    other.sync()
    assert paths(wiki.search(Request("oil the handle of a spade")))[0] == "tools/spade"
    other.close()


def test_vectors_of_another_model_are_never_compared(garden: Garden, wiki: WikiHandle) -> None:
    garden.embedder = FakeEmbedder(32, "another")
    other = garden.handle()
    with pytest.raises(ModelMismatch) as caught:
        other.search(Request("oil the handle of a spade", mode=Mode.SEMANTIC))
    assert "sync" in caught.value.hint
    answer = other.search(Request("oil the handle of a spade"))
    assert paths(answer)[0] == "tools/spade"
    assert answer.degraded
    assert "words alone" in answer.notes[0]
    other.close()


def test_a_model_that_cannot_be_loaded_leaves_the_words(garden: Garden, wiki: WikiHandle) -> None:
    class Gone(FakeEmbedder):
        def query(self, text: str) -> Floats:
            raise ModelMissing("the weights are gone", hint="install them")

    garden.embedder = Gone()
    other = garden.handle()
    assert other.search(Request("gathers leaves")).degraded
    with pytest.raises(ModelMissing):
        other.search(Request("gathers leaves", mode=Mode.SEMANTIC))
    other.close()


class Broken:
    """A cache that fails in the way it is told to."""

    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault
        self.version = None

    def refresh(self) -> None:
        if self._fault:
            raise self._fault

    def search(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        raise AssertionError("not ready, so never asked")

    def settle(self, timeout: float | None = None) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.mark.parametrize("fault", [None, OSError("disk"), ValueError("bad file"), MemoryError()])
def test_a_cache_that_fails_costs_speed_and_nothing_else(
    garden: Garden, wiki: WikiHandle, fault: Exception | None
) -> None:
    good = wiki.search(Request("oil the handle of a spade", n=100))
    garden.vector_cache = lambda index, wiki_id: Broken(fault)
    broken = garden.handle()
    answer = broken.search(Request("oil the handle of a spade", n=100))
    assert [(h.path, h.score) for h in answer.hits] == [(h.path, h.score) for h in good.hits]
    assert answer.degraded
    assert answer.notes
    assert not good.degraded
    broken.close()


def test_a_word_cache_that_fails_costs_speed_and_nothing_else(garden: Garden, wiki: WikiHandle) -> None:
    class BrokenWords:
        version = 1

        def refresh(self) -> None:
            pass

        def search(self, query: WordQuery, limit: int, pages: Ints | None) -> list[WordHit]:
            raise RuntimeError("broken")

        def best_possible(self, query: WordQuery) -> float:
            return 1.0

        def settle(self, timeout: float | None = None) -> bool:
            return False

        def close(self) -> None:
            pass

    good = wiki.search(Request("gathers leaves", mode=Mode.KEYWORD))
    garden.word_cache = lambda index, wiki_id: BrokenWords()
    broken = garden.handle()
    answer = broken.search(Request("gathers leaves", mode=Mode.KEYWORD))
    assert paths(answer) == paths(good)
    assert answer.degraded
    broken.close()


def test_nothing_relevant_is_said_as_such(wiki: WikiHandle) -> None:
    answer = wiki.search(Request("quantum chromodynamics lagrangian"))
    assert answer.nothing_relevant
    assert not wiki.search(Request("turn the heap every two weeks")).nothing_relevant


def test_a_query_is_embedded_without_its_operators() -> None:
    assert plain_query('find "this phrase" -not -"that one" well-known') == "find this phrase well-known"
    assert plain_query("„wie man“ «dit» -kein") == "wie man dit"
    assert plain_query("-only") == "-only"


def test_requests_compare_by_value() -> None:
    assert Request("a") == replace(Request("a", n=7), n=5)
