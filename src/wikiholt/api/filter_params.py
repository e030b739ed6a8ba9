"""The page filters that HTTP, MCP and the command line share, each declared once.

HTTP builds its query parameters from the declarations, MCP its arguments, and the command line its options. A new
filter is a field of `PageFilter` and an entry of `FILTER_PARAMS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wikiholt.domain.dates import parse_since
from wikiholt.domain.search import PageFilter
from wikiholt.text.language_names import parse_language
from wikiholt.text.properties import CONDITION_PATTERN, parse_condition


@dataclass(frozen=True, slots=True)
class FilterParam:
    """One filter. `field` is the field of PageFilter; `parse` converts a single value to it, or raises InvalidQuery."""

    field: str
    name: str
    """The name of the query parameter, and of the argument of agents."""
    description: str
    option: str
    metavar: str
    help: str
    is_list: bool = False
    parse: Callable[[str], Any] | None = None
    is_date: bool = False
    alias: str = ""
    """Another name of the query parameter."""
    pattern: str = ""
    """A pattern of valid values, for the OpenAPI document."""


FILTER_PARAMS = (
    FilterParam(
        "tags",
        "tag",
        description="Only pages with all these tags.",
        option="--tag",
        metavar="TAG",
        help="only with this tag; repeatable",
        is_list=True,
    ),
    FilterParam(
        "categories",
        "category",
        description="Only pages in these categories.",
        option="--category",
        metavar="NAME",
        help="only in this category; repeatable",
        is_list=True,
    ),
    FilterParam(
        "path_prefix",
        "prefix",
        description="Only pages at or below this path, in the same case.",
        option="--path",
        metavar="PREFIX",
        help="only pages at or below this path",
    ),
    FilterParam(
        "updated_since",
        "since",
        description="Only pages changed since: 2026-05-31, yesterday, 7d.",
        option="--since",
        metavar="WHEN",
        help="only pages updated since a date (2024-05-31), yesterday, 7d, 12h, 3w or '2 weeks ago'",
        parse=parse_since,
        is_date=True,
        alias="updated_since",
    ),
    FilterParam(
        "properties",
        "where",
        description="Only pages whose frontmatter matches all: status=draft, priority>=3, due<2026-01-01.",
        option="--where",
        metavar="CONDITION",
        help="only pages whose frontmatter matches: status=draft, 'priority>=3', 'due<2026-01-01'; repeatable",
        is_list=True,
        parse=parse_condition,
        pattern=CONDITION_PATTERN,
    ),
    FilterParam(
        "languages",
        "language",
        description="Only pages in these languages: de.",
        option="--language",
        metavar="NAME",
        help="only pages in this language: de, german; repeatable",
        is_list=True,
        parse=parse_language,
    ),
)


def build_filter(get_value: Callable[[FilterParam], Any]) -> PageFilter:
    """Build the filter from the value of each parameter; None leaves its field out.

    Text is parsed. Raises InvalidQuery.
    """
    fields: dict[str, Any] = {}
    for param in FILTER_PARAMS:
        value = get_value(param)
        if value is None:
            continue
        if param.is_list:
            value = tuple(map(param.parse, value) if param.parse else value)
        elif param.parse is not None and isinstance(value, str):
            value = param.parse(value)
        fields[param.field] = value
    return PageFilter(**fields)
