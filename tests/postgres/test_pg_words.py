"""Words in PostgreSQL: the same pages with the same scores, to the last bit, as the embedded store gives."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_server import PgServer
from pg_shared import store_on

from wikiholt.model import Change, Filter, Metadata, Page, PageEntry, Recipe, WordQuery, Words
from wikiholt.ports import Store, WikiIndex
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.stores.postgres.tending import tend
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.text.queries import parse_query
from wikiholt.text.words import page_words
from wikiholt.words.cache import PostingsCache

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
FIELDS = st.lists(st.builds(Words, FIELD, FIELD, FIELD), min_size=1, max_size=10)
PHRASE = st.lists(TERM, min_size=1, max_size=3).map(tuple)
QUERY = st.builds(
    WordQuery,
    st.lists(TERM, max_size=3).map(tuple),
    st.lists(PHRASE, max_size=2).map(tuple),
    st.lists(PHRASE, max_size=2).map(tuple),
    st.sampled_from(["", "dis", "disk", "mir", "日", "a\\", "it'"]),
)
NONE = np.empty((0, 4), np.float32)
IDS = (f"wiki{number:08d}" for number in count())


@pytest.fixture(scope="module")
def postgres(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with store_on(pg, tmp_path_factory.mktemp("scratch")) as store:
        yield store


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> SqliteStore:
    return SqliteStore(tmp_path_factory.mktemp("embedded"))


def entries(fields: Sequence[Words]) -> tuple[PageEntry, ...]:
    pages = [Page(f"{n % 2}/p{n}", f"{n % 2}/p{n}", "", Metadata(), (), (), "", 1) for n in range(len(fields))]
    return tuple(PageEntry("0" * 40, page, (), (), NONE, words) for page, words in zip(pages, fields, strict=True))


def both(fields: Sequence[Words], *stores: Store) -> list[WikiIndex]:
    made, wiki = [], next(IDS)
    for store in stores:
        index = store.create(wiki, Recipe("none", 4, "words"))
        index.apply(Change(entries(fields)))
        made.append(index)
    return made


def answers(index: WikiIndex, query: WordQuery, limit: int = 100) -> object:
    return (
        index.words(query, limit, Filter()),
        index.words(query, limit, Filter(path_prefix="1")),
        index.best_possible(query),
        index.holding(query).tolist(),
    )


def test_any_query_gives_the_pages_and_scores_of_the_embedded_store(
    postgres: PostgresStore, embedded: SqliteStore
) -> None:
    ours, theirs = both([Words("", "", "")], postgres, embedded)

    @settings(max_examples=150, deadline=None)
    @given(fields=FIELDS, query=QUERY, limit=st.sampled_from([1, 2, 100]))
    def compare(fields: list[Words], query: WordQuery, limit: int) -> None:
        for index in (ours, theirs):
            gone = tuple(file for file in index.pages() if int(file[3:]) >= len(fields))
            index.apply(Change(entries(fields), gone))
        assert answers(ours, query, limit) == answers(theirs, query, limit)
        assert ours.check() == []

    with closing(ours), closing(theirs):
        compare()


LONG = "x" * 3000
ODD = {
    "more words than PostgreSQL can tell the place of": Words("", "", " ".join(f"w{n % 900}" for n in range(20_000))),
    "a word more often than PostgreSQL can count": Words("disk", "raid", "disk " * 20_000 + "mirror disk"),
    "a word that is too long": Words("", LONG, f"disk {LONG}y raid {LONG} disk"),
    "more words than a tsvector holds": Words("", "", " ".join(f"wort{n:06d}wort" for n in range(70_000))),
    "joiners inside of words": Words("", "", "می\u200cخواهم disk\u200draid  mirror"),
    "nothing": Words("", "", ""),
}


@pytest.mark.parametrize("what", ODD)
def test_pages_that_a_tsvector_cannot_hold_are_ranked_all_the_same(
    what: str, postgres: PostgresStore, embedded: SqliteStore
) -> None:
    fields = [ODD[what], Words("disk", "", "raid mirror"), Words("", "", f"diskette w7 {LONG[:50]}")]
    queries = [
        WordQuery(("disk", "raid")),
        WordQuery(("w7", "w899", "wort000007wort"), prefix="wort0000"),
        WordQuery(("disk",), (("w7", "w8"),)),
        WordQuery(phrases=(("disk", "disk"),)),
        WordQuery(phrases=(("mirror", "disk"),), excluded=(("raid", "raid"),)),
        WordQuery((LONG,), prefix=LONG),
        WordQuery(("disk",), excluded=((LONG,),)),
        WordQuery(("disk",), excluded=((f"{LONG}y", "raid"),), prefix="dis"),
        WordQuery(("disk\u200draid", "می"), prefix="خ"),
        WordQuery(("", "\u200c")),
        WordQuery(excluded=(("w8",),)),
    ]
    ours, theirs = both(fields, postgres, embedded)
    with closing(ours), closing(theirs):
        for query in queries:
            assert answers(ours, query) == answers(theirs, query), query
        assert ours.check() == []


def test_real_pages_are_found_alike_with_and_without_indexes(
    postgres: PostgresStore, embedded: SqliteStore, tmp_path: Path
) -> None:
    texts = [page.read_text() for page in sorted(Path("docs").rglob("*.md"))]
    paragraphs = [part for text in texts for part in text.split("\n\n") if len(part) > 40][:400]
    pages = [Page(f"1/{n}", f"1/{n}", part[:30], Metadata(), (), (), part, 1) for n, part in enumerate(paragraphs)]
    fields = [page_words(page) for page in pages]
    ours, theirs = both(fields, postgres, embedded)
    queries = [
        "index",
        'what is "the index"',
        "search wiki -git",
        "rebuil",
        '"a wiki" -"the index" sync',
        "backup restor",
    ]
    with closing(ours), closing(theirs), closing(PostingsCache(ours, tmp_path, background=False)) as cache:
        cache.refresh()
        for turn in range(2):
            for text in queries:
                query = parse_query(text)
                found = ours.words(query, 50, Filter())
                assert (found, ours.holding(query).tolist()) == (
                    theirs.words(query, 50, Filter()),
                    theirs.holding(query).tolist(),
                )
                assert found
                if not query.phrases and not query.excluded:
                    assert cache.search(query, 50, None) == found
            if turn == 0:
                placement = postgres.placements.get(postgres.ids()[-1])
                assert "g1_pages_terms" in tend(postgres.placements.operator(placement), placement.schema)
                assert tend(postgres.placements.operator(placement), placement.schema) == []


def test_words_that_name_no_text_find_nothing_and_harm_nothing(postgres: PostgresStore) -> None:
    (index,) = both([Words("disk", "", "raid")], postgres)
    with closing(index):
        for odd in ("\0", "a\0b", "\ud800", "'", "\\", "'' | 'disk", "disk:*", "!disk", "(", "x" * 100_000):
            query = WordQuery((odd,), prefix=odd)
            assert index.words(query, 10, Filter()) == []
            assert index.best_possible(query) > 0
            assert index.holding(WordQuery(phrases=((odd,),))).tolist() == []
        assert len(index.words(WordQuery(("disk",)), 10, Filter())) == 1
