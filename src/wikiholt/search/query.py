"""Interprets the text of a query: terms for keyword search, a sentence for the model, and its vector."""

import logging
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.protocols import Embedder, Lexicon, SupportsQueryThreads, SupportsSentenceScoring
from wikiholt.domain.search import KeywordQuery, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import DatabaseUnavailable, InvalidQuery, ModelError, ModelMismatch
from wikiholt.search.ranking import QueryShape, make_query_shape
from wikiholt.search.request import SearchRequest
from wikiholt.search.reranking import make_missing_error
from wikiholt.search.spell_check import SpellingCorrector
from wikiholt.search.synonyms import Synonyms
from wikiholt.text.analysis import TOKEN_PATTERN
from wikiholt.text.compounds import RelatedTerms, find_related_terms, has_compounds
from wikiholt.text.keyword_query import (
    QueryVariant,
    build_query_variants,
    find_korean_nouns,
    find_query_identifiers,
    get_significant_tokens,
    parse_fields,
    parse_query,
    to_plain_query,
)
from wikiholt.text.snippets import SentenceScorer
from wikiholt.text.synonym_rules import SynonymRules

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Query:
    """What one search looks for: its request, interpreted, and the pages that it may return."""

    request: SearchRequest
    words: KeywordQuery = field(default_factory=KeywordQuery)
    """The words of the query. Keyword scores are relative to the best possible score for them."""
    expanded: KeywordQuery = field(default_factory=KeywordQuery)
    """The words with all other terms that can match a page. Used for highlighting."""
    text: str = ""
    """The text that the model embeds."""
    did_you_mean: str = ""
    variants: tuple[QueryVariant, ...] = ()
    """Other ways to analyse the query."""
    identifiers: tuple[str, ...] = ()
    """Identifiers that the query contains in parts."""
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words as typed that have synonyms."""
    related_terms: RelatedTerms = field(default_factory=RelatedTerms)
    lexicon_unavailable: bool = False
    """Whether the lexicon was needed and failed."""
    allowed: IntArray | None = None
    """The sorted ids of the pages that pass the filter, contain the phrases and do not contain the exclusions; None for
    all."""

    @property
    def all_words(self) -> tuple[KeywordQuery, ...]:
        """The words as analysed in each way, the main one first."""
        return (self.words, *(variant.query for variant in self.variants))

    @property
    def shape(self) -> QueryShape:
        terms = {*self.words.terms, *chain.from_iterable(self.words.phrases)}
        return make_query_shape(terms, len(TOKEN_PATTERN.findall(self.text)))

    @property
    def has_no_page(self) -> bool:
        """Whether no page may be returned."""
        return self.allowed is not None and not len(self.allowed)

    def without_exclusions(self) -> "Query":
        variants = (replace(variant, query=replace(variant.query, excluded=())) for variant in self.variants)
        return replace(self, words=replace(self.words, excluded=()), variants=tuple(variants))


_SIGNS_WITH_MEANING = frozenset("#%&/@\\§")
"""Characters of the categories of punctuation that are symbols."""


def has_word_or_symbol(text: str) -> bool:
    """Whether a text has a letter, a digit or a symbol, such as an emoji, and not only punctuation."""
    return any(
        sign in _SIGNS_WITH_MEANING or not (category[0] in "PZM" or category in {"Sk", "Cc", "Cf"})
        for sign, category in zip(text, map(unicodedata.category, text), strict=True)
    )


def check_query(query: Query, *, has_words: bool, has_reranker: bool) -> None:
    """Raise InvalidQuery if the request cannot be answered."""
    if not has_words or (query.words.excluded and not query.words):
        raise InvalidQuery("the query contains only exclusions", hint="add a word to search for")
    if query.request.mode is SearchMode.KEYWORD and not query.words:
        raise InvalidQuery("the query contains no word", hint="use letters or digits, or search by meaning")
    if not has_word_or_symbol(query.text):
        raise InvalidQuery("the query contains no word", hint="use letters or digits")
    if query.request.rerank and not has_reranker:
        raise make_missing_error()


class QueryInterpreter:
    """Interprets queries for one wiki. Loads the lexicon only when a query needs it."""

    def __init__(
        self, index: WikiIndex, language: str, get_lexicon: Callable[[], Lexicon | None], rules: SynonymRules
    ) -> None:
        self._index = index
        self._language = language
        self.rules: Final = rules
        self._synonyms = Synonyms(rules.rules, language)
        self._get_lexicon = get_lexicon
        self._spelling = SpellingCorrector(index, language, get_lexicon, self._get_search_terms)

    def interpret(self, request: SearchRequest, is_known: Callable[[str], bool]) -> Query:
        """Interpret a request. Words that are on no page and for which `is_known` is false are treated as typos, unless
        they have synonyms."""

        def is_right(word: str) -> bool:
            return self._synonyms.has_word(word) or is_known(word)

        corrected, is_checked = _try_with_lexicon(
            lambda: self._spelling.correct(request.query, request.where, is_right), ""
        )
        fields = parse_fields(corrected or request.query)
        own, *variants = self._build_variants(fields.branches)
        words, identifiers = own.query, find_query_identifiers(fields.text)
        related, has_related = self._find_related(fields.text, words, first_parts=True)
        return Query(
            request,
            words,
            _expand(words, variants, identifiers, related),
            self.make_model_text(fields.text),
            corrected,
            tuple(variants),
            identifiers,
            self._synonyms.find(fields.branches),
            related,
            lexicon_unavailable=not (is_checked and has_related),
        )

    def make_model_text(self, text: str) -> str:
        """What a model reads of a query without its fields. A word that is on no page says little to it."""
        return to_plain_query(self._synonyms.rewrite(text, self._is_on_page))

    def _is_on_page(self, name: str) -> bool:
        phrases = parse_query(f'"{name}"', self._language).phrases
        found = self._index.find_matching_page_ids(KeywordQuery(phrases=phrases)) if phrases else ()
        return any(page_id != self.rules.page_id for page_id in found)

    def _get_search_terms(self, word: str) -> tuple[str, ...]:
        """The terms under which a word is searched, and under which it may be on a page if it is spelled right.

        A first part does not show that the rest is.
        """
        own, *variants = self._build_variants(parse_fields(f"{word} ").branches)
        related, _ = self._find_related(f"{word} ", own.query, first_parts=False)
        return _expand(own.query, variants, find_query_identifiers(word), related).terms

    def _build_variants(self, branches: Sequence[str]) -> list[QueryVariant]:
        texts = self._synonyms.expand(branches)
        variants = (variant for text in texts for variant in build_query_variants(text, self._language))
        return list(dict.fromkeys(variants))

    def _find_related(self, text: str, query: KeywordQuery, *, first_parts: bool) -> tuple[RelatedTerms, bool]:
        """Terms related to those of the query, in languages with compounds, and whether the lexicon could tell.

        Quoted phrases have none. With `first_parts`, the first part of a compound matches too.
        """
        if query.phrases or not query.terms:
            return RelatedTerms(), True
        nouns = find_korean_nouns(text, query, self._language)

        def find_parts() -> RelatedTerms:
            lexicon = self._get_lexicon()
            tokens = get_significant_tokens(text, query, self._language)
            if lexicon is None:
                return RelatedTerms()
            return find_related_terms(tokens, self._language, lexicon, first_parts=first_parts)

        parts, is_known = RelatedTerms(), True
        if has_compounds(self._language):
            parts, is_known = _try_with_lexicon(find_parts, parts)
        close = (term for term in dict.fromkeys((*nouns, *parts.close)) if term not in query.terms)
        return RelatedTerms(tuple(close), tuple(term for term in parts.longer if term not in query.terms)), is_known


def _expand(
    words: KeywordQuery, variants: Sequence[QueryVariant], identifiers: Sequence[str], related: RelatedTerms
) -> KeywordQuery:
    """The words with all other terms that can match a page."""
    variant_terms = (term for variant in variants for term in variant.query.terms)
    terms = (*chain.from_iterable(related), *identifiers, *variant_terms, *words.terms)
    phrases = (*words.phrases, *(phrase for variant in variants for phrase in variant.query.phrases))
    return replace(words, terms=tuple(dict.fromkeys(terms)), phrases=tuple(dict.fromkeys(phrases)))


def _try_with_lexicon(work: Callable[[], _T], default: _T) -> tuple[_T, bool]:
    """The result of `work`, or `default` if it fails, and whether it succeeded: a query can be searched without it."""
    try:
        return work(), True
    except DatabaseUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the answer says that it did
        _LOG.info("the lexicon is unavailable: %s", error)
        return default, False


# The vector of a query. A model that can do so embeds it while the query is read and its words are searched.


class StartedQuery(NamedTuple):
    """A text that another thread embeds."""

    text: str
    embedder: Embedder
    get_vector: Callable[[], FloatArray]
    """Waits for the vector. Raises what `Embedder.embed_query` raises."""
    began: float
    """When it was started, in seconds of `time.perf_counter`."""


class EmbeddedQuery(NamedTuple):
    """The vector of a query, and the scorer of sentences if the model has one."""

    vector: FloatArray
    sentence_scorer: SentenceScorer | None


class QueryEmbedder:
    """Embeds the queries of one wiki. Safe to use from many threads."""

    def __init__(self, get_embedder: Callable[[], Embedder]) -> None:
        self._get_embedder = get_embedder
        self._is_warm = False

    def start(self, text: str) -> StartedQuery | None:
        """Start to embed a text in another thread; None if that cannot be done now. Never raises ModelError.

        Nothing is started before the first embedded query: a search that needs no model must not load it.
        """
        if not self._is_warm or not text:
            return None
        began = time.perf_counter()
        try:
            embedder = self._get_embedder()
            start = _find_method(SupportsQueryThreads.start_query, embedder)
            get_vector = start(text) if start is not None else None
        except ModelError:
            return None  # `embed` raises it, if the search needs the vector
        return None if get_vector is None else StartedQuery(text, embedder, get_vector, began)

    def embed(self, text: str, fingerprint: str, started: StartedQuery | None) -> EmbeddedQuery:
        """Embed a text with the model of the index, or wait for `started` if it is the same. Raises ModelError."""
        embedder = self._get_embedder()
        if embedder.fingerprint != fingerprint:
            raise ModelMismatch(
                f"the index was built with {fingerprint}, not with {embedder.fingerprint}",
                hint="run `wikiholt sync` to rebuild it with the configured model",
            )
        scorer = self.make_sentence_scorer(text)
        if started is not None and started.text == text and started.embedder is embedder:
            vector = started.get_vector()
        else:
            vector = embedder.embed_query(text)
        self._is_warm = True
        return EmbeddedQuery(vector, scorer)

    def make_sentence_scorer(self, text: str) -> SentenceScorer | None:
        """The scorer of sentences by their words; None if the model has none. Raises ModelError."""
        make_scorer = _find_method(SupportsSentenceScoring.make_sentence_scorer, self._get_embedder())
        return make_scorer(text) if make_scorer is not None else None

    def is_known_word(self, word: str) -> bool:
        """Whether the model knows the word. Such a word is not a typo, even if it is on no page."""
        try:
            return self._get_embedder().is_known_word(word.lower())
        except ModelError:
            return False


def _find_method(method: Callable[[Any, str], _T], embedder: Embedder) -> Callable[[str], _T] | None:
    """The embedder's own form of an optional method. `isinstance` with a protocol would take .1 ms of each search."""
    return getattr(embedder, method.__name__, None)
