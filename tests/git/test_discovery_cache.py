"""With a cache, discovery finds at once what it finds without one."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.git import repository as repository_module
from wikiholt.git.repository import DiscoveryCache, find_repositories

OUTSIDE = "it references files outside its own directory"


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file look as if it was modified some seconds ago."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10_000_000_000)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the entries that get a complete check."""
    names: list[str] = []
    find_in_entry = repository_module._find_in_entry

    def record(directory: Path, name: str, *arguments: object, **options: object) -> object:
        names.append(name)
        return find_in_entry(directory, name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(repository_module, "_find_in_entry", record)
    return names


def make_wikis(root: Path) -> None:
    for path in ("bare.git", "naked"):
        Repository(root / path, "--bare")
    for path in ("plain", "otter/repo", "other/repository"):
        Repository(root / path).commit({"Home.md": path})


@pytest.mark.usefixtures("at_rest")
def test_repositories_at_rest_get_no_complete_check(tmp_path: Path, checked: list[str]) -> None:
    make_wikis(tmp_path)
    cache = DiscoveryCache()
    first = list(find_repositories(tmp_path, cache))
    assert sorted(checked) == ["bare.git", "naked", "other", "otter", "plain"]
    checked.clear()
    assert list(find_repositories(tmp_path, cache)) == first
    assert not checked


def test_a_repository_that_has_just_changed_is_not_remembered(tmp_path: Path, checked: list[str]) -> None:
    make_wikis(tmp_path)
    cache = DiscoveryCache()
    first = list(find_repositories(tmp_path, cache))
    checked.clear()
    assert list(find_repositories(tmp_path, cache)) == first
    assert sorted(checked) == ["bare.git", "naked", "other", "otter", "plain"]


@pytest.mark.usefixtures("at_rest")
def test_what_is_remembered_expires(tmp_path: Path, checked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make_wikis(tmp_path)
    cache = DiscoveryCache()
    first = list(find_repositories(tmp_path, cache))
    checked.clear()
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 601.0)
    assert list(find_repositories(tmp_path, cache)) == first
    assert len(checked) == 5


def add_wiki(root: Path) -> None:
    Repository(root / "fresh")


def add_second_repository(root: Path) -> None:
    Repository(root / "otter" / "repository")


def make_entry_a_repository(root: Path) -> None:
    Repository(root / "otter")


def remove_wiki(root: Path) -> None:
    shutil.rmtree(root / "plain")


def break_bare(root: Path) -> None:
    shutil.rmtree(root / "bare.git" / "objects")


def break_plain(root: Path) -> None:
    (root / "plain" / ".git" / "HEAD").unlink()


def link_git_directory(root: Path) -> None:
    (root / "plain" / ".git").rename(root.parent / "git")
    (root / "plain" / ".git").symlink_to(root.parent / "git")


def link_entry(root: Path) -> None:
    (root / "naked").rename(root.parent / "naked")
    (root / "naked").symlink_to(root.parent / "naked")


def link_objects(root: Path) -> None:
    (root / "naked" / "objects").rename(root.parent / "objects")
    (root / "naked" / "objects").symlink_to(root.parent / "objects")


def link_packs(root: Path) -> None:
    (root / "naked" / "objects" / "pack").rename(root.parent / "pack")
    (root / "naked" / "objects" / "pack").symlink_to(root.parent / "pack")


def borrow_objects(root: Path) -> None:
    (root / "naked" / "objects" / "info" / "alternates").write_text(f"{root}/bare.git/objects\n")


def share_common_directory(root: Path) -> None:
    (root / "naked" / "commondir").write_text("../bare.git\n")


def replace_by_git_file(root: Path) -> None:
    shutil.rmtree(root / "plain" / ".git")
    (root / "plain" / ".git").write_text("gitdir: ../bare.git\n")


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize(
    "change",
    [
        *(add_wiki, add_second_repository, make_entry_a_repository, remove_wiki, break_bare, break_plain),
        *(link_git_directory, link_entry, link_objects, link_packs, borrow_objects, share_common_directory),
        replace_by_git_file,
    ],
    ids=lambda change: change.__name__,
)
def test_a_change_is_found_by_the_next_search(tmp_path: Path, change: Callable[[Path], None]) -> None:
    root = tmp_path / "wikis"
    make_wikis(root)
    cache = DiscoveryCache()
    before = list(find_repositories(root, cache))
    change(root)
    after = list(find_repositories(root, cache))
    assert after != before
    assert after == list(find_repositories(root))


@pytest.mark.usefixtures("at_rest")
def test_a_change_that_restores_the_time_of_a_directory_is_found(tmp_path: Path) -> None:
    make_wikis(tmp_path)
    cache, info = DiscoveryCache(), tmp_path / "naked" / "objects" / "info"
    list(find_repositories(tmp_path, cache))
    before = info.stat()
    (info / "alternates").write_text(f"{tmp_path}/bare.git/objects\n")
    os.utime(info, ns=(before.st_atime_ns, before.st_mtime_ns))
    reasons = {found.slug: found.reason for found in find_repositories(tmp_path, cache)}
    assert reasons["naked"] == OUTSIDE


@pytest.mark.usefixtures("at_rest")
def test_files_that_lead_elsewhere_are_read_every_time(tmp_path: Path) -> None:
    make_wikis(tmp_path)
    pointer = tmp_path / "naked" / "commondir"
    (tmp_path / "naked" / "common").mkdir()
    pointer.write_text("./common\n")
    cache = DiscoveryCache()
    assert not any(found.reason for found in find_repositories(tmp_path, cache))
    before = pointer.stat()
    pointer.write_text("../bare.git\n")
    os.utime(pointer, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert {found.slug: found.reason for found in find_repositories(tmp_path, cache)}["naked"] == OUTSIDE
