"""Two wikis that shared an index, a service with a counting model, and rows in foreign formats."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tests.support.git_repository import Repository
from wikiholt.api import bootstrap
from wikiholt.api.importer.document_importer import DocumentImportReport
from wikiholt.api.importer.importer import Importer, ImportOptions, ImportReport, iter_prepared_pages
from wikiholt.api.importer.shared_index import OwnershipRules, SharedRow, SharedRows
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.service import WikiService

HARBOUR_PAGES = {
    "home.md": "# Home\n\nThe quay where mackerelcanary is landed.\n",
    "ships/dredger.md": "# Dredger\n\nIt keeps the channel deep for ferries.\n",
    "tides.md": "# Tides\n\nHigh water comes twice a day.\n",
}
GARDEN_PAGES = {
    "home.md": "# Home\n\nThe bed where rhubarbcanary grows.\n",
    "compost.md": "# Compost\n\nLeaves, peel and patience.\n",
}


@dataclass
class FakeSharedIndex:
    """A shared index in memory."""

    rows: list[SharedRow] = field(default_factory=list)
    name: str = "rows"

    def iter_rows(self) -> SharedRows:
        yield from self.rows


class ImportFixture:
    """`harbour` and `garden`, registered and not yet indexed."""

    def __init__(self, place: Path, wikis: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.place = place
        self.data = place / "data"
        self.embedder = FakeEmbedder()
        self.service = self.open_service(self.data, self.embedder)
        self.repositories: dict[str, Repository] = {}
        for slug, pages in (wikis or {"harbour": HARBOUR_PAGES, "garden": GARDEN_PAGES}).items():
            self.repositories[slug] = Repository(place / "repositories" / slug)
            self.repositories[slug].commit(dict(pages))
            self.service.add(slug, str(self.repositories[slug].path), {})

    @staticmethod
    def open_service(data: Path, embedder: Embedder) -> WikiService:
        service = bootstrap.build_service(load_settings(data))
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        return service

    def read_chunk_texts(self, slug: str) -> list[tuple[str, int, str]]:
        """Page, number and text of every chunk, as the pipeline embeds it."""
        config = self.service.get_config(self.service.registry.get(slug))
        batches = iter_prepared_pages(config, config.source.get_head(), self.embedder)
        return [(page.page.path, n, text) for batch in batches for page in batch for n, text in enumerate(page.texts)]

    def make_rows(self, slug: str, *, tenant: str | None = None, embedder: Embedder | None = None) -> list[SharedRow]:
        """The rows of one wiki, with page names as Otterwiki writes them."""
        texts = self.read_chunk_texts(slug)
        vectors = (embedder or FakeEmbedder()).embed_passages([text for _, _, text in texts])
        return [
            SharedRow(page.title(), text, vector, tenant, n)
            for (page, n, text), vector in zip(texts, vectors, strict=True)
        ]

    def run_import(
        self, rows: Sequence[SharedRow], rules: OwnershipRules | None = None, **options: object
    ) -> ImportReport:
        self.embedder.embedded.clear()
        import_options = ImportOptions(rules or OwnershipRules(), **options)  # type: ignore[arg-type]
        return Importer(self.service, self.data, import_options).run(lambda _: FakeSharedIndex(list(rows)))

    def read_all_files(self) -> dict[str, bytes]:
        below = (self.data / "wikis").rglob("*")
        return {str(file): file.read_bytes() for file in below if file.is_file() and not file.name.endswith("-shm")}

    def close(self) -> None:
        self.service.close()


def to_metadata(row: SharedRow) -> dict[str, object]:
    """The metadata that otterwiki-semantic-search stores with a vector."""
    metadata = {"page_path": row.page, "chunk_index": row.index}
    return {"id": f"{row.page}::chunk_{row.index}", "text": row.text, "metadata": metadata}


def write_rows(file: Path, rows: Sequence[SharedRow]) -> None:
    """Write the rows for a child process that stores them in Chroma."""
    listed = [{**to_metadata(row), "vector": row.vector.tolist()} for row in rows]
    file.write_text(json.dumps(listed), "utf-8")


def to_vectors(rows: Sequence[SharedRow]) -> FloatArray:
    return np.stack([row.vector for row in rows])


def assert_pages_of_two_tenants(imports: ImportFixture, report: DocumentImportReport) -> None:
    """`acme` and `globex` each got their own page, and nothing of the other."""
    assert {wiki.slug: dict(wiki.outcomes) for wiki in report.wikis} == {
        "acme": {"created": 1},
        "globex": {"created": 1},
    }
    pages = {slug: imports.service.get_handle(slug).pages.read("Home").content for slug in ("acme", "globex")}
    assert pages == {"acme": "# Home\n\nacmecanary\n\nsecond", "globex": "# Home\n\nglobexcanary"}
    assert all(wiki.proof and not wiki.proof.foreign for wiki in report.wikis)
