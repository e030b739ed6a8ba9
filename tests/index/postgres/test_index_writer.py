"""The effect of one change on an index in PostgreSQL, and text that PostgreSQL cannot store."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.support.postgres_stores import embedded, postgres, shared
from wikiholt.domain.index import IndexChange, PageEntry, Recipe
from wikiholt.domain.page import Chunk, Link, Page, PageMetadata, PageProblem, PageTerms
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import Busy
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry
from wikiholt.text.links import fold_path

WIKI = "cccccccccccccccccccc"
EMBEDDER = FakeEmbedder()
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test")


__all__ = ["embedded", "postgres", "shared"]


ODD_TEXTS = ("nul\0nul", "half \ud83d pair", "\ufdd0 itself", "\ufdd00000", "\uffff", "a'b\\c", "x" * 9_000)


def test_text_that_postgresql_cannot_store_is_preserved(postgres: PostgresStore) -> None:
    pages = [make_odd_page(odd) for odd in ODD_TEXTS]
    problems = tuple(PageProblem(f"{odd}.md", "b", "odd", odd) for odd in ODD_TEXTS)
    with closing(postgres.create(WIKI, RECIPE)) as index:
        index.apply(IndexChange(tuple(pages), problems=problems))
        version = index.get_version()
        assert index.apply(IndexChange(tuple(pages), problems=problems)) == version
        assert set(index.get_page_blobs()) == {f"{odd}/p.md" for odd in ODD_TEXTS}
        assert {problem.detail for problem in index.get_problems()} == set(ODD_TEXTS)
        assert index.check() == []
        for odd in ODD_TEXTS:
            page = index.find_page(f"{odd}/p")
            assert page is not None
            assert (page.file, page.tags, page.category) == (f"{odd}/p.md", (odd, "T"), odd)
            assert [chunk.text for chunk in index.get_page_chunks([page.page_id])[page.page_id]] == [odd, "needle"]
            for where in (PageFilter(tags=(odd,)), PageFilter(categories=(odd,)), PageFilter(path_prefix=odd)):
                assert [found.page_id for found in index.list_pages(where, None)[1]] == [page.page_id]
            assert [link.target for link in index.get_links([page.page_id])] == [f"{odd} link"]
            assert index.find_links_by_key([fold_path(f"{odd} link")]) == index.get_links([page.page_id])
        assert len(index.search_keywords(KeywordQuery(("needle",)), 100, PageFilter())) == len(ODD_TEXTS)
        index.apply(IndexChange(deleted=tuple(index.get_page_blobs())))
        assert index.get_state().pages == 0


def count_state_rows(postgres: PostgresStore, pattern: str) -> int:
    with postgres.get_connections(WIKI).read_connection() as connection:
        (count,) = connection.execute("SELECT count(*) FROM state WHERE name LIKE %s", (pattern,)).fetchone() or (0,)
    return int(count)


def test_long_texts_need_no_toast_table_and_leave_nothing_behind(postgres: PostgresStore) -> None:
    long = PageProblem("long.md", "b", "failed", "é\0" * 5_000)
    with closing(postgres.create(WIKI, RECIPE)) as index:
        index.apply(IndexChange(problems=(long, PageProblem("short.md", "b", "failed", "x"))))
        assert count_state_rows(postgres, "#p%") > 2
        assert long in index.get_problems()
        version = index.get_version()
        assert index.apply(IndexChange(problems=(long,))) == version
        index.apply(IndexChange(problems=(PageProblem("long.md", "b", "failed", "y"),)))
        assert count_state_rows(postgres, "#p%") == 2
        assert index.get_state().problems == 2
        assert index.check() == []
    for text in ("z" * 9_000, "ü" * 2_500, "short", ""):
        postgres.set_note(WIKI, "health", text)
        assert postgres.get_note(WIKI, "health") == text
    assert count_state_rows(postgres, "health%") == 1


def make_odd_page(odd: str) -> PageEntry:
    """A page with this text in every text field except its terms, which the analyser never makes like this."""
    link = Link(f"{odd} link", odd, 1, True, (f"{odd} link",))
    metadata = PageMetadata(tags=(odd, "T"), category=odd, description=odd, language=odd)
    page = Page(f"{odd}/p.md", f"{odd}/p", odd, metadata, (), (link,), "", 1, (odd,))
    chunks = tuple(Chunk(at, text, (odd,), odd, 1, 1, 0, 1) for at, text in enumerate((odd, "needle")))
    return PageEntry(
        "b", page, chunks, (b"one", b"two"), EMBEDDER.embed_passages(["a", "b"]), PageTerms("p", "", "needle")
    )


def test_a_file_removed_and_added_in_one_change_is_a_new_page(postgres: PostgresStore, embedded: SqliteStore) -> None:
    ids = []
    for store in (postgres, embedded):
        with closing(store.create(WIKI, RECIPE)) as index:
            index.apply(IndexChange((make_entry("a.md", ["one"], EMBEDDER), make_entry("b.md", ["two"], EMBEDDER))))
            index.apply(IndexChange((make_entry("a.md", ["one"], EMBEDDER),), deleted=("a.md",)))
            problem = PageProblem("b.md", "b", "binary", "")
            index.apply(IndexChange((make_entry("b.md", ["two"], EMBEDDER),), problems=(problem,)))
            assert index.get_problems() == []
            assert index.check() == []
            index.apply(IndexChange(problems=(problem,)))
            index.apply(IndexChange(problems=(problem,), deleted=("b.md",)))
            assert index.get_problems() == [problem]
            assert index.check() == []
            ids.append({page.file: page.page_id for page in index.list_pages(PageFilter(), None)[1]})
            ids.append(index.get_version())
    assert ids[:2] == ids[2:]


def test_writers_without_a_lease_run_one_after_another(postgres: PostgresStore) -> None:
    with closing(postgres.create(WIKI, RECIPE)) as index, ThreadPoolExecutor(4) as pool:
        changes = [IndexChange((make_entry(f"{n % 7}.md", [f"text {n}", "more"], EMBEDDER),)) for n in range(28)]
        versions = sorted(pool.map(index.apply, changes))
        assert versions == list(range(1, 29))
        assert (index.get_state().pages, index.get_state().chunks) == (7, 14)
        assert index.check() == []


def test_a_writer_whose_lease_another_has_taken_writes_nothing(postgres: PostgresStore) -> None:
    with postgres.write_lock(WIKI, 5):
        mine = postgres.create(WIKI, RECIPE)
        mine.apply(IndexChange((make_entry("a.md", ["one"], EMBEDDER),)))
        with postgres.get_connections(WIKI).write_transaction() as db:
            db.execute("UPDATE state SET fence = fence + 1 WHERE name = 'writer'")
        with pytest.raises(Busy) as caught:
            mine.apply(IndexChange((make_entry("b.md", ["two"], EMBEDDER),)))
        assert caught.value.hint
        assert list(mine.get_page_blobs()) == ["a.md"]
        assert mine.check() == []
        mine.close()
