"""What a search makes of the text of a query: terms for the words, a sentence for the model."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from wikiholt.domain.protocols import Lexicon
from wikiholt.domain.search import KeywordHit, KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import DatabaseUnavailable
from wikiholt.search.spell_check import SpellingCorrector
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

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InterpretedQuery:
    """A query, understood."""

    query: KeywordQuery
    """What was asked for: by how much of it a page has, its words are judged."""
    expanded: KeywordQuery
    """The same with all other terms by which pages are found: what is marked."""
    text: str
    """What the model reads."""
    did_you_mean: str = ""
    variants: tuple[QueryVariant, ...] = ()
    """Other ways to read the query."""
    identifiers: tuple[str, ...] = ()
    """Terms for identifiers of which the query has the parts."""
    related_terms: tuple[str, ...] = ()
    """Terms for words that are related to one of the query's."""
    lexicon_unavailable: bool = False
    """Whether the wiki's terms were needed for it and could not be had."""

    def get_requirements(self, *, phrases: bool) -> list[KeywordQuery]:
        """What pages must hold and lack, however the query is read; a page need only satisfy one of these."""
        read = (self.query, *(other.query for other in self.variants))
        wanted = (KeywordQuery(phrases=each.phrases if phrases else (), excluded=each.excluded) for each in read)
        return [each for each in dict.fromkeys(wanted) if each.phrases or each.excluded]

    def compute_shares(
        self, search: Callable[[KeywordQuery], Sequence[KeywordHit]], get_max_score: Callable[[KeywordQuery], float]
    ) -> dict[int, float]:
        """The pages that are found, each with its share of the best possible score, read as fits the page best."""
        shares: dict[int, float] = {}
        for query in (self.query, *(other.query for other in self.variants)):
            # A store takes the last term for the one that may still be being typed.
            hits = search(replace(query, terms=(*self.identifiers, *query.terms)))
            most = get_max_score(query) if hits else 0.0
            for hit in hits:
                shares[hit.page_id] = max(shares.get(hit.page_id, 0.0), min(1.0, hit.score / most) if most else 1.0)
        return self._add_related(shares, search, get_max_score) if self.related_terms else shares

    def _add_related(
        self,
        shares: dict[int, float],
        search: Callable[[KeywordQuery], Sequence[KeywordHit]],
        get_max_score: Callable[[KeywordQuery], float],
    ) -> dict[int, float]:
        most = get_max_score(self.query)
        for hit in search(KeywordQuery(self.related_terms, excluded=self.query.excluded)):
            more = RELATED_TERM_WEIGHT * hit.score / most if most else 0.0
            shares[hit.page_id] = min(1.0, shares.get(hit.page_id, 0.0) + more)
        return shares


class QueryInterpreter:
    """Understands the queries of one wiki; the lexicon is only asked for where a query needs it."""

    def __init__(self, index: WikiIndex, language: str, get_lexicon: Callable[[], Lexicon | None]) -> None:
        self._language = language
        self._get_lexicon = get_lexicon
        self._spelling = SpellingCorrector(
            index, language, get_lexicon, lambda word: self._interpret_text(f"{word} ", []).expanded.terms
        )

    def interpret(self, typed: str, where: PageFilter, is_known: Callable[[str], bool]) -> InterpretedQuery:
        """The query as it is meant: words that no page holds, and that are not `known`, are taken for slips."""
        faults: list[Exception] = []
        corrected = _try_with_lexicon(lambda: self._spelling.correct(typed, where, is_known), "", faults)
        worded = self._interpret_text(corrected or typed, faults)
        return replace(worded, did_you_mean=corrected, lexicon_unavailable=bool(faults))

    def _interpret_text(self, text: str, errors: list[Exception]) -> InterpretedQuery:
        own, *others = build_query_variants(text, self._language)
        query, named = own.query, find_query_identifiers(text)
        nothing: tuple[str, ...] = ()
        kin = _try_with_lexicon(lambda: self._find_related(text, query), nothing, errors)
        terms = (*kin, *named, *(term for other in others for term in other.query.terms), *query.terms)
        phrases = (*query.phrases, *(phrase for other in others for phrase in other.query.phrases))
        asked = replace(query, terms=tuple(dict.fromkeys(terms)), phrases=tuple(dict.fromkeys(phrases)))
        return InterpretedQuery(
            query, asked, to_plain_query(text), variants=tuple(others), identifiers=named, related_terms=kin
        )

    def _find_related(self, text: str, query: KeywordQuery) -> tuple[str, ...]:
        """Words related to those of the query, in languages that make words of words; none to what is quoted."""
        if query.phrases or not query.terms:
            return ()
        found = find_korean_nouns(text, query, self._language)
        lexicon = self._get_lexicon() if has_compounds(self._language) else None
        if lexicon is not None:
            found += find_related_terms(get_significant_tokens(text, query, self._language), self._language, lexicon)
        return tuple(term for term in dict.fromkeys(found) if term not in query.terms)


def _try_with_lexicon(work: Callable[[], _T], default: _T, errors: list[Exception]) -> _T:
    """What the wiki's terms help to find; what was typed can be searched for whatever goes wrong there."""
    try:
        return work()
    except DatabaseUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - a cache may fail in any way
        _LOG.info("the wiki's terms are not at hand: %s", error)
        errors.append(error)
        return default
