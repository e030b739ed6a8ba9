"""Files of generations that no longer exist."""

import fcntl
from contextlib import closing
from pathlib import Path

from wikiholt.domain.index import Recipe
from wikiholt.storage.sqlite.generations import GenerationFiles
from wikiholt.storage.sqlite.store import SqliteStore

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
