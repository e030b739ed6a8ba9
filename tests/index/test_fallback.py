"""An intact generation keeps answering if CURRENT is lost, a generation is damaged or a restore is killed."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki, truncate_file
from tests.support.wait import wait_until
from wikiholt.domain.index import HealthCondition
from wikiholt.domain.search import SearchMode
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import ModelSelfTestFailed, NoPages, NothingIndexed
from wikiholt.index.batch import Pause, SyncPaused
from wikiholt.search.request import SearchRequest


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    created = DamagedWiki(tmp_path, pages=20)
    yield created
    created.close()


def get_store(wiki: DamagedWiki) -> IndexStore:
    return wiki.service.components.store


def make_two_generations(wiki: DamagedWiki) -> Path:
    """Publish generation 2 and keep generation 1, as a process killed before the cleanup does."""
    names = ("g000001.sqlite", "g000001-1.vectors")
    for name in names:
        shutil.copy(wiki.directory / name, wiki.place)
    wiki.handle.sync(from_scratch=True)
    wiki.service.close()
    for name in names:
        shutil.move(wiki.place / name, wiki.directory)
    wiki.service = wiki.open_service()
    return wiki.directory / "g000002.sqlite"


def get_first_hit(wiki: DamagedWiki) -> str:
    return wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD)).hits[0].path


@pytest.mark.parametrize("lost", ["the file that CURRENT names", "CURRENT names another", "CURRENT is damaged"])
def test_the_newest_intact_generation_answers_if_current_is_unusable(
    wiki: DamagedWiki, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = make_two_generations(wiki)
    expected = 2
    if lost == "the file that CURRENT names":
        file.unlink()
        expected = 1
    else:
        (wiki.directory / "CURRENT").write_bytes(b"77\n" if "another" in lost else b"\xff\x00")
    assert get_first_hit(wiki) == "page-7", "before any repair"
    assert get_store(wiki).get_published(wiki.handle.wiki.id) == expected
    wiki.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        wiki.handle.sync()
    assert f"the newest intact one ({expected}) is used" in caplog.text
    assert not wiki.handle.get_status().quarantined, "no intact index is quarantined"
    assert wiki.embedder.embedded == []
    assert (wiki.directory / "CURRENT").read_text() == f"{expected}\n"
    wiki.assert_healthy()


def test_a_damaged_generation_is_rebuilt_with_the_vectors_of_an_intact_older_one(wiki: DamagedWiki) -> None:
    truncate_file(make_two_generations(wiki))
    wiki.embedder.embedded.clear()
    wiki.handle.sync()
    assert wiki.embedder.embedded == []
    (quarantined,) = wiki.handle.get_status().quarantined
    found = sorted(file.name for file in (wiki.directory / quarantined).glob("*.sqlite"))
    assert found == ["g000001.sqlite", "g000002.sqlite"]
    wiki.assert_healthy()


def test_an_unfinished_generation_never_replaces_a_lost_one(wiki: DamagedWiki) -> None:
    wiki.embedder.gate = None
    with pytest.raises(SyncPaused):
        wiki.handle.sync(pause=lambda: Pause.NOW, from_scratch=True)
    assert (wiki.directory / "g000002.sqlite").exists()
    (wiki.directory / "g000001.sqlite").unlink()
    wiki.reopen()
    wiki.handle.sync()
    (quarantined,) = wiki.handle.get_status().quarantined
    assert (wiki.directory / quarantined / "g000002.sqlite").exists()
    wiki.assert_healthy()


class SimulatedKill(BaseException):
    """Stands in for SIGKILL: no handler of Exception runs after it."""


def run_killed_restore(wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise SimulatedKill

    with monkeypatch.context() as patch:
        patch.setattr(type(get_store(wiki)), "publish", die)
        with pytest.raises(SimulatedKill):
            wiki.handle.restore()
    wiki.reopen()


def test_a_restore_killed_before_publishing_is_cleaned_up_by_the_next_writer(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiki.handle.backups.create(BackupReason.REQUESTED)
    run_killed_restore(wiki, monkeypatch)
    assert (wiki.directory / "g000002.sqlite").exists()
    wiki.handle.sync()
    assert [file.name for file in wiki.directory.glob("g*.sqlite*") if "-" not in file.name] == ["g000001.sqlite"]
    wiki.assert_healthy()


def test_a_reindex_never_continues_with_the_files_of_a_killed_restore(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiki.handle.backups.create(BackupReason.REQUESTED)
    run_killed_restore(wiki, monkeypatch)
    wiki.embedder.embedded.clear()
    report = wiki.handle.sync(from_scratch=True)
    assert report.chunks_embedded == len(wiki.embedder.embedded) == 20, "every vector is embedded again"
    wiki.assert_healthy()


def test_a_killed_restore_of_a_lost_index_is_finished_by_the_next_sync(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiki.handle.backups.create(BackupReason.REQUESTED)
    shutil.rmtree(wiki.directory)
    wiki.reopen()
    run_killed_restore(wiki, monkeypatch)
    wiki.embedder.embedded.clear()
    wiki.handle.sync()
    assert wiki.embedder.embedded == []
    assert not list(wiki.directory.glob("*.from"))
    wiki.assert_healthy()


def test_a_reindex_reuses_no_vectors_that_a_paused_sync_reused(tmp_path: Path) -> None:
    wiki = DamagedWiki(tmp_path, pages=100)
    wiki.settings = {"chunk.target_tokens": 100, "chunk.overlap_tokens": 10}
    wiki.reopen()
    with pytest.raises(SyncPaused):
        wiki.handle.sync(pause=lambda: Pause.AFTER_BATCH)
    wiki.embedder.embedded.clear()
    assert wiki.handle.sync(from_scratch=True).chunks_embedded == len(wiki.embedder.embedded) == 100
    wiki.assert_healthy()
    wiki.close()


def test_a_wiki_that_becomes_empty_during_a_repair_reports_that_it_has_no_pages(wiki: DamagedWiki) -> None:
    truncate_file(wiki.index_file)
    wiki.reopen()

    def fail() -> None:
        raise ModelSelfTestFailed("the model fails during the repair")

    wiki.embedder.gate = fail
    with pytest.raises(ModelSelfTestFailed):
        wiki.handle.sync()
    assert wiki.handle.health.condition is HealthCondition.REPAIRING
    wiki.embedder.gate = None
    wiki.repository.commit({f"page-{n}.md": None for n in range(20)} | {"picture.png": "x"})
    scheduler = wiki.start_scheduler()
    wait_until(lambda: wiki.handle.health.is_ok)
    wait_until(lambda: isinstance(scheduler.get_sync_state(wiki.handle.wiki.id).error, NoPages))
    with pytest.raises(NoPages):
        wiki.handle.sync()
    assert wiki.handle.health.is_ok, "the index is intact and at HEAD, which has no page"
    with pytest.raises(NothingIndexed):
        wiki.handle.search(SearchRequest("unique7"))
    wiki.repository.commit({"page-7.md": "# Page 7\n\nunique7 is back\n"})
    wait_until(lambda: wiki.handle.get_indexed_revision() == wiki.repository.get_head())
    wiki.assert_healthy()
