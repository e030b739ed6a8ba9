"""A scan brings the mirror to the state of the directory, whatever state that is."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.folder.conftest import OLD_TIME_S, QuietTime, Vault, read_all
from wikiholt.domain.git import EntryKind
from wikiholt.errors import (
    InvalidSource,
    NoCommits,
    NoPages,
    SourceCorrupt,
    SourceMissing,
)
from wikiholt.folder import directory_scanner, files_on_disk


def get_stamp(vault: Vault, path: str) -> str:
    row = vault.table.find_row(path)
    assert row is not None
    return row.stamp


def test_pages_are_read_and_changes_are_followed(vault: Vault) -> None:
    vault.write("Home.md", "one")
    vault.write("deep/er/Page.markdown", "two")
    vault.write("picture.png", b"\x89PNG")
    source = vault.open()
    assert source.fetch() is True
    assert read_all(source) == {"Home.md": b"one", "deep/er/Page.markdown": b"two"}
    first = source.get_head()
    assert source.fetch() is False
    assert source.get_head() == first
    vault.write("Home.md", "one more")
    vault.write("New.md", "three")
    (vault.path / "deep/er/Page.markdown").unlink()
    assert source.fetch() is True
    assert read_all(source) == {"Home.md": b"one more", "New.md": b"three"}
    assert source.get_last_known_head() == source.get_head() != first


def test_the_revision_depends_on_the_files_alone(vault: Vault, tmp_path: Path) -> None:
    vault.write("Home.md", "one")
    first = vault.open().get_head()
    vault.write("Home.md", "two")
    vault.open().fetch()
    vault.write("Home.md", "one")
    source = vault.open()
    source.fetch()
    assert source.get_head() == first
    os.utime(vault.path / "Home.md", (OLD_TIME_S + 500, OLD_TIME_S + 500))
    assert source.fetch() is False, "a touched file is no change"
    (vault.path / "Home.md").rename(tmp_path / "kept")
    vault.write("Home.md", "one")
    assert source.fetch() is False


def test_an_unchanged_file_is_not_read_again(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        vault.write(f"{number}.md", "text")
    source = vault.open()
    source.fetch()
    read: list[str] = []
    real = files_on_disk.read_file

    def count(root: Path, path: str, stamp: files_on_disk.FileStamp) -> bytes | None:
        read.append(path)
        return real(root, path, stamp)

    monkeypatch.setattr(directory_scanner, "read_file", count)
    vault.write("3.md", "changed")
    assert vault.open().fetch() is True
    assert read == ["3.md"]


def test_a_change_that_keeps_size_and_time_is_found(vault: Vault) -> None:
    file = vault.write("Home.md", "abc", at=OLD_TIME_S)
    assert vault.read() == {"Home.md": b"abc"}
    file.write_text("xyz")
    os.utime(file, (OLD_TIME_S, OLD_TIME_S))
    assert vault.read() == {"Home.md": b"xyz"}


def test_a_file_that_was_just_modified_is_read_again_by_the_next_scan(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems store times in steps of two seconds: a second change may be invisible."""
    monkeypatch.setattr(directory_scanner, "_MIN_SETTLED_AGE_S", 3600.0)
    vault.write("Home.md", "abc", at=time.time() - 1)
    vault.read()
    assert get_stamp(vault, "Home.md") == ""
    vault.write("Home.md", "abc", at=time.time() - 3700)
    vault.read()
    assert get_stamp(vault, "Home.md").startswith("3:")


def test_a_rename_keeps_the_blob_and_the_date(vault: Vault) -> None:
    vault.write("Home.md", "text", at=OLD_TIME_S)
    source = vault.open()
    old = source.read_tree(source.get_head())["Home.md"].blob
    (vault.path / "Home.md").rename(vault.path / "Start.md")
    source.fetch()
    assert source.read_tree(source.get_head())["Start.md"].blob == old
    dates = source.get_change_dates(["Start.md"], source.get_head(), None)
    assert dates["Start.md"].timestamp() == OLD_TIME_S


def test_dates_are_modification_times_of_the_content(vault: Vault) -> None:
    vault.write("Old.md", "old", at=OLD_TIME_S)
    vault.write("New.md", "new", at=OLD_TIME_S + 900)
    source = vault.open()
    head = source.get_head()
    os.utime(vault.path / "Old.md", (OLD_TIME_S + 5000, OLD_TIME_S + 5000))
    source.fetch()
    dates = source.get_change_dates(["Old.md", "New.md"], head, None)
    assert {file: date.timestamp() for file, date in dates.items()} == {
        "Old.md": OLD_TIME_S,
        "New.md": OLD_TIME_S + 900,
    }


def test_hidden_and_tool_directories_are_skipped_unless_a_pattern_includes_them(vault: Vault) -> None:
    for name in (
        "Home.md",
        ".git/a.md",
        ".obsidian/b.md",
        ".trash/c.md",
        "node_modules/d/e.md",
        ".github/f.md",
        "drafts/g.md",
    ):
        vault.write(name, "text")
    source = vault.open(ignore=("drafts/",))
    source.fetch()
    assert set(read_all(source)) == {"Home.md"}
    source = vault.open(ignore=("drafts/", "!.github/", "!drafts/g.md"))
    source.fetch()
    assert set(read_all(source)) == {"Home.md", ".github/f.md", "drafts/g.md"}


def test_links_are_never_followed_and_are_listed(vault: Vault, tmp_path: Path) -> None:
    vault.write("Home.md", "text")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "Secret.md").write_text("secret")
    (vault.path / "shelf").symlink_to(outside)
    (vault.path / "Secret.md").symlink_to(outside / "Secret.md")
    (vault.path / "loop").symlink_to(vault.path / "loop")
    (vault.path / "up").symlink_to(vault.path)
    (vault.path / "image.png").symlink_to(outside / "Secret.md")
    source = vault.open()
    tree = source.read_tree(source.get_head())
    assert {file for file, entry in tree.items() if entry.kind is EntryKind.SYMLINK} == {
        "shelf",
        "Secret.md",
        "loop",
        "up",
    }
    assert {file for file, entry in tree.items() if entry.kind is EntryKind.FILE} == {"Home.md"}


def test_an_unreadable_file_is_a_problem_of_its_own(vault: Vault, deny: Callable[[str], None]) -> None:
    vault.write("Home.md", "text")
    vault.write("Locked.md", "text")
    deny("Locked.md")
    assert vault.read() == {"Home.md": b"text", "Locked.md": None}


def test_a_file_that_becomes_readable_is_indexed_by_the_next_scan(
    vault: Vault, deny: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.write("Home.md", "text")
    vault.write("Locked.md", "text")
    deny("Locked.md")
    vault.read()
    monkeypatch.undo()
    monkeypatch.setattr("wikiholt.folder.files_on_disk.QUIET_TIME_S", 0.0)
    assert vault.read() == {"Home.md": b"text", "Locked.md": b"text"}


def test_pages_in_an_unreadable_directory_stay_and_the_directory_is_listed(
    vault: Vault, deny: Callable[[str], None]
) -> None:
    vault.write("Home.md", "text")
    vault.write("private/Page.md", "kept")
    source = vault.open()
    before = source.read_tree(source.get_head())
    vault.path.joinpath("new").mkdir()
    deny("private")
    deny("new")
    for _ in range(2):
        assert vault.read() == {"Home.md": b"text", "private/Page.md": None, "private/*": None, "new": None}
        after = source.read_tree(source.get_head())
        assert {file: after[file] for file in before} == before, "so that the index keeps them"
    files = ["Home.md", "private/*", "private/Page.md"]
    assert source.get_change_dates(files, source.get_head(), None).keys() >= {"Home.md", "private/Page.md"}


def test_an_unreadable_directory_does_not_delay_a_scan(
    vault: Vault, deny: Callable[[str], None], quiet_time: QuietTime
) -> None:
    vault.write("Home.md", "text")
    vault.path.joinpath("new").mkdir()
    deny("new")
    vault.read()
    slept = quiet_time.slept
    assert vault.read() == {"Home.md": b"text", "new": None}
    assert quiet_time.slept == slept


def test_a_huge_file_is_not_read_but_listed_with_its_size(vault: Vault) -> None:
    with vault.write("Huge.md", "").open("r+b") as file:
        file.truncate(1 << 40)
    vault.write("Home.md", "text")
    source = vault.open(max_bytes=1000)
    tree = source.read_tree(source.get_head())
    (blob,) = source.read_blobs([tree["Huge.md"].blob], 1000)
    assert (blob.size, blob.data) == (1 << 40, None)
    assert tree["Huge.md"].kind is EntryKind.FILE


def test_a_raised_limit_takes_a_large_file_without_an_edit(vault: Vault) -> None:
    vault.write("Large.md", "x" * 2000)
    vault.write("Home.md", "text")
    vault.open(max_bytes=1000).fetch()
    source = vault.open(max_bytes=5000)
    source.fetch()
    assert read_all(source)["Large.md"] == b"x" * 2000


def test_names_that_are_not_utf8_or_differ_in_case_or_contain_anything(vault: Vault) -> None:
    raw = os.fsdecode(b"caf\xe9.md")
    for name in (raw, "Home.md", "home.md", 'quo"te\\.md', "line\nbreak.md", "ünï.md", " space .md"):
        vault.write(name, name.encode("utf-8", "surrogateescape"))
    pages = vault.read()
    assert pages["caf\\xe9.md"] == b"caf\xe9.md"
    assert {"Home.md", "home.md", 'quo"te\\.md', "line\nbreak.md", "ünï.md", " space .md"} <= pages.keys()
    assert len(pages) == 7


def test_a_file_in_place_of_a_directory_and_back(vault: Vault) -> None:
    vault.write("a.md/b.md", "inside")
    assert vault.read() == {"a.md/b.md": b"inside"}
    (vault.path / "a.md/b.md").unlink()
    (vault.path / "a.md").rmdir()
    vault.write("a.md", "file")
    assert vault.read() == {"a.md": b"file"}
    (vault.path / "a.md").unlink()
    vault.write("a.md/c.md", "again")
    assert vault.read() == {"a.md/c.md": b"again"}


def test_a_pipe_does_not_block_a_scan(vault: Vault) -> None:
    vault.write("Home.md", "text")
    os.mkfifo(vault.path / "Pipe.md")
    assert vault.read() == {"Home.md": b"text"}


def test_a_file_that_is_being_written_is_taken_when_it_is_complete(vault: Vault, quiet_time: QuietTime) -> None:
    vault.write("Home.md", "text")
    vault.read()
    file = vault.path / "Growing.md"

    def continue_writing() -> None:
        """The writer continues while the scan waits, and completes the file in the second round."""
        file.write_text("half" if quiet_time.slept < began + 1.5 * quiet_time.seconds else "half and the rest")
        os.utime(file, ns=(quiet_time.time_ns(), quiet_time.time_ns()))

    began = quiet_time.slept
    file.write_text("ha")
    os.utime(file, ns=(quiet_time.time_ns(), quiet_time.time_ns()))
    quiet_time.on_sleep = continue_writing
    source = vault.open()
    source.fetch()
    assert read_all(source).get("Growing.md") in (None, b"half and the rest")
    quiet_time.on_sleep = lambda: None
    source.fetch()
    assert read_all(source)["Growing.md"] == b"half and the rest"


def test_a_file_that_never_rests_keeps_its_previous_version(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    file = vault.write("Log.md", "first")
    vault.read()
    before = vault.open().find_file("Log.md", "")
    real = files_on_disk.read_file

    def read_while_written(root: Path, path: str, stamp: files_on_disk.FileStamp) -> bytes | None:
        with file.open("ab") as out:
            out.write(b"more")
        return real(root, path, stamp)

    monkeypatch.setattr(directory_scanner, "read_file", read_while_written)
    vault.write("Log.md", "second")
    vault.write("Never.md", "x")
    file = vault.path / "Log.md"
    vault.read()
    assert vault.open().find_file("Log.md", "") == before, "so that the index keeps it"


def test_a_time_in_the_future_neither_delays_nor_hides_a_change(vault: Vault, quiet_time: QuietTime) -> None:
    """After the clock was set back, files have times in the future."""
    future = time.time() + 86_400
    vault.write("Home.md", "one", at=future)
    assert vault.read() == {"Home.md": b"one"}
    assert quiet_time.slept < 20 * quiet_time.seconds
    vault.write("Home.md", "two", at=future - 100)
    assert vault.read() == {"Home.md": b"two"}


def test_a_missing_directory_keeps_the_snapshot(vault: Vault) -> None:
    vault.write("Home.md", "text")
    vault.read()
    vault.path.rename(vault.path.with_name("unmounted"))
    source = vault.open()
    for read in (source.fetch, source.get_head, source.get_last_known_head, source.check_readable):
        with pytest.raises(SourceMissing, match="does not exist") as error:
            read()
        assert "mounted" in error.value.hint
    vault.path.with_name("unmounted").rename(vault.path)
    assert vault.read() == {"Home.md": b"text"}


def test_a_directory_without_pages_is_an_error_and_keeps_the_snapshot(vault: Vault) -> None:
    with pytest.raises(NoCommits, match="no pages yet") as first:
        vault.open().get_head()
    assert "Home.md" in first.value.hint
    vault.write("Home.md", "text")
    vault.read()
    (vault.path / "Home.md").unlink()
    source = vault.open()
    with pytest.raises(NoPages, match="no page in") as error:
        source.fetch()
    assert "mounted" in error.value.hint
    assert set(source.read_tree(source.get_head())) == {"Home.md"}


def test_an_unreadable_root_is_an_error(vault: Vault, deny: Callable[[str], None]) -> None:
    deny("vault")
    with pytest.raises(SourceCorrupt, match="cannot be read: Permission denied"):
        vault.open().fetch()


def test_a_file_a_missing_subdirectory_and_a_bare_repository_are_refused(vault: Vault) -> None:
    vault.write("Home.md", "text")
    with pytest.raises(InvalidSource, match="no directory docs") as error:
        vault.open(subdirectory="docs").check_readable()
    assert "subdirectory" in error.value.hint
    for name in ("objects", "refs"):
        (vault.path / name).mkdir()
    vault.write("HEAD", "ref: refs/heads/main")
    with pytest.raises(InvalidSource, match="without a work tree"):
        vault.open().check_readable()
    with pytest.raises(InvalidSource, match="is a file"):
        vault.open(subdirectory="Home.md").check_readable()


def test_a_subdirectory_is_the_root_of_the_wiki(vault: Vault) -> None:
    vault.write("Home.md", "outside")
    vault.write("docs/Page.md", "inside")
    source = vault.open(subdirectory="docs")
    source.fetch()
    assert read_all(source) == {"Page.md": b"inside"}
