"""Restoring: the newest good one, in one step, without losing what it replaces; the next sync does the rest."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from backup_ground import Ground, age, bytes_below, flip
from git_repository import Repository

from wikiholt.errors import BackupNotFound, Busy, IndexForeign, IndexMissing, StorageRefused, WikiNotFound
from wikiholt.model import Occasion
from wikiholt.search import Request
from wikiholt.stores.sqlite.seals import row_seal
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import open_service


def test_a_restored_index_answers_as_it_was_and_converges_by_embedding_only_what_it_lacks(ground: Ground) -> None:
    repository = ground.add("one")
    taken = ground.wiki().backups.take()
    repository.commit({"New.md": "# New\n\nA kingfisher.", "Boat.md": None})
    ground.wiki().sync()
    assert ground.found("kingfisher") == ["New"]
    assert ground.wiki().restore() == taken
    assert ground.found("kingfisher") == []
    assert ground.found("hull") == ["Boat"]
    assert ground.wiki().check() == []
    ground.embedder.embedded.clear()
    report = ground.wiki().sync()
    assert (report.added, report.deleted, report.unchanged, report.rebuilt) == (1, 1, 1, False)
    assert len(ground.embedder.embedded) == 1
    assert ground.found("kingfisher") == ["New"]
    assert ground.wiki().status().stale is False


def test_what_is_replaced_is_backed_up_first_so_that_a_restore_can_be_taken_back(ground: Ground) -> None:
    repository = ground.add("one")
    ground.wiki().backups.take()
    age(ground.shelf().all()[0], 1)
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    ground.wiki().sync()
    ground.wiki().restore()
    newest = ground.wiki().backups.list()[0]
    assert newest.occasion == Occasion.BEFORE_RESTORING
    assert ground.wiki().restore() == newest
    assert ground.found("kingfisher") == ["New"]


def test_a_restore_is_another_generation_so_that_no_cache_of_the_old_one_fits(ground: Ground) -> None:
    repository = ground.add("one")
    ground.wiki().backups.take()
    before = ground.wiki().stamp()
    repository.commit({"Home.md": "# Home\n\nNo bird at all."})
    ground.wiki().sync()
    ground.wiki().restore()
    assert ground.wiki().stamp()[0] > before[0]
    assert ground.wiki().search(Request("heron")).degraded is False
    files = [file.name for file in ground.index_file().parent.iterdir() if "g000001" in file.name]
    assert files == []


def test_the_newest_that_was_not_taken_after_a_time_is_restored(ground: Ground) -> None:
    repository = ground.add("one")
    for days in (10, 5, 1):
        repository.commit({"Age.md": f"# Age\n\nThis is {days} days old, marked age{days}."})
        ground.wiki().sync()
        ground.wiki().backups.take()
        age(ground.shelf().all()[0], days)
    now = ground.wiki().backups.list()[0].taken_at + timedelta(days=1)
    ground.wiki().restore(now - timedelta(days=4))
    assert ground.found("age5") == ["Age"]
    ground.wiki().restore(now - timedelta(days=10))
    assert ground.found("age10") == ["Age"]
    before = ground.wiki().stamp()
    with pytest.raises(BackupNotFound):
        ground.wiki().restore(now - timedelta(days=11))
    assert ground.wiki().stamp() == before


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


@pytest.mark.parametrize("damage", [_truncated, _zeroed, _empty, _another, lambda file: flip(file, 0.5)])
def test_a_damaged_backup_is_passed_over_for_the_next_older_one(
    ground: Ground, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    repository = ground.add("one")
    older = ground.wiki().backups.take()
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    ground.wiki().sync()
    ground.wiki().backups.take()
    damage(ground.shelf().all()[0].file)
    assert [bool(backup.fault) for backup in ground.wiki().backups.verified()] == [True, False]
    assert ground.wiki().restore() == older
    assert "is passed over" in caplog.text
    assert ground.found("heron") == ["Home"]


def test_without_any_good_backup_nothing_is_touched(ground: Ground) -> None:
    ground.add("one")
    with pytest.raises(BackupNotFound):
        ground.wiki().restore()
    ground.wiki().backups.take()
    _zeroed(ground.shelf().all()[0].file)
    before = ground.wiki().stamp()
    with pytest.raises(BackupNotFound) as missing:
        ground.wiki().restore()
    assert str(ground.directory) not in f"{missing.value.message} {missing.value.hint}"
    assert ground.wiki().stamp() == before
    assert ground.found("heron") == ["Home"]


@pytest.mark.parametrize("damage", [_truncated, _zeroed, _empty, lambda file: file.unlink()])
def test_a_damaged_index_is_set_aside_and_its_backup_answers(ground: Ground, damage: Callable[[Path], None]) -> None:
    ground.add("one")
    ground.wiki().backups.take()
    file = ground.index_file()
    ground.service.close()
    damage(file)
    ground.wiki().restore()
    assert ground.found("heron") == ["Home"]
    assert ground.wiki().check() == []
    aside = [entry for entry in file.parent.iterdir() if entry.name.startswith("broken-")]
    assert len(aside) == 1
    assert len(ground.wiki().backups.verified()) == 1


def test_an_index_that_is_gone_altogether_is_restored(ground: Ground) -> None:
    ground.add("one")
    ground.wiki().backups.take()
    file = ground.index_file()
    ground.service.close()
    for each in file.parent.iterdir():
        each.unlink()
    file.parent.rmdir()
    with pytest.raises(IndexMissing):
        ground.found("heron")
    ground.wiki().restore()
    assert ground.found("heron") == ["Home"]


def test_a_backup_made_with_another_model_is_restored_and_then_built_anew_beside(ground: Ground) -> None:
    ground.add("one")
    ground.wiki().backups.take()
    ground.embedder = FakeEmbedder(16, "other")
    ground.service.close()
    ground.service = ground.opened()
    ground.wiki().sync()
    taken = ground.wiki().backups.list()
    restored = ground.wiki().restore(taken[-1].taken_at)
    assert restored.state is not None
    assert restored.state.recipe.fingerprint == "fake/32"
    assert ground.found("heron") == ["Home"]
    report = ground.wiki().sync()
    state = ground.wiki().status().state
    assert report.rebuilt
    assert state is not None
    assert state.recipe.fingerprint == "other/16"
    assert ground.found("heron") == ["Home"]


def test_a_backup_of_a_newer_wikiholt_is_refused(ground: Ground) -> None:
    ground.add("one")
    ground.wiki().backups.take()
    (kept,) = ground.shelf().all()
    file = kept.file
    with closing(sqlite3.connect(file)) as db:
        row = db.execute("SELECT generation, fingerprint, dimensions, pipeline FROM state").fetchone()
        db.execute("UPDATE state SET schema = 99, seal = ?", (row_seal((99, *row)),))
        db.commit()
        db.execute("PRAGMA journal_mode = DELETE")
    with ground.shelf().making() as draft:
        draft.file.write_bytes(file.read_bytes())
        draft.keep("g1-v99", Occasion.ASKED)
    file.unlink()
    (found,) = ground.wiki().backups.verified()
    assert "newer" in found.fault
    with pytest.raises(BackupNotFound):
        ground.wiki().restore()
    assert ground.found("heron") == ["Home"]


def test_searches_are_answered_while_backups_are_restored(ground: Ground) -> None:
    ground.add("one")
    ground.wiki().backups.take()
    done = Event()
    faults: list[str] = []
    answered = 0

    def search() -> None:
        nonlocal answered
        while not done.is_set():
            try:
                if ground.found("heron") != ["Home"]:
                    faults.append("nothing was found")
                answered += 1
            except Exception as error:  # noqa: BLE001 - shown by the test
                faults.append(repr(error))

    readers = [Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(8):
        ground.wiki().restore()
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert answered > 8


def test_restoring_one_wiki_leaves_every_byte_of_another_as_it_was(ground: Ground) -> None:
    ground.add("one")
    ground.add("two")
    for slug in ("one", "two"):
        ground.wiki(slug).backups.take()
    ground.service.close()
    other = ground.data / "wikis" / ground.wiki("two").wiki.id
    before = bytes_below(other), bytes_below(ground.shelf("two").directory)
    ground.wiki().restore()
    assert (bytes_below(other), bytes_below(ground.shelf("two").directory)) == before


def test_a_restore_waits_for_a_writer_and_gives_up_after_the_timeout(tmp_path: Path) -> None:
    ground = Ground(tmp_path, lock_timeout=0.1)
    ground.add("one")
    ground.wiki().backups.take()
    before = ground.wiki().stamp()
    with ground.service.workshop.store.writing(ground.wiki().wiki.id, 1), pytest.raises(Busy):
        ground.wiki().restore()
    assert ground.wiki().stamp() == before
    ground.service.close()


def test_a_removed_wiki_cannot_be_restored(ground: Ground) -> None:
    ground.add("one")
    handle = ground.wiki()
    handle.backups.take()
    ground.service.remove("one")
    with pytest.raises(WikiNotFound):
        handle.backups.restore()
    assert not (ground.place / handle.wiki.id).exists()
    assert list((ground.data / "wikis").iterdir()) == []


def test_a_restore_that_cannot_save_what_it_replaces_does_not_happen(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ground.add("one")
    ground.wiki().backups.take()
    repository.commit({"New.md": "# New\n\nA kingfisher."})
    ground.wiki().sync()

    def full(*_: object) -> None:
        raise StorageRefused("the disk is full", hint="make room")

    monkeypatch.setattr("wikiholt.stores.sqlite.copies.write", full)
    with pytest.raises(StorageRefused):
        ground.wiki().restore()
    monkeypatch.undo()
    assert ground.found("kingfisher") == ["New"]
    assert ground.wiki().check() == []


def test_a_backup_put_back_by_hand_from_elsewhere_can_be_restored(ground: Ground, tmp_path: Path) -> None:
    ground.add("one")
    taken = ground.wiki().backups.take()
    (kept,) = ground.shelf().all()
    kept.file.rename(tmp_path / kept.file.name)
    assert ground.wiki().backups.newest_good() is None
    (tmp_path / kept.file.name).rename(kept.file)
    assert ground.wiki().restore() == taken


def test_a_backup_of_another_wiki_by_mistake_is_refused(ground: Ground) -> None:
    """Whoever copies files by hand may mix them up: what another wiki's pages say is never answered."""
    ground.add("one")
    ground.add("two", {"Other.md": "# Other\n\ntwocanary"})
    ground.wiki("two").backups.take()
    (kept,) = ground.shelf("two").all()
    ground.shelf().directory.mkdir(parents=True)
    (ground.shelf().directory / kept.file.name).write_bytes(kept.file.read_bytes())
    with pytest.raises(IndexForeign, match="another wiki"):
        ground.wiki().restore()
    assert ground.found("twocanary") == []
    ground.wiki().sync()
    assert ground.found("twocanary") == []
    assert ground.found("heron") == ["Home"]


@pytest.mark.real_model
def test_with_the_real_model_a_restored_index_gives_the_same_answers(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "garden")
    repository.commit({"Home.md": "# Home\n\nThe heron stands by the pond.", "Boat.md": "# Boat\n\nTar the hull."})
    service = open_service(tmp_path / "data")
    try:
        service.add("garden", str(repository.path), {})
        handle = service.wiki("garden")
        handle.sync()
        first = handle.search(Request("a bird near water"))
        handle.backups.take()
        repository.commit({"Home.md": "# Home\n\nNothing but gravel."})
        handle.sync()
        handle.restore()
        second = handle.search(Request("a bird near water"))
        assert [hit.path for hit in second.hits] == [hit.path for hit in first.hits]
        assert [hit.score for hit in second.hits] == pytest.approx([hit.score for hit in first.hits])
        assert handle.sync().chunks_embedded == 1
    finally:
        service.close()
