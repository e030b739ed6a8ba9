"""Texts of FAISS directories become pages, one wiki per directory. Vectors are not used."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.api.importer.import_fixtures import ImportFixture, assert_pages_of_two_tenants
from wikiholt.api.importer.document_importer import DocumentImporter, DocumentImportOptions, DocumentImportReport
from wikiholt.api.importer.faiss_source import FaissDirectory
from wikiholt.api.importer.shared_index import OwnershipRules
from wikiholt.errors import InvalidImport

faiss = pytest.importorskip("faiss")


def write_faiss_directory(place: Path, entries: list[tuple[str, int, str]]) -> Path:
    """Write an index like the plugin, with the real FAISS: page, number and text of each chunk."""
    place.mkdir(parents=True)
    index = faiss.IndexFlatIP(4)
    index.add(np.ones((len(entries), 4), np.float32))
    faiss.write_index(index, str(place / "index.faiss"))
    listed = [
        {"id": f"{page}::chunk_{number}", "text": text, "metadata": {"page_path": page, "chunk_index": number}}
        for page, number, text in entries
    ]
    (place / "embeddings.json").write_text(json.dumps(listed), "utf-8")
    return place


def run_import(imports: ImportFixture, place: Path, rules: OwnershipRules, **options: bool) -> DocumentImportReport:
    importer = DocumentImporter(imports.service, imports.data, DocumentImportOptions(rules, **options))
    return importer.run(lambda _: FaissDirectory(place))


def test_each_directory_becomes_a_wiki_with_its_own_texts(imports: ImportFixture, tmp_path: Path) -> None:
    write_faiss_directory(tmp_path / "faiss" / "acme", [("Home", 1, "second"), ("Home", 0, "# Home\n\nacmecanary")])
    write_faiss_directory(tmp_path / "faiss" / "globex", [("Home", 0, "# Home\n\nglobexcanary")])
    report = run_import(imports, tmp_path / "faiss", OwnershipRules(), create=True, join=True)
    assert_pages_of_two_tenants(imports, report)


def test_a_damaged_directory_creates_no_wiki_even_after_an_intact_one(imports: ImportFixture, tmp_path: Path) -> None:
    write_faiss_directory(tmp_path / "faiss" / "acme", [("Home", 0, "x")])
    broken = write_faiss_directory(tmp_path / "faiss" / "globex", [("Home", 0, "y"), ("Other", 0, "z")])
    (broken / "embeddings.json").write_text("[]", "utf-8")
    with pytest.raises(InvalidImport, match="2 vectors and 0 texts"):
        run_import(imports, tmp_path / "faiss", OwnershipRules(), create=True)
    assert [wiki.slug for wiki in imports.service.list_wikis()] == ["garden", "harbour"]
