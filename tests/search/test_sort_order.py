"""The order and the pages of hits: boosts, pins, dates, offsets, and queries with fields."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki
from wikiholt.api.settings.setting import check_boost_rule
from wikiholt.domain.search import Confidence, PageFilter, SearchMode, SearchResult, SortOrder
from wikiholt.errors import InvalidQuery
from wikiholt.search.ranking import Candidate
from wikiholt.search.request import SearchRequest
from wikiholt.search.sort_order import BoostRule, parse_boost_rules, sort_boosted
from wikiholt.text.properties import parse_condition


def get_paths(answer: SearchResult) -> list[str]:
    return [hit.path for hit in answer.hits]


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[IndexedWiki]:
    text = "Oil the handle of the {} in"
    pages: dict[str, str | bytes | None] = {
        "spade.md": f"---\nstatus: final\ndate: 2024-01-01\n---\n# Spade\n\n{text.format('spade')} winter.\n",
        "rake.md": f"---\nstatus: Draft\ndate: 2026-01-01\n---\n# Rake\n\n{text.format('rake')} spring.\n",
        "tools/hoe.md": f"---\ntags: [metal]\ndate: 2025-01-01\n---\n# Hoe\n\n{text.format('hoe')} autumn.\n",
        "soup.md": "---\npin: [what to Cook]\ndate: 2027-01-01\n---\n# Soup\n\nPeel carrots and boil water.\n",
    }
    pages |= {f"more/{i}.md": f"# More {i}\n\nAnother text about number {i}.\n" for i in range(8)}
    made = IndexedWiki(tmp_path, pages).sync()
    yield made
    made.close()


def search(wiki: IndexedWiki, query: str, **options: object) -> SearchResult:
    return wiki.handle.search(SearchRequest(query, **options))  # type: ignore[arg-type]


def edit(wiki: IndexedWiki, file: str, line: str) -> None:
    wiki.repository.commit({file: wiki.read_file(file).replace("---\n", f"---\n{line}\n", 1)})
    wiki.sync()


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_boost_moves_a_page_up_or_down_and_leaves_its_score(wiki: IndexedWiki, mode: SearchMode) -> None:
    before = search(wiki, "oil the handle of a spade", mode=mode)
    assert get_paths(before)[0] == "spade"
    edit(wiki, "tools/hoe.md", "boost: 10")
    after = search(wiki, "oil the handle of a spade", mode=mode)
    others = [path for path in get_paths(before) if path != "tools/hoe"]
    assert get_paths(after) == ["tools/hoe", *others]
    scores = {hit.path: hit.score for hit in before.hits}
    assert {hit.path: hit.score for hit in after.hits} == scores
    edit(wiki, "spade.md", "boost: 0.1")
    lowered = get_paths(search(wiki, "oil the handle of a spade", mode=mode))
    assert "spade" not in lowered[:2]


def test_pages_without_a_boost_keep_their_order() -> None:
    ranked = [Candidate(1, rank=0.5), Candidate(2, rank=0.9), Candidate(3, rank=0.4)]
    assert [c.page_id for c in sort_boosted(ranked, {3: 1.2})] == [1, 2, 3]
    assert [c.page_id for c in sort_boosted(ranked, {3: 1.3})] == [3, 1, 2]


def test_rules_of_the_wiki_boost_by_path(wiki: IndexedWiki) -> None:
    rules = parse_boost_rules(("tools=5", "*.md=0.5", "/tools/=4"))
    assert [(rule.matches("tools/hoe.md"), rule.matches("a.md"), rule.factor) for rule in rules] == [
        (True, False, 5.0),
        (True, True, 0.5),
        (True, False, 4.0),
    ]
    with wiki.handle._use_live_index() as live_index:
        live_index.searcher._boost_rules = (BoostRule(lambda file: file.startswith("tools/"), 4.0),)
    assert get_paths(search(wiki, "oil the handle of a spade"))[0] == "tools/hoe"
    assert [check_boost_rule(text) for text in ("/a=2", "a=b=0.1")] == ["", ""]
    for bad in ("a", "=2", "a=", "a=x", "a=11", "a=0"):
        assert "PATTERN=FACTOR" in check_boost_rule(bad)


def test_a_pinned_page_comes_first_for_its_query_if_it_passes_the_filters(wiki: IndexedWiki) -> None:
    edit(wiki, "rake.md", "search: false\npin: what to cook")  # a hidden page is never returned
    answer = search(wiki, " What  to cook?", mode=SearchMode.KEYWORD)
    assert "rake" not in get_paths(answer)
    first = answer.hits[0]
    assert (first.path, first.score, first.confidence) == ("soup", 1.0, Confidence.HIGH)
    assert "pinned" in first.channels
    assert "boil water." in first.text
    assert not answer.nothing_relevant
    assert "pinned" not in str([hit.channels for hit in search(wiki, "what to cook now").hits])
    assert "soup" not in get_paths(search(wiki, "what to cook", where=PageFilter(path_prefix="tools")))


@pytest.mark.parametrize("mode", list(SearchMode))
def test_by_date_the_newest_relevant_page_comes_first(wiki: IndexedWiki, mode: SearchMode) -> None:
    answer = search(wiki, "oil the handle", mode=mode, sort=SortOrder.DATE)
    assert get_paths(answer) == ["rake", "tools/hoe", "spade"], "not the soup, which is newer but not relevant"


def test_properties_filter_and_are_counted(wiki: IndexedWiki) -> None:
    where = PageFilter(properties=(parse_condition("status=draft"),))
    assert get_paths(search(wiki, "oil the handle", where=where)) == ["rake"]
    answer = search(wiki, "oil the handle", facets=("status",))
    (facets,) = answer.facets
    assert [(facet.value, facet.count) for facet in facets.values] == [("Draft", 1), ("final", 1)]
    for bad in ({"facets": ("",)}, {"facets": ("x",) * 11}, {"offset": 901}, {"offset": -1}):
        with pytest.raises(InvalidQuery) as caught:
            search(wiki, "oil", **bad)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("oil the handle tag:metal", {"tools/hoe"}),
        ("oil the handle -tag:metal -path:more", {"spade", "rake", "soup"}),
        ("oil the handle path:TOOLS", {"tools/hoe"}),
        ("oil title:spad", {"spade"}),
        ("oil title:spade OR title:rake", {"spade", "rake"}),
        ('oil "in winter" OR "in spring"', {"spade", "rake"}),
        ('"in winter" OR hoe', {"spade", "tools/hoe"}),
        ('"in winter" OR "in spring" -rake', {"spade"}),
    ],
)
def test_fields_and_or_restrict_the_pages(wiki: IndexedWiki, query: str, expected: set[str]) -> None:
    assert set(get_paths(search(wiki, query, n=10))) == expected


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_query_of_fields_alone_lists_the_pages(wiki: IndexedWiki, mode: SearchMode) -> None:
    answer = search(wiki, "tag:metal", mode=mode)
    assert get_paths(answer) == ["tools/hoe"]
    assert (answer.hits[0].channels, answer.hits[0].score, answer.nothing_relevant) == (("filter",), 1.0, False)
    assert answer.hits[0].snippet
    titled = get_paths(search(wiki, "title:spade OR title:rake", mode=mode))
    assert sorted(titled) == ["rake", "spade"]
    assert get_paths(search(wiki, "title:spade OR title:rake", mode=mode, n=1, offset=1)) == titled[1:]
    with pytest.raises(InvalidQuery, match="only exclusions") as caught:
        search(wiki, "-tag:metal", mode=mode)
    assert "add a word" in caught.value.hint


def test_later_pages_of_hits_do_not_say_that_nothing_was_found(wiki: IndexedWiki) -> None:
    assert not search(wiki, "oil the handle", n=1).nothing_relevant
    assert not search(wiki, "oil the handle", n=2, offset=3).nothing_relevant


@pytest.mark.slow
@pytest.mark.parametrize("boost", ["", "boost: 3\n"])
@pytest.mark.parametrize("mode", list(SearchMode))
def test_pages_of_hits_continue_each_other(tmp_path: Path, mode: SearchMode, boost: str) -> None:
    pages: dict[str, str | bytes | None] = {
        f"p{i:03}.md": f"---\n{boost if i % 50 == 7 else ''}---\n# Note {i}\n\nneedle {'hay ' * (i % 9)}word{i}\n"
        for i in range(260)
    }
    wiki = IndexedWiki(tmp_path, pages).sync()
    paged: list[str] = []
    for offset in range(0, 300, 30):
        answer = search(wiki, "needle in hay", mode=mode, n=30, offset=offset)
        assert answer.offset == offset
        paged += get_paths(answer)
    assert len(paged) == len(set(paged)) == 260
    assert paged[:100] == get_paths(search(wiki, "needle in hay", mode=mode, n=100))
    assert paged[100:200] == get_paths(search(wiki, "needle in hay", mode=mode, n=100, offset=100))
    wiki.close()
