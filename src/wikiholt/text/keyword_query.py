"""Parses queries: words, "quoted phrases", -word, -"a phrase", +word, `tag:`, `path:`, `title:`, `lang:`, OR; and their
spelling variants. A hyphen excludes a word unless it begins an option: `--word`, one
letter (`-i`), also with digits (`-j4`), a number up to 999, or any word after the name of a program (`ls -la`).
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise, product
from math import prod

from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import InvalidQuery
from wikiholt.text.analysis import (
    TOKEN_PATTERN,
    Analyser,
    find_identifiers,
    get_analyser,
    iter_script_runs,
    normalize_term,
    split_languages,
)
from wikiholt.text.command_names import find_command
from wikiholt.text.language_names import parse_language
from wikiholt.text.languages import get_stopword_text
from wikiholt.text.links import fold_path
from wikiholt.text.segmentation import CJK_RANGES

MAX_QUERY_CHARS = 2_000
_MAX_TERMS = 64
PHRASE_PATTERN = re.compile(r"""(?:(?<=\s)|^)(-?)["“”„«]([^"“”„«»]*)["“”»]""")
FIELD_PATTERN = re.compile(
    r"""(?:(?<=\s)|^)(?P<minus>-?)(?P<name>tag|path|title|lang):(?P<value>["“”„«][^"“”„«»]*["“”»]?|[^\s"“”„«»]\S*)"""
)
_HYPHENATED_WORD_PATTERN = re.compile(rf"(?:(?<=\s)|^)-(?![A-Za-z]?\d{{1,3}}(?!\w))(?=[^\W_]{{2}}|[{CJK_RANGES}])(\S+)")
_MIN_LONG_OPTION = 4
_PLUS_PATTERN = re.compile(r"(?<![\w+])\+(?=[^\W\d_])")


def parse_query(text: str, language: str = "english") -> KeywordQuery:
    """Analyse a query. Never raises; a query without words is falsy.

    With several languages, the terms are those of the first; stopwords of another language are removed if the query
    has at least two of them.

    A store matches pages that contain any of `terms`, or any term that begins with `prefix`; every phrase must occur
    and no excluded one. `prefix` is the last word as typed, not stemmed; its stem is among `terms`. So "running" finds
    run, and "kuber" finds kubernetes: `build_page_terms` indexes stems and, once per field, the words as written.
    """
    analyser = get_analyser(language)
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    rest = text[:MAX_QUERY_CHARS]

    def take_phrase(match: re.Match[str]) -> str:
        (excluded if match[1] else phrases).append(tuple(analyser.to_terms(match[2]))[:_MAX_TERMS])
        return " \x00 "

    def take_excluded(word: str) -> str:
        excluded.append(tuple(analyser.to_terms(word))[:_MAX_TERMS])
        return " \x00 "

    rest = _replace_excluded(PHRASE_PATTERN.sub(take_phrase, rest), take_excluded)
    terms = tuple(dict.fromkeys(analyser.to_terms(rest)))
    main_language, *other_languages = split_languages(language)
    foreign = (_find_foreign_stopwords(terms, main_language, other) for other in other_languages)
    stop_terms = get_stop_terms(main_language).union(*foreign)
    significant = tuple(term for term in terms if term not in stop_terms)
    kept_phrases = _drop_empty(phrases)
    if not significant and not kept_phrases:
        significant = terms
    return KeywordQuery(
        terms=significant[:_MAX_TERMS],
        phrases=kept_phrases,
        excluded=_drop_empty(excluded),
        prefix=_get_prefix(rest, analyser, frozenset(significant)),
    )


def blank_operators(text: str) -> str:
    """A query's text with quoted and excluded parts and fields blanked out, at the same length."""

    without_fields = FIELD_PATTERN.sub(_blank, text[:MAX_QUERY_CHARS])
    return _replace_excluded(PHRASE_PATTERN.sub(_blank, without_fields), lambda word: "\x00" * (len(word) + 1))


def find_exclusions(text: str) -> list[str]:
    """The excluded words and phrases of a query as typed."""
    phrases = [match[0] for match in PHRASE_PATTERN.finditer(text) if match[1]]
    return [*phrases, *(f"-{text[start:end]}" for start, end in _find_excluded_words(text))]


def find_long_options(text: str) -> list[tuple[str, str]]:
    """The options of a query, without hyphens, that may be meant as exclusions, each with the program before it."""
    words = ((text[start:end], command) for start, end, command in _iter_hyphenated_words(text))
    return [(word, command) for word, command in words if command and word.isalpha() and len(word) >= _MIN_LONG_OPTION]


def _find_excluded_words(text: str) -> list[tuple[int, int]]:
    """The spans of the excluded words, without their hyphens."""
    return [(start, end) for start, end, command in _iter_hyphenated_words(text) if not command]


def _iter_hyphenated_words(text: str) -> Iterator[tuple[int, int, str]]:
    """The span of each word after a hyphen, not in quotation marks, and the program whose option it is, or ""."""
    unquoted = PHRASE_PATTERN.sub(_blank, text)
    for match in _HYPHENATED_WORD_PATTERN.finditer(unquoted):
        yield *match.span(1), find_command(unquoted[: match.start()])


def _replace_excluded(text: str, replace_word: Callable[[str], str]) -> str:
    """The text with each excluded word and its hyphen replaced."""
    parts: list[str] = []
    position = 0
    for start, end in _find_excluded_words(text):
        parts += text[position : start - 1], replace_word(text[start:end])
        position = end
    return "".join((*parts, text[position:]))


def _blank(match: re.Match[str]) -> str:
    return "\x00" * len(match[0])


def find_plain_words(text: str) -> list[tuple[int, int]]:
    """The spans of the words of a query that are neither quoted nor excluded."""
    return [match.span() for match in TOKEN_PATTERN.finditer(blank_operators(text))]


def get_significant_tokens(text: str, query: KeywordQuery, language: str = "english") -> list[str]:
    """The words of a query, as typed, that the query's terms come from; not those of phrases."""
    analyser, terms = get_analyser(language), frozenset(query.terms)
    tokens = dict.fromkeys(text[start:end] for start, end in find_plain_words(text)[:_MAX_TERMS])
    return [token for token in tokens if terms.intersection(analyser.get_token_terms(token))]


def get_significant_terms(text: str, language: str = "english") -> frozenset[str]:
    """The terms of a name (not a query) without stopwords, unless it has nothing else."""
    terms = frozenset(get_analyser(language).to_terms(text))
    return terms - get_stop_terms(split_languages(language)[0]) or terms


def to_plain_query(text: str) -> str:
    """The query as a sentence for a model: without excluded parts, quotation marks, and + before words."""

    def remove_quotes(match: re.Match[str]) -> str:
        return " " if match[1] else f" {match[2]} "

    unquoted = PHRASE_PATTERN.sub(remove_quotes, _replace_excluded(text, lambda _: " "))
    return " ".join(_PLUS_PATTERN.sub("", unquoted).split()) or text


def _get_prefix(rest: str, analyser: Analyser, significant: frozenset[str]) -> str:
    """The last word if it may still be incomplete; never a removed stopword."""
    if not rest or rest[-1].isspace():
        return ""
    tokens = TOKEN_PATTERN.findall(rest)
    if not tokens or not significant.intersection(analyser.get_token_terms(tokens[-1])):
        return ""
    is_unspaced, last, _ = [*iter_script_runs(unicodedata.normalize("NFKC", tokens[-1]))][-1]
    if is_unspaced:
        return last[-2:]
    prefix = normalize_term(last.strip("_.-·"))
    return prefix if len(prefix) >= 2 else ""


@cache
def get_stop_terms(language: str, other: str = "") -> frozenset[str]:
    """The stopwords of a language, or of another one, as terms of this language."""
    return frozenset(get_analyser(language).to_terms(get_stopword_text(other or language)))


def _find_foreign_stopwords(terms: Iterable[str], language: str, other: str) -> frozenset[str]:
    """Stopwords of another language, stemmed in this one, if the query has two that are not stopwords of this one."""
    stop_terms = get_stop_terms(language, other) - get_stop_terms(language)
    return stop_terms if len(stop_terms.intersection(terms)) >= 2 else frozenset()


def _drop_empty(phrases: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(phrase for phrase in phrases if phrase))


# Query variants: a query analysed in each language of its wiki, and in other spellings. Each variant is scored against
# its own best possible score, and a page counts by its best variant, so an ambiguous word is not counted twice.


_MAX_VARIANTS = 8
_ACCENT_MARKS = re.compile("[\u0300-\u036f]+")
_UMLAUT_SPELLINGS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}
) | (str.maketrans({"Ø": "Oe", "Å": "Aa"}))
_UMLAUT_LANGUAGES = frozenset(("danish", "finnish", "german", "norwegian", "swedish"))
_SPELLED_UMLAUT = re.compile("([aou])e|(a)a", re.IGNORECASE)
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_PARTICLES = frozenset("을를이가은는에의도만와과로")
"""Korean particles. A noun of one syllable with a particle is a bigram that no other form of the noun has."""


@dataclass(frozen=True, slots=True)
class QueryVariant:
    """A query as analysed in one language."""

    language: str
    query: KeywordQuery


@lru_cache(maxsize=256)
def build_query_variants(text: str, language: str) -> tuple[QueryVariant, ...]:
    """The variants of a query that differ in their terms; the wiki's main language and the text as typed come first."""
    languages, text = split_languages(language), text[:MAX_QUERY_CHARS]
    variants: dict[tuple[object, ...], QueryVariant] = {}
    for main_language in languages:
        ordered_languages = "+".join((main_language, *(other for other in languages if other != main_language)))
        for spelling in _iter_spellings(text, main_language):
            query = parse_query(spelling, ordered_languages)
            variants.setdefault((query.terms, query.phrases), QueryVariant(main_language, query))
    kept = [*variants.values()][:_MAX_VARIANTS]
    # A phrase excluded in one variant is excluded in all.
    excluded = tuple(dict.fromkeys(phrase for variant in kept for phrase in variant.query.excluded))
    return tuple(replace(variant, query=replace(variant.query, excluded=excluded)) for variant in kept)


def find_query_identifiers(text: str) -> tuple[str, ...]:
    """Identifiers in a query as single terms, which pages may have besides their parts."""
    return tuple(dict.fromkeys(find_identifiers(blank_operators(text))))


def find_korean_nouns(text: str, query: KeywordQuery, language: str) -> tuple[str, ...]:
    """Korean nouns of one syllable in a query, without their particles."""
    runs = (run for token in get_significant_tokens(text, query, language) for run in _HANGUL.findall(token))
    return tuple(dict.fromkeys(run[0] for run in runs if len(run) == 2 and run[1] in _PARTICLES))


def _iter_spellings(text: str, language: str) -> Iterator[str]:
    """The text as it is, without accents, and with ä as ae or the reverse in languages that do so."""
    yield text
    if not text.isascii():
        yield unicodedata.normalize("NFC", _ACCENT_MARKS.sub("", unicodedata.normalize("NFD", text)))
    if language in _UMLAUT_LANGUAGES:
        yield unicodedata.normalize("NFC", text).translate(_UMLAUT_SPELLINGS)
        yield _SPELLED_UMLAUT.sub(lambda match: match[1] or match[2], text)


# Fields and OR. A word with another name before the colon, such as `nginx:1.25`, is an ordinary word, and so is OR
# between two words: a search finds pages with any of the words anyway.


MAX_BRANCHES = 8
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
        return self.kind in ("tag", "path", "title", "lang")


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
    if item.kind == "lang":
        return PageFilter(languages=(parse_language(item.value),))
    if item.kind == "path":
        return PageFilter(path_key=fold_path(item.value))
    raise ValueError(f"no filter for the field {item.kind}")


def _expand(query: str, blanks: Sequence[_Replacement], groups: Sequence[Sequence[_Item]]) -> Iterator[str]:
    """The query once for each combination of alternatives, each as a phrase, and without fields."""
    if prod(map(len, groups)) > MAX_BRANCHES:
        hint = f"use OR for at most {MAX_BRANCHES} combinations"
        raise _make_error(query, groups[-1][0].start, f"OR makes more than {MAX_BRANCHES} combinations", hint)
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
