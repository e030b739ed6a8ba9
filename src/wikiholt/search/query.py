"""Interprets the text of a query: terms for keyword search, a sentence for the model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import DatabaseUnavailable, InvalidQuery
from wikiholt.search.request import SearchRequest
from wikiholt.search.spell_check import SpellingCorrector, find_words
from wikiholt.text.bm25 import RELATED_TERM_WEIGHT
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

    def get_requirements(self, *, phrases: bool) -> list[KeywordQuery]:
        """Phrases and exclusions of every variant. A page has to satisfy at least one of them."""
        queries = (self.query, *(variant.query for variant in self.variants))
        requirements = (KeywordQuery(phrases=q.phrases if phrases else (), excluded=q.excluded) for q in queries)
        return [required for required in dict.fromkeys(requirements) if required.phrases or required.excluded]

    def compute_shares(
        self, search: Callable[[KeywordQuery], Sequence[KeywordHit]], get_max_score: Callable[[KeywordQuery], float]
    ) -> dict[int, float]:
        """Page id → share of the best possible keyword score, by the variant that fits the page best."""
        shares: dict[int, float] = {}
        for query in (self.query, *(variant.query for variant in self.variants)):
            # The store treats the last term as possibly unfinished.
            hits = search(replace(query, terms=(*self.identifiers, *query.terms)))
            max_score = get_max_score(query) if hits else 0.0
            for hit in hits:
                shares[hit.page_id] = max(
                    shares.get(hit.page_id, 0.0), min(1.0, hit.score / max_score) if max_score else 1.0
                )
        return self._add_related(shares, search, get_max_score) if self.related_terms else shares

    def _add_related(
        self,
        shares: dict[int, float],
        search: Callable[[KeywordQuery], Sequence[KeywordHit]],
        get_max_score: Callable[[KeywordQuery], float],
    ) -> dict[int, float]:
        max_score = get_max_score(self.query)
        for hit in search(KeywordQuery(self.related_terms, excluded=self.query.excluded)):
            share = RELATED_TERM_WEIGHT * hit.score / max_score if max_score else 0.0
            shares[hit.page_id] = min(1.0, shares.get(hit.page_id, 0.0) + share)
        return shares


def check_query(request: SearchRequest, interpreted: InterpretedQuery, *, has_words: bool, has_reranker: bool) -> None:
    """Raise InvalidQuery if the request cannot be answered."""
    query = interpreted.query
    if not has_words or (query.excluded and not query):
        raise InvalidQuery("the query contains only exclusions", hint="add a word to search for")
    if request.mode is SearchMode.KEYWORD and not query:
        raise InvalidQuery("the query contains no word", hint="use letters or digits, or search by meaning")
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
        interpreted = self._interpret_text(corrected or typed, errors)
        return replace(interpreted, did_you_mean=corrected, lexicon_unavailable=bool(errors))

    def guess_query(self, typed: str) -> KeywordQuery:
        """The terms that a search for this query will probably look up: its words, their stems and the prefix."""
        fields = parse_fields(typed)
        queries = [variant.query for variant in self._build_variants(fields.branches)]
        stems = (term for query in queries for term in query.terms)
        words = (word.normalized for word in find_words(fields.text))
        terms = tuple(dict.fromkeys((*stems, *words, *find_query_identifiers(fields.text))))
        phrases = tuple(dict.fromkeys(phrase for query in queries for phrase in query.phrases))
        return KeywordQuery(terms, phrases, queries[0].excluded, queries[0].prefix)

    def _interpret_text(self, text: str, errors: list[Exception]) -> InterpretedQuery:
        fields = parse_fields(text)
        own, *variants = self._build_variants(fields.branches)
        query, identifiers = own.query, find_query_identifiers(fields.text)
        no_terms: tuple[str, ...] = ()
        related = _try_with_lexicon(lambda: self._find_related(fields.text, query), no_terms, errors)
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

    def _find_related(self, text: str, query: KeywordQuery) -> tuple[str, ...]:
        """Terms related to those of the query, in languages with compounds. Quoted phrases have none."""
        if query.phrases or not query.terms:
            return ()
        related = find_korean_nouns(text, query, self._language)
        lexicon = self._get_lexicon() if has_compounds(self._language) else None
        if lexicon is not None:
            related += find_related_terms(get_significant_tokens(text, query, self._language), self._language, lexicon)
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
