"""Restoring: the newest good backup, atomically, keeping the replaced index; the next sync updates it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.wait import wait_until
from tests.wikis.backups.backup_fixtures import BackupFixture, count_bytes, flip_bits, set_age
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import BackupNotFound, Busy, StorageError, WikiNotFound
from wikiholt.index.rows import compute_row_checksum
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder


def test_a_restored_index_answers_as_before_and_sync_embeds_only_missing_chunks(
    fixture: BackupFixture,
) -> None:
    repository = fixture.add_wiki("one")
    taken = fixture.get_wiki().backups.create()
    repository.commit({"New.md": "# New\n\nA kingfisher.", "Boat.md": None})
    fixture.get_wiki().sync()
    assert fixture.find_paths("kingfisher") == ["New"]
    assert fixture.get_wiki().restore() == taken
    assert fixture.find_paths("kingfisher") == []
    assert fixture.find_paths("hull") == ["Boat"]
    assert fixture.get_wiki().check() == []
    fixture.embedder.embedded.clear()
    report = fixture.get_wiki().sync()
    assert (report.added, report.deleted, report.unchanged, report.rebuilt) == (1, 1, 1, False)
    assert len(fixture.embedder.embedded) == 1
    assert fixture.find_paths("kingfisher") == ["New"]
    assert fixture.get_wiki().get_status().stale is False


def test_the_replaced_index_is_backed_up_first_so_that_a_restore_can_be_undone(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    set_age(fixture.get_backup_directory().list_files()[0], 1)
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    fixture.get_wiki().sync()
    fixture.get_wiki().restore()
    newest = fixture.get_wiki().backups.list()[0]
    assert newest.reason == BackupReason.BEFORE_RESTORING
    assert fixture.get_wiki().restore() == newest
    assert fixture.find_paths("kingfisher") == ["New"]


def test_a_restore_is_a_new_generation_so_that_old_caches_are_not_used(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    before = fixture.get_wiki().get_version_token()
    repository.commit({"Home.md": "# Home\n\nNo bird at all."})
    fixture.get_wiki().sync()
    fixture.get_wiki().restore()
    assert fixture.get_wiki().get_version_token()[0] > before[0]
    assert fixture.get_wiki().search(SearchRequest("heron")).degraded is False
    files = [file.name for file in fixture.get_index_file().parent.iterdir() if "g000001" in file.name]
    assert files == []


def test_the_newest_backup_before_a_time_is_restored(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    for days in (10, 5):
        repository.commit({"Age.md": f"# Age\n\nThis is {days} days old, marked age{days}."})
        fixture.get_wiki().sync()
        fixture.get_wiki().backups.create()
        set_age(fixture.get_backup_directory().list_files()[0], days)
    now = fixture.get_wiki().backups.list()[0].taken_at + timedelta(days=5)
    repository.commit({"Age.md": "# Age\n\nThis is new."})
    fixture.get_wiki().sync()
    fixture.get_wiki().restore(now - timedelta(days=10))
    assert fixture.find_paths("age10") == ["Age"]
    before = fixture.get_wiki().get_version_token()
    with pytest.raises(BackupNotFound):
        fixture.get_wiki().restore(now - timedelta(days=11))
    assert fixture.get_wiki().get_version_token() == before


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _another(file: Path) -> None:
    with closing(sqlite3.connect(file.with_name("x"))) as db:
        db.execute("CREATE TABLE t (a)")
    file.with_name("x").replace(file)


@pytest.mark.parametrize("damage", [_truncated, _another, lambda file: flip_bits(file, 0.5)])
def test_a_damaged_backup_is_skipped_for_the_next_older_one(
    fixture: BackupFixture, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    repository = fixture.add_wiki("one")
    older = fixture.get_wiki().backups.create()
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    fixture.get_wiki().sync()
    fixture.get_wiki().backups.create()
    damage(fixture.get_backup_directory().list_files()[0].file)
    assert [bool(backup.fault) for backup in fixture.get_wiki().backups.list_verified()] == [True, False]
    assert fixture.get_wiki().restore() == older
    assert "is skipped" in caplog.text
    assert fixture.find_paths("heron") == ["Home"]


def test_without_any_good_backup_nothing_changes(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    with pytest.raises(BackupNotFound):
        fixture.get_wiki().restore()
    fixture.get_wiki().backups.create()
    _zeroed(fixture.get_backup_directory().list_files()[0].file)
    before = fixture.get_wiki().get_version_token()
    with pytest.raises(BackupNotFound) as missing:
        fixture.get_wiki().restore()
    assert str(fixture.directory) not in f"{missing.value.message} {missing.value.hint}"
    assert fixture.get_wiki().get_version_token() == before
    assert fixture.find_paths("heron") == ["Home"]


@pytest.mark.parametrize("damage", [_truncated, lambda file: file.unlink()])
def test_a_damaged_index_is_quarantined_and_its_backup_answers(
    fixture: BackupFixture, damage: Callable[[Path], None]
) -> None:
    fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    file = fixture.get_index_file()
    fixture.service.close()
    damage(file)
    fixture.get_wiki().restore()
    assert fixture.find_paths("heron") == ["Home"]
    assert fixture.get_wiki().check() == []
    aside = [entry for entry in file.parent.iterdir() if entry.name.startswith("broken-")]
    assert len(aside) == 1
    assert len(fixture.get_wiki().backups.list_verified()) == 1


def test_a_backup_of_another_model_is_restored_and_then_rebuilt(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    fixture.embedder = FakeEmbedder(16, "other")
    fixture.service.close()
    fixture.service = fixture.open_service()
    fixture.get_wiki().sync()
    taken = fixture.get_wiki().backups.list()
    restored = fixture.get_wiki().restore(taken[-1].taken_at)
    assert restored.state is not None
    assert restored.state.recipe.fingerprint == "fake/32"
    assert fixture.find_paths("heron") == ["Home"]
    report = fixture.get_wiki().sync()
    state = fixture.get_wiki().get_status().state
    assert report.rebuilt
    assert state is not None
    assert state.recipe.fingerprint == "other/16"
    assert fixture.find_paths("heron") == ["Home"]


def test_a_backup_of_a_newer_wikiholt_is_refused(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    (kept,) = fixture.get_backup_directory().list_files()
    file = kept.file
    with closing(sqlite3.connect(file)) as db:
        row = db.execute("SELECT generation, fingerprint, dimensions, pipeline FROM state").fetchone()
        db.execute("UPDATE state SET schema = 99, checksum = ?", (compute_row_checksum((99, *row)),))
        db.commit()
        db.execute("PRAGMA journal_mode = DELETE")
    with fixture.get_backup_directory().open_pending() as draft:
        draft.file.write_bytes(file.read_bytes())
        draft.commit("g1-v99", BackupReason.REQUESTED)
    file.unlink()
    (found,) = fixture.get_wiki().backups.list_verified()
    assert "newer" in found.fault
    with pytest.raises(BackupNotFound):
        fixture.get_wiki().restore()
    assert fixture.find_paths("heron") == ["Home"]


@pytest.mark.slow
def test_searches_are_answered_while_backups_are_restored(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    done = Event()
    faults: list[str] = []
    answered = 0

    def search() -> None:
        nonlocal answered
        while not done.is_set():
            try:
                if fixture.find_paths("heron") != ["Home"]:
                    faults.append("nothing was found")
                answered += 1
            except Exception as error:  # noqa: BLE001 - shown by the test
                faults.append(repr(error))

    readers = [Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(8):
        fixture.get_wiki().restore()
    wait_until(lambda: answered > 8 or faults)
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []


def test_restoring_one_wiki_changes_no_byte_of_another(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    fixture.add_wiki("two")
    for slug in ("one", "two"):
        fixture.get_wiki(slug).backups.create()
    fixture.service.close()
    other = fixture.data / "wikis" / fixture.get_wiki("two").wiki.id
    before = count_bytes(other), count_bytes(fixture.get_backup_directory("two").directory)
    fixture.get_wiki().restore()
    assert (count_bytes(other), count_bytes(fixture.get_backup_directory("two").directory)) == before


def test_a_restore_waits_for_a_writer_and_gives_up_after_the_timeout(tmp_path: Path) -> None:
    fixture = BackupFixture(tmp_path, lock_timeout_s=0.1)
    fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    before = fixture.get_wiki().get_version_token()
    with fixture.service.components.store.write_lock(fixture.get_wiki().wiki.id, 1), pytest.raises(Busy):
        fixture.get_wiki().restore()
    assert fixture.get_wiki().get_version_token() == before
    fixture.service.close()


def test_a_removed_wiki_cannot_be_restored(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    handle = fixture.get_wiki()
    handle.backups.create()
    fixture.service.remove("one")
    with pytest.raises(WikiNotFound):
        handle.backups.restore()
    assert not (fixture.place / handle.wiki.id).exists()
    assert list((fixture.data / "wikis").iterdir()) == []


def test_a_restore_that_cannot_back_up_the_old_index_is_refused(
    fixture: BackupFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = fixture.add_wiki("one")
    fixture.get_wiki().backups.create()
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    fixture.get_wiki().sync()

    def full(*_: object) -> None:
        raise StorageError("the disk is full", hint="make room")

    monkeypatch.setattr("wikiholt.index.sqlite.index.write_copy", full)
    with pytest.raises(StorageError):
        fixture.get_wiki().restore()
    monkeypatch.undo()
    assert fixture.find_paths("kingfisher") == ["New"]
    assert fixture.get_wiki().check() == []
