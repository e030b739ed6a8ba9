"""Keyword shares: what part of the best possible score a page has, and terms that one page has."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from wikiholt.domain.index import IntArray
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.search.candidates import MIN_ONLY_TERM_WEIGHT, compute_shares
from wikiholt.search.index_reader import KeywordScores
from wikiholt.search.query import Query
from wikiholt.search.request import SearchRequest
from wikiholt.text.bm25 import compute_idf, compute_max_score
from wikiholt.text.compounds import RelatedTerms

PAGE_COUNT = 50
LONG_PAGE = 7
MATCHES = {
    "rare": {LONG_PAGE: 0.1},
    "pump": {LONG_PAGE: 0.2, **dict.fromkeys(range(20, 30), 0.8)},
    "pair": {1: 0.5, 2: 0.9},
    "other": {3: 0.3},
    "next": {LONG_PAGE: 0.1},
    "apart": {LONG_PAGE: 0.1},
}
"""Term → page id → the part of its maximum that the term has on the page."""


def count_pages(terms: Sequence[str]) -> Mapping[str, int]:
    return {term: len(MATCHES.get(term, ())) for term in terms}


def search(query: KeywordQuery) -> Sequence[KeywordHit]:
    scores: dict[int, float] = {}
    for term in query.terms:
        for page_id, part in MATCHES.get(term, {}).items():
            scores[page_id] = scores.get(page_id, 0.0) + part * compute_max_score(PAGE_COUNT, len(MATCHES[term]))
    return [KeywordHit(*each) for each in sorted(scores.items(), key=lambda item: (-item[1], item[0]))]


def find_page_ids(query: KeywordQuery) -> IntArray:
    """The pages with these phrases: each one that has all terms, except of `apart`."""
    (phrase,) = query.phrases
    pages = set[int]() if "apart" in phrase else set.intersection(*(set(MATCHES.get(term, ())) for term in phrase))
    return np.array(sorted(pages), np.int64)


def compute(
    query: KeywordQuery,
    scores: KeywordScores | None = None,
    identifiers: tuple[str, ...] = (),
    related: tuple[str, ...] = (),
) -> dict[int, float]:
    found = Query(SearchRequest("typed"), query, identifiers=identifiers, related_terms=RelatedTerms(related))
    return compute_shares(scores or SCORES, found)


SCORES = KeywordScores(search, count_pages, find_page_ids, PAGE_COUNT)


def compute_weight(term: str, *others: str) -> float:
    idfs = [compute_idf(PAGE_COUNT, len(MATCHES.get(each, ()))) for each in (term, *others)]
    return idfs[0] / sum(idfs)


def test_a_term_of_one_page_counts_in_full() -> None:
    assert compute(KeywordQuery(("rare",))) == {LONG_PAGE: pytest.approx(1.0)}


def test_other_terms_beside_it_count_as_before() -> None:
    shares = compute(KeywordQuery(("pump", "rare")))
    pump = compute_weight("pump", "rare")
    assert shares[LONG_PAGE] == pytest.approx(compute_weight("rare", "pump") + 0.2 * pump)
    assert shares[20] == pytest.approx(0.8 * pump)
    assert next(iter(shares)) == LONG_PAGE


def test_in_a_long_query_it_counts_as_before() -> None:
    words = ("rare", "pair", "pump", *(f"absent{number}" for number in range(3)))
    assert compute_weight(*words) < MIN_ONLY_TERM_WEIGHT
    assert compute(KeywordQuery(words))[LONG_PAGE] < 0.1


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (("rare", "next"), True),
        (("next", "rare"), True),
        (("rare", "apart"), False),
        (("rare", "other"), False),
        (("rare", "pump", "next"), False),
    ],
    ids=["in a row", "in the other order", "not in a row on the page", "on two pages", "not in a row in the query"],
)
def test_in_a_longer_query_two_terms_of_one_page_count_in_full_if_they_are_in_a_row(
    words: tuple[str, ...], counts: bool
) -> None:
    query = (*words, *(f"absent{number}" for number in range(3)))
    assert compute_weight(*query) < MIN_ONLY_TERM_WEIGHT
    share = compute(KeywordQuery(query))[LONG_PAGE]
    assert (share > 0.2) is counts
    if counts:
        assert share == pytest.approx(2 * compute_weight(*query))


def test_a_term_of_two_pages_counts_as_before() -> None:
    shares = compute(KeywordQuery(("pair",)))
    assert list(shares.items()) == [(2, pytest.approx(0.9)), (1, pytest.approx(0.5))]


def test_the_only_page_is_found_if_others_have_higher_scores() -> None:
    """A store returns the best pages for the whole query, and the only page need not be one of them."""

    def search_ten(query: KeywordQuery) -> Sequence[KeywordHit]:
        return search(query)[:10]

    assert LONG_PAGE not in [hit.page_id for hit in search_ten(KeywordQuery(("pump", "rare")))]
    scores = KeywordScores(search_ten, count_pages, find_page_ids, PAGE_COUNT)
    shares = compute(KeywordQuery(("pump", "rare")), scores)
    assert shares[LONG_PAGE] == pytest.approx(compute_weight("rare", "pump"))


def test_an_identifier_of_one_page_counts_in_full_and_no_share_exceeds_one() -> None:
    shares = compute(KeywordQuery(("other",)), identifiers=("rare",))
    assert shares == {LONG_PAGE: pytest.approx(1.0), 3: pytest.approx(1.0)}
    both = compute(KeywordQuery(("rare",)), identifiers=("rare",))
    assert both == {LONG_PAGE: 1.0}


@pytest.mark.parametrize("page_count", [1, 2])
def test_a_term_of_both_pages_is_not_a_term_of_one(page_count: int) -> None:
    hits = [KeywordHit(page, 1e-6) for page in range(page_count)]
    scores = KeywordScores(
        lambda query: hits, lambda terms: dict.fromkeys(terms, page_count), find_page_ids, page_count
    )
    shares = compute(KeywordQuery(("everywhere",)), scores)
    assert len(shares) == page_count
    assert (max(shares.values()) < 0.5) is (page_count == 2)


def test_no_page_is_added_that_lacks_a_required_phrase() -> None:
    def search_phrases(query: KeywordQuery) -> Sequence[KeywordHit]:
        return [hit for hit in search(query) if not query.phrases or hit.page_id in range(20, 30)]

    scores = KeywordScores(search_phrases, count_pages, find_page_ids, PAGE_COUNT)
    shares = compute(KeywordQuery(("pump", "rare"), phrases=(("some", "phrase"),)), scores)
    assert set(shares) == set(range(20, 30))


def test_shares_of_a_query_with_related_terms_are_in_order() -> None:
    shares = compute(KeywordQuery(("pair",)), related=("pump",))
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert {1, 2, 20} <= set(shares)


def test_compounds_that_begin_with_a_word_count_less_than_those_that_end_with_it() -> None:
    query, request = KeywordQuery(("pair",)), SearchRequest("typed")
    close, longer = (
        compute_shares(SCORES, Query(request, query, related_terms=related))
        for related in (RelatedTerms(("pump",)), RelatedTerms((), ("pump",)))
    )
    assert longer[20] == pytest.approx(0.4 * close[20])
    assert longer[20] > 0


def test_a_term_of_more_pages_than_were_counted_has_a_share() -> None:
    # Another process adds pages between the two counts.
    scores = KeywordScores(search, count_pages, find_page_ids, 0)
    assert set(compute(KeywordQuery(("pair",)), scores)) == set(compute(KeywordQuery(("pair",))))
