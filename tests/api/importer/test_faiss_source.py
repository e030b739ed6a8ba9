"""A FAISS directory of otterwiki-semantic-search: read without FAISS, and nothing in it is executed."""

import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.api.importer.import_fixtures import ImportFixture, to_metadata, to_vectors
from wikiholt.api.importer.faiss_source import FaissDirectory
from wikiholt.api.importer.importer import Importer, ImportOptions, ImportReport
from wikiholt.api.importer.shared_index import OwnershipRules
from wikiholt.errors import InvalidImport

faiss = pytest.importorskip("faiss")

OWNERSHIP_RULES = OwnershipRules((("Home", "harbour"),))


def write_faiss_directory(imports: ImportFixture, slug: str, place: Path, kind: type = faiss.IndexFlatIP) -> Path:
    """Write the index of a wiki like the plugin, with the real FAISS."""
    rows = imports.make_rows(slug)
    place.mkdir(parents=True)
    index = kind(32)
    index.add(to_vectors(rows))
    faiss.write_index(index, str(place / "index.faiss"))
    (place / "embeddings.json").write_text(json.dumps([to_metadata(row) for row in rows]), "utf-8")
    return place


def run_import(imports: ImportFixture, place: Path, rules: OwnershipRules = OWNERSHIP_RULES) -> ImportReport:
    return Importer(imports.service, imports.data, ImportOptions(rules)).run(lambda _: FaissDirectory(place))


@pytest.mark.parametrize("kind", [faiss.IndexFlatIP, faiss.IndexFlatL2])
def test_one_index_is_imported(imports: ImportFixture, tmp_path: Path, kind: type) -> None:
    report = run_import(imports, write_faiss_directory(imports, "harbour", tmp_path / "faiss", kind))
    assert (report.rows, report.wikis[1].reused) == (3, 3)


def test_a_directory_of_indexes_gives_the_wiki_names(imports: ImportFixture, tmp_path: Path) -> None:
    for slug in ("harbour", "garden"):
        write_faiss_directory(imports, slug, tmp_path / "faiss" / slug)
    report = run_import(imports, tmp_path / "faiss", OwnershipRules())
    assert {wiki.slug: wiki.reused for wiki in report.wikis} == {"harbour": 3, "garden": 2}
    assert not report.unclear


def test_an_unknown_directory_name_is_a_tenant_that_must_be_mapped(imports: ImportFixture, tmp_path: Path) -> None:
    write_faiss_directory(imports, "harbour", tmp_path / "faiss" / "old-name")
    assert run_import(imports, tmp_path / "faiss", OwnershipRules()).unclear.tenants == {"old-name": 3}
    assert run_import(imports, tmp_path / "faiss", OwnershipRules(tenants={"old-name": "harbour"})).wikis[1].reused == 3


def test_pickles_are_never_opened(imports: ImportFixture, tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "harmed",))  # type: ignore[return-value]

    (tmp_path / "faiss").mkdir()
    (tmp_path / "faiss" / "index.pkl").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(InvalidImport, match="pickle"):
        run_import(imports, tmp_path / "faiss")
    write_faiss_directory(imports, "harbour", tmp_path / "with-pickle")
    (tmp_path / "with-pickle" / "embeddings.json").write_bytes(pickle.dumps([Harm()]))
    with pytest.raises(InvalidImport, match="not JSON"):
        run_import(imports, tmp_path / "with-pickle")
    assert not (tmp_path / "harmed").exists()


def make_header(**changes: object) -> bytes:
    values = {"kind": b"IxFI", "d": 32, "n": 3, "a": 0, "b": 0, "trained": True, "metric": 0, "numbers": 96} | changes
    return struct.pack("<4siqqq?iQ", *values.values())


DAMAGED_FILES = {
    "empty": b"",
    "only a name": b"IxFI",
    "cut": make_header() + bytes(100),
    "another kind": b"IwFl" + make_header()[4:] + bytes(400),
    "too many": make_header(n=1 << 60, numbers=32 << 60 & (1 << 64) - 1) + bytes(384),
    "negative": make_header(d=-32, n=-3) + bytes(384),
    "no dimensions": make_header(d=0, numbers=0) + bytes(384),
    "fewer numbers": make_header(numbers=95) + bytes(384),
    "noise": np.random.default_rng(5).bytes(500),
}


@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_damaged_vectors_are_a_clear_error_and_nothing_is_lost(
    imports: ImportFixture, tmp_path: Path, name: str
) -> None:
    place = write_faiss_directory(imports, "harbour", tmp_path / "faiss")
    (place / "index.faiss").write_bytes(DAMAGED_FILES[name])
    before = imports.read_all_files()
    with pytest.raises(InvalidImport) as caught:
        run_import(imports, place)
    assert caught.value.hint
    assert imports.read_all_files() == before


@pytest.mark.parametrize(
    "texts", [b"", b"[", b"{}", b"[1, 2, 3]", b'[{"id": 1}, {}, {}]', b"[]", b"\xff\xfe", b"[" * 100_000]
)
def test_damaged_texts_are_a_clear_error(imports: ImportFixture, tmp_path: Path, texts: bytes) -> None:
    place = write_faiss_directory(imports, "harbour", tmp_path / "faiss")
    (place / "embeddings.json").write_bytes(texts)
    with pytest.raises(InvalidImport):
        run_import(imports, place)


def test_an_index_with_compressed_vectors_is_rejected(imports: ImportFixture, tmp_path: Path) -> None:
    place = write_faiss_directory(imports, "harbour", tmp_path / "faiss")
    small = faiss.index_factory(32, "SQ8", faiss.METRIC_INNER_PRODUCT)
    small.train(np.eye(32, dtype=np.float32))
    small.add(np.eye(3, 32, dtype=np.float32))
    faiss.write_index(small, str(place / "index.faiss"))
    with pytest.raises(InvalidImport, match="not a flat FAISS index"):
        run_import(imports, place)


@pytest.mark.parametrize("name", ["missing", "index.faiss", "empty"])
def test_a_path_that_is_not_a_directory_is_rejected(imports: ImportFixture, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "index.faiss").touch()
    with pytest.raises(InvalidImport):
        run_import(imports, tmp_path / name)


def test_texts_without_vectors_or_vectors_without_texts_are_rejected(imports: ImportFixture, tmp_path: Path) -> None:
    for lost in ("index.faiss", "embeddings.json"):
        place = write_faiss_directory(imports, "harbour", tmp_path / lost)
        (place / lost).unlink()
        with pytest.raises(InvalidImport, match="cannot be read"):
            run_import(imports, place)
