"""A query that names a page is a query for that page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import KeywordQuery, SearchMode, StoredPage
from wikiholt.models import load_embedder
from wikiholt.search.ranking import TitleMatch
from wikiholt.search.request import SearchRequest
from wikiholt.search.title_match import analyse_names, score_titles, split_path_words
from wikiholt.text.keyword_query import parse_query


def make_stored_page(page_id: int, name: str) -> StoredPage:
    return StoredPage(page_id, f"{page_id}.md", str(page_id), name, None, (), None, 1)


def measure_title_overlap(query: KeywordQuery, *names: str, language: str = "english") -> list[float]:
    pages = {number: analyse_names(make_stored_page(number, name), [language]) for number, name in enumerate(names)}
    found = score_titles(language, query, (), pages)
    return [found.get(number, TitleMatch()).overlap for number in pages]


def measure_page_overlap(typed: str, page: StoredPage) -> float:
    return score_titles("english", parse_query(typed), (), {1: analyse_names(page, ["english"])})[1].overlap


def test_the_name_or_alias_that_fits_best_counts() -> None:
    page = make_stored_page(1, "Compost")._replace(aliases=("Heap", "Worm bin"))
    queries = ("worm bin", "bin", "compost", "heap of worms", "spade")
    overlaps = [measure_page_overlap(query, page) for query in queries]
    assert overlaps == pytest.approx([1.0, 2 / 3, 1.0, 2 / 3, 0.0])


MENTIONS = "A coffee machine is mentioned here. Ask for a coffee machine, or for another coffee machine. " * 4
PAGES: PageFiles = {
    "coffee.md": "# Coffee machine\n\nDescale it twice a year.\n",
    "kitchen.md": f"# Kitchen, bathroom and hall\n\n{MENTIONS}\n",
    "rules.md": f"# House rules\n\n{MENTIONS}\n",
    "about.md": "# About us\n\nWho we are.\n",
}


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.model)])
def embedder(request: pytest.FixtureRequest) -> Embedder | None:
    return load_embedder(precision="int8") if request.param == "real" else None


@pytest.fixture
def notes(embedder: Embedder | None, tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path, PAGES, embedder and (lambda: embedder)).sync()
    yield made
    made.close()


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
@pytest.mark.parametrize("typed", ["coffee machine", "Coffee Machines", '"coffee machine"'])
def test_the_page_of_that_name_comes_before_pages_that_mention_it_often(
    notes: IndexedWiki, mode: SearchMode, typed: str
) -> None:
    hits = notes.handle.search(SearchRequest(typed, n=4, mode=mode)).hits
    assert hits[0].path == "coffee"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_larger_n_only_extends_the_list(notes: IndexedWiki) -> None:
    for mode in (SearchMode.HYBRID, SearchMode.KEYWORD):
        whole = [
            (hit.path, hit.score) for hit in notes.handle.search(SearchRequest("coffee machine", n=4, mode=mode)).hits
        ]
        for n in range(1, len(whole)):
            some = notes.handle.search(SearchRequest("coffee machine", n=n, mode=mode)).hits
            assert [(hit.path, hit.score) for hit in some] == whole[:n]


@pytest.mark.parametrize(
    ("typed", "name", "shared"),
    [
        ("coffee machine", "Coffee machines", 1.0),
        ("how to clean the coffee machine", "Coffee machine", 0.8),
        ("coffee", "Coffee machine", 2 / 3),
        ("tea", "Coffee machine", 0.0),
        ("about us", "About us", 1.0),
        ("what is the and of", "Coffee machine", 0.0),
        ("kubectl_apply", "kubectl apply", 0.8),
        ('"night watch" rota', "Night watch", 0.8),
        ("当番の引き継ぎ", "当番の引き継ぎ", 1.0),
        ("-coffee machine", "Coffee", 0.0),
        ("...", "Coffee", 0.0),
    ],
)
def test_a_name_counts_by_the_words_both_have(typed: str, name: str, shared: float) -> None:
    assert measure_title_overlap(parse_query(typed), name)[0] == pytest.approx(shared)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("vault/dendron.topic.seed-bank.quick_start", ["vault", "dendron", "topic", "seed bank", "quick start"]),
        ("docs/_index", ["docs"]),
        ("docs/Tasks/index", ["docs", "Tasks"]),
        ("docs/README", ["docs"]),
        ("2024/05/31", []),
        ("4711", []),
        ("Übersicht/日本", ["Übersicht", "日本"]),
    ],
    ids=["dots", "index of a site", "index", "readme", "date", "number", "letters"],
)
def test_a_path_is_read_as_words(path: str, words: list[str]) -> None:
    assert split_path_words(path) == words


def measure_path_overlap(typed: str, name: str, path: str, aliases: tuple[str, ...] = ()) -> float:
    return measure_page_overlap(typed, make_stored_page(1, name)._replace(path=path, aliases=aliases))


def test_the_name_of_a_page_is_a_complete_match_in_any_directory() -> None:
    for path in ("machine", "kitchen/machine", "a/deep/path/to/some/machine"):
        assert measure_path_overlap("coffee machines", "Coffee machine", path) == 1.0
        assert measure_path_overlap("espresso maker", "Coffee machine", path, ("Espresso maker",)) == 1.0


def test_a_directory_alone_is_a_weak_match() -> None:
    by_directory = measure_path_overlap("kitchen", "Coffee machine", "kitchen/machine")
    assert 0 < by_directory < measure_path_overlap("kitchen", "Kitchen rules", "rules") < 1


def test_names_are_compared_in_the_language_of_the_wiki() -> None:
    query = parse_query("Häuser", "german")
    assert measure_title_overlap(query, "Haus", "Hausordnung", language="german") == [1.0, 0.0]


def test_a_name_without_a_word_matches_nothing() -> None:
    assert measure_title_overlap(parse_query("coffee"), "", "…", "☕") == [0.0, 0.0, 0.0]


def test_a_renamed_page_is_found_by_its_new_name_at_once(notes: IndexedWiki) -> None:
    assert notes.handle.search(SearchRequest("coffee machine", n=1)).hits[0].path == "coffee"
    notes.repository.commit({"coffee.md": "# Espresso\n\nDescale it twice a year.\n"})
    notes.repository.commit({"rules.md": "# Coffee machine\n\nBe quiet after ten.\n"})
    notes.sync()
    assert notes.handle.search(SearchRequest("coffee machine", n=1)).hits[0].path == "rules"
