"""Interprets the text of a query: terms for keyword search, a sentence for the model."""

import logging
import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TypeVar

from wikiholt.domain.index import IntArray
from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import DatabaseUnavailable, InvalidQuery
from wikiholt.search.ranking import QueryShape, make_query_shape
from wikiholt.search.request import SearchRequest
from wikiholt.search.spell_check import SpellingCorrector
from wikiholt.text.analysis import TOKEN_PATTERN
from wikiholt.text.bm25 import RELATED_TERM_WEIGHT, compute_max_score
from wikiholt.text.compounds import find_related_terms, has_compounds
from wikiholt.text.keyword_query import (
    QueryVariant,
    build_query_variants,
    find_korean_nouns,
    find_query_identifiers,
    get_significant_tokens,
    to_plain_query,
)
from wikiholt.text.query_fields import parse_fields

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

MIN_ONLY_TERM_WEIGHT = 0.25
"""The part of a query that a term, or two terms in a row, must be to count in full on the only page that has them:
about one word of four.

In a long question, a word that one page has by chance would make that page too likely. See docs/adr/0046.
"""


@dataclass(frozen=True, slots=True)
class KeywordScores:
    """The keyword scores of one index. `page_count` is its number of pages."""

    search: Callable[[KeywordQuery], Sequence[KeywordHit]]
    get_max_score: Callable[[KeywordQuery], float]
    find_page_ids: Callable[[KeywordQuery], IntArray]
    """Finds the pages with all phrases of a query."""
    page_count: int

    def compute_shares(self, query: KeywordQuery, identifiers: Sequence[str] = ()) -> dict[int, float]:
        """Page id → share of the best possible score, best first.

        In a short query a term that no other page has counts in full. Otherwise it would count little on a long page,
        and pages without it would be ranked higher. In a longer query two such terms count if they are next to each
        other, in the query and on the page.
        """
        # The store treats the last term as possibly unfinished.
        terms = (*identifiers, *query.terms)
        scores = {hit.page_id: hit.score for hit in self.search(replace(query, terms=terms))}
        if not scores:
            return {}
        best = self.get_max_score(query)
        for hit, max_score in self._find_only_pages(query, terms, best):
            if hit.page_id in scores or not query.phrases:
                scores[hit.page_id] = scores.get(hit.page_id, hit.score) + max_score - hit.score
        return sort_shares({page_id: min(1.0, score / best) if best else 1.0 for page_id, score in scores.items()})

    def _find_only_pages(
        self, query: KeywordQuery, terms: Sequence[str], best: float
    ) -> Iterator[tuple[KeywordHit, float]]:
        """For each term of enough weight that one page has: its score on that page, and the most it could be."""
        max_score, min_score = compute_max_score(self.page_count, 1), MIN_ONLY_TERM_WEIGHT * best
        if 2 * max_score < min_score:
            return
        unique = [term for term in terms if math.isclose(self.get_max_score(KeywordQuery((term,))), max_score)]
        if max_score < min_score:
            pairs = [pair for pair in pairwise(query.terms) if set(pair) <= set(unique)]
            on_one_page = [pair for pair in pairs if len(self.find_page_ids(KeywordQuery(phrases=(pair,)))) == 1]
            unique = list(dict.fromkeys(chain.from_iterable(on_one_page)))
        for term in unique:
            hits = self.search(KeywordQuery((term,), excluded=query.excluded))
            # In an index of one or two pages the maximum does not depend on the number of pages with the term.
            if len(hits) == 1:
                yield hits[0], max_score


def sort_shares(shares: Mapping[int, float]) -> dict[int, float]:
    """The shares, best first."""
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class InterpretedQuery:
    """A query after spelling correction and analysis."""

    query: KeywordQuery
    """The query itself. Keyword scores are relative to the best possible score for it."""
    expanded: KeywordQuery
    """The query with all other terms that can match a page. Used for highlighting."""
    text: str
    """The text that the model embeds."""
    did_you_mean: str = ""
    variants: tuple[QueryVariant, ...] = ()
    """Other ways to analyse the query."""
    identifiers: tuple[str, ...] = ()
    """Identifiers that the query contains in parts."""
    related_terms: tuple[str, ...] = ()
    """Terms of words that are related to words of the query."""
    lexicon_unavailable: bool = False
    """Whether the lexicon was needed and failed."""

    @property
    def shape(self) -> QueryShape:
        terms = {*self.query.terms, *chain.from_iterable(self.query.phrases)}
        return make_query_shape(terms, len(TOKEN_PATTERN.findall(self.text)))

    def get_requirements(self, *, phrases: bool) -> list[KeywordQuery]:
        """Phrases and exclusions of every variant. A page has to satisfy at least one of them."""
        queries = (self.query, *(variant.query for variant in self.variants))
        requirements = (KeywordQuery(phrases=q.phrases if phrases else (), excluded=q.excluded) for q in queries)
        return [required for required in dict.fromkeys(requirements) if required.phrases or required.excluded]

    def without_exclusions(self) -> "InterpretedQuery":
        query = replace(self.query, excluded=())
        variants = (replace(variant, query=replace(variant.query, excluded=())) for variant in self.variants)
        return replace(self, query=query, variants=tuple(variants))

    def compute_shares(self, scores: KeywordScores) -> dict[int, float]:
        """Page id → share of the best possible keyword score, by the variant that fits the page best. Best first."""
        shares: dict[int, float] = {}
        for query in (self.query, *(variant.query for variant in self.variants)):
            for page_id, share in scores.compute_shares(query, self.identifiers).items():
                shares[page_id] = max(shares.get(page_id, 0.0), share)
        if self.related_terms:
            self._add_related(shares, scores)
        return sort_shares(shares)

    def _add_related(self, shares: dict[int, float], scores: KeywordScores) -> None:
        max_score = scores.get_max_score(self.query)
        for hit in scores.search(KeywordQuery(self.related_terms, excluded=self.query.excluded)):
            share = RELATED_TERM_WEIGHT * hit.score / max_score if max_score else 0.0
            shares[hit.page_id] = min(1.0, shares.get(hit.page_id, 0.0) + share)


_SIGNS_WITH_MEANING = frozenset("#%&/@\\§")
"""Characters of the categories of punctuation that are symbols."""


def has_word_or_symbol(text: str) -> bool:
    """Whether a text has a letter, a digit or a symbol, such as an emoji, and not only punctuation."""
    return any(
        sign in _SIGNS_WITH_MEANING or not (category[0] in "PZM" or category in {"Sk", "Cc", "Cf"})
        for sign, category in zip(text, map(unicodedata.category, text), strict=True)
    )


def check_query(request: SearchRequest, interpreted: InterpretedQuery, *, has_words: bool, has_reranker: bool) -> None:
    """Raise InvalidQuery if the request cannot be answered."""
    query = interpreted.query
    if not has_words or (query.excluded and not query):
        raise InvalidQuery("the query contains only exclusions", hint="add a word to search for")
    if request.mode is SearchMode.KEYWORD and not query:
        raise InvalidQuery("the query contains no word", hint="use letters or digits, or search by meaning")
    if not has_word_or_symbol(interpreted.text):
        raise InvalidQuery("the query contains no word", hint="use letters or digits")
    if request.rerank and not has_reranker:
        raise InvalidQuery("no reranker is configured", hint="set rerank.model (docs/models.md), or leave it out")


class QueryInterpreter:
    """Interprets queries for one wiki. Loads the lexicon only when a query needs it."""

    def __init__(self, index: WikiIndex, language: str, get_lexicon: Callable[[], Lexicon | None]) -> None:
        self._language = language
        self._get_lexicon = get_lexicon
        self._spelling = SpellingCorrector(
            index, language, get_lexicon, lambda word: self._interpret_text(f"{word} ", []).expanded.terms
        )

    def interpret(self, typed: str, where: PageFilter, is_known: Callable[[str], bool]) -> InterpretedQuery:
        """Interpret the query. Words that are on no page and for which `is_known` is false are treated as typos."""
        errors: list[Exception] = []
        corrected = _try_with_lexicon(lambda: self._spelling.correct(typed, where, is_known), "", errors)
        interpreted = self._interpret_text(corrected or typed, errors, first_parts=True)
        return replace(interpreted, did_you_mean=corrected, lexicon_unavailable=bool(errors))

    def _interpret_text(self, text: str, errors: list[Exception], *, first_parts: bool = False) -> InterpretedQuery:
        """`first_parts`: the first part of a compound matches too. It does not show that the rest is spelled right."""
        fields = parse_fields(text)
        own, *variants = self._build_variants(fields.branches)
        query, identifiers = own.query, find_query_identifiers(fields.text)
        no_terms: tuple[str, ...] = ()
        related = _try_with_lexicon(
            lambda: self._find_related(fields.text, query, first_parts=first_parts), no_terms, errors
        )
        variant_terms = (term for variant in variants for term in variant.query.terms)
        terms = (*related, *identifiers, *variant_terms, *query.terms)
        phrases = (*query.phrases, *(phrase for variant in variants for phrase in variant.query.phrases))
        expanded = replace(query, terms=tuple(dict.fromkeys(terms)), phrases=tuple(dict.fromkeys(phrases)))
        return InterpretedQuery(
            query,
            expanded,
            to_plain_query(fields.text),
            variants=tuple(variants),
            identifiers=identifiers,
            related_terms=related,
        )

    def _build_variants(self, branches: Sequence[str]) -> list[QueryVariant]:
        variants = (variant for text in branches for variant in build_query_variants(text, self._language))
        return list(dict.fromkeys(variants))

    def _find_related(self, text: str, query: KeywordQuery, *, first_parts: bool) -> tuple[str, ...]:
        """Terms related to those of the query, in languages with compounds. Quoted phrases have none."""
        if query.phrases or not query.terms:
            return ()
        related = find_korean_nouns(text, query, self._language)
        lexicon = self._get_lexicon() if has_compounds(self._language) else None
        if lexicon is not None:
            tokens = get_significant_tokens(text, query, self._language)
            related += find_related_terms(tokens, self._language, lexicon, first_parts=first_parts)
        return tuple(term for term in dict.fromkeys(related) if term not in query.terms)


def _try_with_lexicon(work: Callable[[], _T], default: _T, errors: list[Exception]) -> _T:
    """Run `work` and return its result, or `default` if it fails: the query can be searched without the lexicon."""
    try:
        return work()
    except DatabaseUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - a cache may fail in any way
        _LOG.info("the lexicon is unavailable: %s", error)
        errors.append(error)
        return default
