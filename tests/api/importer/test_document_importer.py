"""Documents of a shared table become pages, one wiki per tenant."""

from dataclasses import asdict

import numpy as np
import pytest

from tests.api.importer.import_fixtures import FakeSharedIndex, ImportFixture
from wikiholt.api.importer.document_importer import DocumentImporter, DocumentImportOptions, DocumentImportReport
from wikiholt.api.importer.shared_index import OwnershipRules, SharedRow
from wikiholt.errors import InvalidImport
from wikiholt.search.request import SearchRequest

NO_VECTOR = np.empty(0, np.float32)


def make_row(tenant: str | None, page: str, text: str, index: int | None = None) -> SharedRow:
    return SharedRow(page, text, NO_VECTOR, tenant, index)


ROWS = [
    make_row("acme", "Home", "# Home\n\nacmecanary"),
    make_row("globex", "Home", "# Home\n\nglobexcanary"),
    make_row("acme", "guides/setup.md", "# Setup\n"),
    make_row("globex", "Parts", "two", 1),
    make_row("globex", "Parts", "one", 0),
]


def run(
    imports: ImportFixture, rows: list[SharedRow], tenants: dict[str, str] | None = None, **options: bool
) -> DocumentImportReport:
    chosen = DocumentImportOptions(OwnershipRules(tenants=tenants or {}), **options)
    return DocumentImporter(imports.service, imports.data, chosen).run(lambda _: FakeSharedIndex(rows))


def list_slugs(imports: ImportFixture) -> list[str]:
    return [wiki.slug for wiki in imports.service.list_wikis()]


def test_each_tenant_becomes_a_wiki_with_its_own_documents(imports: ImportFixture) -> None:
    report = run(imports, ROWS, create=True, join=True)
    assert {wiki.slug: (wiki.is_new, dict(wiki.outcomes)) for wiki in report.wikis} == {
        "acme": (True, {"created": 2}),
        "globex": (True, {"created": 2}),
    }
    for slug, other in (("acme", "globex"), ("globex", "acme")):
        handle = imports.service.get_handle(slug)
        assert f"{slug}canary" in handle.pages.read("Home").content
        hits = handle.search(SearchRequest(f"{other}canary")).hits
        assert not [hit for hit in hits if f"{other}canary" in hit.snippet.text]
    assert imports.service.get_handle("globex").pages.read("Parts").content == "one\n\ntwo"
    assert all(wiki.proof and not wiki.proof.foreign for wiki in report.wikis)


def test_repeating_an_import_changes_nothing(imports: ImportFixture) -> None:
    run(imports, ROWS, create=True, join=True)
    head = imports.service.get_source(imports.service.registry.get("acme")).get_head()
    report = run(imports, ROWS, create=True, join=True)
    assert [(wiki.is_new, dict(wiki.outcomes)) for wiki in report.wikis] == [(False, {"unchanged": 2})] * 2
    assert imports.service.get_source(imports.service.registry.get("acme")).get_head() == head


def test_unknown_tenants_stop_the_import_before_anything_is_written(imports: ImportFixture) -> None:
    imports.service.create("acme", {})
    report = run(imports, ROWS)
    assert report.unclear.tenants == {"globex": 3}
    assert imports.service.get_handle("acme").pages.list().total == 0
    assert "globex" not in list_slugs(imports)


def test_a_tenant_whose_name_is_no_slug_needs_one(imports: ImportFixture) -> None:
    rows = [make_row("Tenant 17", "Home", "x"), make_row("", "Home", "y"), make_row("18", "Home", "z")]
    assert run(imports, rows, create=True).unclear.tenants == {"Tenant 17": 1, "": 1}
    report = run(imports, rows, {"Tenant 17": "seventeen", "": "-"}, create=True)
    assert ([wiki.slug for wiki in report.wikis], report.excluded) == (["18", "seventeen"], 1)


def test_two_tenants_never_share_a_wiki(imports: ImportFixture) -> None:
    with pytest.raises(InvalidImport, match="would share the wiki acme"):
        run(imports, ROWS, {"globex": "acme"}, create=True)
    assert "acme" not in list_slugs(imports)


def test_a_wiki_with_its_own_repository_is_not_written(imports: ImportFixture) -> None:
    with pytest.raises(InvalidImport, match="its own repository"):
        run(imports, ROWS, {"globex": "garden"}, create=True)
    assert "acme" not in list_slugs(imports)


def test_pages_in_several_rows_and_bad_names_are_reported(imports: ImportFixture) -> None:
    rows = [*ROWS, make_row("acme", "https://example.org/x", "x")]
    report = {wiki.slug: wiki for wiki in run(imports, rows, create=True).wikis}
    assert dict(report["globex"].outcomes) == {"created": 1, "failed": 1}
    assert "several rows" in report["globex"].failed["Parts"]
    assert dict(report["acme"].outcomes) == {"created": 2, "failed": 1}
    assert list(report["acme"].failed) == ["https://example.org/x"]


def test_a_page_without_text_is_reported_and_not_written(imports: ImportFixture) -> None:
    rows = [*ROWS, make_row("acme", "Empty", " \n"), make_row("acme", "Gaps", "", 0), make_row("acme", "Gaps", "x", 1)]
    report = {wiki.slug: wiki for wiki in run(imports, rows, create=True, join=True).wikis}
    assert dict(report["acme"].outcomes) == {"created": 3, "failed": 1}
    assert "no text" in report["acme"].failed["Empty"]
    assert imports.service.get_handle("acme").pages.read("Gaps").content.strip() == "x"


def test_rows_without_a_tenant_need_an_owner_rule(imports: ImportFixture) -> None:
    rows = [make_row(None, "Home", "x"), make_row(None, "Other", "y")]
    options = DocumentImportOptions(OwnershipRules((("Home", "acme"),)), create=True)
    report = DocumentImporter(imports.service, imports.data, options).run(lambda _: FakeSharedIndex(rows))
    assert report.unclear.pages == {"Other": ()}


def test_a_dry_run_writes_nothing(imports: ImportFixture) -> None:
    report = run(imports, ROWS, create=True, dry_run=True)
    assert {wiki.slug: wiki.rows for wiki in report.wikis} == {"acme": 2, "globex": 3}
    assert list_slugs(imports) == ["garden", "harbour"]
    assert asdict(report.wikis[0])["proof"] is None
