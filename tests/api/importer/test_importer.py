"""From a shared index to one index per wiki: matching vectors are reused, the rest is embedded, wikis stay separate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.api.importer.import_fixtures import HARBOUR_PAGES, FakeSharedIndex, ImportFixture
from tests.support.stored_bytes import read_stored_bytes
from wikiholt.api.importer.importer import Importer, ImportOptions, verify_index
from wikiholt.api.importer.shared_index import OwnershipRules
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import SearchMode
from wikiholt.errors import Busy, SyncFailed, WikiNotFound
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder

OWNERSHIP_RULES = OwnershipRules((("Home", "harbour"),))


def test_vectors_of_equal_texts_are_reused_and_the_rest_is_embedded(imports: ImportFixture) -> None:
    report = imports.run_import(imports.make_rows("harbour"), OWNERSHIP_RULES)
    harbour, garden = report.wikis[1], report.wikis[0]
    assert (harbour.slug, harbour.rows, harbour.matched, harbour.reused, harbour.embedded) == ("harbour", 3, 3, 3, 0)
    assert (garden.slug, garden.reused, garden.embedded) == ("garden", 0, 2)
    assert report.agreements[0].agrees
    assert report.agreements[0].sampled == 3
    assert harbour.proof is not None
    assert (harbour.proof.pages, harbour.proof.chunks, harbour.proof.foreign) == (3, 3, 0)
    result = imports.service.get_handle("harbour").search(
        SearchRequest("channel deep for ferries", 1, SearchMode.SEMANTIC)
    )
    assert result.hits[0].path == "ships/dredger"


def test_an_imported_index_equals_a_synced_one(imports: ImportFixture, tmp_path: Path) -> None:
    imports.run_import(imports.make_rows("harbour"), OWNERSHIP_RULES)
    synced = ImportFixture(tmp_path / "synced")
    synced.service.get_handle("harbour").sync()
    rows = []
    for fixture in (imports, synced):
        wiki = fixture.service.registry.get("harbour")
        index = fixture.service.components.store.open(wiki.id)
        with index.open_vector_snapshot() as snapshot:
            rows.append(np.concatenate([block.vectors for block in snapshot.iter_blocks()]))
        assert index.get_state().recipe == fixture.service.get_config(wiki).pipeline.build_recipe(fixture.embedder)
        index.close()
    synced.close()
    assert np.array_equal(*[vectors[np.lexsort(vectors.T)] for vectors in rows])


def test_one_wrong_vector_in_the_sample_prevents_any_reuse(imports: ImportFixture) -> None:
    rows = imports.make_rows("harbour")
    rows[1] = replace(rows[1], vector=np.roll(rows[1].vector, 1))
    report = imports.run_import(rows, OWNERSHIP_RULES)
    assert [(agreement.agrees, agreement.sampled) for agreement in report.agreements] == [(False, 3)]
    assert "another model" in report.agreements[0].reason
    assert sum(wiki.reused for wiki in report.wikis) == 0
    assert len(imports.embedder.embedded) == 3 + 5  # the sample, then all chunks
    assert all(wiki.proof for wiki in report.wikis)


def test_close_but_unequal_vectors_are_reported_as_another_precision(imports: ImportFixture) -> None:
    rows = []
    for row in imports.make_rows("harbour"):
        blurred = row.vector + np.float32(0.02) * np.sign(row.vector)
        rows.append(replace(row, vector=blurred / np.linalg.norm(blurred)))
    report = imports.run_import(rows, OWNERSHIP_RULES)
    assert not report.agreements[0].agrees
    assert "precision" in report.agreements[0].reason


def test_every_model_named_by_rows_is_sampled_separately(imports: ImportFixture) -> None:
    right = [replace(row, model="right") for row in imports.make_rows("harbour")]
    wrong = [replace(row, model="wrong", vector=-row.vector) for row in imports.make_rows("garden")]
    report = imports.run_import([*right, *wrong], OwnershipRules((("Home", "harbour"),)))
    assert {agreement.model: agreement.agrees for agreement in report.agreements} == {"right": True, "wrong": False}
    assert {wiki.slug: wiki.reused for wiki in report.wikis} == {"harbour": 3, "garden": 0}


def test_rows_without_a_page_and_invalid_vectors_are_dropped_and_counted(imports: ImportFixture) -> None:
    good = imports.make_rows("harbour")
    rows = [
        *(replace(good[0], page=f"Gone/{n}") for n in range(12)),
        replace(good[1], vector=np.ones(7, np.float32)),
        replace(good[1], vector=np.zeros_like(good[1].vector)),
        replace(good[1], vector=np.full_like(good[1].vector, np.nan)),
        replace(good[1], text="\ud800 no text at all"),
        good[1],
    ]
    report = imports.run_import(rows, OWNERSHIP_RULES)
    assert report.rows == 17
    assert report.dropped.counts == {"no-page": 12, "wrong-dimensions": 1, "unusable-vector": 2}
    assert len(report.dropped.examples["no-page"]) == 10
    assert [wiki.reused for wiki in report.wikis] == [0, 1]


def test_a_page_in_two_wikis_without_an_owner_is_rejected_and_nothing_changes(imports: ImportFixture) -> None:
    before = imports.read_all_files()
    report = imports.run_import([*imports.make_rows("harbour"), *imports.make_rows("garden")])
    assert report.unclear.pages == {"Home": ("garden", "harbour")}
    assert not report.wikis
    assert imports.read_all_files() == before
    assert not imports.embedder.embedded


def test_a_rule_for_an_unknown_wiki_is_an_error(imports: ImportFixture) -> None:
    with pytest.raises(WikiNotFound):
        imports.run_import([], OwnershipRules((("*", "nowhere"),)))
    with pytest.raises(WikiNotFound):
        imports.run_import([], wikis=("nowhere",))


@pytest.mark.parametrize("tenants", [("harbour", "garden"), ("garden", "harbour"), (None, None)])
def test_no_text_crosses_wikis_whatever_the_shared_index_claims(
    imports: ImportFixture, tenants: tuple[str | None, ...]
) -> None:
    """Rows with the right tenant, the wrong tenant and none; the operator's rule may be wrong too."""
    rows = imports.make_rows("harbour", tenant=tenants[0]) + imports.make_rows("garden", tenant=tenants[1])
    imports.run_import(rows, OwnershipRules((("*", "garden"),)))
    for slug, canary in (("harbour", "rhubarbcanary"), ("garden", "mackerelcanary")):
        handle = imports.service.get_handle(slug)
        for mode in SearchMode:
            answer = handle.search(SearchRequest(canary, 100, mode))
            assert canary not in repr(answer.hits)
        directory = imports.service.components.store.get_directory(handle.wiki.id)
        files = [file for file in directory.rglob("*") if file.is_file()]
        assert not [file for file in files if canary.encode() in read_stored_bytes(file)]
    assert not (imports.data / "importing").exists()


def test_a_dry_run_writes_nothing_and_predicts_the_import(imports: ImportFixture) -> None:
    before = imports.read_all_files()
    rows = imports.make_rows("harbour")[1:]
    planned = imports.run_import(rows, OWNERSHIP_RULES, dry_run=True)
    assert imports.read_all_files() == before
    report = imports.run_import(rows, OWNERSHIP_RULES)
    for plan, real in zip(planned.wikis, report.wikis, strict=True):
        assert (plan.slug, plan.pages, plan.chunks, plan.matched) == (real.slug, real.pages, real.chunks, real.matched)
        assert (plan.to_embed, plan.proof) == (real.embedded, None)
        assert plan.seconds >= 0
    assert [wiki.indexed for wiki in imports.run_import(rows, OWNERSHIP_RULES, dry_run=True).wikis] == [2, 3]


def test_a_dry_run_lists_ambiguous_rows_and_still_counts(imports: ImportFixture) -> None:
    report = imports.run_import(imports.make_rows("harbour"), dry_run=True)
    assert report.unclear.pages == {"Home": ("garden", "harbour")}
    assert [wiki.pages for wiki in report.wikis] == [2, 3]


def test_a_second_import_changes_nothing(imports: ImportFixture) -> None:
    first = imports.run_import(imports.make_rows("harbour"), OWNERSHIP_RULES)
    second = imports.run_import(imports.make_rows("harbour"), OWNERSHIP_RULES)
    assert [wiki.proof for wiki in first.wikis] == [wiki.proof for wiki in second.wikis]
    assert sum(wiki.reused + wiki.embedded for wiki in second.wikis) == 0


def test_only_the_named_wikis_are_imported(imports: ImportFixture) -> None:
    report = imports.run_import(imports.make_rows("harbour"), OWNERSHIP_RULES, wikis=("harbour",))
    assert [wiki.slug for wiki in report.wikis] == ["harbour"]
    assert imports.service.components.store.get_published(imports.service.registry.get("garden").id) is None


def test_a_wiki_with_a_missing_repository_does_not_stop_the_others(imports: ImportFixture) -> None:
    rows = imports.make_rows("harbour")
    imports.repositories["garden"].path.rename(imports.place / "elsewhere")
    report = imports.run_import(rows)
    assert [wiki.slug for wiki in report.wikis] == ["harbour"]
    assert report.failed["garden"][0] == "source-missing"


def test_without_a_wiki_there_is_nothing_to_import_into(tmp_path: Path) -> None:
    service = ImportFixture.open_service(tmp_path, FakeEmbedder())
    with pytest.raises(WikiNotFound, match="no wikis to import into"):
        Importer(service, tmp_path, ImportOptions()).run(lambda _: FakeSharedIndex())
    service.close()


def test_a_data_directory_allows_one_import_at_a_time(imports: ImportFixture) -> None:
    def inner(_: Path) -> FakeSharedIndex:
        with pytest.raises(Busy):
            imports.run_import([])
        return FakeSharedIndex()

    assert Importer(imports.service, imports.data, ImportOptions()).run(inner).rows == 0


def test_an_index_with_a_foreign_page_fails_verification(imports: ImportFixture) -> None:
    imports.run_import([])
    wiki = imports.service.registry.get("harbour")
    store = imports.service.components.store

    def proved() -> object:
        return verify_index(imports.service, wiki)

    assert proved()
    index = store.open(wiki.id)
    index.apply(IndexChange(deleted=("tides.md",)))
    with pytest.raises(SyncFailed, match="0 of its pages are not in the wiki's tree, 1 are missing"):
        proved()
    index.close()
    imports.service.get_handle("harbour").sync()
    moved = imports.repositories["harbour"].commit({"tides.md": None, "neap.md": HARBOUR_PAGES["tides.md"]})
    index = store.open(wiki.id)
    index.apply(IndexChange(revision=moved))
    index.close()
    with pytest.raises(SyncFailed, match="1 of its pages are not in the wiki's tree, 1 are missing"):
        proved()


def test_a_wiki_that_has_an_index_already_is_brought_to_head(imports: ImportFixture) -> None:
    imports.service.get_handle("harbour").sync()
    imports.repositories["harbour"].commit({"tides.md": "# Tides\n\nNeap tides are small.\n"})
    report = imports.run_import(imports.make_rows("harbour"), OWNERSHIP_RULES)
    harbour = report.wikis[1]
    assert (harbour.indexed, harbour.matched, harbour.reused, harbour.embedded) == (2, 1, 1, 0)


def test_duplicate_rows_count_once(imports: ImportFixture) -> None:
    report = imports.run_import(imports.make_rows("harbour") * 3, OWNERSHIP_RULES)
    assert (report.rows, report.wikis[1].matched, report.wikis[1].reused) == (9, 3, 3)
