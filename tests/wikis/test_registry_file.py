"""The registry file: checksums of rows, damage, and deletion."""

import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.wait import TIMEOUT_S
from tests.wikis.registry_rows import overwrite_column
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexCorrupt, IndexTooNew, StorageError
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.registry_schema import REGISTRY_TABLES, SESSION_TABLES
from wikiholt.wikis.small_store import SmallStoreFile, StoreConnection, StoreTables, write_file
from wikiholt.wikis.sqlite_query_log import QUERY_LOG_TABLES

# ── checksums ──


def _add_sample_rows(registry: Registry) -> None:
    garden = registry.add("garden", "/srv/garden", {"hosts": "garden.example"})
    registry.add("other", "/srv/other")
    registry.keys.create(garden.id, Scope.READ, "label")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE wikis SET source = '/srv/other' WHERE slug = 'garden'",
        "UPDATE wikis SET settings = '{\"public\": \"true\"}' WHERE slug = 'garden'",
        "UPDATE hosts SET wiki_id = (SELECT id FROM wikis WHERE slug = 'other')",
        "UPDATE keys SET wiki_id = (SELECT id FROM wikis WHERE slug = 'other')",
        "UPDATE keys SET wiki_id = NULL",
        "UPDATE keys SET scope = 'admin'",
        "UPDATE revoked SET value = 'another'",
        "DELETE FROM state",
        "INSERT INTO keys SELECT 'another', NULL, 'admin', '', created_at, NULL, digest, row_check FROM keys",
    ],
)
def test_rows_not_written_by_the_registry_are_damage(registry: Registry, path: Path, damage: str) -> None:
    _add_sample_rows(registry)
    registry.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert other.execute(damage).rowcount
    with pytest.raises(IndexCorrupt, match=r"not the one that was written|has no version"):
        registry.list_wikis()


def test_a_write_does_not_hide_existing_damage(registry: Registry, path: Path) -> None:
    _add_sample_rows(registry)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE keys SET wiki_id = NULL")
    with pytest.raises(IndexCorrupt):
        registry.add("third", "/srv/third")
    registry.close()
    with pytest.raises(IndexCorrupt):
        registry.list_wikis()


def test_a_failed_write_changes_nothing(registry: Registry) -> None:
    _add_sample_rows(registry)
    before = (registry.list_wikis(), registry.keys.list())

    def half() -> None:
        with registry._store.write() as writer:
            writer.delete("keys", "label", "label")
            writer.insert("hosts", ("half.example", "done"))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        half()
    registry.close()
    assert (registry.list_wikis(), registry.keys.list()) == before


def test_nothing_of_a_key_a_host_or_an_old_setting_is_left_in_the_file(registry: Registry, path: Path) -> None:
    wiki = registry.add("garden", "/srv/garden", {"hosts": "heron.example", "webhook_secret": "bittern"})
    key, _ = registry.keys.create(wiki.id, Scope.READ, "cormorant")
    registry.update_settings("garden", {"hosts": "", "webhook_secret": "egret"})
    registry.keys.revoke(key.id)
    on_disk = path.read_bytes()
    assert b"egret" in on_disk
    assert [text for text in ("heron", "bittern", "cormorant", key.id) if text.encode() in on_disk] == []


# ── damage ──


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" + b"\0" * 5000])
def test_a_damaged_file_is_an_error_and_never_an_empty_list(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with closing(Registry(path)) as registry:
        for use in (registry.list_wikis, lambda: registry.get("garden"), lambda: registry.add("garden", "/srv")):
            with pytest.raises(IndexCorrupt, match="damaged") as caught:
                use()
            assert "backup" in caught.value.hint
    assert path.read_bytes() == content


@pytest.mark.slow
def test_a_torn_file_is_an_error(registry: Registry, path: Path) -> None:
    for number in range(400):
        registry.add(f"wiki-{number}", "/srv/" + "x" * 100)
    registry.close()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(IndexCorrupt):
        registry.list_wikis()


def test_another_database_is_not_taken_for_a_registry(registry: Registry, path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE wikis (id)")
    with pytest.raises(IndexCorrupt, match="not a registry"):
        registry.list_wikis()


def test_an_older_registry_is_refused_and_unchanged(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")
    registry.close()
    with closing(sqlite3.connect(path)) as older:
        older.execute("PRAGMA user_version = 1")
    with pytest.raises(IndexCorrupt, match="its version 1 is too old") as caught:
        registry.list_wikis()
    assert "backup" in caught.value.hint
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_newer_registry_is_refused(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")
    registry.close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(IndexTooNew, match="newer Wikiholt"):
        registry.list_wikis()


@pytest.mark.parametrize("settings", ["{", "[]", "null", '{"a": 1}'])
def test_an_invalid_row_is_damage(registry: Registry, path: Path, settings: str) -> None:
    registry.add("garden", "/srv/garden")
    overwrite_column(path, "wikis", "settings", settings)
    with pytest.raises(IndexCorrupt, match="not valid"):
        registry.list_wikis()


def test_a_directory_that_cannot_be_created_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with closing(Registry(tmp_path / "file" / "registry.db")) as registry, pytest.raises(StorageError):
        registry.add("garden", "/srv/garden")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_registry_in_a_read_only_directory_can_be_read(registry: Registry, path: Path) -> None:
    wiki = registry.add("garden", "/srv/garden")
    registry.close()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert registry.list_wikis() == [wiki]
        with pytest.raises(StorageError):
            registry.add("other", "/srv/other")
    finally:
        path.parent.chmod(0o755)


def test_a_restored_file_is_read_instead_of_the_old_one(registry: Registry, path: Path) -> None:
    registry.add("old", "/srv/old")
    registry.close()
    backup = path.read_bytes()
    registry.add("newer", "/srv/newer")
    (path.parent / "restored").write_bytes(backup)
    for leftover in path.parent.glob("registry.db-*"):
        leftover.unlink()
    (path.parent / "restored").replace(path)
    assert [wiki.slug for wiki in registry.list_wikis()] == ["old"]


def test_drafts_of_killed_processes_are_removed_when_they_are_old(registry: Registry, path: Path) -> None:
    registry.add("garden", "/srv/garden")
    registry.close()
    old, young = path.with_name(f".{path.name}.00ff"), path.with_name(f".{path.name}.11ff")
    for draft in (old, young):
        draft.write_bytes(b"secrets")
    os.utime(old, (0, 0))
    assert [wiki.slug for wiki in registry.list_wikis()] == ["garden"]
    assert not old.exists()
    assert young.exists()


def test_a_child_that_was_forked_during_a_read_can_read(registry: Registry) -> None:
    _add_sample_rows(registry)
    is_reading, may_end = threading.Event(), threading.Event()

    def read_slowly() -> None:
        with registry._store.read():
            is_reading.set()
            may_end.wait(TIMEOUT_S)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    assert is_reading.wait(TIMEOUT_S)
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends a child that waits for a lock
        os._exit(len(registry.list_wikis()))
    status = os.waitpid(child, 0)[1]
    may_end.set()
    reader.join()
    assert os.waitstatus_to_exitcode(status) == 2


@pytest.mark.parametrize(("tables", "level"), [(REGISTRY_TABLES, 3), (SESSION_TABLES, 3), (QUERY_LOG_TABLES, 1)])
def test_a_commit_is_on_the_disk_before_it_is_acknowledged_also_in_a_new_file_and_a_copy(
    tmp_path: Path, tables: StoreTables, level: int
) -> None:
    levels: list[int] = []

    def note(connection: StoreConnection) -> None:
        levels.append(connection.execute("PRAGMA synchronous").fetchone()[0])

    store = SmallStoreFile(tmp_path / "file.sqlite", tables, fill=note)
    with store.write() as connection:
        note(connection)
    store.replace(note)
    write_file(tmp_path / "copy.sqlite", tables, note)
    assert levels == [level] * 4
