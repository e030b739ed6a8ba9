"""Similar pages, several passages of one page, and page details of a hit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.errors import IndexMissing, InvalidQuery, ModelMissing, PageNotFound
from wikiholt.models import load_embedder
from wikiholt.search.request import SearchRequest

FILLER = "Nothing of note stands in this sentence about whatever there is. " * 20
HEAP = "# Heap\n\nTurn the compost heap so that air gets into the compost heap.\n"
PAGES: PageFiles = {
    "heap.md": HEAP,
    "compost.md": "# Compost\n\nThe compost heap wants air; turn the compost.\n",
    "tools/fork.md": "---\ntags: tools\n---\n# Fork\n\nA fork can turn the compost heap.\n",
    "ferry.md": "# Ferry\n\nBoats leave the harbour at nine.\n",
    "long.md": f"# Long\n\n## One\n\n{FILLER}\n\n## Two\n\nTurn the compost heap. {FILLER}\n\n## Three\n\n{FILLER}\n",
    "secret.md": "---\nhidden: true\n---\n# Heap\n\nTurn the compost heap.\n",
    "empty.md": "",
}


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path, PAGES).sync()
    yield made
    made.close()


def get_paths(answer: SearchResult) -> list[str]:
    return [hit.path for hit in answer.hits]


def test_the_most_similar_pages_come_first_without_the_page_itself(notes: IndexedWiki) -> None:
    answer = notes.handle.find_similar("heap", 10)
    assert set(get_paths(answer)[:2]) == {"compost", "tools/fork"}
    assert "heap" not in get_paths(answer)
    assert "secret" not in get_paths(answer), "a hidden page has no passages"
    assert len(set(get_paths(answer))) == len(answer.hits)
    assert (answer.query, answer.mode, answer.considered) == ("heap", SearchMode.SEMANTIC, len(PAGES) - 1)
    distances = [hit.distance for hit in answer.hits]
    assert distances == sorted(distances, key=lambda distance: distance or 0.0)
    assert not answer.degraded
    assert answer.indexed_revision == answer.head_revision == notes.repository.get_head()


def test_a_larger_n_only_extends_the_list(notes: IndexedWiki) -> None:
    whole = get_paths(notes.handle.find_similar("heap", 50))
    for n in range(1, len(whole)):
        assert get_paths(notes.handle.find_similar("heap", n)) == whole[:n]


@pytest.mark.parametrize("path", ["tools/fork", "tools/fork.md", "TOOLS/Fork", "/tools/fork/"])
def test_the_page_is_named_as_everywhere(notes: IndexedWiki, path: str) -> None:
    assert "tools/fork" not in get_paths(notes.handle.find_similar(path))


def test_filters_apply_before_the_nearest_pages_are_selected(notes: IndexedWiki) -> None:
    assert get_paths(notes.handle.find_similar("heap", 1, PageFilter(tags=("tools",)))) == ["tools/fork"]
    assert get_paths(notes.handle.find_similar("tools/fork", 5, PageFilter(tags=("tools",)))) == []
    assert notes.handle.find_similar("ferry", 5, PageFilter(path_prefix="tools")).considered == 1


@pytest.mark.slow
def test_a_page_of_many_passages_does_not_crowd_out_the_others(tmp_path: Path) -> None:
    sections = "\n\n".join(f"## Part {number}\n\nTurn the compost heap. {FILLER}" for number in range(150))
    pages: PageFiles = {
        "book.md": sections,
        **{f"{i}.md": f"# {i}\n\nNumber {i} of the small pages.\n" for i in range(9)},
    }
    notes = IndexedWiki(tmp_path, pages).sync()
    assert len(notes.handle.find_similar("book", 9).hits) == 9
    assert notes.handle.find_similar("book", 9).hits[0].total_chunks == 1
    notes.close()


def test_a_page_without_passages_has_no_similar_pages(notes: IndexedWiki) -> None:
    for path in ("secret", "empty"):
        answer = notes.handle.find_similar(path)
        assert answer.hits == ()
        assert "no passage" in answer.notes[0]


def test_an_invalid_request_is_refused(notes: IndexedWiki, tmp_path: Path) -> None:
    with pytest.raises(PageNotFound):
        notes.handle.find_similar("nowhere")
    for path, n in (("", 5), ("heap", 0), ("heap", 101), ("heap", True), ("a\0b", 5), ("\ud800", 5)):
        with pytest.raises(InvalidQuery):
            notes.handle.find_similar(path, n)
    with pytest.raises(InvalidQuery):
        notes.handle.find_similar("heap", 5, PageFilter(tags=("t",) * 51))
    with pytest.raises(IndexMissing):
        IndexedWiki(tmp_path / "other", {"a.md": "x"}).handle.find_similar("a")


def test_similar_pages_need_no_model(tmp_path: Path) -> None:
    def none() -> None:
        raise ModelMissing("there is no model")

    IndexedWiki(tmp_path, PAGES).sync().close()
    without = IndexedWiki(tmp_path, embedder=none)  # type: ignore[arg-type]
    assert without.handle.find_similar("heap", 1).hits
    without.close()


# ── several passages of a page ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", [SearchMode.SEMANTIC, SearchMode.HYBRID])
def test_a_page_may_have_several_hits_each_another_passage(notes: IndexedWiki, mode: SearchMode) -> None:
    def ask(per_page: int) -> SearchResult:
        return notes.handle.search(
            SearchRequest("nothing of note in this sentence", 20, mode, chunks_per_page=per_page)
        )

    one, three = ask(1), ask(3)
    assert get_paths(one).count("long") == 1
    assert get_paths(three).count("long") == 3
    passages = [(hit.path, hit.chunk_index) for hit in three.hits]
    assert len(set(passages)) == len(passages)
    assert [hit.score for hit in three.hits] == sorted((hit.score for hit in three.hits), reverse=True)
    assert len(ask(3).hits) <= 20
    assert set(get_paths(three)) == set(get_paths(one))


def test_in_keyword_search_a_page_has_one_hit(notes: IndexedWiki) -> None:
    answer = notes.handle.search(SearchRequest("sentence", 20, SearchMode.KEYWORD, chunks_per_page=5))
    assert get_paths(answer) == ["long"]


@pytest.mark.parametrize("bad", [0, 11, -1, True])
def test_the_number_of_passages_per_page_is_limited(bad: int) -> None:
    with pytest.raises(InvalidQuery):
        SearchRequest("x", chunks_per_page=bad)


def test_a_hit_has_its_complete_passage_and_the_size_of_its_page(notes: IndexedWiki) -> None:
    hit = notes.handle.search(SearchRequest("compost heap", 1, SearchMode.KEYWORD)).hits[0]
    assert (hit.path, hit.text, hit.total_chunks, hit.page_words) == ("heap", HEAP.strip(), 1, len(HEAP.split()))


# ── with the real model ──────────────────────────────────────────────────────────────────────────


@pytest.mark.model
def test_the_real_model_finds_pages_on_the_same_topic(tmp_path: Path) -> None:
    pages: PageFiles = {
        "bread.md": "# Sourdough\n\nFlour, water and a starter. Knead the dough, let it rise, bake it.",
        "pizza.md": "# Pizza\n\nStretch the yeast dough, add tomatoes and cheese, bake in a hot oven.",
        "cake.md": "# Sponge cake\n\nWhisk eggs and sugar, fold in the flour, bake until golden.",
        "backup.md": "# Backups\n\nThe database is dumped every night and copied to another data centre.",
        "restore.md": "# Disaster recovery\n\nHow to bring the servers back from the nightly copies.",
        "tls.md": "# Certificates\n\nRenew the TLS certificate of the web server each quarter.",
    }
    model = load_embedder(threads=2)
    notes = IndexedWiki(tmp_path, pages, embedder=lambda: model).sync()
    assert set(get_paths(notes.handle.find_similar("bread", 2))) == {"pizza", "cake"}
    assert get_paths(notes.handle.find_similar("restore", 1)) == ["backup"]
    assert notes.handle.find_similar("bread", 5).hits[0].score > notes.handle.find_similar("bread", 5).hits[-1].score
    notes.close()
