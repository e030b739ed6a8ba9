"""Restoring: the newest good one, in one step, without losing what it replaces; the next sync does the rest."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.git_repository import Repository
from tests.wikis.backups.backup_fixtures import BackupFixture, count_bytes, flip_bits, set_age
from wikiholt.app.bootstrap import open_service
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import BackupNotFound, Busy, IndexForeign, IndexMissing, StorageError, WikiNotFound
from wikiholt.search.request import SearchRequest
from wikiholt.storage.checksums import compute_row_checksum
from wikiholt.testing import FakeEmbedder


def test_a_restored_index_answers_as_it_was_and_converges_by_embedding_only_what_it_lacks(
    ground: BackupFixture,
) -> None:
    repository = ground.add_wiki("one")
    taken = ground.get_wiki().backups.create()
    repository.commit({"New.md": "# New\n\nA kingfisher.", "Boat.md": None})
    ground.get_wiki().sync()
    assert ground.find_paths("kingfisher") == ["New"]
    assert ground.get_wiki().restore() == taken
    assert ground.find_paths("kingfisher") == []
    assert ground.find_paths("hull") == ["Boat"]
    assert ground.get_wiki().check() == []
    ground.embedder.embedded.clear()
    report = ground.get_wiki().sync()
    assert (report.added, report.deleted, report.unchanged, report.rebuilt) == (1, 1, 1, False)
    assert len(ground.embedder.embedded) == 1
    assert ground.find_paths("kingfisher") == ["New"]
    assert ground.get_wiki().get_status().stale is False


def test_what_is_replaced_is_backed_up_first_so_that_a_restore_can_be_taken_back(ground: BackupFixture) -> None:
    repository = ground.add_wiki("one")
    ground.get_wiki().backups.create()
    set_age(ground.get_backup_directory().list_files()[0], 1)
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    ground.get_wiki().sync()
    ground.get_wiki().restore()
    newest = ground.get_wiki().backups.list()[0]
    assert newest.reason == BackupReason.BEFORE_RESTORING
    assert ground.get_wiki().restore() == newest
    assert ground.find_paths("kingfisher") == ["New"]


def test_a_restore_is_another_generation_so_that_no_cache_of_the_old_one_fits(ground: BackupFixture) -> None:
    repository = ground.add_wiki("one")
    ground.get_wiki().backups.create()
    before = ground.get_wiki().get_version_token()
    repository.commit({"Home.md": "# Home\n\nNo bird at all."})
    ground.get_wiki().sync()
    ground.get_wiki().restore()
    assert ground.get_wiki().get_version_token()[0] > before[0]
    assert ground.get_wiki().search(SearchRequest("heron")).degraded is False
    files = [file.name for file in ground.get_index_file().parent.iterdir() if "g000001" in file.name]
    assert files == []


def test_the_newest_that_was_not_taken_after_a_time_is_restored(ground: BackupFixture) -> None:
    repository = ground.add_wiki("one")
    for days in (10, 5, 1):
        repository.commit({"Age.md": f"# Age\n\nThis is {days} days old, marked age{days}."})
        ground.get_wiki().sync()
        ground.get_wiki().backups.create()
        set_age(ground.get_backup_directory().list_files()[0], days)
    now = ground.get_wiki().backups.list()[0].taken_at + timedelta(days=1)
    ground.get_wiki().restore(now - timedelta(days=4))
    assert ground.find_paths("age5") == ["Age"]
    ground.get_wiki().restore(now - timedelta(days=10))
    assert ground.find_paths("age10") == ["Age"]
    before = ground.get_wiki().get_version_token()
    with pytest.raises(BackupNotFound):
        ground.get_wiki().restore(now - timedelta(days=11))
    assert ground.get_wiki().get_version_token() == before


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _another(file: Path) -> None:
    with closing(sqlite3.connect(file.with_name("x"))) as db:
        db.execute("CREATE TABLE t (a)")
    file.with_name("x").replace(file)


@pytest.mark.parametrize("damage", [_truncated, _zeroed, _empty, _another, lambda file: flip_bits(file, 0.5)])
def test_a_damaged_backup_is_passed_over_for_the_next_older_one(
    ground: BackupFixture, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    repository = ground.add_wiki("one")
    older = ground.get_wiki().backups.create()
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    ground.get_wiki().sync()
    ground.get_wiki().backups.create()
    damage(ground.get_backup_directory().list_files()[0].file)
    assert [bool(backup.fault) for backup in ground.get_wiki().backups.list_verified()] == [True, False]
    assert ground.get_wiki().restore() == older
    assert "is skipped" in caplog.text
    assert ground.find_paths("heron") == ["Home"]


def test_without_any_good_backup_nothing_is_touched(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    with pytest.raises(BackupNotFound):
        ground.get_wiki().restore()
    ground.get_wiki().backups.create()
    _zeroed(ground.get_backup_directory().list_files()[0].file)
    before = ground.get_wiki().get_version_token()
    with pytest.raises(BackupNotFound) as missing:
        ground.get_wiki().restore()
    assert str(ground.directory) not in f"{missing.value.message} {missing.value.hint}"
    assert ground.get_wiki().get_version_token() == before
    assert ground.find_paths("heron") == ["Home"]


@pytest.mark.parametrize("damage", [_truncated, _zeroed, _empty, lambda file: file.unlink()])
def test_a_damaged_index_is_set_aside_and_its_backup_answers(
    ground: BackupFixture, damage: Callable[[Path], None]
) -> None:
    ground.add_wiki("one")
    ground.get_wiki().backups.create()
    file = ground.get_index_file()
    ground.service.close()
    damage(file)
    ground.get_wiki().restore()
    assert ground.find_paths("heron") == ["Home"]
    assert ground.get_wiki().check() == []
    aside = [entry for entry in file.parent.iterdir() if entry.name.startswith("broken-")]
    assert len(aside) == 1
    assert len(ground.get_wiki().backups.list_verified()) == 1


def test_an_index_that_is_gone_altogether_is_restored(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    ground.get_wiki().backups.create()
    file = ground.get_index_file()
    ground.service.close()
    for each in file.parent.iterdir():
        each.unlink()
    file.parent.rmdir()
    with pytest.raises(IndexMissing):
        ground.find_paths("heron")
    ground.get_wiki().restore()
    assert ground.find_paths("heron") == ["Home"]


def test_a_backup_made_with_another_model_is_restored_and_then_built_anew_beside(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    ground.get_wiki().backups.create()
    ground.embedder = FakeEmbedder(16, "other")
    ground.service.close()
    ground.service = ground.open_service()
    ground.get_wiki().sync()
    taken = ground.get_wiki().backups.list()
    restored = ground.get_wiki().restore(taken[-1].taken_at)
    assert restored.state is not None
    assert restored.state.recipe.fingerprint == "fake/32"
    assert ground.find_paths("heron") == ["Home"]
    report = ground.get_wiki().sync()
    state = ground.get_wiki().get_status().state
    assert report.rebuilt
    assert state is not None
    assert state.recipe.fingerprint == "other/16"
    assert ground.find_paths("heron") == ["Home"]


def test_a_backup_of_a_newer_wikiholt_is_refused(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    ground.get_wiki().backups.create()
    (kept,) = ground.get_backup_directory().list_files()
    file = kept.file
    with closing(sqlite3.connect(file)) as db:
        row = db.execute("SELECT generation, fingerprint, dimensions, pipeline FROM state").fetchone()
        db.execute("UPDATE state SET schema = 99, seal = ?", (compute_row_checksum((99, *row)),))
        db.commit()
        db.execute("PRAGMA journal_mode = DELETE")
    with ground.get_backup_directory().open_pending() as draft:
        draft.file.write_bytes(file.read_bytes())
        draft.commit("g1-v99", BackupReason.REQUESTED)
    file.unlink()
    (found,) = ground.get_wiki().backups.list_verified()
    assert "newer" in found.fault
    with pytest.raises(BackupNotFound):
        ground.get_wiki().restore()
    assert ground.find_paths("heron") == ["Home"]


@pytest.mark.slow
def test_searches_are_answered_while_backups_are_restored(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    ground.get_wiki().backups.create()
    done = Event()
    faults: list[str] = []
    answered = 0

    def search() -> None:
        nonlocal answered
        while not done.is_set():
            try:
                if ground.find_paths("heron") != ["Home"]:
                    faults.append("nothing was found")
                answered += 1
            except Exception as error:  # noqa: BLE001 - shown by the test
                faults.append(repr(error))

    readers = [Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(8):
        ground.get_wiki().restore()
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert answered > 8


def test_restoring_one_wiki_leaves_every_byte_of_another_as_it_was(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    ground.add_wiki("two")
    for slug in ("one", "two"):
        ground.get_wiki(slug).backups.create()
    ground.service.close()
    other = ground.data / "wikis" / ground.get_wiki("two").wiki.id
    before = count_bytes(other), count_bytes(ground.get_backup_directory("two").directory)
    ground.get_wiki().restore()
    assert (count_bytes(other), count_bytes(ground.get_backup_directory("two").directory)) == before


def test_a_restore_waits_for_a_writer_and_gives_up_after_the_timeout(tmp_path: Path) -> None:
    ground = BackupFixture(tmp_path, lock_timeout=0.1)
    ground.add_wiki("one")
    ground.get_wiki().backups.create()
    before = ground.get_wiki().get_version_token()
    with ground.service.components.store.write_lock(ground.get_wiki().wiki.id, 1), pytest.raises(Busy):
        ground.get_wiki().restore()
    assert ground.get_wiki().get_version_token() == before
    ground.service.close()


def test_a_removed_wiki_cannot_be_restored(ground: BackupFixture) -> None:
    ground.add_wiki("one")
    handle = ground.get_wiki()
    handle.backups.create()
    ground.service.remove("one")
    with pytest.raises(WikiNotFound):
        handle.backups.restore()
    assert not (ground.place / handle.wiki.id).exists()
    assert list((ground.data / "wikis").iterdir()) == []


def test_a_restore_that_cannot_save_what_it_replaces_does_not_happen(
    ground: BackupFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ground.add_wiki("one")
    ground.get_wiki().backups.create()
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    ground.get_wiki().sync()

    def full(*_: object) -> None:
        raise StorageError("the disk is full", hint="make room")

    monkeypatch.setattr("wikiholt.storage.sqlite.backup.write_copy", full)
    with pytest.raises(StorageError):
        ground.get_wiki().restore()
    monkeypatch.undo()
    assert ground.find_paths("kingfisher") == ["New"]
    assert ground.get_wiki().check() == []


def test_a_backup_put_back_by_hand_from_elsewhere_can_be_restored(ground: BackupFixture, tmp_path: Path) -> None:
    ground.add_wiki("one")
    taken = ground.get_wiki().backups.create()
    (kept,) = ground.get_backup_directory().list_files()
    kept.file.rename(tmp_path / kept.file.name)
    assert ground.get_wiki().backups.find_newest_intact() is None
    (tmp_path / kept.file.name).rename(kept.file)
    assert ground.get_wiki().restore() == taken


def test_a_backup_of_another_wiki_by_mistake_is_refused(ground: BackupFixture) -> None:
    """Whoever copies files by hand may mix them up: what another wiki's pages say is never answered."""
    ground.add_wiki("one")
    ground.add_wiki("two", {"Other.md": "# Other\n\ntwocanary"})
    ground.get_wiki("two").backups.create()
    (kept,) = ground.get_backup_directory("two").list_files()
    ground.get_backup_directory().directory.mkdir(parents=True)
    (ground.get_backup_directory().directory / kept.file.name).write_bytes(kept.file.read_bytes())
    with pytest.raises(IndexForeign, match="another wiki"):
        ground.get_wiki().restore()
    assert ground.find_paths("twocanary") == []
    ground.get_wiki().sync()
    assert ground.find_paths("twocanary") == []
    assert ground.find_paths("heron") == ["Home"]


@pytest.mark.model
def test_with_the_real_model_a_restored_index_gives_the_same_answers(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "# Home\n\nThe heron stands by the pond.", "Boat.md": "# Boat\n\nTar the hull."})
    service = open_service(tmp_path / "data")
    try:
        service.add("garden", str(repository.path), {})
        handle = service.get_handle("garden")
        handle.sync()
        first = handle.search(SearchRequest("a bird near water"))
        handle.backups.create()
        repository.commit({"Home.md": "# Home\n\nNothing but gravel."})
        handle.sync()
        handle.restore()
        second = handle.search(SearchRequest("a bird near water"))
        assert [hit.path for hit in second.hits] == [hit.path for hit in first.hits]
        assert [hit.score for hit in second.hits] == pytest.approx([hit.score for hit in first.hits])
        assert handle.sync().chunks_embedded == 1
    finally:
        service.close()
