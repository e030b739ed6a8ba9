"""The files of generations: which are removed, moved and open."""

import fcntl
from contextlib import closing
from pathlib import Path

from wikiholt.domain.index import Recipe
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.index.sqlite.wiki_directory import GenerationFiles
from wikiholt.testing import conformance
from wikiholt.testing.conformance_mixins import make_page, put_pages

RECIPE = Recipe("test", 3, "test")
WIKI = "aaaabbbbccccddddeeee"
PARTS = ("keywords", "keywords.writing")


def make_parts(directory: Path, number: int) -> list[Path]:
    files = [directory / f"g{number:06d}.{part}" for part in PARTS] + [directory / f"g{number:06d}-1.vectors"]
    for file in files:
        file.write_bytes(b"data")
    return files


def test_files_without_an_index_are_removed_and_those_of_an_index_are_kept(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with closing(store.create(WIKI, RECIPE)):
        kept, lost = (make_parts(tmp_path / WIKI, number) for number in (1, 2))
    _, draft, _ = kept
    with draft.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        GenerationFiles(tmp_path / WIKI).remove_leftovers()
    assert all(file.exists() for file in kept)
    assert not any(file.exists() for file in lost)


def test_a_draft_that_nobody_writes_any_more_is_removed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with closing(store.create(WIKI, RECIPE)):
        keywords, draft, vectors = make_parts(tmp_path / WIKI, 1)
    GenerationFiles(tmp_path / WIKI).remove_leftovers()
    assert (keywords.exists(), draft.exists(), vectors.exists()) == (True, False, True)


def test_all_files_of_an_index_are_quarantined_with_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with closing(store.create(WIKI, RECIPE)):
        files = make_parts(tmp_path / WIKI, 1)
    aside = tmp_path / "aside"
    aside.mkdir()
    GenerationFiles(tmp_path / WIKI).quarantine(aside)
    assert not any(file.exists() for file in files)
    assert {file.name for file in files} <= {file.name for file in aside.iterdir()}


def test_of_many_open_indexes_few_have_open_files(tmp_path: Path) -> None:
    store, indexes = SqliteStore(tmp_path), []
    for number in range(40):
        index = store.create(f"{WIKI[:18]}{chr(97 + number // 26)}{chr(97 + number % 26)}", conformance.RECIPE)
        put_pages(index, make_page("a.md", "alpha"))
        index.get_page_vectors([1])
        indexes.append(index)
    files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert 0 < sum(tmp_path in file.parents and file.suffix == ".vectors" for file in files) <= 32
    assert all(len(index.get_page_vectors([1]).chunk_ids) == 1 for index in indexes), "they are opened again"
    for index in indexes:
        index.close()
