"""The keyword cache gives the pages, scores and order of the store, at every version."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index.keywords.keyword_fixtures import (
    VOCABULARY,
    assert_agree,
    assert_same_hits,
    create_index,
    get_page_ids,
    list_files,
    make_id_array,
    make_page,
    make_random_pages,
    open_cache,
)
from tests.support.tiers import limit_examples
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.index import IndexChange, PageEntry
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import CacheCannotAnswer

FIELD = st.lists(st.sampled_from(VOCABULARY), max_size=6).map(" ".join)
PAGES = st.lists(
    st.builds(make_page, st.integers(0, 12).map(lambda n: f"p{n}"), FIELD, FIELD, FIELD),
    max_size=12,
    unique_by=lambda entry: entry.page.file,
)
EDIT = st.one_of(PAGES, st.lists(st.integers(0, 12).map(lambda n: f"p{n}"), max_size=4))
QUERY = st.builds(
    KeywordQuery,
    st.lists(st.sampled_from(VOCABULARY), max_size=4).map(tuple),
    prefix=st.sampled_from(["", "d", "dis", "disk", "mirror", "zz", "ü"]),
)


@pytest.mark.slow
@settings(max_examples=limit_examples(60), deadline=None)
@given(first=PAGES, edits=st.lists(EDIT, max_size=5), query=QUERY, limit=st.integers(1, 15), reopen=st.booleans())
def test_edits_and_deletions_keep_the_scores_of_the_store(
    first: list[PageEntry], edits: list[list[PageEntry] | list[str]], query: KeywordQuery, limit: int, reopen: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        index = create_index(root, first)
        cache = open_cache(index, root)
        for edit in edits:
            pages = tuple(part for part in edit if isinstance(part, PageEntry))
            index.apply(IndexChange(pages, tuple(part for part in edit if isinstance(part, str))))
            if reopen:
                cache.close()
                cache = open_cache(index, root)
            cache.refresh()
            assert cache.version == index.get_version()
            assert_same_hits(cache.search(query, limit, None), index.search_keywords(query, limit, PageFilter()))
        assert_same_hits(cache.search(query, limit, None), index.search_keywords(query, limit, PageFilter()))
        cache.close()
        index.close()


@pytest.mark.slow
def test_many_pages_agree_before_and_after_the_postings_are_built_again(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(600))
    cache = open_cache(index, tmp_path)
    assert_agree(cache, index)
    file = tmp_path / "wikiwiki" / "g000001.keywords"
    built = file.stat().st_ino
    index.apply(IndexChange(tuple(make_random_pages(150, seed=1, start=400)), tuple(f"p{n}" for n in range(40))))
    cache.refresh()
    assert_agree(cache, index)
    assert file.stat().st_ino == built
    index.apply(IndexChange(tuple(make_random_pages(200, seed=2, start=700))))
    cache.refresh()
    assert_agree(cache, index)
    assert file.stat().st_ino != built
    assert list_files(tmp_path) == [file.name]


def test_after_very_many_changes_the_index_answers_until_the_postings_are_built(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(20))
    cache = open_cache(index, tmp_path, background=True)
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)
    index.apply(IndexChange(tuple(make_random_pages(1_000, seed=2))))
    cache.refresh()
    if cache.version is None:
        with pytest.raises(CacheCannotAnswer):
            cache.search(KeywordQuery(("disk",)), 5, None)
    assert cache.wait_idle(TIMEOUT_S)
    cache.refresh()
    assert_agree(cache, index)


def test_ties_go_to_the_lower_page_id_also_when_it_changed_last(tmp_path: Path) -> None:
    index = create_index(
        tmp_path, [make_page(f"p{n}", body="same words") for n in range(9)] + [make_page("other", body="else")] * 1
    )
    cache = open_cache(index, tmp_path)
    index.apply(IndexChange((make_page("p0", body="words same"),)))
    cache.refresh()
    hits = cache.search(KeywordQuery(("same",)), 4, None)
    assert [hit.page_id for hit in hits] == sorted(get_page_ids(index)[f"p{n}"] for n in range(4))
    assert_same_hits(hits, index.search_keywords(KeywordQuery(("same",)), 4, PageFilter()))


def test_only_the_given_pages_compete(tmp_path: Path) -> None:
    index = create_index(tmp_path, make_random_pages(300))
    cache = open_cache(index, tmp_path)
    index.apply(IndexChange(tuple(make_random_pages(40, seed=5, start=280))))
    cache.refresh()
    allowed = make_id_array(i for i in get_page_ids(index).values() if i % 3 == 0)
    for query in (KeywordQuery(("disk", "x")), KeywordQuery(("dis",), prefix="dis")):
        every = index.search_keywords(query, 1000, PageFilter())
        expected = [hit for hit in every if hit.page_id in set(allowed.tolist())]
        assert_same_hits(cache.search(query, 1000, allowed), expected)
        assert_same_hits(cache.search(query, 7, allowed), expected[:7])
        assert cache.search(query, 7, np.empty(0, np.int64)) == []


def test_a_hidden_page_counts_but_is_never_found(tmp_path: Path) -> None:
    index = create_index(
        tmp_path, [make_page("a", body="disk raid"), make_page("b", body="raid"), make_page("c"), make_page("d")]
    )
    cache = open_cache(index, tmp_path)
    assert_agree(cache, index)
    index.apply(IndexChange((make_page("a"),)))
    cache.refresh()
    assert cache.search(KeywordQuery(("disk",), prefix="di"), 5, None) == []
    assert_agree(cache, index)


def test_an_empty_index_answers_with_nothing_and_grows(tmp_path: Path) -> None:
    index = create_index(tmp_path)
    cache = open_cache(index, tmp_path)
    assert_agree(cache, index)
    index.apply(IndexChange(tuple(make_random_pages(20))))
    cache.refresh()
    assert_agree(cache, index)
    index.apply(IndexChange(deleted=tuple(index.get_page_blobs())))
    cache.refresh()
    assert_agree(cache, index)


def test_joiners_inside_a_word_split_it_like_the_store(tmp_path: Path) -> None:
    index = create_index(
        tmp_path,
        [make_page("a", body="می\u200cخواهم raid"), make_page("b", body="raid disk"), make_page("c", body="x")],
    )
    cache = open_cache(index, tmp_path)
    assert_agree(cache, index)
    for word in ("می", "خواهم"):
        query = KeywordQuery((word,))
        assert_same_hits(cache.search(query, 5, None), index.search_keywords(query, 5, PageFilter()))
        assert len(cache.search(query, 5, None)) == 1


@pytest.mark.parametrize(
    "query",
    [
        KeywordQuery(("disk",), phrases=(("disk", "raid"),)),
        KeywordQuery(("disk raid",)),
        KeywordQuery(("disk",), prefix="disk ra"),
    ],
)
def test_phrases_are_left_to_the_index(tmp_path: Path, query: KeywordQuery) -> None:
    index = create_index(tmp_path, make_random_pages(20))
    with pytest.raises(CacheCannotAnswer):
        open_cache(index, tmp_path).search(query, 5, None)
