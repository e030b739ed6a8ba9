"""No older copy of the registry, however it came back, gives a revoked key or a removed wiki a second life."""

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexCorrupt, KeyNotFound, StorageError
from wikiholt.wikis import revoked_list
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.revoked_list import FIRST_KEY, RevokedEntry, RevokedList


class OlderCopy:
    """A data directory with a copy of its registry from before a key was revoked and a wiki was removed."""

    def __init__(self, directory: Path) -> None:
        self.file, self.copy = directory / "registry.sqlite", directory / "copied.sqlite"
        self.lists = (directory / "revoked", directory / "backups" / "registry" / "revoked")
        with closing(self.open()) as registry:
            garden = registry.add("garden", "/srv/garden")
            removed = registry.add("removed", "/srv/removed", {"hosts": "removed.example"})
            self.removed_id = removed.id
            self.valid = registry.keys.create(garden.id, Scope.READ)
            self.revoked = registry.keys.create(garden.id, Scope.ADMIN)
            self.removed_key = registry.keys.create(removed.id, Scope.ADMIN)
            registry.close()
            shutil.copy(self.file, self.copy)
            registry.keys.revoke(self.revoked[0].id)
            registry.remove("removed")

    def open(self) -> Registry:
        return Registry(self.file)

    def put_back(self) -> None:
        shutil.copy(self.copy, self.file)

    def assert_only_the_valid_key_works(self, registry: Registry) -> None:
        assert registry.keys.find_by_token(self.valid[1]) == self.valid[0]
        for key, token in (self.revoked, self.removed_key):
            assert registry.keys.find_by_token(token) is None
            assert registry.keys.find_valid(key.id) is None
            with pytest.raises(KeyNotFound):
                registry.keys.revoke(key.id)
        assert [key.id for key in registry.keys.list()] == [self.valid[0].id]
        assert [wiki.slug for wiki in registry.list_wikis()] == ["garden"]
        assert registry.get_only() == registry.get("garden")
        assert registry.find_by_host("removed.example") is None


@pytest.fixture
def older(tmp_path: Path) -> OlderCopy:
    return OlderCopy(tmp_path)


def test_an_older_copy_of_the_registry_revives_nothing(older: OlderCopy) -> None:
    older.put_back()
    with closing(older.open()) as registry:
        older.assert_only_the_valid_key_works(registry)
        assert registry.add("removed", "/srv/new", {"hosts": "removed.example"}).id != older.removed_id


def test_an_older_copy_under_a_running_service_revives_nothing(older: OlderCopy) -> None:
    with closing(older.open()) as registry:
        older.assert_only_the_valid_key_works(registry)
        older.put_back()
        older.assert_only_the_valid_key_works(registry)


def test_an_older_copy_that_cannot_be_corrected_revives_nothing(
    older: OlderCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    older.put_back()

    def refuse() -> None:
        raise StorageError("read-only", hint="")

    with closing(older.open()) as registry, monkeypatch.context() as patched:
        patched.setattr(registry._store.store, "write", refuse)
        assert registry.keys.find_by_token(older.revoked[1]) is None
        assert registry.keys.find_by_token(older.removed_key[1]) is None
        assert [wiki.slug for wiki in registry.list_wikis()] == ["garden"]


def _delete(file: Path) -> None:
    file.unlink()


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _make_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [_delete, _flip, _empty, _make_directory])
@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_list_is_written_again_from_its_copy(
    older: OlderCopy, damage: Callable[[Path], None], number: int
) -> None:
    entries = RevokedList(*older.lists).load()
    older.put_back()
    damage(older.lists[number])
    with closing(older.open()) as registry:
        older.assert_only_the_valid_key_works(registry)
    damaged, intact = older.lists[number], older.lists[1 - number]
    assert set(damaged.read_bytes().splitlines()) == set(intact.read_bytes().splitlines())
    assert RevokedList(*older.lists).load() == entries


@pytest.mark.parametrize("damage", [_delete, _flip, _make_directory])
@pytest.mark.parametrize("is_older", [False, True])
def test_without_an_intact_list_nothing_is_accepted(
    older: OlderCopy, damage: Callable[[Path], None], is_older: bool
) -> None:
    if is_older:
        older.put_back()
    for file in older.lists:
        damage(file)
    with closing(older.open()) as registry:
        for use in (
            lambda: registry.keys.find_by_token(older.valid[1]),
            lambda: registry.keys.find_by_token(older.revoked[1]),
            registry.list_wikis,
            registry.keys.has_ever_had_any,
            lambda: registry.keys.create(None, Scope.ADMIN),
        ):
            with pytest.raises(IndexCorrupt, match="list of revoked keys") as caught:
                use()
            assert "wikiholt restore --registry" in caught.value.hint


def test_a_running_service_accepts_no_key_without_the_list(older: OlderCopy) -> None:
    with closing(older.open()) as registry:
        older.assert_only_the_valid_key_works(registry)
        for file in older.lists:
            file.unlink()
        with pytest.raises(IndexCorrupt, match="list of revoked keys"):
            registry.keys.find_by_token(older.valid[1])


def test_a_revocation_is_on_the_disk_before_it_is_acknowledged(
    older: OlderCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(older.open()) as registry, monkeypatch.context() as patched:

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        patched.setattr(revoked_list.os, "fsync", fail)
        with pytest.raises(StorageError, match="list of revoked keys"):
            registry.keys.revoke(older.valid[0].id)
    with closing(older.open()) as registry:
        assert all(b"key " in file.read_bytes() for file in older.lists)


def test_a_revocation_that_was_killed_before_its_commit_is_completed(
    older: OlderCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(older.open()) as registry, monkeypatch.context() as patched:

        def kill(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr("wikiholt.wikis.registry_store.write_version", kill)
        with pytest.raises(KeyboardInterrupt):
            registry.keys.revoke(older.valid[0].id)
    with closing(older.open()) as registry:
        assert registry.keys.find_by_token(older.valid[1]) is None
        assert registry.keys.list() == []


@pytest.fixture
def entries(tmp_path: Path) -> tuple[RevokedList, Path]:
    return RevokedList(tmp_path / "revoked", tmp_path / "copy" / "revoked"), tmp_path / "revoked"


def test_a_torn_last_line_was_never_acknowledged(entries: tuple[RevokedList, Path], tmp_path: Path) -> None:
    listed, file = entries
    listed.append([FIRST_KEY])
    for torn in (file, tmp_path / "copy" / "revoked"):
        torn.write_bytes(torn.read_bytes() + b"key 77")
    assert listed.load() == {FIRST_KEY}
    second = RevokedEntry("key", "a" * 64)
    listed.append([second])
    assert RevokedList(file, tmp_path / "none").load() == {FIRST_KEY, second}


def test_another_process_reads_a_new_entry_at_once(entries: tuple[RevokedList, Path], tmp_path: Path) -> None:
    listed, file = entries
    assert listed.load() is None
    other = RevokedList(file, tmp_path / "copy" / "revoked")
    for number in range(3):
        other.append([RevokedEntry("key", str(number))])
        assert listed.load() == {RevokedEntry("key", str(at)) for at in range(number + 1)}
    assert (file.stat().st_mode & 0o777) == 0o600


def test_a_thread_that_read_the_list_before_a_revocation_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a slow thread stores between the steps of a fast one."""
    listed, late = RevokedList(tmp_path / "revoked", tmp_path / "copy"), RevokedEntry("key", "late")
    listed.append([RevokedEntry("key", "early")])
    has_read, may_store, read_files = threading.Event(), threading.Event(), RevokedList._read_files

    def read_slowly(self: RevokedList) -> frozenset[RevokedEntry] | None:
        found = read_files(self)
        if threading.current_thread() is slow:
            has_read.set()
            assert may_store.wait(TIMEOUT_S)
        return found

    def store(self: RevokedList, name: str, value: object) -> None:
        if name == "_stamp" and threading.current_thread() is not slow:
            may_store.set()
            slow.join()
        object.__setattr__(self, name, value)

    slow = threading.Thread(target=listed.load)
    monkeypatch.setattr(RevokedList, "_read_files", read_slowly)
    monkeypatch.setattr(RevokedList, "__setattr__", store)
    slow.start()
    assert has_read.wait(TIMEOUT_S)
    listed.append([late])
    assert late in (listed.load() or ())
    may_store.set()
    slow.join()
    assert late in (listed.load() or ())
