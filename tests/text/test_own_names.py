"""The names under which a page is found first, and the form in which they are compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.text.bm25 import fold_name, make_name_term, make_name_terms


@pytest.mark.parametrize(
    "text",
    [
        "getting-started",
        "Getting_Started.md",
        "getting started",
        " GETTING/started ",
        "Gétting–started",
        "getting.started",
    ],
)
def test_names_are_equal_without_case_accents_separators_and_extension(text: str) -> None:
    assert fold_name(text) == "getting started"


@pytest.mark.parametrize(
    ("one", "other"), [("gardening", "garden"), ("C", "C++"), ("C#", "C"), ("limits", "limit"), ("a b", "ab")]
)
def test_other_names_are_not_equal(one: str, other: str) -> None:
    assert make_name_term(one) != make_name_term(other)


def test_a_page_has_each_of_its_names_once() -> None:
    terms = make_name_terms("Set up", "guides/set-up", ("Installation", "set_up.md", "—"))
    assert terms == [make_name_term(name) for name in ("Set up", "guides/set-up", "Installation")]


@given(st.text(max_size=50))
def test_the_term_of_any_name_is_one_token_of_every_store(text: str) -> None:
    term = make_name_term(text)
    assert bool(term) == bool(fold_name(text))
    assert not term or (len(term.encode()) == 22 and term.split() == [term])
