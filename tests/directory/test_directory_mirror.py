"""The mirror of a directory: snapshots as commits, repair of damage, and directories that are checkouts."""

import os
import shutil
import time
from pathlib import Path
from random import Random

import pytest

from tests.directory.conftest import OLD_TIME_S, QuietTime, Vault, read_all
from tests.support.git_repository import Repository
from tests.support.tiers import choose
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import (
    Busy,
    InvalidPage,
    SourceCorrupt,
    StorageError,
)


def test_a_stopped_scan_changes_nothing(vault: Vault) -> None:
    vault.write("Home.md", "text")
    vault.read()
    vault.write("New.md", "text")
    with pytest.raises(Busy, match="stopped"):
        vault.open().fetch(lambda: True)
    assert set(read_all(vault.open())) == {"Home.md"}


@pytest.mark.parametrize(
    "damage",
    [
        "table lost",
        "table torn",
        "table is a pipe",
        "mirror lost",
        "objects lost",
        "commit damaged",
        "commit and table",
    ],
)
def test_a_damaged_mirror_is_rebuilt_with_the_same_revision(vault: Vault, damage: str) -> None:
    for number in range(3):
        vault.write(f"{number}.md", f"text {number}")
    before = vault.read()
    head = vault.open().get_head()
    table = vault.mirror / "wikiholt.files"
    if damage == "mirror lost":
        vault.mirror.rename(vault.mirror.with_name("gone"))
    elif damage == "objects lost":
        for file in vault.mirror.joinpath("objects").rglob("*"):
            if file.is_file():
                file.unlink()
    elif damage.startswith("commit"):
        commit = vault.open().read_history("1.md")[0].revision
        object_file = vault.mirror / "objects" / commit[:2] / commit[2:]
        object_file.chmod(0o644)
        object_file.write_bytes(b"damaged")
        if damage == "commit and table":
            table.unlink()
    elif damage == "table torn":
        table.write_bytes(table.read_bytes()[:-20])
    else:
        table.unlink()
        if damage == "table is a pipe":
            os.mkfifo(table)
    source = vault.open()
    for _ in range(2):  # the first attempt may only find the damage
        try:
            source.fetch()
            read_all(source)
        except (SourceCorrupt, StorageError):
            continue
    assert vault.read() == before
    assert vault.open().get_head() == head


def test_history_and_old_versions_come_from_the_snapshots(vault: Vault) -> None:
    vault.write("Home.md", "one\n" * 20)
    source = vault.open()
    first = source.get_head()
    vault.write("Home.md", "one\n" * 20 + "two\n")
    source.fetch()
    commits = source.read_history("Home.md", 10, source.get_head())
    assert len(commits) == 2
    assert commits == source.read_history("Home.md")
    assert source.read_history("Home.md", 10, first) == commits[1:]
    assert source.resolve_revision(first[:12]) == commits[1].revision
    assert source.resolve_revision(commits[0].revision[:10]) == commits[0].revision
    entry = source.find_file("Home.md", commits[1].revision)
    assert entry is not None
    assert next(source.read_blobs([entry.blob], 1000)).data == b"one\n" * 20
    assert [version.file for version in source.find_old_versions(source.get_head(), 10)] == ["Home.md"]
    assert [log.files for log in source.read_log(10)] == [("Home.md",), ("Home.md",)]


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
def test_after_any_history_the_mirror_equals_the_disk(vault: Vault, seed: int) -> None:
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
            (vault.mirror / "wikiholt.files").unlink(missing_ok=True)
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
    monkeypatch.setattr("wikiholt.directory.source._GIT_TIMEOUT_S", 0.2)
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
    source = vault.open(subdirectory="docs", ignore=["drafts/"])
    assert sorted(source.list_other_files(source.get_head())) == [
        "../.git",
        "../.gitignore",
        "../docs",
        "../mkdocs.yml",
        "c.png",
        "x/.obsidian/",
    ]
