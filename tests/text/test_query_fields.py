"""Fields and OR in queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidQuery
from wikiholt.text.keyword_query import ParsedFields, find_plain_words, parse_fields


@pytest.mark.parametrize(
    "query",
    [
        "how do I oil a spade?",
        '"rear flap" -printer "steam button" coffee',
        "coffee OR tea",
        "weather in Portland OR",
        "TO BE OR NOT TO BE",
        "nginx:1.25 foo:bar std::sort tag: x path : y Tag:x",
        'an unclosed " quotation mark',
        "OR",
        "OR OR",
    ],
)
def test_a_query_without_fields_is_not_changed(query: str) -> None:
    assert parse_fields(query) == ParsedFields((query,), query)


@given(st.text(st.sampled_from("ab \"'-:OR+tag()”“"), max_size=30))
def test_any_query_is_parsed_or_refused_with_a_column_and_a_hint(query: str) -> None:
    refused: InvalidQuery | None = None
    try:
        fields = parse_fields(query)
        assert fields.branches
    except InvalidQuery as error:
        refused = error
    assert refused is None or ("at column " in refused.message and refused.hint)


def test_fields_become_filters() -> None:
    fields = parse_fields('oil tag:Tools -tag:"two words" path:/Tools/Hand title:spade the handle')
    assert fields.text.split() == ["oil", "the", "handle"]
    assert fields.branches == (fields.text,)
    assert fields.any_of == (
        (PageFilter(tags=("Tools",)),),
        (PageFilter(path_key="/tools/hand"),),
        (PageFilter(titles=("spade",)),),
    )
    assert fields.none_of == (PageFilter(tags=("two words",)),)


def test_or_joins_fields_and_phrases() -> None:
    fields = parse_fields("tag:a OR tag:b OR title:c soil")
    assert fields.any_of == ((PageFilter(tags=("a",)), PageFilter(tags=("b",)), PageFilter(titles=("c",))),)
    assert fields.branches[0].split() == ["soil"]
    fields = parse_fields('red "a b" OR "c d" blue OR "e f"')
    assert fields.branches == ('red "a b" "blue"', 'red "a b" "e f"', 'red "c d" "blue"', 'red "c d" "e f"')
    assert parse_fields('("a" OR "b")').branches == ('"(a")', '"b")')


@pytest.mark.parametrize(
    ("query", "column", "reason"),
    [
        ('soil tag:"two', 10, "quotation mark"),
        ('tag:""', 5, "empty"),
        ('"a b" OR', 7, "nothing after OR"),
        ('OR "a b"', 1, "nothing before OR"),
        ("x tag:a OR", 9, "nothing after OR"),
        ('"a b" OR OR "c d"', 7, "nothing after OR"),
        ('"a b" OR -c', 10, "exclusion"),
        ('"a b" OR tag:c', 10, "field"),
        ('"a" OR "b" x "c" OR "d" y "e" OR "f" z "g" OR "h"', 40, "more than 8 combinations"),
    ],
)
def test_a_syntax_error_names_the_column_and_gives_a_hint(query: str, column: int, reason: str) -> None:
    with pytest.raises(InvalidQuery, match=f"at column {column} ") as caught:
        parse_fields(query)
    assert reason in caught.value.message
    assert caught.value.hint


def test_the_words_of_fields_are_not_corrected() -> None:
    text = 'oil tag:tols title:"spad handl" handel'
    assert [text[start:end] for start, end in find_plain_words(text)] == ["oil", "handel"]


def test_very_many_alternatives_are_refused_at_once() -> None:
    with pytest.raises(InvalidQuery, match="more than 8 combinations"):
        parse_fields('"a" OR "b" ' * 150)
