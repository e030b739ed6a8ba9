"""A query that names a page is a query for that page."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.search import KeywordQuery, SearchMode, StoredPage
from wikiholt.embedding import load_embedder
from wikiholt.search import title_match
from wikiholt.search.ranking import Candidate, QueryShape, TitleMatch, rank_candidates
from wikiholt.search.request import SearchRequest
from wikiholt.search.title_match import PATH_SHARE, TitleMatcher, split_path_words
from wikiholt.text.keyword_query import parse_query


def make_stored_page(page_id: int, name: str) -> StoredPage:
    return StoredPage(page_id, f"{page_id}.md", str(page_id), name, None, (), None, 1)


def measure_title_overlap(query: KeywordQuery, *names: str, language: str = "english") -> list[float]:
    pages = {number: make_stored_page(number, name) for number, name in enumerate(names)}
    found = TitleMatcher(lambda page_ids: {item: pages[item] for item in page_ids}, language).score_titles(
        query, pages, 1
    )
    return [found.get(number, TitleMatch()).overlap for number in pages]


def test_the_name_or_alias_that_fits_best_counts() -> None:
    page = make_stored_page(1, "Compost")._replace(aliases=("Heap", "Worm bin"))
    matcher = TitleMatcher(lambda _: {1: page}, "english")
    queries = ("worm bin", "bin", "compost", "heap of worms", "spade")
    overlaps = [matcher.score_titles(parse_query(query), [1], 1)[1].overlap for query in queries]
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
    page = make_stored_page(1, name)._replace(path=path, aliases=aliases)
    return TitleMatcher(lambda _: {1: page}, "english").score_titles(parse_query(typed), [1], 1)[1].overlap


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("kitchen/machine", (1 - PATH_SHARE) * 0.5 + PATH_SHARE * 0.8),
        ("house/kitchen/ground-floor/machine", (1 - PATH_SHARE) * 0.5 + PATH_SHARE * 4 / 7),
        ("kitchen/house/ground-floor/machine", (1 - PATH_SHARE) * 0.5 + PATH_SHARE * 2 / 7),
        ("machine", 0.5),
        ("2024/05/31", 0.5),
    ],
    ids=["a directory names it", "further directories", "a directory too far up", "no directory", "a date"],
)
def test_the_last_parts_of_a_path_belong_to_the_title(path: str, shared: float) -> None:
    assert measure_path_overlap("kitchen machine", "Coffee machine", path) == pytest.approx(shared)


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


def test_names_are_read_once_per_version_of_the_index() -> None:
    requests: list[list[int]] = []
    names = {1: "Coffee", 2: "Tea"}

    def pages(page_ids: Sequence[int]) -> dict[int, StoredPage]:
        requests.append(list(page_ids))
        return {page_id: make_stored_page(page_id, names[page_id]) for page_id in page_ids if page_id in names}

    naming, query = TitleMatcher(pages, "english"), parse_query("coffee")

    def measure(page_ids: Sequence[int], version: int) -> dict[int, float]:
        return {page_id: match.overlap for page_id, match in naming.score_titles(query, page_ids, version).items()}

    assert measure([1], 7) == {1: 1.0}
    assert measure([1, 2, 3], 7) == {1: 1.0, 2: 0.0}
    names[1] = "Cocoa"
    assert measure([1], 7) == {1: 1.0}
    assert measure([1], 8) == {1: 0.0}
    assert requests == [[1], [2, 3], [1]]


def test_of_many_names_half_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(title_match, "_MAX_CACHED_PAGES", 10)
    read: list[int] = []

    def read_pages(page_ids: Sequence[int]) -> dict[int, StoredPage]:
        read.extend(page_ids)
        return {number: make_stored_page(number, f"page {number}") for number in page_ids}

    matcher = TitleMatcher(read_pages, "english")
    first = matcher.score_titles(parse_query("page 9 "), range(12), 1)
    again = matcher.score_titles(parse_query("page 9 "), range(12), 1)
    assert again == first
    assert read == [*range(12), *range(5)]


def test_a_renamed_page_is_found_by_its_new_name_at_once(notes: IndexedWiki) -> None:
    assert notes.handle.search(SearchRequest("coffee machine", n=1)).hits[0].path == "coffee"
    notes.repository.commit({"coffee.md": "# Espresso\n\nDescale it twice a year.\n"})
    notes.repository.commit({"rules.md": "# Coffee machine\n\nBe quiet after ten.\n"})
    notes.sync()
    assert notes.handle.search(SearchRequest("coffee machine", n=1)).hits[0].path == "rules"


def test_of_a_sentence_a_name_counts_more_the_nearer_the_page_is() -> None:
    sentence, named = QueryShape(function_words=0.5), TitleMatch(1.0, 1.0)
    gained = []
    for distance in (0.9, 0.5):
        bare, match = (Candidate(1, 1, distance, 0.3, title=title) for title in (TitleMatch(), named))
        ((one,), (other,)) = (rank_candidates(SearchMode.HYBRID, [each], sentence) for each in (bare, match))
        gained.append(other.rank - one.rank)
    assert gained[0] < gained[1]


def test_semantic_search_ignores_names() -> None:
    candidate = Candidate(1, 1, distance=0.4)
    named = candidate._replace(title=TitleMatch(1.0, 1.0))
    bare, match = rank_candidates(SearchMode.SEMANTIC, [candidate, named], QueryShape())
    assert bare.rank == match.rank
