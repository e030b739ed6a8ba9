"""A shared Chroma collection from a directory and from a server, with the real Chroma. A crash loses nothing."""

import hashlib
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.api.importer.import_fixtures import ImportFixture, write_rows
from tests.support.chroma_server import RunningChroma
from tests.support.fork_server import CHROMA_MODULES, run_forked
from wikiholt.api.importer.chroma_source import ChromaDirectory, ChromaServer, ImportedCollection
from wikiholt.api.importer.importer import Importer, ImportOptions, ImportReport
from wikiholt.api.importer.shared_index import OwnershipRules, SharedIndex
from wikiholt.errors import InvalidImport, StorageError

pytest.importorskip("chromadb")

OWNERSHIP_RULES = OwnershipRules((("Home", "harbour"),))
CREATE_SCRIPT = """
import json, sys
import chromadb
from chromadb.config import Settings
client = chromadb.PersistentClient(sys.argv[1], Settings(anonymized_telemetry=False))
rows = json.load(open(sys.argv[2]))
often = {"hnsw:sync_threshold": 2, "hnsw:batch_size": 2}
made = client.get_or_create_collection("otterwiki_pages", embedding_function=None, metadata=often)
columns = ([row[name] for row in rows] for name in ("id", "vector", "metadata", "text"))
made.upsert(*columns)
client.get_or_create_collection("recipes", embedding_function=None)
"""


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImportFixture]:
    imports = ImportFixture(tmp_path_factory.mktemp("chroma"))
    yield imports
    imports.close()


@pytest.fixture(scope="module")
def directory(imports: ImportFixture) -> Path:
    """A directory of the single-wiki plugin: pages of both wikis; of the two Home pages only the last one."""
    rows = {(row.page, row.index): row for slug in ("garden", "harbour") for row in imports.make_rows(slug)}
    write_rows(imports.place / "rows.json", [*rows.values()])
    directory_path = imports.place / "shared"
    command = [sys.executable, "-c", CREATE_SCRIPT, str(directory_path), str(imports.place / "rows.json")]
    run_forked(command, modules=CHROMA_MODULES, check=True, timeout=120)
    return directory_path


def hash_files(directory: Path) -> dict[str, str]:
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.rglob("*") if file.is_file()}


def run_import(
    imports: ImportFixture, shared: SharedIndex | None = None, directory: Path | None = None, **options: object
) -> ImportReport:
    def opened(place: Path) -> SharedIndex:
        return shared or ChromaDirectory(directory or place, place, **options)  # type: ignore[arg-type]

    return Importer(imports.service, imports.data, ImportOptions(OWNERSHIP_RULES, dry_run=True)).run(opened)


def test_a_directory_is_imported_and_left_as_it_was(imports: ImportFixture, directory: Path) -> None:
    before = hash_files(directory)
    report = Importer(imports.service, imports.data, ImportOptions(OWNERSHIP_RULES)).run(
        lambda place: ChromaDirectory(directory, place)
    )
    assert hash_files(directory) == before
    assert report.rows == 4
    assert {wiki.slug: (wiki.rows, wiki.reused) for wiki in report.wikis} == {"garden": (1, 1), "harbour": (3, 3)}
    assert all(wiki.proof for wiki in report.wikis)
    assert not (imports.data / "importing").exists()


def test_a_missing_collection_error_lists_the_existing_ones(imports: ImportFixture, directory: Path) -> None:
    with pytest.raises(InvalidImport, match="collections: otterwiki_pages, recipes"):
        run_import(imports, directory=directory, target=ImportedCollection("otterwiki"))


def test_a_directory_without_chroma_files_is_rejected(imports: ImportFixture, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidImport, match=r"there is no chroma\.sqlite3"):
            run_import(imports, directory=place)


def empty_database(copy: Path) -> None:
    (copy / "chroma.sqlite3").write_bytes(b"")


def cut_database(copy: Path) -> None:
    data = (copy / "chroma.sqlite3").read_bytes()
    (copy / "chroma.sqlite3").write_bytes(data[: len(data) // 3])


def noise_for_vectors(copy: Path) -> None:
    dice = np.random.default_rng(3)
    for file in [*copy.rglob("data_level0.bin"), *copy.rglob("header.bin")]:
        file.write_bytes(dice.bytes(file.stat().st_size))


def of_another_version(copy: Path) -> None:
    """With migrations that this version of Chroma does not know."""
    with sqlite3.connect(copy / "chroma.sqlite3") as database:
        database.execute("UPDATE migrations SET hash = 'another', filename = '00001-other.sqlite.sql'")
    database.close()


def without_segments(copy: Path) -> None:
    for place in [place for place in copy.iterdir() if place.is_dir()]:
        shutil.rmtree(place)


def zeros_for_vectors(copy: Path) -> None:
    for file in copy.rglob("data_level0.bin"):
        file.write_bytes(bytes(file.stat().st_size))


DAMAGES = [
    *(empty_database, cut_database, noise_for_vectors, of_another_version),
    *(without_segments, zeros_for_vectors),  # a Chroma query would not notice this
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_directory_is_a_clear_error_and_nothing_is_lost(
    imports: ImportFixture, directory: Path, tmp_path: Path, damage: object
) -> None:
    copy = tmp_path / "damaged"
    shutil.copytree(directory, copy)
    damage(copy)  # type: ignore[operator]
    before, indexes = hash_files(copy), imports.read_all_files()
    with pytest.raises(InvalidImport) as caught:
        run_import(imports, directory=copy)
    assert any(word in caught.value.message for word in ("crashed", "cannot read", "damaged", "no collection"))
    assert caught.value.hint
    assert hash_files(copy) == before
    assert imports.read_all_files() == indexes


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import time; time.sleep(600)", "it timed out"),
        ("import os; os.kill(os.getpid(), 11)", "code -11"),
        ("import os; os._exit(3)", "code 3"),
        ("class Panic(BaseException): pass\nraise Panic('range start index')", "Panic: range start index"),
    ],
)
def test_a_child_process_that_hangs_or_dies_fails_only_the_import(
    imports: ImportFixture, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    (tmp_path / "chromadb_rust_bindings.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidImport, match=message):
        run_import(imports, directory=directory, timeout_s=1.0 if "sleep" in code else 60.0)


def test_an_oversized_file_is_not_copied(imports: ImportFixture, directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "sparse"
    shutil.copytree(directory, copy)
    with (copy / "link_lists.bin").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(StorageError, match="are free"):
        run_import(imports, directory=copy)
    assert not (imports.data / "importing" / "chroma").exists()


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[str]:
    copy = directory.parent / "served"
    shutil.copytree(directory, copy)
    with RunningChroma(copy) as running:
        yield running.url


def test_a_server_is_imported_like_its_directory(imports: ImportFixture, server: str) -> None:
    report = run_import(imports, ChromaServer(server))
    assert report.rows == 4
    assert {wiki.slug: wiki.rows for wiki in report.wikis} == {"garden": 1, "harbour": 3}


def test_a_server_without_that_collection_or_tenant_says_so(imports: ImportFixture, server: str) -> None:
    with pytest.raises(InvalidImport, match="collections: otterwiki_pages, recipes"):
        run_import(imports, ChromaServer(server, ImportedCollection("pages")))
    with pytest.raises(InvalidImport, match="no such tenant"):
        run_import(imports, ChromaServer(f"{server}/nowhere"))


def test_an_unreachable_address_is_an_error_that_does_not_show_the_token(imports: ImportFixture) -> None:
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        shared = ChromaServer(f"http://127.0.0.1:{busy_socket.getsockname()[1]}", token="mackerel-token")
        with pytest.raises(InvalidImport, match="cannot be reached") as caught:
            run_import(imports, shared)
    assert "mackerel-token" not in f"{caught.value.message} {shared!r} {shared.name}"
