"""Pages like a page, several passages of one page, and what a hit says of its page."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from wiki_contents import Notebook, Pages

from wikiholt.embedding import load
from wikiholt.errors import IndexMissing, InvalidQuery, ModelMissing, PageNotFound
from wikiholt.model import Answer, Filter, Mode
from wikiholt.search import Request

FILLER = "Nothing of note stands in this sentence about whatever there is. " * 20
HEAP = "# Heap\n\nTurn the compost heap so that air gets into the compost heap.\n"
PAGES: Pages = {
    "heap.md": HEAP,
    "compost.md": "# Compost\n\nThe compost heap wants air; turn the compost.\n",
    "tools/fork.md": "---\ntags: tools\n---\n# Fork\n\nA fork can turn the compost heap.\n",
    "ferry.md": "# Ferry\n\nBoats leave the harbour at nine.\n",
    "long.md": f"# Long\n\n## One\n\n{FILLER}\n\n## Two\n\nTurn the compost heap. {FILLER}\n\n## Three\n\n{FILLER}\n",
    "secret.md": "---\nhidden: true\n---\n# Heap\n\nTurn the compost heap.\n",
    "empty.md": "",
}


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notebook]:
    made = Notebook(tmp_path, PAGES).sync()
    yield made
    made.close()


def paths(answer: Answer) -> list[str]:
    return [hit.path for hit in answer.hits]


def test_the_pages_most_like_a_page_come_first_and_itself_never(notes: Notebook) -> None:
    answer = notes.handle.similar("heap", 10)
    assert set(paths(answer)[:2]) == {"compost", "tools/fork"}
    assert "heap" not in paths(answer)
    assert "secret" not in paths(answer), "a hidden page has no passage to be found by"
    assert len(set(paths(answer))) == len(answer.hits)
    assert (answer.query, answer.mode, answer.total) == ("heap", Mode.SEMANTIC, len(PAGES) - 1)
    distances = [hit.distance for hit in answer.hits]
    assert distances == sorted(distances, key=lambda distance: distance or 0.0)
    assert not answer.degraded
    assert answer.indexed_revision == answer.head_revision == notes.repository.head()


def test_asking_for_more_only_lengthens_the_list(notes: Notebook) -> None:
    whole = paths(notes.handle.similar("heap", 50))
    for n in range(1, len(whole)):
        assert paths(notes.handle.similar("heap", n)) == whole[:n]


@pytest.mark.parametrize("path", ["tools/fork", "tools/fork.md", "TOOLS/Fork", "/tools/fork/"])
def test_the_page_is_named_as_everywhere(notes: Notebook, path: str) -> None:
    assert "tools/fork" not in paths(notes.handle.similar(path))


def test_filters_narrow_before_the_nearest_are_taken(notes: Notebook) -> None:
    assert paths(notes.handle.similar("heap", 1, Filter(tags=("tools",)))) == ["tools/fork"]
    assert paths(notes.handle.similar("tools/fork", 5, Filter(tags=("tools",)))) == []
    assert notes.handle.similar("ferry", 5, Filter(path_prefix="tools")).total == 1


def test_a_page_of_many_passages_does_not_crowd_out_the_others(tmp_path: Path) -> None:
    sections = "\n\n".join(f"## Part {number}\n\nTurn the compost heap. {FILLER}" for number in range(150))
    pages: Pages = {"book.md": sections, **{f"{i}.md": f"# {i}\n\nNumber {i} of the small pages.\n" for i in range(9)}}
    notes = Notebook(tmp_path, pages).sync()
    assert len(notes.handle.similar("book", 9).hits) == 9
    assert notes.handle.similar("book", 9).hits[0].total_chunks == 1
    notes.close()


def test_a_page_without_a_passage_is_like_none_and_says_so(notes: Notebook) -> None:
    for path in ("secret", "empty"):
        answer = notes.handle.similar(path)
        assert answer.hits == ()
        assert "no passage" in answer.notes[0]


def test_what_cannot_be_asked_is_refused(notes: Notebook, tmp_path: Path) -> None:
    with pytest.raises(PageNotFound):
        notes.handle.similar("nowhere")
    for path, n in (("", 5), ("heap", 0), ("heap", 101), ("heap", True), ("a\0b", 5), ("\ud800", 5)):
        with pytest.raises(InvalidQuery):
            notes.handle.similar(path, n)
    with pytest.raises(InvalidQuery):
        notes.handle.similar("heap", 5, Filter(tags=("t",) * 51))
    with pytest.raises(IndexMissing):
        Notebook(tmp_path / "other", {"a.md": "x"}).handle.similar("a")


def test_likeness_needs_no_model(tmp_path: Path) -> None:
    def none() -> None:
        raise ModelMissing("there is no model")

    Notebook(tmp_path, PAGES).sync().close()
    without = Notebook(tmp_path, embedder=none)  # type: ignore[arg-type]
    assert without.handle.similar("heap", 1).hits
    without.close()


# ── several passages of a page ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", [Mode.SEMANTIC, Mode.HYBRID])
def test_a_page_may_have_several_hits_each_another_passage(notes: Notebook, mode: Mode) -> None:
    def ask(per_page: int) -> Answer:
        return notes.handle.search(Request("nothing of note in this sentence", 20, mode, chunks_per_page=per_page))

    one, three = ask(1), ask(3)
    assert paths(one).count("long") == 1
    assert paths(three).count("long") == 3
    passages = [(hit.path, hit.chunk_index) for hit in three.hits]
    assert len(set(passages)) == len(passages)
    assert [hit.score for hit in three.hits] == sorted((hit.score for hit in three.hits), reverse=True)
    assert len(ask(3).hits) <= 20
    assert set(paths(three)) == set(paths(one))


def test_by_words_a_page_has_one_hit(notes: Notebook) -> None:
    answer = notes.handle.search(Request("sentence", 20, Mode.KEYWORD, chunks_per_page=5))
    assert paths(answer) == ["long"]


@pytest.mark.parametrize("bad", [0, 11, -1, True])
def test_passages_a_page_are_a_small_number(bad: int) -> None:
    with pytest.raises(InvalidQuery):
        Request("x", chunks_per_page=bad)


def test_a_hit_has_its_whole_passage_and_the_size_of_its_page(notes: Notebook) -> None:
    hit = notes.handle.search(Request("compost heap", 1, Mode.KEYWORD)).hits[0]
    assert (hit.path, hit.text, hit.total_chunks, hit.page_words) == ("heap", HEAP.strip(), 1, len(HEAP.split()))


# ── with the real model ──────────────────────────────────────────────────────────────────────────


def test_the_real_model_finds_pages_of_the_same_matter(tmp_path: Path) -> None:
    pages: Pages = {
        "bread.md": "# Sourdough\n\nFlour, water and a starter. Knead the dough, let it rise, bake it.",
        "pizza.md": "# Pizza\n\nStretch the yeast dough, add tomatoes and cheese, bake in a hot oven.",
        "cake.md": "# Sponge cake\n\nWhisk eggs and sugar, fold in the flour, bake until golden.",
        "backup.md": "# Backups\n\nThe database is dumped every night and copied to another data centre.",
        "restore.md": "# Disaster recovery\n\nHow to bring the servers back from the nightly copies.",
        "tls.md": "# Certificates\n\nRenew the TLS certificate of the web server each quarter.",
    }
    with load(threads=2) as model:
        notes = Notebook(tmp_path, pages, embedder=lambda: model).sync()
        assert set(paths(notes.handle.similar("bread", 2))) == {"pizza", "cake"}
        assert paths(notes.handle.similar("restore", 1)) == ["backup"]
        assert notes.handle.similar("bread", 5).hits[0].score > notes.handle.similar("bread", 5).hits[-1].score
        notes.close()
