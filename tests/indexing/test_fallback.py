"""Whatever becomes of the name of the published generation or of a restoring, what is good goes on answering."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki, truncate_file, wait_until
from wikiholt.domain.index import HealthCondition
from wikiholt.domain.search import SearchMode
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import ModelSelfTestFailed, NoPages, NothingIndexed
from wikiholt.indexing.batch import Pause, SyncPaused
from wikiholt.search.request import SearchRequest


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[DamagedWiki]:
    made = DamagedWiki(tmp_path, pages=20)
    yield made
    made.close()


def get_store(ward: DamagedWiki) -> IndexStore:
    return ward.service.components.store


def make_two_generations(ward: DamagedWiki) -> Path:
    """Publish generation 2 and leave generation 1 unswept, as a process killed in between does."""
    kept = ward.place / "g000001.sqlite"
    shutil.copy(ward.index_file, kept)
    ward.handle.reindex()
    ward.service.close()
    shutil.move(kept, ward.directory / kept.name)
    ward.service = ward.open_service()
    return ward.directory / "g000002.sqlite"


def get_first_hit(ward: DamagedWiki) -> str:
    return ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits[0].path


@pytest.mark.parametrize("lost", ["the file that CURRENT names", "CURRENT names another", "CURRENT is damaged"])
def test_where_the_name_of_the_published_generation_leads_nowhere_the_newest_whole_one_answers(
    ward: DamagedWiki, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = make_two_generations(ward)
    answers = 2
    if lost == "the file that CURRENT names":
        file.unlink()
        answers = 1
    else:
        (ward.directory / "CURRENT").write_bytes(b"77\n" if "another" in lost else b"\xff\x00")
    assert get_first_hit(ward) == "page-7", "before anything is mended"
    assert get_store(ward).get_published(ward.handle.wiki.id) == answers
    ward.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        ward.handle.sync()
    assert f"the newest intact one ({answers}) is used" in caplog.text
    assert not ward.handle.get_status().quarantined, "nothing good is put aside"
    assert ward.embedder.embedded == []
    assert (ward.directory / "CURRENT").read_text() == f"{answers}\n"
    ward.assert_healthy()


def test_a_damaged_generation_gives_way_to_a_whole_one_beside_it(
    ward: DamagedWiki, caplog: pytest.LogCaptureFixture
) -> None:
    truncate_file(make_two_generations(ward))
    with caplog.at_level(logging.WARNING):
        ward.handle.sync()
    story = [record.getMessage() for record in caplog.records if record.name == "wikiholt.indexing.repair"]
    assert ["quarantined" in story[0], "generation 1 is intact" in story[1], "intact and at HEAD" in story[2]] == [
        True,
        True,
        True,
    ]
    (aside,) = ward.handle.get_status().quarantined
    assert [file.name for file in (ward.directory / aside).glob("*.sqlite")] == ["g000002.sqlite"]
    ward.assert_healthy()


def test_an_unfinished_generation_is_never_taken_for_the_one_that_was_lost(ward: DamagedWiki) -> None:
    ward.embedder.gate = None
    with pytest.raises(SyncPaused):
        ward.handle.reindex(pause=lambda: Pause.NOW)
    assert (ward.directory / "g000002.sqlite").exists()
    (ward.directory / "g000001.sqlite").unlink()
    ward.reopen()
    ward.handle.sync()
    (aside,) = ward.handle.get_status().quarantined
    assert (ward.directory / aside / "g000002.sqlite").exists()
    ward.assert_healthy()


class SimulatedKill(BaseException):
    """What SIGKILL is to the code: nothing runs after it."""


def run_killed_restore(ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise SimulatedKill

    with monkeypatch.context() as patch:
        patch.setattr(type(get_store(ward)), "publish", die)
        with pytest.raises(SimulatedKill):
            ward.handle.restore()
    ward.reopen()


def test_a_restoring_that_was_killed_before_it_was_published_is_cleaned_up_by_the_next_writer(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    run_killed_restore(ward, monkeypatch)
    assert (ward.directory / "g000002.sqlite").exists()
    ward.handle.sync()
    assert [file.name for file in ward.directory.glob("g*.sqlite*") if "-" not in file.name] == ["g000001.sqlite"]
    ward.assert_healthy()


def test_a_reindexing_never_goes_on_with_what_a_killed_restoring_left(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    run_killed_restore(ward, monkeypatch)
    ward.embedder.embedded.clear()
    report = ward.handle.reindex()
    assert report.chunks_embedded == len(ward.embedder.embedded) == 20, "every vector is made anew"
    ward.assert_healthy()


def test_the_restoring_of_a_lost_index_that_was_killed_is_finished_by_the_next_sync(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    shutil.rmtree(ward.directory)
    ward.reopen()
    run_killed_restore(ward, monkeypatch)
    ward.embedder.embedded.clear()
    ward.handle.sync()
    assert ward.embedder.embedded == []
    assert not list(ward.directory.glob("*.from"))
    ward.assert_healthy()


def test_a_reindexing_takes_over_nothing_that_a_sync_before_it_took_over(tmp_path: Path) -> None:
    ward = DamagedWiki(tmp_path, pages=100)
    ward.settings = {"chunk.target_tokens": 100, "chunk.overlap_tokens": 10}
    ward.reopen()
    with pytest.raises(SyncPaused):
        ward.handle.sync(pause=lambda: Pause.AFTER_BATCH)
    ward.embedder.embedded.clear()
    assert ward.handle.reindex().chunks_embedded == len(ward.embedder.embedded) == 100
    ward.assert_healthy()
    ward.close()


def test_a_wiki_that_becomes_empty_while_its_index_is_mended_ends_in_an_error_that_says_so(ward: DamagedWiki) -> None:
    truncate_file(ward.index_file)
    ward.reopen()

    def fail() -> None:
        raise ModelSelfTestFailed("the model fails in the middle of mending")

    ward.embedder.gate = fail
    with pytest.raises(ModelSelfTestFailed):
        ward.handle.sync()
    assert ward.handle.health.condition is HealthCondition.REPAIRING
    ward.embedder.gate = None
    ward.repository.commit({f"page-{n}.md": None for n in range(20)} | {"picture.png": "x"})
    keeper = ward.start_scheduler()
    wait_until(lambda: ward.handle.health.is_ok)
    wait_until(lambda: isinstance(keeper.get_sync_state(ward.handle.wiki.id).error, NoPages))
    with pytest.raises(NoPages):
        ward.handle.sync()
    assert ward.handle.health.is_ok, "the index is whole and stands for HEAD, which has no page"
    with pytest.raises(NothingIndexed):
        ward.handle.search(SearchRequest("unique7"))
    ward.repository.commit({"page-7.md": "# Page 7\n\nunique7 is back\n"})
    wait_until(lambda: ward.handle.get_indexed_revision() == ward.repository.get_head())
    ward.assert_healthy()
