"""Hits whose passages are nearly the same are one hit, and similar pages are not copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.search import PageFilter, SearchMode, SearchResult
from wikiholt.search.request import SearchRequest

HEAP = (
    "Turn the compost heap every other week so that air gets into it, and cover it before the first frost. Wet grass "
    "goes in thin layers between straw and torn cardboard, never in one thick mat, because that rots and smells. Keep "
    "diseased plants and roots of couch grass out of it; they survive the warmth in the middle and come back with the "
    "soil that you spread around the young plants in spring.\n"
)
PAGES: PageFiles = {
    "heap.md": f"# Heap\n\n{HEAP}",
    "copy/heap.md": f"# Heap (copy)\n\n{HEAP}",
    "old/heap.md": f"# Old heap\n\n{HEAP.replace('straw', 'hay')}",
    "year/heap.md": f"# Heap of a year\n\n{HEAP} Since 2019.\n",
    "compost.md": "# Compost\n\nThe compost heap wants air; turn the compost.\n",
    "short.md": "# Short\n\nSee the compost heap.\n",
    "short too.md": "# Short too\n\nSee the compost heap.\n",
    "pinned.md": f"---\npin: compost heap\n---\n# Pinned\n\n{HEAP}",
    **{f"other/{i}.md": f"# Other {i}\n\nAnother compost text about number {i}.\n" for i in range(9)},
}


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path_factory.mktemp("wiki"), PAGES).sync()
    yield made
    made.close()


def search(
    wiki: IndexedWiki, n: int, offset: int = 0, *, collapse: bool = True, query: str = "turn heap"
) -> SearchResult:
    return wiki.handle.search(SearchRequest(query, n, SearchMode.KEYWORD, offset=offset, collapse=collapse))


def get_paths(result: SearchResult) -> list[str]:
    return [hit.path for hit in result.hits]


def get_copies(result: SearchResult) -> dict[str, set[str]]:
    return {hit.path: {place.path for place in hit.also_on} for hit in result.hits if hit.also_on}


def test_pages_with_nearly_the_same_passage_are_one_hit(wiki: IndexedWiki) -> None:
    (first, others), *rest = get_copies(search(wiki, 10)).items()
    assert {first, *others} == {"heap", "copy/heap", "old/heap", "pinned"}, "another number is another passage"
    assert not rest, "short passages are left as they are"
    (hit,) = (hit for hit in search(wiki, 10).hits if hit.also_on)
    place = next(place for place in hit.also_on if place.path != "pinned")
    assert (place.file, place.first_line, place.last_line) == (f"{place.path}.md", 1, 3)
    assert place.name
    assert place.url.startswith(f"/{place.path}")


def test_other_pages_take_the_places_of_copies(wiki: IndexedWiki) -> None:
    plain, collapsed = (search(wiki, 3, collapse=collapse) for collapse in (False, True))
    assert len(plain.hits) == len(collapsed.hits) == 3
    assert not get_copies(plain)
    assert len(set(get_paths(collapsed)) & {"heap", "copy/heap", "old/heap", "pinned"}) == 1


def test_more_hits_continue_the_first_ones(wiki: IndexedWiki) -> None:
    whole = get_paths(search(wiki, 50))
    assert len(set(whole)) == len(whole)
    for n in (1, 2, 3):
        assert [get_paths(search(wiki, n, at))[0] for at in range(0, len(whole), n)] == whole[::n]


def test_the_first_hit_names_the_same_copies_for_every_number_of_hits(wiki: IndexedWiki) -> None:
    assert search(wiki, 1).hits[0].also_on == search(wiki, 10).hits[0].also_on
    assert search(wiki, 1).hits[0].also_on


def test_a_pinned_page_stays_a_hit(wiki: IndexedWiki) -> None:
    result = search(wiki, 10, query="compost heap")
    assert get_paths(result)[0] == "pinned"
    assert "pinned" not in {path for paths in get_copies(result).values() for path in paths}


def test_a_listing_names_every_page(wiki: IndexedWiki) -> None:
    result = wiki.handle.search(SearchRequest("path:copy OR path:old OR path:year", 10, collapse=True))
    assert set(get_paths(result)) == {"copy/heap", "old/heap", "year/heap"}


def test_similar_pages_are_not_near_duplicates(wiki: IndexedWiki) -> None:
    result = wiki.handle.find_similar("heap", 5)
    assert not {"copy/heap", "old/heap", "pinned"} & set(get_paths(result))
    assert "year/heap" in get_paths(result)
    (note,) = result.notes
    assert note.startswith("near-duplicates of this page are left out: ")
    assert "copy/heap" in note
    plain = wiki.handle.find_similar("heap", 5, collapse=False)
    assert {"copy/heap", "old/heap", "pinned"} <= set(get_paths(plain))
    assert not plain.notes


def test_the_report_lists_pages_then_passages_with_their_places(wiki: IndexedWiki) -> None:
    found = wiki.handle.find_duplicates()
    (pages,) = found.pages
    assert {place.path for place in pages.places} == {"heap", "copy/heap", "old/heap", "pinned"}
    assert not found.passages, "their passages are not listed again"
    assert not wiki.handle.find_duplicates(PageFilter(path_prefix="copy")).pages


def test_a_passage_on_otherwise_different_pages_is_listed(tmp_path: Path) -> None:
    sections = [f"## Part {number}\n\n{' '.join(f'word{number}x{i}' for i in range(90))}" for number in range(4)]
    shared = f"## Compost\n\n{HEAP}"
    wiki = IndexedWiki(
        tmp_path,
        {
            "a.md": "\n\n".join([sections[0], shared, sections[1]]),
            "b.md": "\n\n".join([sections[2], sections[3], shared]),
        },
    ).sync()
    found = wiki.handle.find_duplicates()
    assert not found.pages
    (group,) = found.passages
    assert "Turn the compost heap" in group.text
    assert {place.path: place.url for place in group.places} == {"a": "/a#compost", "b": "/b#compost"}
    for place in group.places:
        lines = wiki.read_file(place.file).split("\n")[place.first_line - 1 : place.last_line]
        assert HEAP.strip() in lines
    wiki.close()
