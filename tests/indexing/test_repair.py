"""Whatever happens to an index's files, it is noticed, set aside, mended, and the log tells the story."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.damaged_wiki import DamagedWiki, overwrite_bytes, remove_path, truncate_file, wait_until
from tests.support.git_repository import Repository
from wikiholt.app import bootstrap
from wikiholt.app.settings.settings_loader import load_settings
from wikiholt.domain.index import HealthCondition, IndexHealth
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, IndexRepairing, StorageError, WikiholtError
from wikiholt.indexing.repair import IndexRepair
from wikiholt.search.request import SearchRequest
from wikiholt.storage.sqlite.store import SqliteStore

DAMAGES = {
    "a header of zeros": lambda file: overwrite_bytes(file, 0, bytes(100)),
    "a file cut in half": truncate_file,
    "zeros in the middle": lambda file: overwrite_bytes(file, 0.5, bytes(20_000)),
    "an empty file": lambda file: file.write_bytes(b""),
    "no file": remove_path,
}


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[DamagedWiki]:
    made = DamagedWiki(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("harm", DAMAGES)
def test_an_index_harmed_before_the_start_is_mended_from_its_backup(
    ward: DamagedWiki, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    ward.repository.commit({"page-7.md": "# Page 7\n\nunique7 everywhere, after the backup\n"})
    ward.handle.sync()
    ward.service.close()
    DAMAGES[harm](ward.index_file)
    ward.reopen()
    ward.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        ward.start_scheduler(checks=0.2)
        wait_until(
            lambda: (
                ward.handle.get_status().quarantined and ward.handle.health.is_ok and ward.handle.get_indexed_revision()
            )
        )
    ward.assert_healthy()
    assert len(ward.embedder.embedded) == 1, "all but the page that changed since comes from the backup"
    told = [record.getMessage() for record in caplog.records if record.name == "wikiholt.indexing.repair"]
    story = [line for line in told if "seems to be damaged" not in line]
    assert len(story) == 3, told
    assert "is quarantined as broken-" in story[0]
    assert "replaces it" in story[1]
    assert "intact and at HEAD" in story[2]
    assert all(line.startswith("notes: ") for line in told)
    aside = ward.handle.get_status().quarantined
    assert len(aside) == 1
    assert aside[0] in story[0]


def test_an_index_without_a_backup_is_built_again_from_git(ward: DamagedWiki, caplog: pytest.LogCaptureFixture) -> None:
    ward.service.close()
    truncate_file(ward.index_file)
    ward.reopen()
    with caplog.at_level(logging.WARNING):
        report = ward.handle.sync()
    assert report.rebuilt
    assert "rebuilt from git" in caplog.text
    ward.assert_healthy()


@pytest.mark.parametrize("harm", ["zeros in the middle", "no file"])
def test_an_index_harmed_while_it_serves_is_mended_once_a_search_or_a_check_meets_the_damage(
    ward: DamagedWiki, harm: str
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    store, wiki_id = ward.service.components.store, ward.handle.wiki.id
    harmed = store.get_published(wiki_id)
    assert ward.handle.search(SearchRequest("unique7")).hits
    with closing(sqlite3.connect(ward.index_file)) as index:  # what is in the log would be written over the damage
        index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    DAMAGES[harm](ward.index_file)
    ward.start_scheduler(checks=0.2)

    statuses = set()

    def mended() -> bool:
        try:
            answer = ward.handle.search(SearchRequest("unique7"))
        except WikiholtError as error:
            statuses.add(error.status)
            return False
        assert answer.hits, "never an empty list"
        # What had been open may still have answered while another index was being put in its place.
        another = store.get_published(wiki_id) not in (None, harmed)
        return another and bool(ward.handle.get_status().quarantined) and ward.handle.health.is_ok

    wait_until(mended)
    assert statuses <= {503}
    ward.assert_healthy()


def test_a_text_that_rotted_without_a_trace_is_found_by_the_daily_check(
    ward: DamagedWiki, caplog: pytest.LogCaptureFixture
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    ward.corrupt_chunk_text()
    assert ward.handle.search(SearchRequest("unique7")).hits, "nothing shows"
    with caplog.at_level(logging.WARNING):
        ward.start_scheduler(checks=0.2)
        wait_until(lambda: ward.handle.get_status().quarantined and ward.handle.health.is_ok)
    assert "is not as it was written" in caplog.text
    ward.assert_healthy()
    assert ward.handle.health.checked_at is not None


def test_answers_say_so_while_an_index_is_known_to_be_damaged(ward: DamagedWiki) -> None:
    ward.corrupt_chunk_text()
    health = ward.handle.check_integrity()
    assert health.condition is HealthCondition.BROKEN
    answer = ward.handle.search(SearchRequest("unique7"))
    assert answer.hits
    assert answer.degraded
    assert "is being repaired" in answer.notes[-1]
    status = ward.handle.get_status()
    assert status.health.reason
    ward.handle.sync()
    assert ward.handle.get_status().health.is_ok
    ward.assert_healthy()


def test_a_search_that_meets_damage_raises_the_alarm_once(ward: DamagedWiki) -> None:
    heard: list[str] = []
    ward.service.close()
    overwrite_bytes(ward.index_file, 0, bytes(100))
    ward.service = ward.open_service()
    ward.service.on_damage = heard.append
    for _ in range(3):
        with pytest.raises(IndexCorrupt):
            ward.handle.search(SearchRequest("unique7"))
    assert heard == [ward.handle.wiki.id]


def write_health(ward: DamagedWiki, health: IndexHealth) -> None:
    IndexRepair(ward.handle.wiki.id, ward.handle.wiki.slug, ward.service.components.store).save(health)


def test_while_nothing_can_answer_the_error_says_that_it_is_being_mended(ward: DamagedWiki) -> None:
    ward.service.components.store.quarantine(ward.handle.wiki.id, "a test")
    write_health(ward, IndexHealth(HealthCondition.REPAIRING, "a test"))
    with pytest.raises(IndexRepairing) as caught:
        ward.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
    assert caught.value.status == 503
    ward.handle.sync()
    ward.assert_healthy()


@pytest.mark.parametrize("kind", ["vectors-*", "words-*"])
@pytest.mark.parametrize("harm", ["a header of zeros", "a file cut in half", "zeros in the middle", "no file"])
def test_a_harmed_cache_is_dropped_and_made_again_from_the_index(ward: DamagedWiki, kind: str, harm: str) -> None:
    (file,) = ward.directory.glob(kind)
    DAMAGES[harm](file)
    ward.handle.check_integrity()
    ward.handle.wait_for_caches(60)
    ward.assert_healthy()
    ward.reopen()
    ward.assert_healthy()
    assert not ward.handle.get_status().quarantined, "the index itself was never broken"


def test_an_index_whose_directory_is_gone_comes_back_from_its_backup(ward: DamagedWiki) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    ward.service.close()
    remove_path(ward.directory)
    ward.service = ward.open_service()
    with pytest.raises(IndexMissing):
        ward.handle.search(SearchRequest("unique7"))
    ward.embedder.embedded.clear()
    ward.handle.sync()
    assert ward.embedder.embedded == []
    ward.assert_healthy()


def test_a_damaged_backup_is_passed_over(ward: DamagedWiki) -> None:
    kept = ward.handle.backups.create(BackupReason.REQUESTED)
    overwrite_bytes(next((ward.place / "data" / "backups").rglob(f"{kept.name}*")), 0.5, b"x" * 1000)
    ward.service.close()
    truncate_file(ward.index_file)
    ward.reopen()
    assert ward.handle.sync().rebuilt
    ward.assert_healthy()


def test_a_suspicion_that_proves_wrong_costs_nothing(ward: DamagedWiki, caplog: pytest.LogCaptureFixture) -> None:
    write_health(ward, IndexHealth(HealthCondition.BROKEN, "a rumour"))
    ward.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        ward.handle.sync()
    assert (ward.handle.get_status().quarantined, ward.embedder.embedded) == ((), [])
    assert "found it intact" in caplog.text
    ward.assert_healthy()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"condition": "odd"}', '{"condition": "ok"}', "\x00"])
def test_a_file_of_health_that_makes_no_sense_counts_as_none(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    store.set_note("somewikiid", "health", text, create=True)
    assert IndexRepair("somewikiid", "garden", store).health == IndexHealth()


def test_a_state_that_was_tampered_with_is_seen_on_opening(ward: DamagedWiki) -> None:
    for change in (
        "state SET revision = 'elsewhere'",
        "state SET version = version + 1",
        "state SET generation = 9",
    ):
        with closing(sqlite3.connect(ward.index_file)) as db:
            db.execute(f"UPDATE {change}")
            db.commit()
        with pytest.raises(IndexCorrupt):
            ward.service.components.store.open(ward.handle.wiki.id)
        ward.handle.sync()
        ward.assert_healthy()


def test_a_reindexing_of_a_broken_index_sets_it_aside_too(ward: DamagedWiki) -> None:
    ward.service.close()
    overwrite_bytes(ward.index_file, 0.5, bytes(20_000))
    ward.reopen()
    ward.handle.reindex()
    assert len(ward.handle.get_status().quarantined) == 1
    assert ward.handle.health.is_ok
    ward.assert_healthy()


def test_a_backup_that_cannot_be_restored_for_want_of_room_is_tried_again_and_not_given_up(
    ward: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    ward.service.close()
    truncate_file(ward.index_file)
    ward.reopen()
    store = type(ward.service.components.store)
    monkeypatch.setattr(store, "import_backup", lambda *_: (_ for _ in ()).throw(StorageError("the disk is full")))
    with pytest.raises(StorageError):
        ward.handle.sync()
    with pytest.raises(IndexRepairing):
        ward.handle.search(SearchRequest("unique7"))
    monkeypatch.undo()
    ward.embedder.embedded.clear()
    ward.handle.sync()
    assert ward.embedder.embedded == []
    assert ward.handle.health.is_ok
    ward.assert_healthy()


def test_words_that_are_not_those_of_the_pages_are_found(ward: DamagedWiki) -> None:
    with closing(sqlite3.connect(ward.index_file)) as db:
        db.execute("INSERT INTO words (rowid, name, headings, body) VALUES (1, 'other', 'other', 'other')")
        db.commit()
    assert ward.handle.check()
    assert not ward.handle.check_integrity().is_ok
    ward.handle.sync()
    ward.assert_healthy()


@pytest.mark.slow
def test_a_check_that_is_stopped_says_nothing_about_the_index(ward: DamagedWiki) -> None:
    with pytest.raises(Busy):
        ward.handle.check_integrity(lambda: True)
    assert ward.handle.health == IndexHealth()
    asked: list[int] = []

    def after_a_while() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Busy):
        ward.handle.check_integrity(after_a_while)
    assert ward.handle.health == IndexHealth()
    ward.assert_healthy()


@pytest.mark.model
def test_the_real_model_embeds_nothing_when_an_index_heals_from_its_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(
        {"bread.md": "# Bread\n\nLet the dough rise over night.\n", "bike.md": "# Bike\n\nOil the chain.\n"}
    )
    service = bootstrap.build_service(load_settings(tmp_path / "data"))
    service.add("notes", str(repository.path), {})
    handle = service.get_handle("notes")
    handle.sync()
    handle.backups.create(BackupReason.REQUESTED)
    directory = service.components.store.get_directory(handle.wiki.id)
    service.close()
    overwrite_bytes(next(directory.glob("g*.sqlite")), 0, bytes(100))

    service = bootstrap.build_service(load_settings(tmp_path / "data"))
    handle = service.get_handle("notes")
    with pytest.raises(IndexCorrupt):
        handle.search(SearchRequest("baking"))
    monkeypatch.setattr(type(service.components.embedder()), "embed_passages", None)
    report = handle.sync()
    assert (report.chunks_embedded, report.rebuilt, report.unchanged) == (0, False, 2)
    assert handle.search(SearchRequest("baking", mode=SearchMode.SEMANTIC)).hits[0].path == "bread"
    assert handle.search(SearchRequest("chain", mode=SearchMode.KEYWORD)).hits[0].path == "bike"
    assert handle.health.is_ok
    service.close()


def test_a_broken_index_whose_repository_is_gone_as_well_is_answered_for_by_its_backup(ward: DamagedWiki) -> None:
    ward.handle.backups.create(BackupReason.REQUESTED)
    ward.service.close()
    overwrite_bytes(ward.index_file, 0, bytes(100))
    ward.service = ward.open_service()
    away = ward.repository.path.rename(ward.place / "away")
    ward.start_scheduler()

    def answers() -> bool:
        try:
            return bool(ward.handle.search(SearchRequest("unique7")).hits)
        except WikiholtError:
            return False

    wait_until(answers)
    assert not ward.handle.health.is_ok, "it is not known to stand for HEAD"
    away.rename(ward.repository.path)
    wait_until(lambda: ward.handle.health.is_ok)
    ward.assert_healthy()
