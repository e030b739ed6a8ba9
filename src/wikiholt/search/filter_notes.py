"""Notes that explain a filter that no page passes, words of a query that look like a filter, and exclusions."""

import re
from collections.abc import Iterator, Sequence

from wikiholt.domain.page import Facets
from wikiholt.domain.search import Facet, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery
from wikiholt.search.keyword_channel import AllowedPages
from wikiholt.search.query import InterpretedQuery
from wikiholt.search.request import SearchRequest
from wikiholt.text.keyword_query import PHRASE_PATTERN, find_exclusions, find_long_options
from wikiholt.text.links import fold_path
from wikiholt.text.properties import parse_condition

_NO_FILTER = PageFilter()
_MAX_VALUES = 3
"""Values of a filter, and words of a query, that are explained."""
_MAX_WORD_CHARS = 100
_MAX_COMPARED = 1000
"""Known values that an unknown one is compared with; the most frequent ones."""
_MIN_SIMILARITY = 0.6
_QUOTATION_MARKS = '"“”„«»'
_PROPERTY_WORD = re.compile(r"(?:(?<=\s)|^)(?P<name>[^\W\d_][\w-]*):(?P<value>[^\s:/<>=!\"“”„«»][^\s\"“”„«»]*)")


class FilterNotes:
    """Explains the filters of one wiki. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, allowed_pages: AllowedPages) -> None:
        self._index = index
        self._allowed_pages = allowed_pages
        self._facets: tuple[int, Facets] | None = None

    def explain_empty(self, where: PageFilter, version: int) -> list[str]:
        """Why no page passes the filter: the values that no page has, each with a similar one. Empty if one passes."""
        if not where or not self._allowed_pages.is_empty(where, version):
            return []
        facets = self._get_facets(version)
        tags = [*where.tags, *(tag for group in where.any_of for part in group for tag in part.tags)]
        notes = [
            *_explain_values("tag", tags, facets.tags),
            *_explain_values("category", where.categories, facets.categories),
            *self._explain_prefix(where.path_prefix, facets, version),
        ]
        return notes or ["no page passes the filter"]

    def explain_words(self, text: str, version: int) -> list[str]:
        """How to filter by a property, for words such as `status:draft` that are not fields of the query language."""
        if ":" not in text:
            return []
        words = _PROPERTY_WORD.findall(PHRASE_PATTERN.sub(" ", text))[:_MAX_VALUES]
        return [
            f"{f'{name}:{value}'!r} was searched as words; to filter by this property, use where={name}={value}"
            f" (--where {name}={value})"
            for name, value in words
            if len(f"{name}{value}") <= _MAX_WORD_CHARS and self._is_property(name, version)
        ]

    def explain_exclusions(self, request: SearchRequest, interpreted: InterpretedQuery, version: int) -> list[str]:
        """How many pages the exclusions of the query left out, and how to read them, and options, the other way."""
        options = find_long_options(request.query)[:_MAX_VALUES]
        notes = [
            f"-{word} was searched as a word, because {command} is a program; to leave out pages with it, write"
            f' -"{word}"'
            for word, command in options
        ]
        count = self._allowed_pages.count_excluded(request, interpreted, version)
        if not count:
            return notes
        typed = [text[:_MAX_WORD_CHARS] for text in find_exclusions(request.query)[:_MAX_VALUES]]
        words = " ".join(text[1:] if text[1:2] in _QUOTATION_MARKS else f'"{text[1:]}"' for text in typed)
        pages = "1 page" if count == 1 else f"{count:,} pages"
        return [*notes, f"{' '.join(typed)} left out {pages}; to search for it instead, write {words}"]

    def _is_property(self, name: str, version: int) -> bool:
        """Whether a page has the property, with any value. The filter is the same for every value that is typed."""
        try:
            conditions = [parse_condition(f"{name}{operator}x") for operator in ("=", "!=")]
        except InvalidQuery:
            return False
        either = tuple(PageFilter(properties=(condition,)) for condition in conditions)
        return not self._allowed_pages.is_empty(PageFilter(any_of=(either,)), version)

    def _explain_prefix(self, prefix: str, facets: Facets, version: int) -> Iterator[str]:
        wanted = prefix.strip("/")
        if not wanted or not self._allowed_pages.is_empty(PageFilter(path_prefix=prefix), version):
            return
        _, pages = self._index.list_pages(PageFilter(path_key=fold_path(wanted)), 1, 0)
        if pages:
            spelling = "/".join(pages[0].path.split("/")[: wanted.count("/") + 1])
            case = " Case matters." if spelling.casefold() == wanted.casefold() else ""
            yield f"no page is at or below this path; did you mean {spelling!r}?{case}"
        else:
            yield "no page is at or below this path" + _suggest(wanted, facets.folders)

    def _get_facets(self, version: int) -> Facets:
        known = self._facets
        if known is None or known[0] != version:
            known = self._facets = (version, self._index.get_facets(_NO_FILTER))
        return known[1]


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
