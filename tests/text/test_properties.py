"""Conditions on frontmatter properties, and which properties of a page can be filtered by."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.domain.page import PageProperty
from wikiholt.errors import InvalidQuery
from wikiholt.text.frontmatter import split_frontmatter
from wikiholt.text.properties import CONDITION_PATTERN, iter_property_values, parse_condition


@pytest.mark.parametrize(
    ("text", "column", "hint"),
    [
        ("status", 7, "status=draft"),
        ("=draft", 1, "status=draft"),
        ("status=", 8, "status=draft"),
        ("status= ", 8, "status=draft"),
        ("status==draft", 8, "status=draft"),
        ("priority>high", 10, "a number"),
        ("due<2026-13-01", 5, "a date"),
    ],
)
def test_an_invalid_condition_names_the_column_and_gives_a_hint(text: str, column: int, hint: str) -> None:
    with pytest.raises(InvalidQuery, match=f"at column {column}:") as caught:
        parse_condition(text)
    assert hint in caught.value.hint


def test_names_and_values_are_folded() -> None:
    condition = parse_condition(" Due_Date  !=  Next   WEEK ")
    assert (condition.name, condition.operator, condition.text) == ("duedate", "!=", "next week")


@given(st.from_regex(re.compile(CONDITION_PATTERN), fullmatch=True))
def test_every_text_that_matches_the_published_pattern_is_a_condition(text: str) -> None:
    assert parse_condition(text).name


def test_values_are_numbers_dates_or_texts() -> None:
    values = iter_property_values(PageProperty("When", ("3.50", "2026-01-02", "1950-03-04T10:00+02:00", "1.2.3", "x")))
    assert [(value.number, value.date) for value in values] == [
        (3.5, None),
        (None, 1767312000.0),
        (None, -625766400.0),
        (None, None),
        (None, None),
    ]


def read_properties(text: str) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    front = split_frontmatter(f"---\n{text}\n---\nbody")
    return {item.name: item.values for item in front.metadata.properties}, front.warnings


def test_lists_and_nested_mappings_are_properties_and_empty_values_are_not() -> None:
    properties, warnings = read_properties("a: 1\nb: [x, '', ~, y z]\nc: {d: 2, e: [3]}\nf:\ng: null")
    assert properties == {"a": ("1",), "b": ("x", "y z"), "c.d": ("2",), "c.e": ("3",)}
    assert warnings == ()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("tags: a, b", ("a", "b")),
        ("Keywords: parental leave, , sick", ("parental leave", "sick")),
        ("location: Bern, Switzerland", ("Bern, Switzerland",)),
        ("tags: ['a, b', c]", ("a, b", "c")),
    ],
)
def test_a_text_with_commas_is_a_list_under_the_keys_of_lists(line: str, values: tuple[str, ...]) -> None:
    (found,) = split_frontmatter(f"---\n{line}\n---\n").metadata.properties
    assert found.values == values


def test_number_and_size_of_properties_are_limited() -> None:
    properties, warnings = read_properties("\n".join(f"p{i}: x" for i in range(150)))
    assert len(properties) == 100
    assert "only the first 100 properties" in warnings[0]
    properties, warnings = read_properties(f"long: {'x' * 501}\nshort: {'x' * 500}\n{'n' * 501}: x")
    assert (list(properties), warnings) == (["short"], ())


def test_aliases_boost_and_pins() -> None:
    front = split_frontmatter("---\naliases: [Old, ' Older  name ']\nalias: One\nboost: 2.5\npin: how to\n---\n")
    assert front.metadata.aliases == ("Old", "Older name", "One")
    assert (front.metadata.boost, front.metadata.pins, front.warnings) == (2.5, ("how to",), ())
    for bad in ("0", "11", "much", "[2]", "nan"):
        front = split_frontmatter(f"---\nboost: {bad}\n---\n")
        assert front.metadata.boost == 1.0
        assert "`boost` is not a number from 0.1 to 10" in front.warnings[0]
