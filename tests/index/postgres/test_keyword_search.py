"""Keyword search in PostgreSQL: the same pages with bit-identical scores as the embedded store."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import open_store
from tests.support.tiers import limit_examples
from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.page import Page, PageMetadata, PageTerms
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.sqlite.store import SqliteStore

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
IDS = (f"wiki{number:08d}" for number in count())


@pytest.fixture(scope="module")
def postgres(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with open_store(pg, tmp_path_factory.mktemp("scratch")) as store:
        yield store


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> SqliteStore:
    return SqliteStore(tmp_path_factory.mktemp("embedded"))


def make_entries(fields: Sequence[PageTerms]) -> tuple[PageEntry, ...]:
    pages = [Page(f"{n % 2}/p{n}", f"{n % 2}/p{n}", "", PageMetadata(), (), (), "", 1) for n in range(len(fields))]
    return tuple(
        PageEntry("0" * 40, page, (), (), NO_VECTORS, words) for page, words in zip(pages, fields, strict=True)
    )


def create_in_both(fields: Sequence[PageTerms], *stores: IndexStore) -> list[WikiIndex]:
    made, wiki = [], next(IDS)
    for store in stores:
        index = store.create(wiki, Recipe("none", 4, "words"))
        index.apply(IndexChange(make_entries(fields)))
        made.append(index)
    return made


def search_keywords(index: WikiIndex, query: KeywordQuery, limit: int = 100) -> object:
    return (
        index.search_keywords(query, limit, PageFilter()),
        index.search_keywords(query, limit, PageFilter(path_prefix="1")),
        index.get_max_keyword_score(query),
        index.find_matching_page_ids(query).tolist(),
    )


def test_any_query_gives_the_pages_and_scores_of_the_embedded_store(
    postgres: PostgresStore, embedded: SqliteStore
) -> None:
    ours, theirs = create_in_both([PageTerms("", "", "")], postgres, embedded)

    @settings(max_examples=limit_examples(150), deadline=None)
    @given(fields=FIELDS, query=QUERY, limit=st.sampled_from([1, 2, 100]))
    def compare(fields: list[PageTerms], query: KeywordQuery, limit: int) -> None:
        for index in (ours, theirs):
            gone = tuple(file for file in index.get_page_blobs() if int(file[3:]) >= len(fields))
            index.apply(IndexChange(make_entries(fields), gone))
        assert search_keywords(ours, query, limit) == search_keywords(theirs, query, limit)
        assert ours.check() == []

    with closing(ours), closing(theirs):
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
def test_odd_pages_are_ranked_too(what: str, postgres: PostgresStore, embedded: SqliteStore) -> None:
    fields = [ODD_TEXTS[what], PageTerms("disk", "", "raid mirror"), PageTerms("", "", f"diskette w7 {LONG_WORD[:50]}")]
    queries = [
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
    ]
    ours, theirs = create_in_both(fields, postgres, embedded)
    with closing(ours), closing(theirs):
        for query in queries:
            assert search_keywords(ours, query) == search_keywords(theirs, query), query
        assert ours.check() == []


def test_terms_that_no_text_can_contain_find_nothing(postgres: PostgresStore) -> None:
    (index,) = create_in_both([PageTerms("disk", "", "raid")], postgres)
    with closing(index):
        for odd in ("\0", "a\0b", "\ud800", "'", "\\", "'' | 'disk", "disk:*", "!disk", "(", "x" * 100_000):
            query = KeywordQuery((odd,), prefix=odd)
            assert index.search_keywords(query, 10, PageFilter()) == []
            assert index.get_max_keyword_score(query) > 0
            assert index.find_matching_page_ids(KeywordQuery(phrases=((odd,),))).tolist() == []
        assert len(index.search_keywords(KeywordQuery(("disk",)), 10, PageFilter())) == 1
