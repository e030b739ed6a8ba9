"""What the word cache promises: the pages, scores and order of the store, at every version."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_truth import VOCABULARY, assert_agree, assert_same, cache_of, ids, new_index, page, random_pages, sorted_ids

from wikiholt.errors import NotHere
from wikiholt.model import Change, Filter, PageEntry, WordQuery

FIELD = st.lists(st.sampled_from(VOCABULARY), max_size=6).map(" ".join)
PAGES = st.lists(
    st.builds(page, st.integers(0, 12).map(lambda n: f"p{n}"), FIELD, FIELD, FIELD),
    max_size=12,
    unique_by=lambda entry: entry.page.file,
)
EDIT = st.one_of(PAGES, st.lists(st.integers(0, 12).map(lambda n: f"p{n}"), max_size=4))
QUERY = st.builds(
    WordQuery,
    st.lists(st.sampled_from(VOCABULARY), max_size=4).map(tuple),
    st.just(()),
    st.lists(st.sampled_from(VOCABULARY).map(lambda term: (term,)), max_size=2).map(tuple),
    st.sampled_from(["", "d", "dis", "disk", "mirror", "zz", "ü"]),
)


@settings(max_examples=60, deadline=None)
@given(first=PAGES, edits=st.lists(EDIT, max_size=5), query=QUERY, limit=st.integers(1, 15), reopen=st.booleans())
def test_edits_and_deletions_keep_the_scores_of_the_store(
    first: list[PageEntry], edits: list[list[PageEntry] | list[str]], query: WordQuery, limit: int, reopen: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        index = new_index(root, first)
        cache = cache_of(index, root)
        for edit in edits:
            pages = tuple(each for each in edit if isinstance(each, PageEntry))
            index.apply(Change(pages, tuple(each for each in edit if isinstance(each, str))))
            if reopen:
                cache.close()
                cache = cache_of(index, root)
            cache.refresh()
            assert cache.version == index.version()
            assert_same(cache.search(query, limit, None), index.words(query, limit, Filter()))
        assert_same(cache.search(query, limit, None), index.words(query, limit, Filter()))
        cache.close()
        index.close()


def test_many_pages_agree_before_and_after_a_merge(tmp_path: Path) -> None:
    index = new_index(tmp_path, random_pages(600))
    cache = cache_of(index, tmp_path)
    assert_agree(cache, index)
    index.apply(Change(tuple(random_pages(150, seed=1, start=400)), tuple(f"p{n}" for n in range(40))))
    cache.refresh()
    assert_agree(cache, index)
    merged_from = cache.version
    index.apply(Change(tuple(random_pages(150, seed=2, start=700))))
    cache.refresh()
    assert_agree(cache, index)
    assert merged_from != index.version()
    assert [path.name for path in (tmp_path / "wikiwiki").glob("words-*")] == [
        f"words-g000001-v{index.version()}.postings"
    ]


def test_ties_go_to_the_lower_page_id_also_when_it_changed_last(tmp_path: Path) -> None:
    index = new_index(tmp_path, [page(f"p{n}", body="same words") for n in range(9)] + [page("other", body="else")] * 1)
    cache = cache_of(index, tmp_path)
    index.apply(Change((page("p0", body="words same"),)))
    cache.refresh()
    hits = cache.search(WordQuery(("same",)), 4, None)
    assert [hit.page_id for hit in hits] == sorted(ids(index)[f"p{n}"] for n in range(4))
    assert_same(hits, index.words(WordQuery(("same",)), 4, Filter()))


def test_only_the_given_pages_compete(tmp_path: Path) -> None:
    index = new_index(tmp_path, random_pages(300))
    cache = cache_of(index, tmp_path)
    index.apply(Change(tuple(random_pages(40, seed=5, start=280))))
    cache.refresh()
    allowed = sorted_ids(i for i in ids(index).values() if i % 3 == 0)
    for query in (WordQuery(("disk", "x")), WordQuery(("dis",), prefix="dis")):
        every = index.words(query, 1000, Filter())
        expected = [hit for hit in every if hit.page_id in set(allowed.tolist())]
        assert_same(cache.search(query, 1000, allowed), expected)
        assert_same(cache.search(query, 7, allowed), expected[:7])
        assert cache.search(query, 7, np.empty(0, np.int64)) == []


def test_a_hidden_page_counts_but_is_never_found(tmp_path: Path) -> None:
    index = new_index(tmp_path, [page("a", body="disk raid"), page("b", body="raid"), page("c"), page("d")])
    cache = cache_of(index, tmp_path)
    assert_agree(cache, index)
    index.apply(Change((page("a"),)))
    cache.refresh()
    assert cache.search(WordQuery(("disk",), prefix="di"), 5, None) == []
    assert_agree(cache, index)


def test_an_empty_index_answers_with_nothing_and_grows(tmp_path: Path) -> None:
    index = new_index(tmp_path)
    cache = cache_of(index, tmp_path)
    assert_agree(cache, index)
    index.apply(Change(tuple(random_pages(20))))
    cache.refresh()
    assert_agree(cache, index)
    index.apply(Change(deleted=tuple(index.pages())))
    cache.refresh()
    assert_agree(cache, index)


def test_joiners_inside_a_word_part_it_as_the_store_does(tmp_path: Path) -> None:
    index = new_index(
        tmp_path, [page("a", body="می\u200cخواهم raid"), page("b", body="raid disk"), page("c", body="x")]
    )
    assert_agree(cache_of(index, tmp_path), index)
    with pytest.raises(NotHere):
        cache_of(index, tmp_path).search(WordQuery(("می\u200cخواهم",)), 5, None)


@pytest.mark.parametrize(
    "query",
    [
        WordQuery(("disk",), phrases=(("disk", "raid"),)),
        WordQuery(phrases=(("disk",),)),
        WordQuery(("disk",), excluded=(("disk", "raid"),)),
        WordQuery(("disk raid",)),
        WordQuery(("disk",), prefix="disk ra"),
    ],
)
def test_phrases_are_left_to_the_store(tmp_path: Path, query: WordQuery) -> None:
    index = new_index(tmp_path, random_pages(20))
    with pytest.raises(NotHere):
        cache_of(index, tmp_path).search(query, 5, None)
