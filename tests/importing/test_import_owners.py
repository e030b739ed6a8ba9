"""An owner is told, or follows from the pages there are; it is never guessed."""

import pytest

from wikiholt.importing.owners import Fate, Owners, Rules, Verdict
from wikiholt.importing.shared import page_of

PAGES = {"harbour": ["home.md", "ships/dredger.md"], "garden": ["home.md", "compost heap.md"]}


@pytest.mark.parametrize(
    ("page", "verdict"),
    [
        ("Ships/Dredger", Verdict(Fate.OWNED, ("harbour",))),
        ("/ships/dredger.md", Verdict(Fate.OWNED, ("harbour",))),
        ("Compost Heap", Verdict(Fate.OWNED, ("garden",))),
        ("Home", Verdict(Fate.SEVERAL_WIKIS, ("harbour", "garden"))),
        ("Gone", Verdict(Fate.NO_PAGE)),
        ("", Verdict(Fate.NO_PAGE)),
    ],
)
def test_a_row_without_a_tenant_belongs_to_the_one_wiki_that_has_its_page(page: str, verdict: Verdict) -> None:
    assert Owners(PAGES, Rules()).of(None, page) == verdict


def test_a_rule_says_whose_a_page_is_and_the_first_that_fits_counts() -> None:
    owners = Owners(PAGES, Rules((("ho*", "garden"), ("*", "harbour"))))
    assert owners.of(None, "Home") == Verdict(Fate.OWNED, ("garden",))
    assert owners.of(None, "Ships/Dredger") == Verdict(Fate.OWNED, ("harbour",))
    assert owners.of(None, "Compost Heap") == Verdict(Fate.NO_PAGE)
    assert Owners(PAGES, Rules((("Home", "-"),))).of(None, "home") == Verdict(Fate.LEFT_OUT)


def test_a_tenant_is_the_wiki_of_that_name_or_the_one_the_operator_names() -> None:
    owners = Owners(PAGES, Rules(tenants={"t-17": "garden", "old": "-"}))
    assert owners.of("harbour", "Home") == Verdict(Fate.OWNED, ("harbour",))
    assert owners.of("t-17", "Home") == Verdict(Fate.OWNED, ("garden",))
    assert owners.of("t-17", "Ships/Dredger") == Verdict(Fate.NO_PAGE)
    assert owners.of("old", "Home") == Verdict(Fate.LEFT_OUT)
    assert owners.of("t-18", "Home") == Verdict(Fate.UNKNOWN_TENANT)


def test_a_rule_for_pages_says_nothing_of_rows_that_name_their_tenant() -> None:
    assert Owners(PAGES, Rules((("*", "garden"),))).of("harbour", "Home") == Verdict(Fate.OWNED, ("harbour",))


@pytest.mark.parametrize(
    ("row_id", "metadata", "found"),
    [
        ("Trends/Tide::chunk_3", None, ("Trends/Tide", 3)),
        ("x::chunk_0", {"page_path": "Home", "chunk_index": 2}, ("Home", 2)),
        ("x::chunk_9", {"page_path": "", "chunk_index": True}, ("x", 9)),
        ("a::chunk_b::chunk_1", {"page_path": 7}, ("a::chunk_b", 1)),
        ("no mark", [], ("", None)),
        ("p::chunk_99999999999999", {}, ("p", None)),
        ("p::chunk_²", {}, ("p", None)),
    ],
)
def test_the_page_of_a_row_comes_from_its_metadata_or_its_id(
    row_id: str, metadata: object, found: tuple[str, int | None]
) -> None:
    assert page_of(row_id, metadata) == found
