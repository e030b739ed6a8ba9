"""Damage to the files of an index is detected, quarantined, repaired and logged."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.support.damaged_wiki import (
    PAGE_COUNT,
    DamagedWiki,
    GatedEmbedder,
    overwrite_bytes,
    remove_path,
)
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import HealthCondition, IndexHealth
from wikiholt.domain.search import SearchMode
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, IndexRepairing, SourceMissing, StorageError, WikiholtError
from wikiholt.index.repair import IndexRepair
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest

DAMAGES = {
    "a header of zeros": lambda file: overwrite_bytes(file, 0, bytes(100)),
    "zeros in the middle": lambda file: overwrite_bytes(file, 0.5, bytes(20_000)),
    "no file": remove_path,
}


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[DamagedWiki]:
    created = DamagedWiki(tmp_path)
    yield created
    created.close()


@pytest.mark.parametrize("damage", ["a header of zeros", "zeros in the middle", "no file"])
def test_an_index_damaged_before_the_start_is_rebuilt_with_the_vectors_of_its_backup(
    wiki: DamagedWiki, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    wiki.handle.backups.create(BackupReason.REQUESTED)
    wiki.repository.commit({"page-7.md": "# Page 7\n\nunique7 everywhere, after the backup\n"})
    wiki.handle.sync()
    wiki.service.close()
    DAMAGES[damage](wiki.index_file)
    wiki.reopen()
    wiki.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        wiki.start_scheduler(checks=0.2)
        wait_until(lambda: "intact and at HEAD" in caplog.text)
    wiki.assert_healthy()
    assert len(wiki.embedder.embedded) <= 1, "only the page that changed since the backup is embedded"
    messages = [record.getMessage() for record in caplog.records if record.name == "wikiholt.index.repair"]
    steps = [line for line in messages if "seems to be damaged" not in line]
    assert len(steps) == 2, messages
    assert "is quarantined as broken-" in steps[0]
    assert "intact and at HEAD" in steps[1]
    assert all(line.startswith("notes: ") for line in messages)
    quarantined = wiki.handle.get_status().quarantined
    assert len(quarantined) == 1
    assert quarantined[0] in steps[0]


def change_in_secret(wiki: DamagedWiki, statement: str) -> None:
    """Run a statement in the index file that no writer of an index runs."""
    with closing(sqlite3.connect(wiki.index_file)) as db:
        assert db.execute(statement).rowcount == 1
        db.commit()


@pytest.mark.parametrize(
    ("statement", "embedded"),
    [
        ("UPDATE pages SET name = 'other' WHERE file = 'page-7.md'", 0),
        ("DELETE FROM chunks WHERE id = 3", 1),
        ("UPDATE chunks SET hash = (SELECT hash FROM chunks WHERE id = 4) WHERE id = 3", 1),
    ],
)
def test_a_rebuild_without_a_backup_embeds_only_texts_whose_vectors_are_damaged(
    wiki: DamagedWiki, statement: str, embedded: int
) -> None:
    change_in_secret(wiki, statement)
    wiki.reopen()
    wiki.embedder.embedded.clear()
    with suppress(IndexCorrupt):
        assert not wiki.handle.check_integrity().is_ok
    report = wiki.handle.sync()
    assert report.rebuilt
    assert (report.chunks_embedded, len(wiki.embedder.embedded)) == (embedded, embedded)
    assert len(wiki.handle.get_status().quarantined) == 1
    wiki.assert_healthy()


@pytest.mark.parametrize(
    ("damage", "embedded"), [("a flipped bit", 1), ("the file cut", None), ("no file", PAGE_COUNT)]
)
def test_a_rebuild_after_damage_to_the_vectors_embeds_only_those(
    wiki: DamagedWiki, damage: str, embedded: int | None
) -> None:
    (file,) = wiki.directory.glob("*.vectors")
    row = wiki.embedder.embed_passages(["probe"]).shape[1] * 4
    content = file.read_bytes()
    if damage == "a flipped bit":
        position = 4096 + 64 * 24 + 7 * row + 5
        file.write_bytes(content[:position] + bytes([content[position] ^ 16]) + content[position + 1 :])
    elif damage == "the file cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    wiki.reopen()
    wiki.embedder.embedded.clear()
    if damage == "a flipped bit":
        with pytest.raises(IndexCorrupt):
            wiki.handle.search(SearchRequest("unique7 everywhere", n=100, mode=SearchMode.SEMANTIC))
    report = wiki.handle.sync()
    assert report.rebuilt
    assert embedded in (None, report.chunks_embedded)
    assert len(wiki.handle.get_status().quarantined) == 1
    wiki.assert_healthy()


def test_a_rebuild_that_fails_on_a_full_disk_is_continued_with_the_kept_vectors(
    wiki: DamagedWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_in_secret(wiki, "DELETE FROM page_words WHERE page_id = 3")
    assert not wiki.handle.check_integrity().is_ok
    wiki.embedder.embedded.clear()
    store = type(wiki.service.components.store)
    monkeypatch.setattr(store, "create", lambda *_: (_ for _ in ()).throw(StorageError("the disk is full")))
    with pytest.raises(StorageError):
        wiki.handle.sync()
    with pytest.raises(IndexRepairing):
        wiki.handle.search(SearchRequest("unique7"))
    monkeypatch.undo()
    wiki.reopen()
    wiki.handle.sync()
    assert wiki.embedder.embedded == []
    wiki.assert_healthy()


def test_a_rebuild_with_another_model_takes_no_vectors_over(wiki: DamagedWiki) -> None:
    wiki.service.close()
    change_in_secret(wiki, "DELETE FROM chunks WHERE id = 3")
    wiki.use_model(GatedEmbedder(dimensions=16))
    wiki.handle.check_integrity()
    assert wiki.handle.sync().chunks_embedded == PAGE_COUNT
    wiki.assert_healthy()


@pytest.mark.parametrize("damage", ["zeros in the middle", "no file"])
def test_an_open_index_is_repaired_after_a_search_or_a_check_finds_damage(wiki: DamagedWiki, damage: str) -> None:
    wiki.handle.backups.create(BackupReason.REQUESTED)
    store, wiki_id = wiki.service.components.store, wiki.handle.wiki.id
    damaged = store.get_published(wiki_id)
    assert wiki.handle.search(SearchRequest("unique7")).hits
    with closing(sqlite3.connect(wiki.index_file)) as index:  # otherwise the WAL would overwrite the damage
        index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    DAMAGES[damage](wiki.index_file)
    wiki.start_scheduler(checks=0.2)

    statuses = set()

    def is_repaired() -> bool:
        try:
            answer = wiki.handle.search(SearchRequest("unique7"))
        except WikiholtError as error:
            statuses.add(error.status)
            return False
        assert answer.hits, "a result is never empty"
        # The open index may still answer while it is being replaced.
        is_replaced = store.get_published(wiki_id) not in (None, damaged)
        return is_replaced and bool(wiki.handle.get_status().quarantined) and wiki.handle.health.is_ok

    wait_until(is_repaired)
    assert statuses <= {503}
    wiki.assert_healthy()


@pytest.mark.parametrize(
    "change",
    [
        "pages SET name = 'other'",
        "chunks SET content = content || ' '",
        "checksums SET page_row = page_row + 1",
    ],
)
def test_a_changed_page_or_passage_never_enters_an_answer(wiki: DamagedWiki, change: str) -> None:
    column = "id" if change.startswith("pages") else "page_id"
    change_in_secret(wiki, f"UPDATE {change} WHERE {column} = (SELECT id FROM pages WHERE file = 'page-8.md')")
    wiki.reopen()
    with pytest.raises(IndexCorrupt):
        wiki.handle.search(SearchRequest("unique8", mode=SearchMode.KEYWORD))
    assert wiki.handle.health.condition is HealthCondition.BROKEN
    answer = wiki.handle.search(SearchRequest("unique7", n=1, mode=SearchMode.KEYWORD))
    assert (answer.degraded, [hit.path for hit in answer.hits]) == (True, ["page-7"])
    wiki.handle.sync()
    wiki.assert_healthy()


def test_a_process_that_opens_a_damaged_index_says_what_another_has_found(wiki: DamagedWiki) -> None:
    wiki.corrupt_chunk_text()
    assert not wiki.handle.check_integrity().is_ok
    wiki.reopen()
    assert wiki.handle.search(SearchRequest("unique7")).degraded


def test_search_results_say_that_the_index_is_damaged(wiki: DamagedWiki) -> None:
    wiki.corrupt_chunk_text()
    health = wiki.handle.check_integrity()
    assert health.condition is HealthCondition.BROKEN
    answer = wiki.handle.search(SearchRequest("unique7"))
    assert answer.hits
    assert answer.degraded
    assert "is being repaired" in answer.notes[-1]
    status = wiki.handle.get_status()
    assert status.health.reason
    wiki.handle.sync()
    assert wiki.handle.get_status().health.is_ok
    wiki.assert_healthy()


def test_damage_found_by_several_searches_is_reported_once(wiki: DamagedWiki) -> None:
    reported: list[str] = []
    wiki.service.close()
    overwrite_bytes(wiki.index_file, 0, bytes(100))
    wiki.service = wiki.open_service()
    wiki.service.listen_for_damage(reported.append)
    for _ in range(3):
        with pytest.raises(IndexCorrupt):
            wiki.handle.search(SearchRequest("unique7"))
    assert reported == [wiki.handle.wiki.id]


def write_health(wiki: DamagedWiki, health: IndexHealth) -> None:
    IndexRepair(wiki.handle.wiki.id, wiki.handle.wiki.slug, wiki.service.components.store).save(health)


def test_a_search_without_an_index_fails_with_index_repairing(wiki: DamagedWiki) -> None:
    wiki.service.components.store.quarantine(wiki.handle.wiki.id, "a test")
    write_health(wiki, IndexHealth(HealthCondition.REPAIRING, "a test"))
    with pytest.raises(IndexRepairing) as caught:
        wiki.handle.search(SearchRequest("unique7", mode=SearchMode.KEYWORD))
    assert caught.value.status == 503
    wiki.handle.sync()
    wiki.assert_healthy()


def test_a_damaged_cache_is_dropped_and_rebuilt_from_the_index(wiki: DamagedWiki) -> None:
    (file,) = wiki.directory.glob("*.keywords")
    DAMAGES["zeros in the middle"](file)
    wiki.handle.check_integrity()
    wiki.handle.wait_for_caches(TIMEOUT_S)
    wiki.assert_healthy()
    wiki.reopen()
    wiki.assert_healthy()
    assert not wiki.handle.get_status().quarantined, "the index itself was never broken"


def test_an_index_whose_directory_is_missing_is_rebuilt_with_the_vectors_of_its_backup(wiki: DamagedWiki) -> None:
    wiki.handle.backups.create(BackupReason.REQUESTED)
    wiki.service.close()
    remove_path(wiki.directory)
    wiki.service = wiki.open_service()
    with pytest.raises(IndexMissing):
        wiki.handle.search(SearchRequest("unique7"))
    wiki.embedder.embedded.clear()
    wiki.handle.sync()
    assert wiki.embedder.embedded == []
    wiki.assert_healthy()


def test_a_damaged_backup_is_skipped(wiki: DamagedWiki) -> None:
    backup = wiki.handle.backups.create(BackupReason.REQUESTED)
    overwrite_bytes(next((wiki.place / "data" / "backups").rglob(f"{backup.name}*")), 0.5, b"x" * 1000)
    wiki.service.close()
    remove_path(wiki.index_file)
    wiki.reopen()
    report = wiki.handle.sync()
    assert (report.rebuilt, report.chunks_embedded) == (True, PAGE_COUNT)
    wiki.assert_healthy()


def test_a_false_report_of_damage_quarantines_and_embeds_nothing(
    wiki: DamagedWiki, caplog: pytest.LogCaptureFixture
) -> None:
    write_health(wiki, IndexHealth(HealthCondition.BROKEN, "a false report"))
    wiki.embedder.embedded.clear()
    with caplog.at_level(logging.WARNING):
        wiki.handle.sync()
    assert (wiki.handle.get_status().quarantined, wiki.embedder.embedded) == ((), [])
    assert "found it intact" in caplog.text
    wiki.assert_healthy()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"condition": "odd"}', '{"condition": "ok"}', "\x00"])
def test_an_invalid_health_note_is_ignored(tmp_path: Path, text: str) -> None:
    store = SqliteStore(tmp_path)
    store.set_note("somewikiid", "health", text, create=True)
    assert IndexRepair("somewikiid", "garden", store).health == IndexHealth()


def test_a_modified_state_row_is_detected_on_opening(wiki: DamagedWiki) -> None:
    for change in (
        "state SET revision = 'elsewhere'",
        "state SET version = version + 1",
        "state SET generation = 9",
    ):
        with closing(sqlite3.connect(wiki.index_file)) as db:
            db.execute(f"UPDATE {change}")
            db.commit()
        with pytest.raises(IndexCorrupt):
            wiki.service.components.store.open(wiki.handle.wiki.id)
        wiki.handle.sync()
        wiki.assert_healthy()


def test_a_reindex_also_quarantines_a_damaged_index(wiki: DamagedWiki) -> None:
    wiki.service.close()
    overwrite_bytes(wiki.index_file, 0.5, bytes(20_000))
    wiki.reopen()
    wiki.handle.sync(from_scratch=True)
    assert len(wiki.handle.get_status().quarantined) == 1
    assert wiki.handle.health.is_ok
    wiki.assert_healthy()


@pytest.mark.slow
def test_a_stopped_check_leaves_the_health_unchanged(tmp_path: Path) -> None:
    wiki = DamagedWiki(tmp_path, pages=320)  # enough for several steps, at each of which the check can be stopped
    with pytest.raises(Busy):
        wiki.handle.check_integrity(lambda: True)
    assert wiki.handle.health == IndexHealth()
    calls: list[int] = []

    def stop_at_third_call() -> bool:
        calls.append(1)
        return len(calls) > 2

    with pytest.raises(Busy):
        wiki.handle.check_integrity(stop_at_third_call)
    assert wiki.handle.health == IndexHealth()
    wiki.assert_healthy()
    wiki.close()


def test_a_damaged_index_is_kept_while_the_repository_is_missing(wiki: DamagedWiki) -> None:
    wiki.corrupt_chunk_text()
    assert not wiki.handle.check_integrity().is_ok
    away = wiki.repository.path.rename(wiki.place / "away")
    with pytest.raises(SourceMissing):
        wiki.handle.sync()
    assert wiki.handle.search(SearchRequest("unique7")).degraded
    assert wiki.handle.get_status().quarantined == ()
    away.rename(wiki.repository.path)
    wiki.handle.sync()
    wiki.assert_healthy()
