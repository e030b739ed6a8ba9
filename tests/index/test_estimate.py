"""The estimate of a reindex: it matches the reindex and changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki, GatedEmbedder
from tests.support.git_repository import Repository
from wikiholt.api import bootstrap
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.errors import Busy, SourceMissing
from wikiholt.interfaces.cli.main import main


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    created = DamagedWiki(tmp_path, pages=60)
    yield created
    created.close()


def read_all_files(wiki: DamagedWiki) -> dict[str, bytes]:
    paths = (wiki.place / "data").rglob("*")
    return {str(file): file.read_bytes() for file in paths if file.is_file() and not file.name.endswith("-shm")}


def test_an_estimate_counts_what_the_reindex_then_does(wiki: DamagedWiki) -> None:
    wiki.repository.commit({"twin-1.md": "the same words", "twin-2.md": "the same words", "broken.md": b"\xff\xfe\x00"})
    before = read_all_files(wiki)
    estimate = wiki.handle.estimate_reindex()
    assert read_all_files(wiki) == before
    assert (estimate.pages, estimate.exact) == (63, True)
    assert estimate.reusable_vectors == 60
    assert estimate.disk_free > estimate.disk_bytes > 0
    assert 0 <= estimate.seconds_reusing <= estimate.seconds
    report = wiki.handle.sync(from_scratch=True)
    assert report.chunks_embedded == estimate.chunks_to_embed
    assert report.chunks_embedded + report.chunks_reused == estimate.chunks


def test_with_another_model_nothing_is_reusable(wiki: DamagedWiki) -> None:
    wiki.use_model(GatedEmbedder(48, name="newer"))
    estimate = wiki.handle.estimate_reindex()
    assert (estimate.chunks_to_embed, estimate.reusable_vectors) == (60, 0)


def test_an_estimate_needs_no_index_and_obeys_its_time_limit(wiki: DamagedWiki) -> None:
    wiki.service.components.store.delete(wiki.handle.wiki.id)
    estimate = wiki.handle.estimate_reindex(time_limit_s=0.0)
    assert estimate.pages == 60
    assert not estimate.exact
    assert 40 <= estimate.chunks <= 80


def test_only_one_estimate_of_a_wiki_runs_at_a_time(wiki: DamagedWiki) -> None:
    def estimate_again() -> None:
        with pytest.raises(Busy):
            wiki.handle.estimate_reindex()

    wiki.embedder.gate = estimate_again
    assert wiki.handle.estimate_reindex().pages == 60
    wiki.embedder.gate = None
    assert wiki.handle.estimate_reindex().pages == 60


def test_an_estimate_of_a_missing_repository_is_an_error(wiki: DamagedWiki) -> None:
    wiki.repository.path.rename(wiki.place / "elsewhere")
    with pytest.raises(SourceMissing):
        wiki.handle.estimate_reindex()


@pytest.mark.model
def test_the_dry_run_command_prints_an_estimate_with_the_real_model_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({f"{n}.md": f"# Page {n}\n\nNotes on subject {n}.\n" for n in range(12)})
    service = bootstrap.build_service(load_settings(tmp_path / "data"))
    service.add("notes", str(repository.path), {})
    service.get_handle("notes").sync()
    service.close()
    data = ["--data", str(tmp_path / "data")]
    assert main([*data, "reindex", "notes", "--dry-run", "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)
    assert (estimate["pages"], estimate["chunks_to_embed"], estimate["reusable_vectors"]) == (12, 12, 12)
    assert estimate["seconds"] > estimate["seconds_reusing"]
    assert main([*data, "--set", "model=bge-small-en-v1.5", "reindex", "notes", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "0 vectors reused, 12 to embed" in text
    assert "nothing was changed" in text
    assert main([*data, "status", "notes", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["generation"], status["health"]["condition"], status["quarantined"]) == (1, "ok", [])
    assert main([*data, "reindex", "nowhere", "--dry-run"]) == 3
