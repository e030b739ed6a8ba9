"""What a reindexing would take is said beforehand, and nothing is changed by asking."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki, GatedEmbedder
from tests.support.git_repository import Repository
from wikiholt.app import bootstrap
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.errors import Busy, SourceMissing
from wikiholt.interfaces.cli.main import main


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[DamagedWiki]:
    made = DamagedWiki(tmp_path, pages=60)
    yield made
    made.close()


def read_all_files(ward: DamagedWiki) -> dict[str, bytes]:
    below = (ward.place / "data").rglob("*")
    return {str(file): file.read_bytes() for file in below if file.is_file() and not file.name.endswith("-shm")}


def test_a_forecast_counts_what_a_reindexing_then_does(ward: DamagedWiki) -> None:
    ward.repository.commit({"twin-1.md": "the same words", "twin-2.md": "the same words", "broken.md": b"\xff\xfe\x00"})
    before = read_all_files(ward)
    found = ward.handle.estimate_reindex()
    assert read_all_files(ward) == before
    assert (found.pages, found.exact) == (63, True)
    assert found.reusable_vectors == 60
    assert found.disk_free > found.disk_bytes > 0
    assert 0 <= found.seconds_reusing <= found.seconds
    report = ward.handle.reindex()
    assert report.chunks_embedded == found.chunks_to_embed
    assert report.chunks_embedded + report.chunks_reused == found.chunks


def test_with_another_model_nothing_is_reusable(ward: DamagedWiki) -> None:
    ward.use_model(GatedEmbedder(48, name="newer"))
    found = ward.handle.estimate_reindex()
    assert (found.chunks_to_embed, found.reusable_vectors) == (60, 0)


def test_a_forecast_needs_no_index_and_no_more_than_its_time(ward: DamagedWiki) -> None:
    ward.service.components.store.delete(ward.handle.wiki.id)
    found = ward.handle.estimate_reindex(time_limit_s=0.0)
    assert found.pages == 60
    assert not found.exact
    assert 40 <= found.chunks <= 80


def test_one_forecast_of_a_wiki_at_a_time(ward: DamagedWiki) -> None:
    def again() -> None:
        with pytest.raises(Busy):
            ward.handle.estimate_reindex()

    ward.embedder.gate = again
    assert ward.handle.estimate_reindex().pages == 60
    ward.embedder.gate = None
    assert ward.handle.estimate_reindex().pages == 60


def test_a_repository_that_is_gone_is_an_error_and_not_a_forecast_of_nothing(ward: DamagedWiki) -> None:
    ward.repository.path.rename(ward.place / "elsewhere")
    with pytest.raises(SourceMissing):
        ward.handle.estimate_reindex()


@pytest.mark.model
def test_the_command_says_it_with_the_real_model_and_changes_nothing(
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
    told = json.loads(capsys.readouterr().out)
    assert (told["pages"], told["chunks_to_embed"], told["reusable_vectors"]) == (12, 12, 12)
    assert told["seconds"] > told["seconds_reusing"]
    assert main([*data, "--set", "precision=fp32", "reindex", "notes", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "0 vectors reused, 12 to embed" in text
    assert "nothing was changed" in text
    assert main([*data, "status", "notes", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["generation"], status["health"]["condition"], status["quarantined"]) == (1, "ok", [])
    assert main([*data, "reindex", "nowhere", "--dry-run"]) == 3
