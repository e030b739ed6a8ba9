"""A page filter is declared once; HTTP, MCP and the command line offer it."""

from datetime import UTC, datetime

import pytest

from wikiholt.api.filter_params import FILTER_PARAMS, build_filter
from wikiholt.api.operations.search import SearchParameters
from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidQuery
from wikiholt.interfaces.cli.parser import build_parser
from wikiholt.interfaces.mcp.tools import get_tools
from wikiholt.text.properties import parse_condition

CONDITIONS = ["status=draft", "priority>=3"]
WANTED = PageFilter(
    ("Ops", "Dev"),
    ("a", "b"),
    "runbooks",
    datetime(2026, 5, 31, tzinfo=UTC),
    tuple(map(parse_condition, CONDITIONS)),
    ("german", "japanese"),
)


def test_every_interface_builds_the_same_filter() -> None:
    values = {"q": "x", "tag": ["a", "b"], "category": ["Ops", "Dev"], "since": "2026-05-31", "where": CONDITIONS}
    values["language"] = ["de-AT", "日本語"]
    assert SearchParameters.model_validate({**values, "prefix": "runbooks"}).to_filter() == WANTED
    assert SearchParameters.model_validate({**values, "path": "runbooks"}).to_filter() == WANTED
    arguments = {"query": "x", "tag": ["a", "b"], "category": ["Ops", "Dev"], "prefix": "runbooks", "where": CONDITIONS}
    arguments["language"] = values["language"]
    call = get_tools()["search"].parse({**arguments, "since": "2026-05-31"}, 1000)
    assert call.parameters.to_filter() == WANTED
    line = "search w x --tag a --tag b --category Ops --category Dev --path runbooks --since 2026-05-31"
    line += " --language de --language Japanese"
    options = build_parser().parse_args([*line.split(), *(part for text in CONDITIONS for part in ("--where", text))])
    assert build_filter(lambda param: getattr(options, param.option.removeprefix("--"))) == WANTED


def test_every_filter_is_declared() -> None:
    by_query_language = {"titles", "path_key", "any_of", "none_of"}
    assert {param.field for param in FILTER_PARAMS} == set(PageFilter.__slots__) - by_query_language
    assert {param.name for param in FILTER_PARAMS} <= SearchParameters.model_fields.keys()
    assert {param.name for param in FILTER_PARAMS} <= get_tools()["search"].parameter_names.keys()


def test_nothing_given_is_an_empty_filter_and_an_empty_date_is_refused() -> None:
    assert SearchParameters.model_validate({"q": "x"}).to_filter() == PageFilter()
    with pytest.raises(InvalidQuery, match="is not a date"):
        build_filter(lambda param: "" if param.field == "updated_since" else None)


def test_a_language_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="'xx' is not a known language"):
        SearchParameters.model_validate({"q": "x", "language": "xx"}).to_filter()
