"""What one change does to an index in PostgreSQL, and text that PostgreSQL cannot hold."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pg_shared import embedded, postgres, shared

from wikiholt.errors import Busy, IndexFault
from wikiholt.model import Change, Chunk, Filter, Link, Metadata, Page, PageEntry, Problem, Recipe, WordQuery, Words
from wikiholt.stores.postgres import writing
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.entries import entry
from wikiholt.text.links import folded

WIKI = "cccccccccccccccccccc"
EMBEDDER = FakeEmbedder()
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test")


__all__ = ["embedded", "postgres", "shared"]


ODD = ("nul\0nul", "half \ud83d pair", "\ufdd0 itself", "\ufdd00000", "\uffff", "a'b\\c", "x" * 9_000)


def test_text_that_postgresql_cannot_hold_is_kept_as_it_is(postgres: PostgresStore) -> None:
    pages = [odd_page(odd) for odd in ODD]
    problems = tuple(Problem(f"{odd}.md", "b", "odd", odd) for odd in ODD)
    with closing(postgres.create(WIKI, RECIPE)) as index:
        index.apply(Change(tuple(pages), problems=problems))
        version = index.version()
        assert index.apply(Change(tuple(pages), problems=problems)) == version
        assert set(index.pages()) == {f"{odd}/p.md" for odd in ODD}
        assert {problem.detail for problem in index.problems()} == set(ODD)
        assert index.check() == []
        for odd in ODD:
            page = index.find_page(f"{odd}/p")
            assert page is not None
            assert (page.file, page.tags, page.category) == (f"{odd}/p.md", (odd, "T"), odd)
            assert [chunk.text for chunk in index.page_chunks([page.page_id])[page.page_id]] == [odd, "needle"]
            for where in (Filter(tags=(odd,)), Filter(categories=(odd,)), Filter(path_prefix=odd)):
                assert [each.page_id for each in index.list_pages(where, None)[1]] == [page.page_id]
            assert [link.target for link in index.links([page.page_id])] == [f"{odd} link"]
            assert index.links_naming([folded(f"{odd} link")]) == index.links([page.page_id])
        assert len(index.words(WordQuery(("needle",)), 100, Filter())) == len(ODD)
        index.apply(Change(deleted=tuple(index.pages())))
        assert index.state().pages == 0


def odd_page(odd: str) -> PageEntry:
    """A page with this wherever text can be, but for its words: those are analysed, and never hold the like."""
    link = Link(f"{odd} link", odd, 1, True, (f"{odd} link",))
    metadata = Metadata(tags=(odd, "T"), category=odd, description=odd, language=odd)
    page = Page(f"{odd}/p.md", f"{odd}/p", odd, metadata, (), (link,), "", 1, (odd,))
    chunks = tuple(Chunk(at, text, (odd,), odd, 1, 1, 0, 1) for at, text in enumerate((odd, "needle")))
    return PageEntry("b", page, chunks, (b"one", b"two"), EMBEDDER.passages(["a", "b"]), Words("p", "", "needle"))


def test_the_list_of_what_was_dropped_stays_short(postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "REMEMBERED", 40)
    with closing(postgres.create(WIKI, RECIPE)) as index:
        for turn in range(60):
            index.apply(Change((entry("a.md", [f"text {turn}"], EMBEDDER),)))
        assert index.changes_since(0) is None
        delta = index.changes_since(index.version() - 10)
        assert delta is not None
        assert len(delta.dropped) == 10
        assert index.check() == []


def test_a_file_that_goes_and_comes_in_one_change_is_a_new_page(postgres: PostgresStore, embedded: SqliteStore) -> None:
    ids = []
    for store in (postgres, embedded):
        with closing(store.create(WIKI, RECIPE)) as index:
            index.apply(Change((entry("a.md", ["one"], EMBEDDER), entry("b.md", ["two"], EMBEDDER))))
            index.apply(Change((entry("a.md", ["one"], EMBEDDER),), deleted=("a.md",)))
            problem = Problem("b.md", "b", "binary", "")
            index.apply(Change((entry("b.md", ["two"], EMBEDDER),), problems=(problem,)))
            assert index.problems() == []
            assert index.check() == []
            index.apply(Change(problems=(problem,)))
            index.apply(Change(problems=(problem,), deleted=("b.md",)))
            assert index.problems() == [problem]
            assert index.check() == []
            ids.append({page.file: page.page_id for page in index.list_pages(Filter(), None)[1]})
            ids.append(index.version())
    assert ids[:2] == ids[2:]


def test_vectors_of_another_size_are_refused_and_change_nothing(postgres: PostgresStore) -> None:
    with closing(postgres.create(WIKI, RECIPE)) as index:
        index.apply(Change((entry("a.md", ["one"], EMBEDDER),), revision="r1"))
        before = index.state()
        one = entry("new.md", ["x"], EMBEDDER)
        wrong = type(one)(one.blob, one.page, one.chunks, one.hashes, np.ones((1, 3), np.float32), one.words)
        with pytest.raises(IndexFault):
            index.apply(Change((wrong,)))
        assert index.state() == before
        assert index.check() == []


def test_writers_without_a_lease_follow_one_another(postgres: PostgresStore) -> None:
    with closing(postgres.create(WIKI, RECIPE)) as index, ThreadPoolExecutor(4) as pool:
        changes = [Change((entry(f"{n % 7}.md", [f"text {n}", "more"], EMBEDDER),)) for n in range(28)]
        versions = sorted(pool.map(index.apply, changes))
        assert versions == list(range(1, 29))
        assert (index.state().pages, index.state().chunks) == (7, 14)
        assert index.check() == []


def test_a_writer_whose_lease_has_gone_to_another_writes_nothing(postgres: PostgresStore) -> None:
    with postgres.writing(WIKI, 5):
        mine = postgres.create(WIKI, RECIPE)
        mine.apply(Change((entry("a.md", ["one"], EMBEDDER),)))
        with postgres.door(WIKI).writing() as db:
            db.execute("UPDATE notes SET fence = fence + 1 WHERE name = 'writer'")
        with pytest.raises(Busy) as caught:
            mine.apply(Change((entry("b.md", ["two"], EMBEDDER),)))
        assert caught.value.hint
        assert list(mine.pages()) == ["a.md"]
        assert mine.check() == []
        mine.close()


FILE = st.sampled_from(["a.md", "b.md", "dir/c.md"])
ENTRY = st.builds(lambda file, texts: entry(file, texts, EMBEDDER), FILE, st.lists(st.sampled_from("xyz"), max_size=3))
PROBLEM = st.builds(Problem, FILE, st.just("b"), st.sampled_from(["binary", "vast"]), st.just(""))
CHANGE = st.builds(
    Change,
    st.lists(ENTRY, max_size=2, unique_by=lambda one: one.page.file).map(tuple),
    st.lists(FILE, max_size=2).map(tuple),
    st.lists(PROBLEM, max_size=2, unique_by=lambda one: one.file).map(tuple),
    st.sampled_from([None, "r1", "r2"]),
)


def test_any_changes_make_of_both_stores_the_same(postgres: PostgresStore, embedded: SqliteStore) -> None:
    numbers = count()

    @settings(max_examples=20)
    @given(changes=st.lists(CHANGE, max_size=5))
    def compare(changes: list[Change]) -> None:
        wiki = f"wiki{next(numbers):08d}"
        with closing(postgres.create(wiki, RECIPE)) as ours, closing(embedded.create(wiki, RECIPE)) as theirs:
            for change in changes:
                assert ours.apply(change) == theirs.apply(change)
            assert list(ours.problems()) == list(theirs.problems())
            assert ours.list_pages(Filter(), None) == theirs.list_pages(Filter(), None)
            ids = [page.page_id for page in ours.list_pages(Filter(), None)[1]]
            assert ours.page_chunks(ids) == theirs.page_chunks(ids)
            for version in range(ours.version() + 1):
                one, other = ours.changes_since(version), theirs.changes_since(version)
                assert one is not None
                assert other is not None
                assert one.added.chunk_ids.tolist() == other.added.chunk_ids.tolist()
                assert sorted(one.dropped.tolist()) == sorted(other.dropped.tolist())
            assert ours.check() == []

    compare()
