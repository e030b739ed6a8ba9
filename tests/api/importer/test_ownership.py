"""The owner of a row is configured or follows from the existing pages; it is never guessed."""

import pytest

from wikiholt.api.importer.shared_index import OwnershipResolver, OwnershipRules, RowOutcome, parse_row_id

PAGES = {"harbour": ["home.md", "ships/dredger.md"], "garden": ["home.md", "compost heap.md"]}


@pytest.mark.parametrize(
    ("page", "verdict"),
    [
        ("Ships/Dredger", (RowOutcome.OWNED, ("harbour",))),
        ("/ships/dredger.md", (RowOutcome.OWNED, ("harbour",))),
        ("Compost Heap", (RowOutcome.OWNED, ("garden",))),
        ("Home", (RowOutcome.SEVERAL_WIKIS, ("harbour", "garden"))),
        ("Gone", (RowOutcome.NO_PAGE, ())),
        ("", (RowOutcome.NO_PAGE, ())),
    ],
)
def test_a_row_without_a_tenant_belongs_to_the_one_wiki_that_has_its_page(page: str, verdict: object) -> None:
    assert OwnershipResolver(PAGES, OwnershipRules()).resolve(None, page) == verdict


def test_the_first_matching_rule_decides_the_owner_of_a_page() -> None:
    owners = OwnershipResolver(PAGES, OwnershipRules((("ho*", "garden"), ("*", "harbour"))))
    assert owners.resolve(None, "Home") == (RowOutcome.OWNED, ("garden",))
    assert owners.resolve(None, "Ships/Dredger") == (RowOutcome.OWNED, ("harbour",))
    assert owners.resolve(None, "Compost Heap") == (RowOutcome.NO_PAGE, ())
    assert OwnershipResolver(PAGES, OwnershipRules((("Home", "-"),))).resolve(None, "home") == (RowOutcome.LEFT_OUT, ())


def test_a_tenant_is_the_wiki_of_that_name_or_the_mapped_one() -> None:
    owners = OwnershipResolver(PAGES, OwnershipRules(tenants={"t-17": "garden", "old": "-"}))
    assert owners.resolve("harbour", "Home") == (RowOutcome.OWNED, ("harbour",))
    assert owners.resolve("t-17", "Home") == (RowOutcome.OWNED, ("garden",))
    assert owners.resolve("t-17", "Ships/Dredger") == (RowOutcome.NO_PAGE, ())
    assert owners.resolve("old", "Home") == (RowOutcome.LEFT_OUT, ())
    assert owners.resolve("t-18", "Home") == (RowOutcome.UNKNOWN_TENANT, ())


def test_page_rules_do_not_apply_to_rows_with_a_tenant() -> None:
    assert OwnershipResolver(PAGES, OwnershipRules((("*", "garden"),))).resolve("harbour", "Home") == (
        RowOutcome.OWNED,
        ("harbour",),
    )


@pytest.mark.parametrize(
    ("row_id", "metadata", "expected"),
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
    row_id: str, metadata: object, expected: tuple[str, int | None]
) -> None:
    assert parse_row_id(row_id, metadata) == expected
