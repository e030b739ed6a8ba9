"""The operators of the query language besides words and phrases: `tag:`, `path:`, `title:` and OR.

A word with another name before the colon, such as `nginx:1.25`, is an ordinary word, and so is OR between two words:
a search finds pages with any of the words anyway.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from math import prod

from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidQuery
from wikiholt.text.keyword_query import FIELD_PATTERN, MAX_QUERY_CHARS, PHRASE_PATTERN
from wikiholt.text.links import fold_path

_MAX_BRANCHES = 8
_WORD_PATTERN = re.compile(r"\S+")
_QUOTATION_MARKS = '"“”„«»'
_WITHOUT_QUOTATION_MARKS = str.maketrans(dict.fromkeys(_QUOTATION_MARKS))
_OPERATOR = "OR"

_Replacement = tuple[int, int, str]
"""The start and end of a part of a query, and the text that replaces it."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A part of a query: a word, a phrase or a field, and its position."""

    start: int
    end: int
    kind: str
    """`word`, `phrase` or the name of the field."""
    value: str
    is_excluded: bool = False

    @property
    def is_field(self) -> bool:
        return self.kind in ("tag", "path", "title")


@dataclass(frozen=True, slots=True)
class ParsedFields:
    """A query without its fields. `branches` are the texts that OR makes of it; a page matches one of them."""

    branches: tuple[str, ...]
    text: str
    any_of: tuple[tuple[PageFilter, ...], ...] = ()
    none_of: tuple[PageFilter, ...] = ()

    def add_to(self, where: PageFilter) -> PageFilter:
        """The filter with the conditions of the fields."""
        if not self.any_of and not self.none_of:
            return where
        return replace(where, any_of=where.any_of + self.any_of, none_of=where.none_of + self.none_of)


@lru_cache(maxsize=256)
def parse_fields(query: str) -> ParsedFields:
    """Parse the fields and alternatives of a query. Raises InvalidQuery, which says at which column it is wrong."""
    query = query[:MAX_QUERY_CHARS]
    items = list(_iter_items(query))
    groups = list(_iter_groups(query, items))
    alternatives = [group for group in groups if len(group) > 1 and not group[0].is_field]
    fields = [group for group in groups if group[0].is_field]
    if not fields and not alternatives:
        return ParsedFields((query,), query)
    blanks = [(group[0].start, group[-1].end, " ") for group in fields]
    return ParsedFields(
        tuple(_expand(query, blanks, alternatives)),
        _replace_parts(query, blanks),
        tuple(tuple(map(_to_filter, group)) for group in fields if not group[0].is_excluded),
        tuple(_to_filter(group[0]) for group in fields if group[0].is_excluded),
    )


def _iter_items(query: str) -> Iterator[_Item]:
    position = 0
    while word := _WORD_PATTERN.search(query, position):
        start = word.start()
        if field := FIELD_PATTERN.match(query, start):
            value = field["value"]
            if value[0] in _QUOTATION_MARKS:
                value = _unquote(query, field)
            yield _Item(start, field.end(), field["name"], value, bool(field["minus"]))
            position = field.end()
        elif phrase := PHRASE_PATTERN.match(query, start):
            yield _Item(start, phrase.end(), "phrase", phrase[2], bool(phrase[1]))
            position = phrase.end()
        else:
            yield _Item(start, word.end(), "word", word[0], word[0].startswith("-"))
            position = word.end()


def _unquote(query: str, field: re.Match[str]) -> str:
    name, value = field["name"], field["value"]
    if len(value) > 1 and value[-1] in _QUOTATION_MARKS and value[1:-1].strip():
        return value[1:-1]
    is_closed = len(value) > 1 and value[-1] in _QUOTATION_MARKS
    reason = "the value is empty" if is_closed else "the quotation mark is not closed"
    raise _make_error(query, field.start("value"), reason, f'write {name}:word or {name}:"two words"')


def _iter_groups(query: str, items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """Fields and phrases, each alone or together with the alternatives that OR joins to it."""
    used: set[int] = set()
    for number, item in enumerate(items):
        if number in used or _is_operator(item):
            continue
        group = [number]
        while _is_alternative(items, group[-1]):
            group.append(group[-1] + 2)
        if any(items[i].kind != "word" for i in group):
            used.update(group)
            members = [items[i] for i in group]
            _check_group(query, members)
            yield members
    _check_operators(query, items)


def _is_operator(item: _Item) -> bool:
    return item.kind == "word" and item.value == _OPERATOR


def _is_alternative(items: Sequence[_Item], number: int) -> bool:
    """Whether OR and another operand follow."""
    return len(items) > number + 2 and _is_operator(items[number + 1]) and not _is_operator(items[number + 2])


def _check_group(query: str, group: Sequence[_Item]) -> None:
    for first, second in pairwise(group):
        if first.is_excluded or second.is_excluded:
            excluded = first if first.is_excluded else second
            raise _make_error(query, excluded.start, "OR cannot join an exclusion", "leave out OR, or the minus sign")
        if first.is_field != second.is_field:
            hint = "join words and phrases, or fields, but not both: tag:a OR tag:b"
            raise _make_error(query, second.start, "OR cannot join a field with words", hint)


def _check_operators(query: str, items: Sequence[_Item]) -> None:
    """Raise InvalidQuery for an OR beside a phrase or a field that has no operand on its other side."""
    for number, item in enumerate(items):
        if not _is_operator(item):
            continue
        before, after = items[number - 1] if number else None, items[number + 1] if number + 1 < len(items) else None
        neighbours = [other for other in (before, after) if other is not None and not _is_operator(other)]
        if len(neighbours) < 2 and any(other.kind != "word" for other in neighbours):
            side = "before" if before is None or _is_operator(before) else "after"
            hint = 'write "one phrase" OR "another phrase"; quote "OR" to search for the word'
            raise _make_error(query, item.start, f"there is nothing {side} OR", hint)


def _to_filter(item: _Item) -> PageFilter:
    if item.kind == "tag":
        return PageFilter(tags=(item.value,))
    if item.kind == "title":
        return PageFilter(titles=(item.value,))
    if item.kind == "path":
        return PageFilter(path_key=fold_path(item.value))
    raise ValueError(f"no filter for the field {item.kind}")


def _expand(query: str, blanks: Sequence[_Replacement], groups: Sequence[Sequence[_Item]]) -> Iterator[str]:
    """The query once for each combination of alternatives, each as a phrase, and without fields."""
    if prod(map(len, groups)) > _MAX_BRANCHES:
        hint = f"use OR for at most {_MAX_BRANCHES} combinations"
        raise _make_error(query, groups[-1][0].start, f"OR makes more than {_MAX_BRANCHES} combinations", hint)
    spans = [(group[0].start, group[-1].end) for group in groups]
    for chosen in product(*groups):
        phrases = [f'"{item.value.translate(_WITHOUT_QUOTATION_MARKS)}"' for item in chosen]
        parts = [(start, end, phrase) for (start, end), phrase in zip(spans, phrases, strict=True)]
        yield _replace_parts(query, [*blanks, *parts])


def _replace_parts(query: str, parts: Sequence[_Replacement]) -> str:
    for start, end, text in sorted(parts, reverse=True):
        query = query[:start] + text + query[end:]
    return query


def _make_error(query: str, index: int, reason: str, hint: str) -> InvalidQuery:
    shown = query[index : index + 40]
    return InvalidQuery(f"the query is invalid at column {index + 1} ({shown!r}): {reason}", hint=hint)
