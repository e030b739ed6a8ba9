"""Searching one wiki: modes, filters, grouping, freshness, and caches that fail."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.protocols import KeywordCache
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter, SearchMode, SearchResult
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidQuery, ModelMismatch, ModelMissing, NothingIndexed
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.candidates import KEYWORD_CANDIDATES
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.text.keyword_query import to_plain_query
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig

WIKI_ID = "eeeeeeeeeeeeeeeeeeee"
PAGES: dict[str, str | bytes | None] = {
    "home.md": "# Home\n\nWelcome to the garden. Start with the [[Compost]] page.",
    "compost.md": "---\ntags: [soil, autumn]\ncategory: Guide\n---\n# Compost\n\nKitchen scraps turn into soil.\n\n"
    "## Turning the heap\n\nTurn the heap every two weeks so that air gets in.",
    "tools/spade.md": "---\ntags: tools\ncategory: Tools\n---\n# Spade\n\nA spade digs. Oil the handle in winter.",
    "tools/rake.md": "---\ntags: tools\ncategory: Tools\n---\n# Rake\n\nA rake gathers leaves. Leaves feed the heap.",
    "日本.md": "# 日本語のページ\n\n庭の土を耕す。",
}


class SearchFixture:
    """An indexed wiki and a handle on it."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.vector_engine: Any = None
        self.word_cache: Callable[[WikiIndex, str], KeywordCache | None] = lambda index, wiki_id: None

    def open_handle(self) -> WikiHandle:
        wiki = Wiki(WIKI_ID, "garden", str(self.repository.path), datetime.now(UTC))
        parts = WikiConfig(GitSource(self.repository.path), TextPipeline(), "/wiki/{path}")
        components = Components(self.store, lambda: self.embedder, self.word_cache, 1, vector_engine=self.vector_engine)
        return WikiHandle(wiki, parts, components)


@pytest.fixture
def garden(tmp_path: Path) -> SearchFixture:
    made = SearchFixture(tmp_path)
    made.repository.commit(PAGES)
    return made


@pytest.fixture
def wiki(garden: SearchFixture) -> Iterator[WikiHandle]:
    handle = garden.open_handle()
    handle.sync()
    yield handle
    handle.close()


def get_paths(answer: SearchResult) -> list[str]:
    return [hit.path for hit in answer.hits]


def test_a_filter_finds_pages_that_were_added_after_its_last_use(garden: SearchFixture, wiki: WikiHandle) -> None:
    request = SearchRequest("leaves", n=10, where=PageFilter(path_prefix="tools"))
    assert sorted(get_paths(wiki.search(request))) == sorted(get_paths(wiki.search(request)))
    garden.repository.commit({"tools/broom.md": "# Broom\n\nA broom sweeps leaves.", "tools/rake.md": None})
    wiki.sync()
    assert sorted(get_paths(wiki.search(request))) == ["tools/broom", "tools/spade"]


@pytest.mark.parametrize("mode", list(SearchMode))
def test_every_mode_finds_the_page_that_answers(wiki: WikiHandle, mode: SearchMode) -> None:
    answer = wiki.search(SearchRequest("oil the handle of a spade", mode=mode))
    assert get_paths(answer)[0] == "tools/spade"
    hit = answer.hits[0]
    assert hit.name == "Spade"
    assert hit.url == "/wiki/tools/spade#spade"
    assert "handle" in hit.snippet.text
    assert 0 <= hit.score <= 1
    assert hit.category == "Tools"
    assert hit.first_line >= 1
    assert (hit.distance is None) == (mode is SearchMode.KEYWORD)


def test_every_page_is_one_hit_with_its_best_chunk(garden: SearchFixture) -> None:
    long = "\n\n".join(f"## Section {i}\n\n" + f"word{i} about the heap and compost. " * 30 for i in range(12))
    garden.repository.commit({"long.md": long})
    handle = garden.open_handle()
    handle.sync()
    answer = handle.search(SearchRequest("word7 heap", n=100, mode=SearchMode.SEMANTIC))
    assert len(get_paths(answer)) == len(set(get_paths(answer))) == len(PAGES) + 1
    best = next(hit for hit in answer.hits if hit.path == "long")
    assert best.heading_path == ("Section 7",)
    assert best.anchor == "section-7"
    handle.close()


def test_a_longer_list_starts_with_the_shorter_one(wiki: WikiHandle) -> None:
    for mode in SearchMode:
        short = wiki.search(SearchRequest("leaves and soil", n=2, mode=mode))
        long = wiki.search(SearchRequest("leaves and soil", n=100, mode=mode))
        assert [(h.path, h.score) for h in short.hits] == [(h.path, h.score) for h in long.hits[:2]]


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_hundred_pages_can_be_requested(garden: SearchFixture, mode: SearchMode) -> None:
    garden.repository.commit(
        {f"pond/{i}.md": f"# Pond {i}\n\nThe heron stands in pond number {i}." for i in range(120)}
    )
    handle = garden.open_handle()
    handle.sync()
    long = handle.search(SearchRequest("heron in the pond", n=100, mode=mode))
    assert len(get_paths(long)) == len(set(get_paths(long))) == 100
    short = handle.search(SearchRequest("heron in the pond", n=60, mode=mode))
    assert get_paths(short) == get_paths(long)[:60]
    handle.close()


def test_scores_never_rise_down_the_list(wiki: WikiHandle) -> None:
    scores = [hit.score for hit in wiki.search(SearchRequest("turn the heap", n=100)).hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (PageFilter(tags=("TOOLS",)), {"tools/spade", "tools/rake"}),
        (PageFilter(tags=("soil", "autumn")), {"compost"}),
        (PageFilter(categories=("guide",)), {"compost"}),
        (PageFilter(categories=("guide", "tools")), {"compost", "tools/spade", "tools/rake"}),
        (PageFilter(path_prefix="tools"), {"tools/spade", "tools/rake"}),
        (PageFilter(path_prefix="tool"), set()),
        (PageFilter(updated_since=datetime(2000, 1, 1, tzinfo=UTC)), {path.removesuffix(".md") for path in PAGES}),
        (PageFilter(updated_since=datetime(2100, 1, 1, tzinfo=UTC)), set()),
    ],
)
def test_filters_narrow_every_mode(wiki: WikiHandle, where: PageFilter, expected: set[str]) -> None:
    semantic = wiki.search(SearchRequest("heap", n=100, mode=SearchMode.SEMANTIC, where=where))
    assert set(get_paths(semantic)) == expected
    assert semantic.considered == len(expected)
    for mode in (SearchMode.KEYWORD, SearchMode.HYBRID):
        assert set(get_paths(wiki.search(SearchRequest("heap leaves", n=100, mode=mode, where=where)))) <= expected


def test_phrases_and_exclusions_hold_in_hybrid_too(wiki: WikiHandle) -> None:
    assert get_paths(wiki.search(SearchRequest('"gathers leaves"', n=100))) == ["tools/rake"]
    assert "tools/rake" not in get_paths(wiki.search(SearchRequest("heap -rake", n=100)))
    assert "tools/rake" not in get_paths(wiki.search(SearchRequest("heap -rake", n=100, mode=SearchMode.SEMANTIC)))


def test_prefix_of_the_last_word_finds_while_typing(wiki: WikiHandle) -> None:
    assert get_paths(wiki.search(SearchRequest("kitch", mode=SearchMode.KEYWORD))) == ["compost"]


def test_chinese_and_japanese_are_found_without_spaces(wiki: WikiHandle) -> None:
    assert get_paths(wiki.search(SearchRequest("庭の土", mode=SearchMode.KEYWORD)))[0] == "日本"


@pytest.mark.parametrize("n", [0, -1, 101, True])
def test_a_bad_n_is_an_error(n: int) -> None:
    with pytest.raises(InvalidQuery) as caught:
        SearchRequest("x", n=n)
    assert "1 to 100" in caught.value.hint


@pytest.mark.parametrize("query", ["", "   \n", "x" * 2001, "nul\0"])
def test_a_bad_query_is_an_error(query: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        SearchRequest(query)
    assert caught.value.hint


def test_a_query_that_only_excludes_is_an_error(wiki: WikiHandle) -> None:
    with pytest.raises(InvalidQuery):
        wiki.search(SearchRequest("-heap"))


@pytest.mark.parametrize(
    "query", ["?!", '"', "-", "AND OR NOT", "a*b^c:d(e)", "NEAR(x y)", "'; DROP TABLE pages;--", "\u202e"]
)
def test_odd_queries_are_answered(wiki: WikiHandle, query: str) -> None:
    """A query of punctuation alone gets an error, with a hint, in every mode."""
    for mode in SearchMode:
        if any(char.isalnum() for char in query):
            assert wiki.search(SearchRequest(query, mode=mode)).mode is mode
        else:
            with pytest.raises(InvalidQuery, match="no word") as caught:
                wiki.search(SearchRequest(query, mode=mode))
            assert "letters or digits" in caught.value.hint


@pytest.mark.parametrize("query", ["***", "…", "___", "“”", "() []", "tag:heap ***"])
def test_a_query_of_punctuation_is_an_error(wiki: WikiHandle, query: str) -> None:
    with pytest.raises(InvalidQuery, match="no word"):
        wiki.search(SearchRequest(query))


@pytest.mark.parametrize("query", ["<=>", "!=", "C++", "猫", "☕", "👩‍💻", "€", "§", "42", "&&", "%", "tag:heap"])
def test_a_query_with_a_letter_digit_or_symbol_is_answered(wiki: WikiHandle, query: str) -> None:
    assert wiki.search(SearchRequest(query)).mode is SearchMode.HYBRID


def test_an_index_without_pages_is_an_error_not_an_empty_list(garden: SearchFixture) -> None:
    handle = garden.open_handle()
    garden.store.create(WIKI_ID, TextPipeline().build_recipe(garden.embedder)).close()
    with pytest.raises(NothingIndexed):
        handle.search(SearchRequest("anything"))
    handle.close()


def test_an_answer_says_how_fresh_it_is(garden: SearchFixture, wiki: WikiHandle) -> None:
    fresh = wiki.search(SearchRequest("heap"))
    assert fresh.indexed_revision == fresh.head_revision == garden.repository.get_head()
    assert not fresh.stale
    garden.repository.commit({"new.md": "brand new"})
    stale = wiki.search(SearchRequest("heap"))
    assert stale.stale
    assert stale.head_revision == garden.repository.get_head() != stale.indexed_revision
    wiki.sync()
    assert get_paths(wiki.search(SearchRequest("brand new")))[0] == "new"


def test_search_works_without_the_repository(garden: SearchFixture, wiki: WikiHandle) -> None:
    garden.repository.path.rename(garden.repository.path.with_name("away"))
    answer = wiki.search(SearchRequest("heap"))
    assert answer.hits
    assert answer.head_revision is None
    assert answer.stale
    assert answer.notes


def test_a_new_generation_is_picked_up_by_an_open_handle(garden: SearchFixture, wiki: WikiHandle) -> None:
    assert wiki.search(SearchRequest("heap")).hits
    garden.embedder = FakeEmbedder(40, "other")
    other = garden.open_handle()
    other.sync()
    assert get_paths(wiki.search(SearchRequest("oil the handle of a spade")))[0] == "tools/spade"
    other.close()


def test_vectors_of_another_model_are_never_compared(garden: SearchFixture, wiki: WikiHandle) -> None:
    garden.embedder = FakeEmbedder(32, "another")
    other = garden.open_handle()
    with pytest.raises(ModelMismatch) as caught:
        other.search(SearchRequest("oil the handle of a spade", mode=SearchMode.SEMANTIC))
    assert "sync" in caught.value.hint
    answer = other.search(SearchRequest("oil the handle of a spade"))
    assert get_paths(answer)[0] == "tools/spade"
    assert answer.degraded
    assert "keyword only" in answer.notes[0]
    other.close()


def test_without_a_loadable_model_search_uses_keywords(garden: SearchFixture, wiki: WikiHandle) -> None:
    class Gone(FakeEmbedder):
        def embed_query(self, text: str) -> FloatArray:
            raise ModelMissing("the weights are gone", hint="install them")

    garden.embedder = Gone()
    other = garden.open_handle()
    assert other.search(SearchRequest("gathers leaves")).degraded
    with pytest.raises(ModelMissing):
        other.search(SearchRequest("gathers leaves", mode=SearchMode.SEMANTIC))
    other.close()


class BrokenVectorEngine:
    """An engine and its cache, which fails with the given fault."""

    def __init__(self, fault: Exception | None) -> None:
        self._error = fault
        self.version = None

    def open_searcher(self, *_: object) -> "BrokenVectorEngine":
        return self

    def refresh(self) -> None:
        if self._error:
            raise self._error

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        raise AssertionError("not ready, so never searched")

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.mark.parametrize("fault", [None, OSError("disk"), ValueError("bad file"), MemoryError()])
def test_a_failing_cache_only_costs_speed(garden: SearchFixture, wiki: WikiHandle, fault: Exception | None) -> None:
    good = wiki.search(SearchRequest("oil the handle of a spade", n=100))
    garden.vector_engine = BrokenVectorEngine(fault)
    broken = garden.open_handle()
    answer = broken.search(SearchRequest("oil the handle of a spade", n=100))
    assert [(h.path, h.score) for h in answer.hits] == [(h.path, h.score) for h in good.hits]
    assert answer.degraded
    assert answer.notes
    assert not good.degraded
    broken.close()


def test_a_failing_keyword_cache_only_costs_speed(garden: SearchFixture, wiki: WikiHandle) -> None:
    class BrokenWords:
        version = 1

        def refresh(self) -> None:
            pass

        def search(self, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> list[KeywordHit]:
            raise RuntimeError("broken")

        def count_pages(self, terms: list[str]) -> dict[str, int]:
            return dict.fromkeys(terms, 1)

        def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
            raise RuntimeError("broken")

        def wait_idle(self, timeout_s: float | None = None) -> bool:
            return False

        def close(self) -> None:
            pass

    garden.word_cache = lambda index, wiki_id: BrokenWords()
    broken = garden.open_handle()
    for query in ("gathers leaves", '"gathers leaves"', "leaves -heap"):
        good = wiki.search(SearchRequest(query, mode=SearchMode.KEYWORD))
        answer = broken.search(SearchRequest(query, mode=SearchMode.KEYWORD))
        assert (get_paths(answer), answer.considered) == (get_paths(good), good.considered)
        assert answer.degraded
    broken.close()


def test_an_answer_without_relevant_results_says_so(wiki: WikiHandle) -> None:
    answer = wiki.search(SearchRequest("quantum chromodynamics lagrangian"))
    assert answer.nothing_relevant
    assert not wiki.search(SearchRequest("turn the heap every two weeks")).nothing_relevant


def test_a_query_is_embedded_without_its_operators() -> None:
    assert to_plain_query('find "this phrase" -not -"that one" well-known') == "find this phrase well-known"
    assert to_plain_query("„wie man“ «dit» -kein") == "wie man dit"
    assert to_plain_query("-only") == "-only"


def test_requests_compare_by_value() -> None:
    assert SearchRequest("a") == replace(SearchRequest("a", n=7), n=5)


LONG_TEXT = " ".join(f"filler{number} of the long report" for number in range(900))


def test_the_only_page_with_a_word_is_first_however_long_it_is(garden: SearchFixture) -> None:
    near = {f"notes/{number}.md": f"# Note {number}\n\nThe pump was cleaned." for number in range(20)}
    garden.repository.commit({**near, "report.md": f"# Report\n\n{LONG_TEXT} XJ4711 pump {LONG_TEXT}"})
    handle = garden.open_handle()
    handle.sync()
    for query in ("XJ4711 ", "xj4711", "XJ4711 pump ", "pump cleaned XJ4711"):
        for mode in (SearchMode.HYBRID, SearchMode.KEYWORD):
            assert get_paths(handle.search(SearchRequest(query, n=3, mode=mode)))[0] == "report", (query, mode)
    only_notes = PageFilter(path_prefix="notes")
    assert "report" not in get_paths(handle.search(SearchRequest("XJ4711 pump", n=30, where=only_notes)))
    assert "report" not in get_paths(handle.search(SearchRequest("XJ4711 pump -filler7", n=30)))
    assert "report" not in get_paths(handle.search(SearchRequest('XJ4711 "was cleaned"', n=30)))
    handle.close()


def test_a_page_found_by_meaning_keeps_the_words_it_shares_with_the_query(garden: SearchFixture) -> None:
    """More pages than compete by their words alone have the word, and the one found by meaning has it too."""
    many = {f"notes/{number:02}.md": "# Note\n\npump pump pump pump" for number in range(KEYWORD_CANDIDATES + 10)}
    garden.repository.commit({**many, "manual.md": f"# Manual\n\n{'valve seal gasket ' * 20}pump"})
    handle = garden.open_handle()
    handle.sync()
    hits = handle.search(SearchRequest("pump valve seal gasket ", n=1)).hits
    assert (hits[0].path, hits[0].channels) == ("manual", ("semantic", "keyword"))
    last = handle.search(SearchRequest("pump ", n=KEYWORD_CANDIDATES + 11)).hits
    assert all("keyword" in hit.channels for hit in last if hit.path == "manual")
    handle.close()
