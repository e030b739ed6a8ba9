"""A query that is the name of a page has this page first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.indexed_wiki import IndexedWiki, PageFiles
from wikiholt.domain.search import Confidence, Hit, PageFilter, SearchMode, SearchResult, SortOrder
from wikiholt.index.pipeline import TextPipeline
from wikiholt.search.request import SearchRequest

MODES = list(SearchMode)


def make_pages() -> PageFiles:
    """Pages about postgres and Slack that repeat the words more often than the page of that name."""
    pages: PageFiles = {
        "ops/postgres.md": "# Operations\n\nHow the database is kept alive.\n",
        "tools/slack.md": "# Slack\n\nOur chat.\n",
        "notes/Garten-Übersicht.md": "---\naliases: [Beete]\n---\n# Plan\n\nWhat grows where.\n",
        "team/how-to.md": "# Of and to\n\nA page whose name has stopwords alone.\n",
        "old/setup.md": "# Machines\n\nThe first steps with a machine.\n",
        "new/setup.md": "# Computers\n\nSetup of a computer: setup, setup, setup.\n",
        "release/v1.2.md": "# Changes of May\n\nFixed a leak.\n",
        "secret/payroll.md": "---\nsearch: false\n---\n# Payroll\n\nLedgers.\n",
        "empty/blank-sheet.md": "",
    }
    for number in range(70):
        pages[f"more/postgres-operators-{number}.md"] = f"# Postgres {number}\n\n" + "postgres how to slack blank " * 9
        pages[f"more/slack-records-{number}.md"] = f"# Slack records {number}\n\n" + "slack slack sheet beete v1.2 " * 9
    return pages


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexedWiki]:
    made = IndexedWiki(tmp_path_factory.mktemp("names"), make_pages()).sync()
    yield made
    made.close()


def search(wiki: IndexedWiki, query: str, mode: SearchMode = SearchMode.HYBRID, **options: object) -> SearchResult:
    return wiki.handle.search(SearchRequest(query, mode=mode, **options))  # type: ignore[arg-type]


def find_first(wiki: IndexedWiki, query: str, mode: SearchMode = SearchMode.HYBRID, **options: object) -> Hit:
    return search(wiki, query, mode, **options).hits[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("postgres", "ops/postgres"),
        ("Postgres.md", "ops/postgres"),
        ("ops/postgres", "ops/postgres"),
        ("/ops/postgres.md", "ops/postgres"),
        ("ops postgres", "ops/postgres"),
        ("Slack", "tools/slack"),
        ('"slack"', "tools/slack"),
        ("garten ubersicht", "notes/Garten-Übersicht"),
        ("GARTEN_ÜBERSICHT", "notes/Garten-Übersicht"),
        ("plan", "notes/Garten-Übersicht"),
        ("beete", "notes/Garten-Übersicht"),
        ("how to", "team/how-to"),
        ("of and to", "team/how-to"),
        ("v1.2", "release/v1.2"),
        ("v1 2", "release/v1.2"),
        ("Blank sheet", "empty/blank-sheet"),
    ],
)
def test_a_page_is_first_for_its_title_file_path_and_alias(
    wiki: IndexedWiki, query: str, path: str, mode: SearchMode
) -> None:
    answer = search(wiki, query, mode)
    hit = answer.hits[0]
    assert (hit.path, hit.confidence, answer.nothing_relevant) == (path, Confidence.HIGH, False)
    assert "name" in hit.channels
    assert [other.score for other in answer.hits] == sorted((other.score for other in answer.hits), reverse=True)
    more = search(wiki, query, mode, n=40, offset=0)
    assert [other.path for other in more.hits[:5]] == [other.path for other in answer.hits]
    assert sum(other.path == path for other in more.hits) == 1


@pytest.mark.parametrize("mode", MODES)
def test_pages_of_the_same_name_are_first_in_the_order_of_their_evidence(wiki: IndexedWiki, mode: SearchMode) -> None:
    answer = search(wiki, "setup", mode)
    assert [hit.path for hit in answer.hits[:2]] == ["new/setup", "old/setup"]
    assert Confidence.LOW not in {hit.confidence for hit in answer.hits[:2]}


@pytest.mark.parametrize("mode", MODES)
def test_filters_exclusions_and_hidden_pages_hold_for_names_too(wiki: IndexedWiki, mode: SearchMode) -> None:
    def find_paths(query: str, **options: object) -> set[str]:
        return {hit.path for hit in search(wiki, query, mode, n=20, **options).hits}

    assert "ops/postgres" not in find_paths("postgres", where=PageFilter(path_prefix="more"))
    assert "ops/postgres" not in find_paths("postgres -database")
    assert find_first(wiki, "postgres path:ops", mode).path == "ops/postgres"
    assert find_first(wiki, "setup -steps", mode).path == "new/setup"
    assert "secret/payroll" not in find_paths("payroll")
    assert "secret/payroll" not in find_paths("secret/payroll.md")


def test_a_stem_of_the_name_is_not_the_name(wiki: IndexedWiki) -> None:
    hits = search(wiki, "operation postgre").hits
    assert all("name" not in hit.channels for hit in hits)


def test_pins_are_before_names_and_boosts_do_not_move_them(tmp_path: Path) -> None:
    pages = make_pages()
    pages["pinned.md"] = "---\npin: slack\n---\n# Pinned\n\nText.\n"
    pages["tools/slack.md"] = "---\nboost: 0.1\n---\n# Slack\n\nOur chat.\n"
    pages["more/slack-records-9.md"] = "---\nboost: 10\n---\n# Slack records 9\n\nslack slack slack\n"
    wiki = IndexedWiki(tmp_path, pages).sync()
    for mode in MODES:
        paths = [hit.path for hit in search(wiki, "slack", mode).hits]
        assert paths[:3] == ["pinned", "tools/slack", "more/slack-records-9"]
    dated = search(wiki, "postgres", sort=SortOrder.DATE, n=100)
    assert "ops/postgres" in {hit.path for hit in dated.hits}
    wiki.close()


def test_a_moved_page_is_found_by_its_new_name(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, make_pages()).sync()
    text = wiki.read_file("ops/postgres.md")
    wiki.repository.commit({"ops/postgres.md": None, "ops/our-database-server.md": text})
    wiki.sync()
    for query in ("our database server", "our-database-server.md", "operations"):
        assert find_first(wiki, query).path == "ops/our-database-server"
    wiki.close()


def test_a_hidden_page_is_not_found_by_its_name(tmp_path: Path) -> None:
    wiki = IndexedWiki(tmp_path, make_pages(), pipeline=TextPipeline(hide=("/ops",))).sync()
    for mode in MODES:
        assert find_first(wiki, "ops/postgres", mode).path != "ops/postgres"
    wiki.close()


def test_a_name_of_many_pages_finds_them_each_once(tmp_path: Path) -> None:
    pages: PageFiles = {f"folder{number}/index.md": f"# Topic {number}\n\nText {number}.\n" for number in range(150)}
    wiki = IndexedWiki(tmp_path, pages).sync()
    for mode in MODES:
        answer = search(wiki, "index", mode, n=100)
        assert len({hit.path for hit in answer.hits}) == len(answer.hits)
        assert not answer.nothing_relevant
    wiki.close()
