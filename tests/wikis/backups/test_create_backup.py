"""Creating backups: during reads and writes, verified, and kept as configured."""

import hashlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.wikis.backups.backup_fixtures import BackupFixture, count_bytes, flip_bits, set_age
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import IndexCorrupt, IndexMissing, StorageError, WikiNotFound
from wikiholt.index.backup_directory import BackupDirectory


def test_a_backup_is_one_file_whose_name_describes_its_content(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    taken = fixture.get_wiki().backups.create()
    (file,) = fixture.get_backup_directory().directory.iterdir()
    assert taken.state == fixture.get_wiki().get_status().state
    assert taken.state is not None
    assert taken.state.revision == repository.get_head()
    assert taken.name == f"{taken.taken_at:%Y%m%dT%H%M%S%fZ}-g1-v{taken.state.version}-requested"
    assert file.name == f"{taken.name}-{hashlib.sha256(file.read_bytes()).hexdigest()}.sqlite"
    assert taken.bytes == file.stat().st_size
    assert fixture.get_wiki().backups.list() == fixture.get_wiki().backups.list_verified() == [taken]
    assert fixture.get_wiki().backups.find_newest_intact() == taken
    assert file.stat().st_mode & 0o077 == 0
    assert fixture.get_backup_directory().directory.stat().st_mode & 0o077 == 0


def test_a_backup_of_one_wiki_holds_nothing_of_another(fixture: BackupFixture) -> None:
    fixture.add_wiki("one", {"Home.md": "only onecanary here"})
    fixture.add_wiki("two", {"Home.md": "only twocanary here"})
    for slug in ("one", "two"):
        fixture.get_wiki(slug).backups.create()
    for slug, own, other in (("one", b"onecanary", b"twocanary"), ("two", b"twocanary", b"onecanary")):
        (content,) = count_bytes(fixture.get_backup_directory(slug).directory).values()
        assert own in content
        assert other not in content


def test_backups_can_be_created_concurrently(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda _: fixture.get_wiki().backups.create(), range(12)))
    assert len(taken) == 12
    assert not any(backup.fault for backup in fixture.get_wiki().backups.list_verified())
    assert [file for file in fixture.get_backup_directory().directory.iterdir() if file.name.startswith(".")] == []


def test_a_wiki_that_was_never_synced_has_nothing_to_back_up(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    fixture.service.add("empty", str(repository.path), {})
    with pytest.raises(IndexMissing):
        fixture.get_wiki("empty").backups.create()
    assert fixture.get_wiki("empty").backups.list() == []
    assert fixture.get_wiki("empty").backups.find_newest_intact() is None


def test_a_damaged_index_never_becomes_a_backup(fixture: BackupFixture) -> None:
    fixture.add_wiki(
        "one", {f"p{number}.md": f"# Page {number}\n\n{'words and more words ' * 40}" for number in range(60)}
    )
    good = fixture.get_wiki().backups.create()
    fixture.service.close()
    file = fixture.get_index_file()
    fixture.service.close()
    data = bytearray(file.read_bytes())
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as db:
        (content,) = db.execute("SELECT content FROM chunks ORDER BY id DESC LIMIT 1").fetchone()
    data[data.index(content) + 9] ^= 4
    file.write_bytes(data)
    with pytest.raises(IndexCorrupt):
        fixture.get_wiki().backups.create()
    assert fixture.get_wiki().backups.list_verified() == [good]


def test_the_last_two_backups_are_kept(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    backups = fixture.get_wiki().backups
    taken = []
    for number in range(4):
        repository.commit({"New.md": f"# New {number}"})
        fixture.get_wiki().sync()
        taken.append(backups.create())
        set_age(fixture.get_backup_directory().list_files()[0], 4 - number)
    assert [backup.state for backup in backups.list()] == [backup.state for backup in taken[:1:-1]]


def test_an_unchanged_index_is_not_kept_twice_before_a_reindex(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    taken = fixture.get_wiki().backups.create()
    fixture.get_wiki().sync(from_scratch=True)
    assert fixture.get_wiki().backups.list() == [taken]


def test_a_damaged_newest_backup_is_replaced_before_a_reindex(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    backups = fixture.get_wiki().backups
    backups.create()
    (kept,) = fixture.get_backup_directory().list_files()
    flip_bits(kept.file, 0.9)
    fixture.get_wiki().sync(from_scratch=True)
    newest = backups.find_newest_intact()
    assert newest is not None
    assert newest.reason == BackupReason.BEFORE_PUBLISHING


# ── how long they are kept ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (1, ["16T12"]),
        (2, ["16T12", "16T11", "15T09"]),
        (3, ["16T12", "16T11", "16T10", "15T09", "11T08"]),
        (9, ["16T12", "16T11", "16T10", "15T09", "11T08", "11T07", "02T06"]),
    ],
)
def test_the_latest_are_kept_and_the_newest_of_each_day(tmp_path: Path, keep: int, left: list[str]) -> None:
    for hour in ("02T06", "11T07", "11T08", "15T09", "16T10", "16T11", "16T12"):
        (tmp_path / f"202611{hour}0000000000Z-g1-v1-scheduled-{'0' * 64}.sqlite").touch()
    BackupDirectory(tmp_path).prune(keep)
    assert [f"{kept.taken_at:%dT%H}" for kept in BackupDirectory(tmp_path).list_files()] == left


def test_a_clock_set_back_does_not_delete_the_newest_backup(fixture: BackupFixture) -> None:
    repository = fixture.add_wiki("one")
    for days in (-20, -30):
        fixture.get_wiki().backups.create()
        set_age(fixture.get_backup_directory().list_files()[0], days)
    repository.commit({"New.md": "# New"})
    fixture.get_wiki().sync()
    taken = fixture.get_wiki().backups.create()
    assert taken in fixture.get_wiki().backups.list()


def test_a_pending_file_of_a_dead_process_is_removed_and_a_locked_one_is_not(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    directory = fixture.get_backup_directory()
    with directory.open_pending() as pending:
        left = directory.directory / ".making-0123456789abcdef.sqlite"
        left.write_bytes(b"half a copy")
        fixture.get_wiki().backups.create()
        assert pending.file.exists()
        assert not left.exists()
    assert not pending.file.exists()


def test_files_with_other_names_are_ignored(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    taken = fixture.get_wiki().backups.create()
    odd = [
        "notes.txt",
        "20269999T000000000000Z-g1-v1-requested-" + "0" * 64 + ".sqlite",
        "20261116T000000Z-g1-v1-requested.sqlite",
    ]
    for name in odd:
        (fixture.get_backup_directory().directory / name).write_text("x")
    assert fixture.get_wiki().backups.list() == [taken]
    assert all((fixture.get_backup_directory().directory / name).exists() for name in odd)


# ── before risky steps ───────────────────────────────────────────────────────────────────────────


def test_a_reindex_backs_up_the_old_index_first(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    before = fixture.get_wiki().get_status().state
    fixture.get_wiki().sync(from_scratch=True)
    (backup,) = fixture.get_wiki().backups.list()
    assert (backup.reason, backup.state) == (BackupReason.BEFORE_PUBLISHING, before)


def test_a_reindex_continues_without_a_backup(fixture: BackupFixture, caplog: pytest.LogCaptureFixture) -> None:
    fixture.add_wiki("one")
    fixture.place.mkdir(parents=True, exist_ok=True)
    fixture.get_backup_directory().directory.write_text("a file where the directory should be")
    assert fixture.get_wiki().sync(from_scratch=True).rebuilt
    assert fixture.find_paths("heron") == ["Home"]
    assert "no backup was made" in caplog.text


# ── when it cannot be done ───────────────────────────────────────────────────────────────────────


def test_a_read_only_directory_is_a_clear_error(fixture: BackupFixture) -> None:
    fixture.add_wiki("one")
    fixture.place.mkdir(parents=True, exist_ok=True)
    fixture.get_backup_directory().directory.write_text("a file where the directory should be")
    with pytest.raises(StorageError) as refused:
        fixture.get_wiki().backups.create()
    assert "backup.directory" in refused.value.hint
    assert str(fixture.directory) not in refused.value.message
    assert fixture.find_paths("heron") == ["Home"]


# ── removing a wiki ──────────────────────────────────────────────────────────────────────────────


def test_removing_a_wiki_removes_and_lists_its_backups(fixture: BackupFixture) -> None:
    fixture.add_wiki("one", {"Secret.md": "onecanary"})
    fixture.add_wiki("two")
    fixture.get_wiki("two").backups.create()
    fixture.get_wiki().backups.create()
    fixture.service.registry.backups.create()
    others = count_bytes(fixture.get_backup_directory("two").directory)
    (name,) = (file.name for file in fixture.get_backup_directory().directory.iterdir())
    place, wiki_id = fixture.get_backup_directory().directory, fixture.get_wiki().wiki.id
    removed = fixture.service.remove("one")
    assert f"backups/{name}" in removed.files
    assert not place.exists()
    fixture.service.close()
    for content in count_bytes(fixture.data).values():
        assert b"onecanary" not in content
        assert wiki_id.encode() not in content
    assert count_bytes(fixture.get_backup_directory("two").directory) == others


def test_a_backup_of_a_wiki_that_is_removed_meanwhile_leaves_nothing(
    fixture: BackupFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.add_wiki("one")
    handle = fixture.get_wiki()
    directory = fixture.get_backup_directory().directory
    gone = False

    def remove_now() -> bool:
        nonlocal gone
        if not gone:
            gone = True
            fixture.service.remove("one")
        return False

    monkeypatch.setattr(handle.backups, "_is_being_removed", remove_now)
    with pytest.raises(WikiNotFound):
        handle.backups.create()
    assert gone
    assert not directory.exists()
    assert list(fixture.place.glob(".dropped-*")) == []
