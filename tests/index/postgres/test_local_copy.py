"""A node's copy of a large wiki has the content of the database, or is not searched."""

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.index.postgres.test_sqlite_copy import EMBEDDER, RECIPE, TABLES, WIKI, create_filled_index, read_content
from tests.support.postgres_stores import postgres, shared
from wikiholt.domain.index import IndexChange, IndexedPageMove
from wikiholt.domain.page import PageProblem
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import DatabaseUnavailable
from wikiholt.index.postgres import local_copy, sqlite_copy
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.postgres.local_copy import LocalCopy
from wikiholt.index.postgres.schema import GenerationTables
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.testing.fakes import make_entry

OTHER = "dddddddddddddddddddd"

__all__ = ["postgres", "shared"]


def open_copy(index: WikiIndex, directory: Path) -> LocalCopy:
    """A copy that has been built."""
    assert isinstance(index, PostgresIndex)
    copy = LocalCopy(index, directory)
    copy.refresh()
    copy.wait_idle(60)
    return copy


def get_searched(copy: LocalCopy) -> SqliteIndex:
    found = copy.get_current()
    assert found is not None
    return found


def assert_equal(copy: LocalCopy, index: WikiIndex, tmp_path: Path) -> None:
    """The copy has what a copy made now has, and is intact."""
    file = tmp_path / "now"
    state = index.write_backup(file)
    searched = get_searched(copy)
    assert searched.get_state() == state
    assert searched.check() == []
    own = next(tmp_path.glob("node/copy-g*.sqlite"))
    followed, expected = read_content(own, TABLES), read_content(file, TABLES)
    assert {name for name in expected if followed[name] != expected[name] and name != "sqlite_sequence"} == set()
    file.unlink()
    pages = list(range(1, 1_000))
    ours, theirs = searched.get_page_vectors(pages), index.get_page_vectors(pages)
    assert ours.chunk_ids.tolist() == theirs.chunk_ids.tolist()
    np.testing.assert_array_equal(ours.vectors, theirs.vectors)


def test_a_copy_takes_over_every_change(postgres: PostgresStore, tmp_path: Path) -> None:
    rng = random.Random(5)
    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        assert_equal(copy, index, tmp_path)
        for turn in range(25):
            files = sorted(index.get_page_blobs())
            old = rng.sample(files, 4)
            entries = (
                make_entry(f"new/{turn}.md", [f"fresh {turn}"], EMBEDDER, links=["dir/7"]),
                make_entry(old[0], [f"changed {turn}", "beta"], EMBEDDER, tags=["New"]),
            )
            problems = (PageProblem(old[3], "b" * 40, "binary", "why"),) if turn % 3 == 0 else ()
            change = IndexChange(entries, tuple(old[1 : 1 + turn % 3]), problems, revision=f"r{turn}")
            index.apply(change)
            assert_equal(copy, index, tmp_path)
            hits = get_searched(copy).search_keywords(KeywordQuery((f"{turn}",)), 99, PageFilter())
            assert hits == index.search_keywords(KeywordQuery((f"{turn}",)), 99, PageFilter())


def test_a_file_that_takes_the_place_of_another_is_copied(postgres: PostgresStore, tmp_path: Path) -> None:
    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        move = IndexedPageMove("dir/7.md", "dir/8.md", "dir/8", "8", (), None, "8", None)
        index.apply(IndexChange(moved=(move,), deleted=("dir/8.md",)))
        assert_equal(copy, index, tmp_path)


def test_a_copy_follows_a_database_that_went_back(postgres: PostgresStore, tmp_path: Path) -> None:
    """After a restore or a failover, the database may have other pages at the same versions."""
    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        index.write_backup(tmp_path / "earlier")
        for name in ("lost", "lost too"):
            index.apply(IndexChange((make_entry(f"{name}.md", [name], EMBEDDER),), revision=name))
        assert_equal(copy, index, tmp_path)
        with postgres.get_connections(WIKI).write_transaction() as db:
            db.execute("DELETE FROM g1_pages; DELETE FROM g1_chunks; DELETE FROM state WHERE name LIKE '#p%'")
            sqlite_copy.import_copy(db, tmp_path / "earlier", GenerationTables(1, WIKI))
        for name in ("other", "another"):
            index.apply(IndexChange((make_entry(f"{name}.md", [name], EMBEDDER),), revision=name))
        copy.refresh()
        copy.wait_idle(60)
        assert_equal(copy, index, tmp_path)


def test_a_copy_follows_another_history_at_the_version_that_it_has(postgres: PostgresStore, tmp_path: Path) -> None:
    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        index.write_backup(tmp_path / "earlier")
        index.apply(IndexChange(problems=(PageProblem("lost.md", "b" * 40, "binary", "why"),), revision="lost"))
        assert_equal(copy, index, tmp_path)
        reader, other = postgres.open(WIKI), KeywordQuery(("other",))
        lost_version = reader.get_version()
        assert reader.search_keywords(other, 1, PageFilter()) == index.search_keywords(other, 1, PageFilter()) == []
        with postgres.get_connections(WIKI).write_transaction() as db:
            db.execute("DELETE FROM g1_pages; DELETE FROM g1_chunks; DELETE FROM state WHERE name LIKE '#p%'")
            sqlite_copy.import_copy(db, tmp_path / "earlier", GenerationTables(1, WIKI))
        index.apply(IndexChange((make_entry("other.md", ["other"], EMBEDDER),), revision="other"))
        assert reader.get_version() == index.get_version() == lost_version
        found = reader.search_keywords(other, 1, PageFilter())
        assert found
        assert found == index.search_keywords(other, 1, PageFilter())
        copy.refresh()
        copy.wait_idle(60)
        assert_equal(copy, index, tmp_path)


def test_many_changes_are_taken_over_in_the_background(
    postgres: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copy, "_MAX_CHANGED_PAGES", 5)
    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        index.apply(IndexChange(tuple(make_entry(f"many/{n}.md", ["text"], EMBEDDER) for n in range(6))))
        assert copy.get_current() is None, "the database answers meanwhile"
        copy.wait_idle(60)
        assert_equal(copy, index, tmp_path)


def test_a_copy_that_another_process_replaces_is_opened_again(
    postgres: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copy, "_MAX_CHANGED_PAGES", 5)
    monkeypatch.setattr(local_copy, "_MAX_UPDATED_PAGES", 5)
    with (
        closing(create_filled_index(postgres)) as index,
        closing(open_copy(index, tmp_path / "node")) as copy,
        closing(open_copy(index, tmp_path / "node")) as other,
    ):
        searched = get_searched(copy)
        index.apply(IndexChange(tuple(make_entry(f"many/{n}.md", ["text"], EMBEDDER) for n in range(6))))
        assert other.get_current() is None
        other.wait_idle(60)
        assert_equal(copy, index, tmp_path)
        assert get_searched(copy) is not searched
        assert searched.get_version() < index.get_version(), "a search that began before may end"


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("spoil", [damage, remove])
def test_a_spoiled_copy_is_built_again(postgres: PostgresStore, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    with closing(create_filled_index(postgres)) as index:
        open_copy(index, tmp_path / "node").close()
        spoil(next(tmp_path.glob("node/copy-g*.sqlite")))
        with closing(open_copy(index, tmp_path / "node")) as copy:
            copy.refresh()
            copy.wait_idle(60)
            assert_equal(copy, index, tmp_path)


def test_a_copy_outlives_an_unreachable_database(
    postgres: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseUnavailable("the database cannot be reached")

    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        searched = get_searched(copy)
        index.apply(IndexChange((make_entry("new.md", ["new"], EMBEDDER),)))
        with monkeypatch.context() as broken:
            broken.setattr(PostgresIndex, "update_index", fail)
            with pytest.raises(DatabaseUnavailable):
                copy.get_current()
        assert get_searched(copy) is searched
        assert_equal(copy, index, tmp_path)


def test_damage_found_by_the_check_is_not_searched(postgres: PostgresStore, tmp_path: Path) -> None:
    with closing(create_filled_index(postgres)) as index, closing(open_copy(index, tmp_path / "node")) as copy:
        searched = get_searched(copy)
        with searched._pool.write_transaction() as db:
            db.execute("UPDATE pages SET name = 'Other' WHERE id = 3")
        copy.verify()
        assert copy.get_current() is None
        copy.wait_idle(60)
        assert_equal(copy, index, tmp_path)


def test_a_copy_of_another_wiki_is_not_searched(postgres: PostgresStore, tmp_path: Path) -> None:
    with closing(create_filled_index(postgres)) as index, closing(postgres.create(OTHER, RECIPE)) as other:
        other.apply(IndexChange((make_entry("canary.md", ["canary"], EMBEDDER),)))
        open_copy(index, tmp_path / "node").close()
        open_copy(other, tmp_path / "other").close()
        own = next(tmp_path.glob("node/copy-g*.sqlite"))
        shutil.copy(next(tmp_path.glob("other/copy-g*.sqlite")), own)
        with closing(open_copy(index, tmp_path / "node")) as copy:
            copy.refresh()
            copy.wait_idle(60)
            assert get_searched(copy).wiki_id == WIKI
            assert_equal(copy, index, tmp_path)


def test_the_copy_of_a_replaced_generation_is_removed(postgres: PostgresStore, tmp_path: Path) -> None:
    with closing(create_filled_index(postgres)) as index:
        open_copy(index, tmp_path / "node").close()
        (tmp_path / "node" / "g000001.keywords").touch()
    with closing(postgres.create_generation(WIKI, RECIPE)) as index:
        index.apply(IndexChange((make_entry("one.md", ["one"], EMBEDDER),), revision="r"))
        with closing(open_copy(index, tmp_path / "node")) as copy:
            assert_equal(copy, index, tmp_path)
            assert len(list(tmp_path.glob("node/copy-g*.sqlite"))) == 1
            assert not list(tmp_path.glob("node/*.keywords"))


def test_small_wikis_have_no_copy(postgres: PostgresStore) -> None:
    with closing(create_filled_index(postgres)) as index:
        assert postgres.open_copy(index) is None
