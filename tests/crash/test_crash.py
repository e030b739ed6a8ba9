"""Recovery from kills, bad disks and broken repositories: the next start serves, and one sync repairs the index.
These are single failures; `test_crash_gate.py` runs random ones."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.crash.file_damage import flip
from tests.crash.random_edits import create_pages
from tests.support.git_repository import Repository
from tests.support.services import make_cached_service
from wikiholt.domain.search import SearchMode
from wikiholt.errors import IndexCorrupt, IndexUnavailable, StorageError
from wikiholt.index.repair import IndexRepair
from wikiholt.search.request import SearchRequest
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService


@pytest.fixture
def wiki(tmp_path: Path) -> WikiHandle:
    create_pages(Repository(tmp_path / "wiki"), Random(1), 30)
    service = make_cached_service(tmp_path / "data")
    service.add("victim", str(tmp_path / "wiki"), {})
    handle = service.get_handle("victim")
    handle.sync()
    service.close()
    return handle


@pytest.fixture
def service(tmp_path: Path, wiki: WikiHandle) -> Iterator[WikiService]:
    opened = make_cached_service(tmp_path / "data")
    yield opened
    opened.close()


def get_index_file(tmp_path: Path, wiki: WikiHandle) -> Path:
    return tmp_path / "data" / "wikis" / wiki.wiki.id / "g000001.sqlite"


def test_messages_about_damage_never_quote_a_page(
    tmp_path: Path, wiki: WikiHandle, caplog: pytest.LogCaptureFixture
) -> None:
    file = get_index_file(tmp_path, wiki)
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE chunks SET content = CAST(x'ff' || ' page of the handbook' AS TEXT)")
        db.commit()
    assert "handbook" not in " ".join(wiki.check())
    with pytest.raises(IndexCorrupt) as caught:
        wiki.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
    assert "handbook" not in caught.value.message
    assert wiki.sync().rebuilt
    assert "quarantined" in caplog.text
    assert "handbook" not in caplog.text
    wiki.close()


@pytest.mark.parametrize("table", ["chunks", "words_data", "tags", "pages_path"])
def test_a_flipped_bit_inside_a_row_is_found(tmp_path: Path, wiki: WikiHandle, table: str) -> None:
    file = get_index_file(tmp_path, wiki)
    database = sqlite3.connect(file)
    (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    leaf = root
    content = bytearray(file.read_bytes())
    while content[(leaf - 1) * size] in (2, 5):  # an inner page of a B-tree: follow its right-most child
        leaf = int.from_bytes(content[(leaf - 1) * size + 8 : (leaf - 1) * size + 12])
    content[leaf * size - 5] ^= 4
    file.write_bytes(content)
    assert wiki.check() != []


def test_an_index_is_fully_read_by_a_sync_only_after_damage_was_reported(
    tmp_path: Path, wiki: WikiHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[str] = []
    monkeypatch.setattr("wikiholt.index.sqlite.index.SqliteIndex.check", lambda self: checks.append("read") or [])
    for _ in range(2):
        service = make_cached_service(tmp_path / "data")
        service.get_handle("victim").sync()
        service.get_handle("victim").search(SearchRequest("boiler"))
        service.close()
    assert checks == []
    IndexRepair(wiki.wiki.id, "victim", wiki._components.store).report("a test")
    for _ in range(2):
        service = make_cached_service(tmp_path / "data")
        service.get_handle("victim").sync()
        service.close()
    assert checks == ["read"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes, if one can be mounted."""
    directory = tmp_path / "disk"
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no small file system can be mounted here; other tests use RLIMIT_FSIZE")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_sync_on_a_full_disk_fails_and_continues_when_there_is_space(tmp_path: Path, small_disk: Path) -> None:
    create_pages(Repository(tmp_path / "wiki"), Random(1), 60)
    service = make_cached_service(small_disk / "data")
    service.add("victim", str(tmp_path / "wiki"), {})
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1_850_000))
    with pytest.raises(StorageError):
        service.get_handle("victim").sync()
    filler.unlink()
    service.get_handle("victim").sync()
    assert service.get_handle("victim").check() == []
    assert service.get_handle("victim").search(SearchRequest("unique7")).hits
    service.close()


def test_a_registry_with_a_flipped_bit_is_refused_and_never_lists_fewer_wikis(tmp_path: Path) -> None:
    file = tmp_path / "registry.sqlite"
    registry = Registry(file)
    known = [registry.add(f"wiki-{n}", f"/somewhere/{n}") for n in range(10)]
    registry.close()
    intact = file.read_bytes()
    rng = Random(3)
    refused = 0
    for number in range(200):
        file.write_bytes(intact if number else intact.replace(b"/somewhere/3", b"/somewhere/7"))
        if number:
            flip(file, rng)
        damaged = Registry(file)
        try:
            assert damaged.list_wikis() == known
        except IndexUnavailable:
            refused += 1
        damaged.close()
    assert refused > 20
