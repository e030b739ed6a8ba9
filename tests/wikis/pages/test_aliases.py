"""Other names of pages: in links, in the ranking and in spelling correction."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.search.spell_check_fixtures import SpellingFixture
from tests.support.indexed_wiki import IndexedWiki
from wikiholt.domain.search import SearchMode
from wikiholt.errors import PageNotFound
from wikiholt.interfaces.web.preview import make_link_resolver
from wikiholt.search.request import SearchRequest
from wikiholt.text.dialect import GFM


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[IndexedWiki]:
    made = IndexedWiki(
        tmp_path,
        {
            "home.md": "See [[Heap]], [[bin]], [the bin](Bin.md), [[Twice]] and [[Rake]].\n",
            "compost.md": "---\naliases: [Heap, Bin, Twice, rake]\n---\n# Compost\n\nKitchen scraps.\n",
            "worms.md": "---\nalias: twice\n---\n# Worms\n\nThey eat scraps.\n",
            "tools/rake.md": "# Rake\n\nLeaves.\n",
        },
    ).sync()
    yield made
    made.close()


def test_links_resolve_to_the_page_with_the_alias_unless_a_page_has_that_name(wiki: IndexedWiki) -> None:
    links = wiki.pages.get_links("home")
    assert [(link.path, link.text) for link in links.links_to] == [
        ("compost", "Heap"),
        ("compost", "bin"),
        ("compost", "the bin"),
        ("tools/rake", "Rake"),
    ]
    assert links.missing == ("Twice",), "two pages have this alias"
    assert [link.line for link in wiki.pages.get_links("compost").linked_from] == [1, 1, 1]
    graph = wiki.pages.build_graph()
    assert graph.edges == (("home", "compost"), ("home", "tools/rake"))
    resolve = make_link_resolver(wiki.pages.read("home"), GFM)
    assert [resolve(target, True) for target in ("Heap", "Rake", "Twice")] == ["compost", "tools/rake", None]


def test_a_page_that_gets_the_name_wins(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"heap.md": "# Another heap\n"})
    wiki.sync()
    assert [link.path for link in wiki.pages.get_links("home").links_to][:2] == ["heap", "compost"]


def test_an_unknown_path_that_is_an_alias_or_a_former_name_names_the_page(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"tools/rake.md": None, "tools/broom.md": "# Rake\n\nLeaves.\n"})
    wiki.sync()
    for path, current in {"heap": "compost", "Tools/Rake.md": "tools/broom", "twice": "", "worm": ""}.items():
        with pytest.raises(PageNotFound) as caught:
            wiki.pages.read(path)
        assert caught.value.current_path == current
        assert (repr(current) in caught.value.hint) == bool(current)
    assert wiki.pages.read("tools/broom", wiki.pages.read_history("tools/broom")[-1].revision).path == "tools/rake"
    wiki.repository.commit({"compost.md": None})
    with pytest.raises(PageNotFound) as caught:
        wiki.pages.read("heap")
    assert not caught.value.current_path, "the index is older than HEAD"


def test_an_alias_is_found_like_a_title(wiki: IndexedWiki) -> None:
    wiki.repository.commit({"other.md": "# Other\n\nThe bin is green. A bin, a bin.\n"})
    wiki.sync()
    answer = wiki.handle.search(SearchRequest("bin", mode=SearchMode.KEYWORD))
    assert answer.hits[0].path == "compost"


def test_a_typo_is_corrected_to_a_word_of_an_alias(tmp_path: Path) -> None:
    pages: dict[str, str | bytes | None] = {
        "a.md": "---\naliases: [Wheelbarrow]\n---\n# Barrow\n\nCarries soil.\n",
        "b.md": "# Spade\n\nDigs.\n",
    }
    handle = SpellingFixture(tmp_path, pages).open_handle()
    answer = handle.search(SearchRequest("wheelbarow", mode=SearchMode.KEYWORD))
    assert (answer.did_you_mean, [hit.path for hit in answer.hits]) == ("wheelbarrow", ["a"])
    handle.close()
