"""Keyword search in memory: the same pages with bit-identical scores as FTS5."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiers import limit_examples
from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.page import Page, PageMetadata, PageTerms
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.index.keywords.memory_search import MemoryKeywordSearch
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.candidates import list_parts

WORDS = (
    "disk",
    "diskette",
    "raid",
    "mirror",
    "backup",
    "c++",
    "日本",
    "本語",
    "naïve",
    "it's",
    "a\\b",
    "dis:k",
    "&",
    "|",
)
TERM = st.sampled_from(WORDS)
FIELD = st.lists(TERM, max_size=8).map(" ".join)
FIELDS = st.lists(st.builds(PageTerms, FIELD, FIELD, FIELD), min_size=1, max_size=10)
PHRASE = st.lists(TERM, min_size=1, max_size=3).map(tuple)
QUERY = st.builds(
    KeywordQuery,
    st.lists(TERM, max_size=3).map(tuple),
    st.lists(PHRASE, max_size=2).map(tuple),
    st.lists(PHRASE, max_size=2).map(tuple),
    st.sampled_from(["", "dis", "disk", "mir", "日", "a\\", "it'"]),
)
NO_VECTORS = np.empty((0, 4), np.float32)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[SqliteIndex]:
    with closing(SqliteStore(tmp_path).create("wiki00000000", Recipe("none", 4, "words"))) as index:
        yield index


def make_entries(fields: Sequence[PageTerms]) -> tuple[PageEntry, ...]:
    pages = [Page(f"{n % 2}/p{n}", f"{n % 2}/p{n}", "", PageMetadata(), (), (), "", 1) for n in range(len(fields))]
    return tuple(
        PageEntry("0" * 40, page, (), (), NO_VECTORS, words) for page, words in zip(pages, fields, strict=True)
    )


def make_search(index: SqliteIndex) -> MemoryKeywordSearch:
    def read_terms(page_ids: Sequence[int]) -> list[tuple[int, PageTerms]]:
        with index.open_keywords() as snapshot:
            return list(snapshot.iter_terms(sorted(page_ids)))

    return MemoryKeywordSearch(index.open_keywords, read_terms)


def assert_same_as_index(
    search: MemoryKeywordSearch, index: SqliteIndex, query: KeywordQuery, limit: int = 100
) -> None:
    version = index.get_version()
    for where in (PageFilter(), PageFilter(path_prefix="1")):
        found = search.search(version, query, limit, index.filter_page_ids(where))
        assert found == index.search_keywords(query, limit, where), query
    assert search.find_page_ids(version, query).tolist() == index.find_matching_page_ids(query).tolist()
    parts = list_parts(query)
    assert search.count_pages(version, parts) == index.count_pages(parts)


def test_any_query_after_any_change_gives_the_pages_and_scores_of_the_index(index: SqliteIndex) -> None:
    search = make_search(index)

    @settings(max_examples=limit_examples(150), deadline=None)
    @given(fields=FIELDS, query=QUERY, limit=st.sampled_from([1, 2, 100]))
    def compare(fields: list[PageTerms], query: KeywordQuery, limit: int) -> None:
        gone = tuple(file for file in index.get_page_blobs() if int(file[3:]) >= len(fields))
        index.apply(IndexChange(make_entries(fields), gone))
        assert_same_as_index(search, index, query, limit)

    compare()


LONG_WORD = "x" * 3000
ODD_TEXTS = {
    "many words": PageTerms("", "", " ".join(f"w{n % 900}" for n in range(20_000))),
    "a word very often": PageTerms("disk", "raid", "disk " * 20_000 + "mirror disk"),
    "a word that is too long": PageTerms("", LONG_WORD, f"disk {LONG_WORD}y raid {LONG_WORD} disk"),
    "joiners inside of words": PageTerms("", "", "می\u200cخواهم disk\u200draid  mirror"),
    "nothing": PageTerms("", "", ""),
}


@pytest.mark.parametrize("what", ODD_TEXTS)
def test_odd_pages_are_ranked_too(what: str, index: SqliteIndex) -> None:
    fields = [ODD_TEXTS[what], PageTerms("disk", "", "raid mirror"), PageTerms("", "", f"diskette w7 {LONG_WORD[:50]}")]
    index.apply(IndexChange(make_entries(fields)))
    search = make_search(index)
    for query in (
        KeywordQuery(("disk", "raid")),
        KeywordQuery(("w7", "w899", "wort000007wort"), prefix="wort0000"),
        KeywordQuery(("disk",), (("w7", "w8"),)),
        KeywordQuery(phrases=(("disk", "disk"),)),
        KeywordQuery(phrases=(("mirror", "disk"),), excluded=(("raid", "raid"),)),
        KeywordQuery((LONG_WORD,), prefix=LONG_WORD),
        KeywordQuery(("disk",), excluded=((LONG_WORD,),)),
        KeywordQuery(("disk",), excluded=((f"{LONG_WORD}y", "raid"),), prefix="dis"),
        KeywordQuery(("disk\u200draid", "می"), prefix="خ"),
        KeywordQuery(("", "\u200c")),
        KeywordQuery(excluded=(("w8",),)),
    ):
        assert_same_as_index(search, index, query)


def test_terms_that_no_page_can_contain_find_nothing(index: SqliteIndex) -> None:
    index.apply(IndexChange(make_entries([PageTerms("disk", "", "raid")])))
    search, version = make_search(index), index.get_version()
    for odd in ("\0", "a\0b", "\ud800", "'", "\\", "'' | 'disk", "disk:*", "!disk", "(", "x" * 100_000):
        assert search.search(version, KeywordQuery((odd,), prefix=odd), 10, None) == []
        assert search.count_pages(version, [odd]) == {odd: 0}
        assert search.find_page_ids(version, KeywordQuery(phrases=((odd,),))).tolist() == []
