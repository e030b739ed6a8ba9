"""Fields, weights and BM25 formulas of the keyword index, and the terms of a page and of its names; the same in every
store."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from wikiholt.domain.page import Page, PageTerms
from wikiholt.text.analysis import get_analyser, remove_url_schemes, split_languages, strip_accents
from wikiholt.text.language_names import find_language
from wikiholt.text.languages import detect_language
from wikiholt.text.page_names import is_code, strip_page_extension
from wikiholt.text.source_lines import to_code_words

FIELD_WEIGHTS: tuple[float, float, float] = (5.0, 2.0, 1.0)
"""Name, headings, body."""

K1 = 1.2
B = 0.75
"""BM25 constants; equal to those of FTS5, so that a cache computes the same scores as the store."""

PREFIX_WEIGHT = 0.5
"""Weight of a page that matches only a word that begins with the last word of the query."""

RELATED_TERM_WEIGHTS = (0.5, 0.2)
"""Weights of compounds that end with a word of the query and of parts of a compound in the query; and of compounds that
begin with a word of the query."""

JOINERS = "\u200c\u200d"
"""Zero-width joiners, which some scripts write inside words; FTS5 splits at them."""
_JOINERS_TO_SPACES = str.maketrans(dict.fromkeys(JOINERS, " "))


def split_terms(text: str) -> list[str]:
    """The terms of a field, split as FTS5 does."""
    return text.split() if text.isascii() else text.translate(_JOINERS_TO_SPACES).split()


def pad_terms(text: str) -> str:
    """The terms of a field with a space before each and at the end, in which `count_phrase` searches."""
    return f" {' '.join(split_terms(text))} "


def count_phrase(fields: Iterable[str], phrase: str) -> int:
    """The weighted count of a padded phrase in the padded fields of a page. Occurrences may overlap."""
    total = 0
    for field, weight in zip(fields, FIELD_WEIGHTS, strict=True):
        position = field.find(phrase)
        while position >= 0:
            total, position = total + int(weight), field.find(phrase, position + 1)
    return total


def count_weighted_terms(page_terms: PageTerms) -> tuple[dict[str, float], int]:
    """The count of each term of a page, weighted by field, and the total number of terms."""
    counts: dict[str, float] = {}
    length = 0
    for text, weight in zip(page_terms.fields, FIELD_WEIGHTS, strict=True):
        terms = split_terms(text)
        length += len(terms)
        for term, count in Counter(terms).items():
            counts[term] = counts.get(term, 0.0) + count * weight
    return counts, length


def compute_idf(pages: int, matching_pages: int) -> float:
    """The inverse document frequency by FTS5's formula, which is never zero.

    `matching_pages` may be of a newer version, with pages that `pages` does not count yet.
    """
    value = math.log((max(pages - matching_pages, 0) + 0.5) / (matching_pages + 0.5))
    return value if value > 0 else 1e-6


def compute_max_score(pages: int, matching_pages: int) -> float:
    """The most that a term can add to a page's BM25 score."""
    return compute_idf(pages, matching_pages) * (K1 + 1)


# Terms of pages. Terms contain no white space; every store indexes the same ones.

_LINK_TARGET = re.compile(r"\]\([^()\s]*+(?>(?:\([^()\s]*+\)[^()\s]*+){0,9999})")


def to_terms(text: str, language: str = "english") -> list[str]:
    """The terms of a text, in order: lower case, no accents, stemmed; identifiers in full and in parts; CJK bigrams."""
    return get_analyser(language).to_terms(text)


def detect_page_language(page: Page, language: str) -> str:
    """The language of a page: the one that it declares; else the one that its text clearly shows; else the main one of
    its wiki."""
    declared = find_language(page.metadata.language) if page.metadata.language else None
    return declared or detect_language(page.body, split_languages(language))


def get_stemming_language(page_language: str, language: str) -> str:
    """The language to stem a page in: its own, or the main one of its wiki if queries are not read in its own."""
    languages = split_languages(language)
    return page_language if page_language in languages else languages[0]


def build_page_terms(page: Page, language: str = "english") -> PageTerms:
    """The keyword index fields of a page, stemmed in the page's own language if its wiki has several.

    Each field contains its terms in order and then, once each, the words that differ from their stems, so that any
    prefix of a word finds it. `name` covers name, path, tags and aliases, and ends with the terms of the page's
    own names; `body` is the description and the text without link targets.
    """
    page_language = get_stemming_language(detect_page_language(page, language), language)
    body = _LINK_TARGET.sub("]", page.body) if "](" in page.body else page.body
    if is_code(page.file):
        body = to_code_words(page.body)
    return PageTerms(
        name=build_name_terms(page.name, page.path, page.metadata.tags, page.metadata.aliases, page_language),
        headings=_build_field("\n".join(heading.text for heading in page.headings), page_language),
        body=_build_field(f"{page.metadata.description or ''}\n{remove_url_schemes(body)}", page_language),
    )


def build_name_terms(name: str, path: str, tags: Iterable[str], aliases: Sequence[str], language: str) -> str:
    """The field `name` of a page in one language."""
    words = _build_field("\n".join((name, path.replace("/", "\n"), *tags, *aliases)), language)
    return " ".join(filter(None, (words, *make_name_terms(name, path, aliases))))


def _build_field(text: str, language: str) -> str:
    return get_analyser(language).to_field_text(text)


# The names under which a page is found first: title, file, path and aliases, each as one term.

_SEPARATORS = re.compile("[\\s_/.\\-\u2010-\u2015]+")
NAME_MARK = "\ue000"
"""A character that is part of no word, before and after a name: no other term has the same beginning or end."""


def fold_name(text: str) -> str:
    """The form in which names and queries are compared: without case, accents, extension and kind of separators."""
    return _SEPARATORS.sub(" ", strip_accents(strip_page_extension(text.strip()))).strip()


def make_name_term(text: str) -> str:
    """The term of a name in the keyword index; empty if the name has nothing but separators."""
    folded = fold_name(text)
    # A hash, because the stores split some characters of names, and limit the length of terms.
    digest = blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{NAME_MARK}{digest}{NAME_MARK}" if folded else ""


def make_name_terms(name: str, path: str, aliases: Iterable[str]) -> list[str]:
    """The terms of a page's names, each once."""
    terms = map(make_name_term, (name, path, path.rpartition("/")[2], *aliases))
    return list(dict.fromkeys(filter(None, terms)))
