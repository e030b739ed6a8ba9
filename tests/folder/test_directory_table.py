"""The table of a directory's files: its revisions, repair of damage, and directories that are checkouts."""

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.folder.conftest import OLD_TIME_S, QuietTime, Vault, read_all
from tests.support.git_repository import Repository
from tests.support.tiers import choose
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import (
    Busy,
    InvalidPage,
    PageNotFound,
    SourceCorrupt,
)
from wikiholt.folder.files_on_disk import hash_content
from wikiholt.folder.source import DirectorySource
from wikiholt.git.mirror import SharedHead
from wikiholt.index.sqlite.store import SqliteStore


def test_a_stopped_scan_changes_nothing(vault: Vault) -> None:
    vault.write("Home.md", "text")
    vault.read()
    vault.write("New.md", "text")
    with pytest.raises(Busy, match="stopped"):
        vault.open().fetch(lambda: True)
    assert set(read_all(vault.open())) == {"Home.md"}


@pytest.mark.parametrize("damage", ["lost", "empty", "torn", "overwritten", "a pipe", "a row", "of another version"])
def test_a_damaged_table_is_built_again_with_the_same_revision(vault: Vault, damage: str) -> None:
    for number in range(300):
        vault.write(f"{number}.md", f"text {number}")
    before = vault.read()
    head = vault.open().get_head()
    table = vault.data / "files.sqlite"
    if damage in ("lost", "a pipe"):
        table.unlink()
        if damage == "a pipe":
            os.mkfifo(table)
    elif damage == "empty":
        table.write_bytes(b"")
    elif damage == "torn":
        os.truncate(table, table.stat().st_size // 2)
    elif damage == "overwritten":
        table.write_bytes(b"x" * table.stat().st_size)
    else:
        with closing(sqlite3.connect(table)) as db, db:
            db.execute("UPDATE files SET blob = 'other'" if damage == "a row" else "PRAGMA user_version = 1")
    source = vault.open()
    for _ in range(2):  # the first attempt may only find the damage
        try:
            source.fetch()
            read_all(source)
        except SourceCorrupt:
            continue
    assert vault.read() == before
    assert vault.open().get_head() == head


def test_a_file_that_changes_after_the_scan_is_read_with_the_hash_of_what_it_contains_now(vault: Vault) -> None:
    vault.write("Home.md", "one")
    source = vault.open()
    tree = source.read_tree(source.get_head())
    vault.write("Home.md", "two")
    (blob,) = source.read_blobs([tree["Home.md"].blob], 100)
    assert (blob.data, blob.id) == (b"two", hash_content(b"two"))
    (vault.path / "Home.md").unlink()
    (gone,) = source.read_blobs([tree["Home.md"].blob], 100)
    assert (gone.size, gone.data) == (-1, None)


def test_files_of_equal_content_are_never_taken_for_each_other(vault: Vault) -> None:
    vault.write("A.md", "same")
    vault.write("B.md", "same")
    source = vault.open()
    tree = source.read_tree(source.get_head())
    vault.write("A.md", "of A")
    assert [blob.data for blob in source.read_blobs([tree["B.md"].blob], 100)] == [b"same"]
    vault.write("B.md", "of B")
    assert [blob.data for blob in source.read_blobs([tree["B.md"].blob], 100)] == [None]


def test_changes_are_known_between_equal_revisions_only(vault: Vault) -> None:
    vault.write("Home.md", "one")
    source = vault.open()
    first = source.get_head()
    assert source.get_changes(first, first) == []
    vault.write("Home.md", "two")
    source.fetch()
    assert source.get_changes(first, source.get_head()) is None
    assert source.read_tree(first) == source.read_tree(source.get_head()), "only the present files are known"


def test_a_node_scans_when_another_one_has_seen_a_change(vault: Vault, tmp_path: Path) -> None:
    published: list[str] = []

    class Notes(SqliteStore):
        def get_note(self, wiki_id: str, name: str) -> str | None:
            return published[-1] if published else None

        def set_note(self, wiki_id: str, name: str, text: str, *, create: bool = False) -> None:
            published.append(text)

    shared = SharedHead(Notes(tmp_path), "wiki")
    vault.write("Home.md", "one")
    nodes = [DirectorySource(vault.path, tmp_path / name, shared_head=shared) for name in "ab"]
    assert nodes[0].get_head() == nodes[1].get_head() == published[-1]
    vault.write("Home.md", "two")
    nodes[0].fetch()
    assert nodes[1].get_last_known_head() == nodes[0].get_head()
    assert nodes[1].get_head() == nodes[0].get_head()
    assert read_all(nodes[1]) == {"Home.md": b"two"}
    assert len(published) == 2


def test_the_history_of_a_file_is_its_present_state(vault: Vault) -> None:
    vault.write("Home.md", "one", at=OLD_TIME_S)
    vault.write("Other.md", "text", at=OLD_TIME_S - 10)
    source = vault.open()
    first = source.get_head()
    assert {source.read_history(file)[0].revision for file in ("Home.md", "Other.md")} == {first}
    vault.write("Home.md", "two", at=OLD_TIME_S + 10)
    source.fetch()
    (commit,) = source.read_history("Home.md")
    assert (commit.revision, commit.date.timestamp()) == (source.get_head(), OLD_TIME_S + 10)
    assert source.read_history("Other.md")[0].revision == first, "only a change of the file itself is one"
    assert [entry.files for entry in source.read_log(10)] == [("Home.md",), ("Other.md",)]
    assert [entry.files for entry in source.read_log(1, skip=1)] == [("Other.md",)]
    assert source.find_old_versions(source.get_head(), 10) == source.read_history("None.md") == []
    assert source.get_former_files(["Home.md"], source.get_head()) == {}
    assert source.resolve_revision(source.get_head()[:9]) == source.get_head()
    with pytest.raises(PageNotFound, match="no earlier revisions"):
        source.resolve_revision(first)


def test_files_that_git_ignores_are_no_pages_of_a_checkout(vault: Vault) -> None:
    repository = Repository(vault.path)
    for name in ("Home.md", "venv/lib/Readme.md", "docs/a.tmp.md", "docs/Page.md", "docs/build/Out.md"):
        vault.write(name, "text")
    assert len(vault.read()) == 5
    vault.write(".gitignore", "venv/\n*.tmp.md\n")
    vault.write("docs/.gitignore", "build/\n")
    assert set(vault.read()) == {"Home.md", "docs/Page.md"}
    source = vault.open(subdirectory="docs")
    source.fetch()
    assert set(read_all(source)) == {"Page.md"}
    for file in ("docs/new.tmp.md", "venv/New.md"):
        with pytest.raises(InvalidPage, match="would not be a page") as error:
            vault.open().commit([FileEdit(file, b"text", None)], Author("Ada", "ada@example.org"), "Create")
        assert ".gitignore" in error.value.hint
        assert not (vault.path / file).exists()
    (repository.path / ".git" / "HEAD").unlink()
    vault.read()  # a damaged repository does not keep the files from being read


def test_a_directory_that_an_outer_repository_ignores_has_all_its_pages(vault: Vault) -> None:
    Repository(vault.path.parent)
    (vault.path.parent / ".gitignore").write_text("*\n")
    vault.write("Home.md", "text")
    vault.write("docs/Page.md", "text")
    assert set(vault.read()) == {"Home.md", "docs/Page.md"}


@pytest.mark.parametrize("seed", range(choose(20, 2)))
def test_after_any_history_the_table_equals_the_disk(vault: Vault, seed: int) -> None:
    rng = Random(seed)
    source = vault.open()
    vault.write("Home.md", "always there")
    for step in range(20):
        files = sorted(file for file in vault.path.rglob("*.md") if file.name != "Home.md")
        action = rng.choice(("write", "write", "edit", "delete", "move", "move directory", "restart", "lose the table"))
        if action == "write" or not files:
            vault.write(f"{rng.choice('abc')}/{rng.choice('def')}/{rng.randrange(9)}.md", f"text {step}")
        elif action == "edit":
            source.fetch()
            file = rng.choice(files).relative_to(vault.path).as_posix()
            blob = source.read_tree(source.get_head())[file].blob
            data = None if rng.random() < 0.3 else f"edited {step}".encode()
            source.commit([FileEdit(file, data, blob)], Author("Ada", "ada@example.org"), "Edit")
        elif action == "delete":
            rng.choice(files).unlink()
        elif action == "move":
            rng.choice(files).rename(vault.path / f"moved-{step}.md")
        elif action == "move directory":
            directory = rng.choice(files).parent
            if directory != vault.path:
                directory.rename(vault.path / f"directory-{step}")
        elif action == "restart":
            source = vault.open()
        else:
            (vault.data / "files.sqlite").unlink(missing_ok=True)
        if rng.random() < 0.6 or step == 19:
            source.fetch()
            on_disk = {str(file.relative_to(vault.path)): file.read_bytes() for file in vault.path.rglob("*.md")}
            assert read_all(source) == on_disk, f"after {action} in step {step}"


def test_a_file_that_is_replaced_in_steps_is_never_missing(vault: Vault, quiet_time: QuietTime) -> None:
    vault.write("Home.md", "text")
    vault.write("docs/Page.md", "one")
    vault.read()
    shutil.rmtree(vault.path / "docs")

    def save() -> None:
        """The program continues while the scan waits."""
        if not (vault.path / "docs/Page.md").exists():
            vault.write("docs/Page.md", "two")

    quiet_time.on_sleep = save
    assert vault.read() == {"Home.md": b"text", "docs/Page.md": b"two"}


def test_a_scan_waits_while_git_changes_the_files(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    Repository(vault.path)
    vault.write("Home.md", "text")
    vault.read()
    lock = vault.write(".git/index.lock", "", at=time.time())
    vault.write("New.md", "text")
    monkeypatch.setattr("wikiholt.folder.source._GIT_TIMEOUT_S", 0.2)
    with pytest.raises(Busy, match="Git is changing the files"):
        vault.open().fetch()
    os.utime(lock, (OLD_TIME_S, OLD_TIME_S))  # of a process that was killed long ago
    assert set(vault.read()) == {"Home.md", "New.md"}
    vault.write("Newer.md", "text")
    os.utime(lock, (4e9, 4e9))  # of a process that was killed before the clock was set back
    assert set(vault.read()) == {"Home.md", "New.md", "Newer.md"}


def test_other_files_are_those_on_disk_that_are_no_pages_and_not_ignored(vault: Vault, tmp_path: Path) -> None:
    pages = ("docs/a.md", "docs/x/b.txt")
    others = ("docs/c.png", "docs/x/.obsidian/app.json", "docs/drafts/d.pdf", "docs/node_modules/e.js")
    for file in (*pages, *others, "docs/build/f.js", "docs/g.log", "mkdocs.yml"):
        vault.write(file, "text")
    Repository(vault.path)
    vault.write(".gitignore", "build/\n*.log\n.obsidian/\n")
    (vault.path / "docs" / "link").symlink_to(tmp_path)
    (vault.path / "docs" / "loop").symlink_to("loop")
    source = vault.open(subdirectory="docs", ignore=["drafts/"])
    assert sorted(source.list_other_files(source.get_head())) == [
        "../.git",
        "../.gitignore",
        "../docs",
        "../mkdocs.yml",
        "c.png",
        "x/.obsidian/",
    ]
