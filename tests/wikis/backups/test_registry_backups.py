"""Backups of the registry: data that git does not have, and that must not reach the wrong wiki."""

import resource
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.wait import TIMEOUT_S
from tests.wikis.backups.backup_fixtures import count_bytes, flip_bits, set_age
from wikiholt.domain.wiki import BackupReason, Scope
from wikiholt.errors import BackupNotFound, IndexCorrupt, IndexMissing, StorageError
from wikiholt.index.backup_directory import BackupDirectory, BackupPolicy
from wikiholt.wikis import registry_backups
from wikiholt.wikis.registry import Registry


def open_registry(directory: Path) -> Registry:
    policy = BackupPolicy(directory / "backups", 7)
    return Registry(directory / "registry.sqlite", timeout_s=TIMEOUT_S, backups=policy)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with closing(open_registry(tmp_path)) as made:
        made.add("garden", "/repositories/garden", {"hosts": "garden.example", "language": "german"})
        made.add("kitchen", "/repositories/kitchen", {})
        yield made


def get_backup_directory(tmp_path: Path) -> BackupDirectory:
    return BackupDirectory(tmp_path / "backups" / "registry")


def test_a_backup_restores_wikis_settings_hosts_and_keys(registry: Registry) -> None:
    garden = registry.get("garden")
    key, token = registry.keys.create(garden.id, Scope.WRITE, "a program")
    taken = registry.backups.create()
    assert (taken.wikis, taken.keys, taken.fault) == (2, 1, "")
    registry.update_settings("garden", {"language": "danish", "hosts": ""})
    registry.add("cellar", "/repositories/cellar", {})
    restored = registry.backups.restore()
    assert restored.backup.name == taken.name
    assert registry.get("garden") == garden
    assert registry.find_by_host("garden.example") == garden
    assert registry.keys.find_by_token(token) == key
    assert [wiki.slug for wiki in registry.list_wikis()] == ["garden", "kitchen"]
    registry.add("attic", "/repositories/attic", {})
    assert [wiki.slug for wiki in registry.list_wikis()] == ["attic", "garden", "kitchen"]


def test_a_restore_can_be_undone(registry: Registry, tmp_path: Path) -> None:
    registry.backups.create()
    set_age(get_backup_directory(tmp_path).list_files()[0], 1)
    registry.add("cellar", "/repositories/cellar", {})
    registry.backups.restore()
    assert [wiki.slug for wiki in registry.list_wikis()] == ["garden", "kitchen"]
    assert registry.backups.restore().backup.reason == BackupReason.BEFORE_RESTORING
    assert [wiki.slug for wiki in registry.list_wikis()] == ["cellar", "garden", "kitchen"]


def test_a_backup_that_was_taken_after_the_clock_was_set_back_is_the_newest(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.backups.create()
    set_age(get_backup_directory(tmp_path).list_files()[0], -3650)
    registry.add("cellar", "/repositories/cellar", {})
    monkeypatch.setattr(registry_backups, "_SMALL_BACKUP_BYTES", 0)
    taken = registry.backups.create_if_changed(min_interval_s=3600)
    assert taken is not None
    assert registry.backups.create_if_changed() is None
    assert not registry.backups.is_outdated()
    assert registry.backups.restore().backup.name == taken.name
    assert "cellar" in [wiki.slug for wiki in registry.list_wikis()]


def test_a_revoked_key_does_not_come_back(registry: Registry) -> None:
    wiki_id = registry.get("garden").id
    stays, valid = registry.keys.create(wiki_id, Scope.READ)
    goes, revoked = registry.keys.create(wiki_id, Scope.ADMIN)
    registry.backups.create()
    registry.keys.revoke(goes.id)
    restored = registry.backups.restore()
    assert [key.id for key in restored.omitted_keys] == [goes.id]
    assert restored.revocations_known
    assert registry.keys.find_by_token(revoked) is None
    assert registry.keys.find_by_token(valid) == stays


def test_a_key_revoked_after_the_newest_backup_does_not_come_back(registry: Registry, tmp_path: Path) -> None:
    goes, revoked = registry.keys.create(registry.get("garden").id, Scope.ADMIN)
    stays, valid = registry.keys.create(None, Scope.ADMIN)
    registry.backups.create()
    registry.keys.revoke(goes.id)
    registry.close()
    (tmp_path / "registry.sqlite").write_bytes(b"nothing that could be a registry")
    restored = registry.backups.restore()
    assert [key.id for key in restored.omitted_keys] == [goes.id]
    assert restored.revocations_known
    assert registry.keys.find_by_token(revoked) is None
    assert registry.keys.find_by_token(valid) == stays


def test_without_the_list_of_revoked_keys_no_key_is_restored(registry: Registry, tmp_path: Path) -> None:
    goes, revoked = registry.keys.create(registry.get("garden").id, Scope.ADMIN)
    stays, valid = registry.keys.create(None, Scope.ADMIN)
    registry.backups.create()
    registry.keys.revoke(goes.id)
    registry.close()
    for file in (tmp_path / "registry.sqlite", *tmp_path.rglob("revoked")):
        file.unlink()
    restored = registry.backups.restore()
    assert {key.id for key in restored.omitted_keys} == {goes.id, stays.id}
    assert not restored.revocations_known
    assert registry.keys.find_by_token(revoked) is registry.keys.find_by_token(valid) is None
    assert registry.keys.has_ever_had_any()
    assert len(registry.list_wikis()) == 2
    assert registry.keys.create(None, Scope.ADMIN)


def test_after_the_first_key_a_restored_registry_grants_nothing_without_one(registry: Registry) -> None:
    registry.backups.create()
    assert not registry.keys.has_ever_had_any()
    registry.keys.create(None, Scope.ADMIN)
    registry.backups.restore()
    assert registry.keys.list() == []
    assert registry.keys.has_ever_had_any()


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def _zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("damage", [_empty, _cut, _zeroed])
def test_a_damaged_registry_names_the_command_and_is_never_replaced_automatically(
    registry: Registry, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    registry.backups.create()
    registry.close()
    damage(tmp_path / "registry.sqlite")
    broken = (tmp_path / "registry.sqlite").read_bytes()
    for _ in range(2):
        with pytest.raises(IndexCorrupt) as corrupt:
            registry.list_wikis()
        assert "wikiholt restore --registry" in corrupt.value.hint
    with pytest.raises(IndexCorrupt):
        registry.backups.create()
    assert (tmp_path / "registry.sqlite").read_bytes() == broken
    restored = registry.backups.restore()
    assert [wiki.slug for wiki in registry.list_wikis()] == ["garden", "kitchen"]
    assert restored.quarantined_as is not None
    assert (tmp_path / restored.quarantined_as).read_bytes() == broken
    assert not (tmp_path / ".registry.sqlite").exists()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_the_journal_of_a_damaged_registry_is_not_applied_to_the_restored_one(
    registry: Registry, tmp_path: Path
) -> None:
    registry.backups.create()
    registry.close()
    (tmp_path / "registry.sqlite").write_bytes(b"broken")
    (tmp_path / "registry.sqlite-journal").write_bytes(b"a journal of something else")
    registry.backups.restore()
    assert not (tmp_path / "registry.sqlite-journal").exists()
    assert len(registry.list_wikis()) == 2


def test_a_missing_registry_is_restored(registry: Registry, tmp_path: Path) -> None:
    registry.backups.create()
    registry.close()
    for file in tmp_path.glob("registry.sqlite*"):
        file.unlink()
    assert registry.backups.restore().quarantined_as is None
    assert len(registry.list_wikis()) == 2


def test_another_process_opens_a_restored_registry_automatically(registry: Registry, tmp_path: Path) -> None:
    other = open_registry(tmp_path)
    registry.backups.create()
    set_age(get_backup_directory(tmp_path).list_files()[0], 1)
    yesterday = get_backup_directory(tmp_path).list_files()[0].taken_at
    registry.add("cellar", "/repositories/cellar", {})
    assert len(other.list_wikis()) == 3
    registry.backups.restore()
    assert len(other.list_wikis()) == 2
    registry.close()
    _cut(tmp_path / "registry.sqlite")
    registry.backups.restore(yesterday)
    assert len(other.list_wikis()) == len(registry.list_wikis()) == 2
    other.close()


def test_a_damaged_backup_is_skipped(registry: Registry, tmp_path: Path) -> None:
    older = registry.backups.create()
    set_age(get_backup_directory(tmp_path).list_files()[0], 1)
    registry.add("cellar", "/repositories/cellar", {})
    registry.backups.create()
    flip_bits(get_backup_directory(tmp_path).list_files()[0].file, 0.6)
    assert [bool(backup.fault) for backup in registry.backups.list()] == [True, False]
    assert registry.backups.restore().backup.taken_at == older.taken_at - timedelta(days=1)


def test_without_a_good_backup_nothing_changes(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(BackupNotFound):
        registry.backups.restore()
    taken = registry.backups.create()
    with pytest.raises(BackupNotFound):
        registry.backups.restore(taken.taken_at - timedelta(seconds=1))
    flip_bits(get_backup_directory(tmp_path).list_files()[0].file, 0.3)
    with pytest.raises(BackupNotFound):
        registry.backups.restore()
    assert len(registry.list_wikis()) == 2


def test_a_registry_that_does_not_exist_has_no_backup(tmp_path: Path) -> None:
    with closing(open_registry(tmp_path)) as registry:
        assert registry.backups.create_if_changed() is None
        with pytest.raises(IndexMissing):
            registry.backups.create()
        assert registry.backups.list() == []
        assert not (tmp_path / "registry.sqlite").exists()


def test_a_periodic_backup_is_made_only_after_a_change_or_damage(registry: Registry, tmp_path: Path) -> None:
    assert registry.backups.create_if_changed() is not None
    assert registry.backups.create_if_changed() is None
    registry.update_settings("garden", {"language": "danish"})
    assert registry.backups.create_if_changed() is not None
    assert registry.backups.create_if_changed() is None
    flip_bits(get_backup_directory(tmp_path).list_files()[0].file, 0.5)
    assert registry.backups.create_if_changed() is not None


def test_a_removed_wiki_is_not_restored_and_others_are(registry: Registry, tmp_path: Path) -> None:
    garden = registry.get("garden")
    _, token = registry.keys.create(garden.id, Scope.ADMIN, "gardenlabel")
    kept, valid = registry.keys.create(registry.get("kitchen").id, Scope.READ)
    registry.backups.create()
    registry.remove("garden")
    restored = registry.backups.restore()
    assert (restored.backup.wikis, [key.label for key in restored.omitted_keys]) == (2, ["gardenlabel"])
    assert registry.keys.find_by_token(token) is None
    assert registry.keys.find_by_token(valid) == kept
    assert [wiki.slug for wiki in registry.list_wikis()] == ["kitchen"]
    assert registry.find_by_host("garden.example") is None
    assert registry.add("garden", "/repositories/new", {"hosts": "garden.example"}).id != garden.id


def test_a_removed_wiki_is_deleted_from_all_backups_and_others_are_not(registry: Registry, tmp_path: Path) -> None:
    garden = registry.get("garden")
    registry.keys.create(garden.id, Scope.ADMIN, "gardenlabel")
    registry.keys.create(registry.get("kitchen").id, Scope.READ)
    registry.backups.create()
    set_age(get_backup_directory(tmp_path).list_files()[0], 1)
    registry.backups.create()
    registry.remove("garden")
    registry.backups.purge()
    for name, content in count_bytes(tmp_path).items():
        for text in (garden.id, "garden.example", "gardenlabel", "repositories/garden"):
            assert text.encode() not in content, (name, text)
    assert [(backup.wikis, backup.keys, backup.fault) for backup in registry.backups.list()] == [(1, 1, ""), (1, 1, "")]


def test_a_damaged_backup_that_may_contain_a_removed_wiki_is_deleted(registry: Registry, tmp_path: Path) -> None:
    registry.backups.create()
    flip_bits(get_backup_directory(tmp_path).list_files()[0].file, 0.9)
    registry.remove("garden")
    registry.backups.purge()
    assert registry.backups.list() == []
    assert [wiki.slug for wiki in registry.list_wikis()] == ["kitchen"]


def test_backups_are_taken_while_others_write(registry: Registry, tmp_path: Path) -> None:
    done = Event()

    def write() -> None:
        with closing(open_registry(tmp_path)) as other:
            for number in range(30):
                other.add(f"wiki-{number}", f"/repositories/{number}", {})
        done.set()

    writer = Thread(target=write)
    writer.start()
    taken = []
    while not done.is_set():
        taken.append(registry.backups.create().wikis)
    writer.join()
    assert taken == sorted(taken)
    assert not any(backup.fault for backup in registry.backups.list())


def test_a_backup_that_finds_no_space_is_a_storage_error_and_leaves_no_file(registry: Registry, tmp_path: Path) -> None:
    taken = registry.backups.create()
    registry.add("cellar", "/repositories/cellar", {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))  # SIGXFSZ is ignored by Python
    try:
        with pytest.raises(StorageError, match="cannot be written") as caught:
            registry.backups.create()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "Check free space" in str(caught.value.hint)
    assert [backup.name for backup in registry.backups.list()] == [taken.name]
    assert len(list((tmp_path / "backups" / "registry").glob("*.sqlite"))) == 1
