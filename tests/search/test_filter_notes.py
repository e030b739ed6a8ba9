"""Notes about filters that no page passes, and about words that look like a filter."""

from pathlib import Path
from unittest.mock import patch

import pytest

from tests.search.test_search import PAGES, SearchFixture
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.search.request import SearchRequest
from wikiholt.text.properties import parse_condition
from wikiholt.wikis.handle import WikiHandle


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> WikiHandle:
    return make_handle(tmp_path_factory.mktemp("notes"))


def make_handle(directory: Path) -> WikiHandle:
    made = SearchFixture(directory)
    drafts = {"People/Ada.md": "---\nstatus: draft\nDue date: 2026-01-31\n---\n# Ada\n\nShe digs.\n"}
    made.repository.commit({**PAGES, **drafts})
    handle = made.open_handle()
    handle.sync()
    return handle


def get_notes(handle: WikiHandle, query: str, where: PageFilter | None = None) -> tuple[str, ...]:
    return handle.search(SearchRequest(query, 5, SearchMode.KEYWORD, where or PageFilter())).notes


@pytest.mark.parametrize(
    ("where", "note"),
    [
        (PageFilter(tags=("tol",)), "no page has this tag; did you mean 'tools'?"),
        (PageFilter(tags=("qqqq",)), "no page has this tag"),
        (PageFilter(categories=("guides",)), "no page has this category; did you mean 'Guide'?"),
        (PageFilter(path_prefix="Peopl"), "no page is at or below this path; did you mean 'People'?"),
        (
            PageFilter(path_prefix="tools/spade.md"),
            "no page is at or below this path; did you mean 'tools/spade'?",
        ),
        (PageFilter(path_prefix="zz/"), "no page is at or below this path"),
        (
            PageFilter(path_prefix="people"),
            "no page is at or below this path; did you mean 'People'? Case matters.",
        ),
        (
            PageFilter(path_prefix="people/ada"),
            "no page is at or below this path; did you mean 'People/Ada'? Case matters.",
        ),
        (PageFilter(tags=("soil", "tools")), "no page passes the filter"),
        (PageFilter(properties=(parse_condition("status=done"),)), "no page passes the filter"),
    ],
)
def test_a_filter_that_no_page_passes_is_explained(handle: WikiHandle, where: PageFilter, note: str) -> None:
    assert get_notes(handle, "spade", where) == (note,)


def test_a_field_of_the_query_is_explained_too(handle: WikiHandle) -> None:
    assert get_notes(handle, "spade tag:tol") == ("no page has this tag; did you mean 'tools'?",)
    assert get_notes(handle, "spade path:PEOPL") == ("no page passes the filter",)


def test_a_filter_that_pages_pass_has_no_note(handle: WikiHandle) -> None:
    assert get_notes(handle, "spade", PageFilter(tags=("TOOLS",))) == ()
    assert get_notes(handle, '"no such phrase"', PageFilter(tags=("tools",))) == ()
    assert get_notes(handle, "zzzz", PageFilter(path_prefix="tools")) == ()
    assert get_notes(handle, '"no such phrase"') == ()


def test_a_word_that_looks_like_a_property_has_a_note_with_the_filter(handle: WikiHandle) -> None:
    (note,) = get_notes(handle, "spade status:draft")
    assert note.startswith("'status:draft' was searched as words")
    assert "--where status=draft" in note
    # A property is named, whatever its value is.
    assert "where=Status=final" in get_notes(handle, "Status:final")[0]
    assert "where=due_date=2026-01-31" in get_notes(handle, "due_date:2026-01-31")[0]


@pytest.mark.parametrize(
    "query",
    [
        "nginx:1.25",
        "http://status",
        "status: draft",
        '"status:draft"',
        "spade -status:draft",
        "12:30",
        "status:" + "x" * 100,
    ],
)
def test_other_words_with_a_colon_have_no_note(handle: WikiHandle, query: str) -> None:
    assert get_notes(handle, query) == ()


def test_the_facets_are_read_once_per_version(tmp_path: Path) -> None:
    handle = make_handle(tmp_path)
    with patch.object(SqliteIndex, "get_facets", autospec=True, side_effect=SqliteIndex.get_facets) as get_facets:
        for tag in ("tol", "toools", "soill"):
            assert "did you mean" in get_notes(handle, "spade", PageFilter(tags=(tag,)))[0]
        get_notes(handle, "spade status:draft", PageFilter(tags=("tools",)))
    assert get_facets.call_count == 1


def test_a_property_is_looked_up_once_while_its_value_is_typed(tmp_path: Path) -> None:
    handle = make_handle(tmp_path)
    with patch.object(SqliteIndex, "filter_page_ids", autospec=True, side_effect=SqliteIndex.filter_page_ids) as find:
        for value in ("d", "dr", "dra", "draft"):
            assert len(get_notes(handle, f"spade status:{value}")) == 1
    assert [bool(call.args[1]) for call in find.call_args_list].count(True) == 1


@pytest.mark.parametrize("mode", list(SearchMode))
def test_an_exclusion_says_how_many_pages_it_left_out_and_how_to_search_for_the_word(
    handle: WikiHandle, mode: SearchMode
) -> None:
    def search(query: str, where: PageFilter | None = None) -> tuple[list[str], tuple[str, ...]]:
        answer = handle.search(SearchRequest(query, 5, mode, where or PageFilter()))
        return sorted(hit.path for hit in answer.hits), answer.notes

    found, notes = search("heap -leaves")
    assert notes == ('-leaves left out 1 page; to search for it instead, write "leaves"',)
    assert "tools/rake" not in found
    assert search("heap", PageFilter(path_prefix="tools"))[1] == ()
    assert search("heap -leaves", PageFilter(path_prefix="People"))[1] == ()
    assert search("heap -kangaroo")[1] == ()
    _, notes = search('garden -leaves -"every two weeks"')
    assert notes == (
        '-"every two weeks" -leaves left out 2 pages; to search for it instead, write "every two weeks" "leaves"',
    )


def test_an_option_is_searched_as_text(tmp_path: Path) -> None:
    made = SearchFixture(tmp_path)
    made.repository.commit({**PAGES, "disks.md": "# Disks\n\nRun badblocks -wsv on the disk and wait."})
    handle = made.open_handle()
    handle.sync()
    for mode in SearchMode:
        answer = handle.search(SearchRequest("badblocks -wsv", mode=mode))
        assert answer.hits[0].path == "disks"
        assert answer.notes == ()


def test_a_long_option_has_a_note_that_says_how_to_exclude_the_word(handle: WikiHandle) -> None:
    note = '-leaves was searched as a word, because docker is a program; to leave out pages with it, write -"leaves"'
    assert get_notes(handle, "docker heap -leaves") == (note,)
    assert get_notes(handle, 'docker heap -"leaves"') == (
        '-"leaves" left out 1 page; to search for it instead, write "leaves"',
    )
