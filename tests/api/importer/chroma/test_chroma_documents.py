"""Texts of a shared Chroma collection become pages, one wiki per tenant, with the real Chroma."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.api.importer.import_fixtures import ImportFixture, assert_pages_of_two_tenants
from tests.support.chroma_server import RunningChroma
from tests.support.fork_server import CHROMA_MODULES, run_forked
from wikiholt.api.importer.chroma_source import ChromaDirectory, ChromaServer, ImportedCollection
from wikiholt.api.importer.document_importer import DocumentImporter, DocumentImportOptions, DocumentImportReport
from wikiholt.api.importer.shared_index import OwnershipRules, SharedIndex
from wikiholt.errors import InvalidImport

pytest.importorskip("chromadb")

COLLECTION = ImportedCollection("documents", owner_field="wiki")
EXCLUDED = OwnershipRules(tenants={"": "-"})
CREATE_SCRIPT = """
import json, sys
import chromadb
from chromadb.config import Settings
client = chromadb.PersistentClient(sys.argv[1], Settings(anonymized_telemetry=False))
rows = json.loads(sys.argv[2])
made = client.get_or_create_collection("documents", embedding_function=None)
ids = [f"{number}" for number in range(len(rows))]
metadatas = [{"page_path": page, "chunk_index": number, "wiki": wiki} for wiki, page, number, _ in rows]
made.upsert(ids, [[1.0, 0.0]] * len(rows), metadatas, [text for *_, text in rows])
bare = client.get_or_create_collection("vectors", embedding_function=None)
bare.upsert(ids[:1], [[1.0, 0.0]], metadatas[:1])
"""
ROWS = [
    ("acme", "Home", 1, "second"),
    ("acme", "Home", 0, "# Home\n\nacmecanary"),
    ("globex", "Home", 0, "# Home\n\nglobexcanary"),
    ("", "Stray", 0, "of nobody"),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "shared"
    command = [sys.executable, "-c", CREATE_SCRIPT, str(path), json.dumps(ROWS)]
    run_forked(command, modules=CHROMA_MODULES, check=True, timeout=300)
    return path


def run_import(
    imports: ImportFixture, source: Path | SharedIndex, rules: OwnershipRules = EXCLUDED, target: str = "documents"
) -> DocumentImportReport:
    options = DocumentImportOptions(rules, create=True, join=True)
    collection = ImportedCollection(target, owner_field="wiki")
    return DocumentImporter(imports.service, imports.data, options).run(
        lambda place: ChromaDirectory(source, place, collection) if isinstance(source, Path) else source
    )


def list_slugs(imports: ImportFixture) -> list[str]:
    return [wiki.slug for wiki in imports.service.list_wikis()]


def assert_imported(imports: ImportFixture, report: DocumentImportReport) -> None:
    assert (report.rows, report.excluded) == (4, 1)
    assert_pages_of_two_tenants(imports, report)


def test_each_tenant_of_a_directory_becomes_a_wiki(imports: ImportFixture, directory: Path) -> None:
    assert_imported(imports, run_import(imports, directory))


def test_each_tenant_of_a_server_becomes_a_wiki(imports: ImportFixture, directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "served")
    with RunningChroma(tmp_path / "served") as running:
        assert_imported(imports, run_import(imports, ChromaServer(running.url, COLLECTION)))


def test_rows_without_the_tenant_field_stop_the_import(imports: ImportFixture, directory: Path) -> None:
    report = run_import(imports, directory, OwnershipRules())
    assert report.unclear.tenants == {"": 1}
    assert list_slugs(imports) == ["garden", "harbour"]


def test_a_collection_without_texts_writes_no_empty_page(imports: ImportFixture, directory: Path) -> None:
    (wiki,) = run_import(imports, directory, target="vectors").wikis
    assert dict(wiki.outcomes) == {"failed": 1}
    assert "no text" in wiki.failed["Home"]
    assert imports.service.get_handle("acme").pages.list().total == 0


def test_a_damaged_directory_creates_no_wiki(imports: ImportFixture, directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "damaged")
    (tmp_path / "damaged" / "chroma.sqlite3").write_bytes(b"")
    with pytest.raises(InvalidImport) as caught:
        run_import(imports, tmp_path / "damaged")
    assert caught.value.hint
    assert list_slugs(imports) == ["garden", "harbour"]
