"""A repository of a served directory reads and writes nothing outside its own directory, and stops no other wiki."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import Busy, NotWritable, SourceCorrupt, SourceError
from wikiholt.git.repository import find_repositories
from wikiholt.git.source import GitSource

_SECRET = b"secret of the victim"
_EVE = Author("Eve", "eve@example.org")
_OUTSIDE = "it references files outside its own directory"


@pytest.fixture
def victim(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "wikis" / "victim")
    repository.commit({"Home.md": _SECRET.decode()})
    return repository


@pytest.fixture
def eve(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "wikis" / "eve")
    repository.commit({"Home.md": "mine"})
    return repository


def open_source(eve: Repository) -> GitSource:
    return GitSource(eve.path, confined_to=eve.path, timeout_s=20)


def write_page(eve: Repository) -> str:
    return open_source(eve).commit([FileEdit("New.md", b"new\n", None)], _EVE, "Write")


def write_alternates(eve: Repository, content: str) -> None:
    directory = eve.path / ".git/objects/info"
    directory.mkdir(exist_ok=True)
    (directory / "alternates").write_text(content)


def use_quotes(eve: Repository, victim: Repository) -> None:
    write_alternates(eve, f'"{victim.path}/.git/objects"\n')


def use_a_long_file(eve: Repository, victim: Repository) -> None:
    write_alternates(eve, f"{'#' * 5000}\n{victim.path}/.git/objects\n")


def use_a_line_separator_of_python(eve: Repository, victim: Repository) -> None:
    directory = eve.path / ".git/objects/x"
    directory.mkdir()
    (directory / "\fy").symlink_to(victim.path / ".git/objects")
    write_alternates(eve, "x/\fy\n")


def use_alternates_of_alternates(eve: Repository, victim: Repository) -> None:
    directory = eve.path / "x/y/info"
    directory.mkdir(parents=True)
    (directory / "alternates").write_text(f"{victim.path}/.git/objects\n")
    write_alternates(eve, "../../x/y\n")


def use_objects_in_another_place(eve: Repository, victim: Repository) -> None:
    write_alternates(eve, f"../../{victim.path.name}/.git/objects\n")
    (eve.path / ".git/objects").rename(eve.path / "store")
    (eve.path / ".git/objects").symlink_to("../store")


def use_a_git_file_with_a_link(eve: Repository, victim: Repository) -> None:
    (eve.path / ".git").rename(eve.path / "old")
    (eve.path / "a/b").mkdir(parents=True)
    (eve.path / "link").symlink_to("a/b")
    (eve.path / ".git").write_text(f"gitdir: link/../../{victim.path.name}/.git\n")


def use_a_common_directory_with_a_space(eve: Repository, victim: Repository) -> None:
    shutil.copytree(eve.path / ".git/refs", eve.path / ".git/common/refs")
    (eve.path / ".git/common ").symlink_to(victim.path / ".git")
    (eve.path / ".git/commondir").write_text("common \n")


def use_links_to_single_objects(eve: Repository, victim: Repository) -> None:
    for file in (victim.path / ".git/objects").glob("??/*"):
        own = eve.path / ".git/objects" / file.parent.name
        own.mkdir(exist_ok=True)
        if not (own / file.name).exists():
            (own / file.name).symlink_to(file)


def use_links(eve: Repository, victim: Repository) -> None:
    for part in ("objects", "refs"):
        own = eve.path / ".git" / part
        own.rename(own.with_suffix(".old"))
        own.symlink_to(victim.path / ".git" / part)


def use_links_to_folders(eve: Repository, victim: Repository) -> None:
    for folder in (victim.path / ".git/objects").iterdir():
        own = eve.path / ".git/objects" / folder.name
        if not own.exists():
            own.symlink_to(folder)


def use_alternates(eve: Repository, victim: Repository) -> None:
    write_alternates(eve, f"{victim.path}/.git/objects\n")


def use_a_git_file(eve: Repository, victim: Repository) -> None:
    (eve.path / ".git").rename(eve.path / "old")
    (eve.path / ".git").write_text(f"gitdir: {victim.path}/.git\n")


METHODS = [
    use_links,
    use_links_to_folders,
    use_alternates,
    use_a_git_file,
    use_quotes,
    use_a_long_file,
    use_a_line_separator_of_python,
    use_alternates_of_alternates,
    use_objects_in_another_place,
    use_a_git_file_with_a_link,
    use_a_common_directory_with_a_space,
    use_links_to_single_objects,
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_no_other_wiki_is_read(
    eve: Repository, victim: Repository, method: Callable[[Repository, Repository], None]
) -> None:
    source = open_source(eve)
    assert source.read_tree(source.get_head())
    page = GitSource(victim.path).read_tree(victim.get_head())["Home.md"]
    method(eve, victim)
    for attempt in (source, open_source(eve)):
        with pytest.raises(SourceCorrupt, match=r"outside its own directory|does not point to a repository"):
            list(attempt.read_blobs([page.blob], 1000))


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize("content", ["../objects\n" * 200, "".join(f"../x{number}\n" for number in range(1000))])
def test_alternates_are_refused_without_following_them(eve: Repository, content: str) -> None:
    write_alternates(eve, content)
    assert {found.slug: found.reason for found in find_repositories(eve.path.parent)} == {"eve": _OUTSIDE, "victim": ""}


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize("content", [b"a\0b\n", b"x" * 3000, b"x/" * 3000], ids=["nul", "long name", "long path"])
@pytest.mark.parametrize("name", [".git", ".git/commondir", ".git/objects/info/alternates"])
def test_a_file_without_a_valid_path_does_not_end_discovery(eve: Repository, name: str, content: bytes) -> None:
    if name == ".git":
        (eve.path / ".git").rename(eve.path / "old")
    (eve.path / name).parent.mkdir(exist_ok=True)
    (eve.path / name).write_bytes(b"gitdir: " * (name == ".git") + content)
    found = {found.slug: found.reason for found in find_repositories(eve.path.parent)}
    assert found.pop("victim") == ""
    assert (found.pop("eve") == _OUTSIDE) if name.endswith("alternates") else ("cannot be read" in found.pop("eve"))
    with pytest.raises(SourceCorrupt):
        open_source(eve).get_head()


@pytest.mark.parametrize("name", ["wikiholt.claim", "wikiholt.lock", "logs/HEAD", "logs/refs/heads/main", "index"])
def test_a_write_does_not_follow_a_link(eve: Repository, tmp_path: Path, name: str) -> None:
    outside, link = tmp_path / "outside", eve.path / ".git" / name
    outside.write_text("precious\n")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(outside)
    with pytest.raises(NotWritable, match="symbolic link"):
        write_page(eve)
    assert outside.read_text() == "precious\n"


@pytest.mark.parametrize("name", ["wikiholt.claim", "wikiholt.lock"])
def test_own_files_of_a_writer_are_no_links_in_any_repository(eve: Repository, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious\n")
    (eve.path / ".git" / name).symlink_to(outside)
    source = GitSource(eve.path)
    if name == "wikiholt.lock":
        with pytest.raises(NotWritable, match="not a regular file"):
            source.commit([FileEdit("New.md", b"new\n", None)], _EVE, "Write")
    else:
        source.commit([FileEdit("New.md", b"new\n", None)], _EVE, "Write")
    assert outside.read_text() == "precious\n"


def test_branches_of_another_wiki_are_neither_read_nor_written(tmp_path: Path, victim: Repository) -> None:
    eve = Repository(tmp_path / "wikis" / "eve")
    shutil.rmtree(eve.path / ".git/refs/heads")
    (eve.path / ".git/refs/heads").symlink_to(victim.path / ".git/refs/heads")
    (eve.path / ".git/HEAD").write_text("ref: refs/heads/other\n")
    with pytest.raises(SourceCorrupt, match="outside its own directory"):
        open_source(eve).get_head()
    with pytest.raises(SourceCorrupt, match="outside its own directory"):
        write_page(eve)
    assert [file.name for file in (victim.path / ".git/refs/heads").iterdir()] == ["main"]


@pytest.mark.parametrize("name", ["index.lock", "wikiholt.pending", "wikiholt.claim", "wikiholt.lock"])
def test_a_pipe_instead_of_a_file_of_a_writer_blocks_nothing(eve: Repository, name: str) -> None:
    os.mkfifo(eve.path / ".git" / name)
    source = GitSource(eve.path, confined_to=eve.path, timeout_s=0.5)
    assert source.fetch() is False
    if name in ("index.lock", "wikiholt.lock"):
        with pytest.raises((SourceError, NotWritable, Busy)):
            source.commit([FileEdit("New.md", b"new\n", None)], _EVE, "Write")
    else:
        assert source.commit([FileEdit("New.md", b"new\n", None)], _EVE, "Write")


def test_an_endless_branch_file_is_not_read_to_its_end(eve: Repository) -> None:
    (eve.path / ".git/refs/heads/main").write_bytes(b"")
    os.truncate(eve.path / ".git/refs/heads/main", 64 << 20)
    began = time.process_time()
    with pytest.raises(SourceCorrupt, match="cannot be resolved"):
        open_source(eve).get_head()
    assert time.process_time() - began < 2


def test_a_page_replaced_by_an_endless_file_is_not_read(eve: Repository) -> None:
    source = open_source(eve)
    blob = source.read_tree(source.get_head())["Home.md"].blob
    os.truncate(eve.path / "Home.md", 1 << 40)
    with pytest.raises(NotWritable, match="uncommitted changes"):
        source.commit([FileEdit("Home.md", b"new\n", blob)], _EVE, "Write")
