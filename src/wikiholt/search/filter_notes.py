"""Notes that explain a filter that no page passes, words of a query that look like a filter, and exclusions."""

import re
from collections.abc import Iterator, Sequence

from wikiholt.domain.search import Facet, PageFilter
from wikiholt.errors import InvalidQuery
from wikiholt.search.candidates import count_excluded
from wikiholt.search.index_reader import IndexReader, IndexView
from wikiholt.search.query import Query
from wikiholt.text.keyword_query import PHRASE_PATTERN, find_exclusions, find_long_options
from wikiholt.text.links import fold_path
from wikiholt.text.properties import parse_condition

_MAX_VALUES = 3
"""Values of a filter, and words of a query, that are explained."""
_MAX_WORD_CHARS = 100
_MAX_COMPARED = 1000
"""Known values that an unknown one is compared with; the most frequent ones."""
_MIN_SIMILARITY = 0.6
_QUOTATION_MARKS = '"“”„«»'
_PROPERTY_WORD = re.compile(r"(?:(?<=\s)|^)(?P<name>[^\W\d_][\w-]*):(?P<value>[^\s:/<>=!\"“”„«»][^\s\"“”„«»]*)")


def explain_query(reader: IndexReader, query: Query, text: str) -> Iterator[str]:
    """Explain an empty filter, exclusions, and words of a query without its fields (`text`) that look like a filter."""
    yield from _explain_words(reader.view, text)
    yield from _explain_exclusions(reader, query)
    if query.has_no_page:
        yield from _explain_empty(reader.view, query.request.where)


def _explain_empty(view: IndexView, where: PageFilter) -> list[str]:
    """Why no page passes the filter: the values that no page has, each with a similar one. Empty if one passes."""
    if not where or not view.is_empty(where):
        return []
    tags = [*where.tags, *(tag for group in where.any_of for part in group for tag in part.tags)]
    notes = [
        *_explain_values("tag", tags, view.facets.tags),
        *_explain_values("category", where.categories, view.facets.categories),
        *_explain_prefix(view, where.path_prefix),
    ]
    return notes or ["no page passes the filter"]


def _explain_words(view: IndexView, text: str) -> list[str]:
    """How to filter by a property, for words such as `status:draft` that are not fields of the query language."""
    if ":" not in text:
        return []
    words = _PROPERTY_WORD.findall(PHRASE_PATTERN.sub(" ", text))[:_MAX_VALUES]
    return [
        f"{f'{name}:{value}'!r} was searched as words; to filter by this property, use where={name}={value}"
        f" (--where {name}={value})"
        for name, value in words
        if len(f"{name}{value}") <= _MAX_WORD_CHARS and _is_property(view, name)
    ]


def _explain_exclusions(reader: IndexReader, query: Query) -> list[str]:
    """How many pages the exclusions of the query left out, and how to read them, and options, the other way."""
    typed = query.request.query
    if "-" not in typed:
        return []
    options = find_long_options(typed)[:_MAX_VALUES]
    notes = [
        f'-{word} was searched as a word, because {command} is a program; to leave out pages with it, write -"{word}"'
        for word, command in options
    ]
    count = count_excluded(reader, query)
    if not count:
        return notes
    excluded = [text[:_MAX_WORD_CHARS] for text in find_exclusions(typed)[:_MAX_VALUES]]
    words = " ".join(text[1:] if text[1:2] in _QUOTATION_MARKS else f'"{text[1:]}"' for text in excluded)
    pages = "1 page" if count == 1 else f"{count:,} pages"
    return [*notes, f"{' '.join(excluded)} left out {pages}; to search for it instead, write {words}"]


def _is_property(view: IndexView, name: str) -> bool:
    """Whether a page has the property, with any value. The filter is the same for every value that is typed."""
    try:
        conditions = [parse_condition(f"{name}{operator}x") for operator in ("=", "!=")]
    except InvalidQuery:
        return False
    either = tuple(PageFilter(properties=(condition,)) for condition in conditions)
    return not view.is_empty(PageFilter(any_of=(either,)))


def _explain_prefix(view: IndexView, prefix: str) -> Iterator[str]:
    wanted = prefix.strip("/")
    if not wanted or not view.is_empty(PageFilter(path_prefix=prefix)):
        return
    _, pages = view.index.list_pages(PageFilter(path_key=fold_path(wanted)), 1, 0)
    if pages:
        spelling = "/".join(pages[0].path.split("/")[: wanted.count("/") + 1])
        case = " Case matters." if spelling.casefold() == wanted.casefold() else ""
        yield f"no page is at or below this path; did you mean {spelling!r}?{case}"
    else:
        yield "no page is at or below this path" + _suggest(wanted, view.facets.folders)


def _explain_values(label: str, values: Sequence[str], facets: Sequence[Facet]) -> Iterator[str]:
    known = {facet.value.casefold() for facet in facets}
    for value in dict.fromkeys(values[:_MAX_VALUES]):
        if value.casefold() not in known:
            yield f"no page has this {label}{_suggest(value, facets)}"


def _suggest(value: str, facets: Sequence[Facet]) -> str:
    """A question with the most similar value; empty if none is similar."""
    from wikiholt.text.comparison import find_close_matches  # noqa: PLC0415 - few searches need it

    by_key = {facet.value.casefold(): facet.value for facet in facets[:_MAX_COMPARED]}
    close = find_close_matches(value.casefold(), by_key, 1, _MIN_SIMILARITY)
    return f"; did you mean {by_key[close[0]]!r}?" if close else ""
