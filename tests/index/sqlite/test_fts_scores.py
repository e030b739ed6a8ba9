"""Keyword scores of the embedded store: no page exceeds the maximum score of the query."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import limit_examples
from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.page import Page, PageMetadata, PageTerms
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.candidates import list_parts
from wikiholt.text.bm25 import PREFIX_WEIGHT, compute_max_score

WORDS = ("disk", "diskette", "raid", "mirror", "backup", "c++")
TERM = st.sampled_from(WORDS)
FIELD = st.lists(TERM, max_size=8).map(" ".join)
FIELDS = st.lists(st.builds(PageTerms, FIELD, FIELD, FIELD), min_size=1, max_size=12)
PHRASE = st.lists(TERM, min_size=1, max_size=3).map(tuple)
QUERY = st.builds(
    KeywordQuery,
    st.lists(TERM, max_size=3).map(tuple),
    st.lists(PHRASE, max_size=3).map(tuple),
    st.lists(PHRASE, max_size=1).map(tuple),
    st.sampled_from(["", "dis", "disk", "mir"]),
)


def create_index(root: Path, fields: list[PageTerms]) -> SqliteIndex:
    index = SqliteStore(root).create("wikiwiki", Recipe("none", 4, "words"))
    none = np.empty((0, 4), np.float32)
    pages = [Page(f"p{n}", f"p{n}", "", PageMetadata(), (), (), "", 1) for n in range(len(fields))]
    index.apply(
        IndexChange(
            tuple(PageEntry("0" * 40, page, (), (), none, words) for page, words in zip(pages, fields, strict=True))
        )
    )
    return index


def contains_phrase(words: PageTerms, phrase: tuple[str, ...]) -> bool:
    return any(f" {' '.join(phrase)} " in f" {field} " for field in (words.name, words.headings, words.body))


def compute_expected(words: PageTerms, query: KeywordQuery) -> bool:
    """Whether a page matches: every phrase, no excluded one, and a word of the query if it has words."""
    if any(contains_phrase(words, phrase) for phrase in query.excluded):
        return False
    if not all(contains_phrase(words, phrase) for phrase in query.phrases):
        return False
    begun = bool(query.prefix) and any(
        word.startswith(query.prefix) for word in f"{words.name} {words.headings} {words.body}".split()
    )
    return bool(query.phrases) or begun or any(contains_phrase(words, (term,)) for term in query.terms)


@pytest.mark.slow
@settings(max_examples=limit_examples(80), deadline=None)
@given(fields=FIELDS, query=QUERY)
def test_no_score_exceeds_the_maximum_and_the_right_pages_are_found(
    fields: list[PageTerms], query: KeywordQuery
) -> None:
    with tempfile.TemporaryDirectory() as name:
        index = create_index(Path(name), fields)
        hits = index.search_keywords(query, 100, PageFilter())
        begun = len(index.search_keywords(KeywordQuery(prefix=query.prefix), 100, PageFilter())) if query.prefix else 0
        bonus = compute_max_score(len(fields), begun) * PREFIX_WEIGHT if query.prefix else 0.0
        counts = index.count_pages(list_parts(query))
        best = sum(compute_max_score(len(fields), counts[part]) for part in list_parts(query)) + bonus
        index.close()
    assert all(0 < hit.score <= best * (1 + 1e-9) for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert {hit.page_id for hit in hits} == {at for at, words in enumerate(fields, 1) if compute_expected(words, query)}


def test_a_phrase_counts_once_beside_a_word(tmp_path: Path) -> None:
    fields = [
        PageTerms("", "", "disk raid"),
        PageTerms("", "", "disk raid mirror"),
        *[PageTerms("", "", "backup")] * 10,
    ]
    index = create_index(tmp_path, fields)
    phrase = {
        hit.page_id: hit.score
        for hit in index.search_keywords(KeywordQuery(phrases=(("disk", "raid"),)), 9, PageFilter())
    }
    word = {hit.page_id: hit.score for hit in index.search_keywords(KeywordQuery(("mirror",)), 9, PageFilter())}
    both = index.search_keywords(KeywordQuery(("mirror",), (("disk", "raid"),), prefix="mirr"), 9, PageFilter())
    assert [hit.page_id for hit in both] == [2, 1]
    assert np.allclose([hit.score for hit in both], [phrase[2] + word[2], phrase[1]])
