import time
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.errors import SourceCorrupt
from wikiholt.git.repository import find_repositories
from wikiholt.git.source import GitSource


def make_repositories(root: Path, *names: str) -> None:
    """Make directories that look like repositories; cheaper than real ones."""
    for name in names:
        inner = root / name if name.endswith(".git") else root / name / ".git"
        (inner / "objects").mkdir(parents=True)
        (inner / "HEAD").write_text("ref: refs/heads/main\n")


def get_found_slugs(root: Path) -> dict[str, str]:
    return {
        found.slug: found.path.relative_to(root).as_posix() for found in find_repositories(root) if not found.reason
    }


def get_skipped(root: Path) -> dict[str, str]:
    return {found.path.relative_to(root).as_posix(): found.reason for found in find_repositories(root) if found.reason}


def test_repositories_are_found_in_all_four_places(tmp_path: Path) -> None:
    Repository(tmp_path / "plain")
    Repository(tmp_path / "otter" / "repo")
    Repository(tmp_path / "other" / "repository")
    Repository(tmp_path / "bare.git", "--bare")
    Repository(tmp_path / "naked", "--bare")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    Repository(tmp_path / ".hidden")
    assert get_found_slugs(tmp_path) == {
        "bare": "bare.git",
        "naked": "naked",
        "otter": "otter/repo",
        "other": "other/repository",
        "plain": "plain",
    }
    assert get_skipped(tmp_path) == {}


def test_of_several_that_claim_a_slug_the_first_wins_and_the_others_are_reported(tmp_path: Path) -> None:
    make_repositories(tmp_path, "a", "a.git", "b/repo", "b/repository", "b.git", "c/repository", "c.git")
    assert get_found_slugs(tmp_path) == {"a": "a", "b": "b/repo", "c": "c/repository"}
    assert set(get_skipped(tmp_path)) == {"a.git", "b/repository", "b.git", "c.git"}
    assert get_skipped(tmp_path)["b.git"] == "b/repo is already the wiki b"


def test_repositories_inside_a_repository_are_its_content(tmp_path: Path) -> None:
    make_repositories(tmp_path, "a", "a/repo")
    assert [found.path.name for found in find_repositories(tmp_path)] == ["a"]


def test_a_name_that_is_no_slug_gets_one_unless_it_is_taken(tmp_path: Path) -> None:
    make_repositories(tmp_path, "Big/repo", "under_score.git", "admin", "x" * 64, "gr\u00fcn", "Fine", "fine")
    assert get_found_slugs(tmp_path) == {
        "admin-pages": "admin",
        "big": "Big/repo",
        "fine": "fine",
        "grun": "gr\u00fcn",
        "under-score": "under_score.git",
        "x" * 63: "x" * 64,
    }
    assert get_skipped(tmp_path) == {"Fine": "fine is already the wiki fine"}


def test_a_link_out_of_the_directory_is_reported_and_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "wikis"
    make_repositories(tmp_path, "outside")
    make_repositories(root, "inside")
    (root / "away").symlink_to(tmp_path / "outside")
    (root / "alias").symlink_to("inside")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere")
    assert get_found_slugs(root) == {"inside": "inside", "alias": "alias"}
    assert get_skipped(root)["away"] == "it is a link to outside the directory"


@pytest.mark.parametrize("target", ["../../outside/.git", "../victim/.git", "{tmp}/outside/.git"])
@pytest.mark.parametrize("form", ["link", "file", "repo"])
def test_a_wiki_cannot_pass_another_repository_off_as_its_own(tmp_path: Path, target: str, form: str) -> None:
    root = tmp_path / "wikis"
    make_repositories(tmp_path, "outside")
    make_repositories(root, "victim")
    (root / "eve").mkdir()
    aim = target.format(tmp=tmp_path)
    if form == "link":
        (root / "eve" / ".git").symlink_to(aim)
    elif form == "file":
        (root / "eve" / ".git").write_text(f"gitdir: {aim}\n")
    else:
        (root / "eve" / "repo").symlink_to(aim.removesuffix("/.git"))
    assert get_found_slugs(root) == {"victim": "victim"}
    assert [reason for path, reason in get_skipped(root).items() if path.startswith("eve")] == [
        "it references files outside its own directory"
    ]


def test_a_work_tree_of_another_wikis_repository_is_reported(tmp_path: Path) -> None:
    make_repositories(tmp_path, "victim", "eve")
    (tmp_path / "eve" / ".git" / "commondir").write_text("../../victim/.git\n")
    assert get_found_slugs(tmp_path) == {"victim": "victim"}


@pytest.mark.parametrize("is_absolute", [False, True], ids=["relative", "absolute"])
def test_a_common_directory_outside_is_reported_and_not_read(tmp_path: Path, is_absolute: bool) -> None:
    eve, victim = Repository(tmp_path / "eve"), Repository(tmp_path / "victim")
    for repository in (eve, victim):
        repository.commit({"Home.md": repository.path.name})
    target = str(victim.path / ".git") if is_absolute else "../../victim/.git"
    (eve.path / ".git" / "commondir").write_text(f"{target}\n")
    assert get_skipped(tmp_path) == {"eve": "it references files outside its own directory"}
    with pytest.raises(SourceCorrupt, match="outside its own directory"):
        GitSource(eve.path, confined_to=eve.path).get_head()


def test_a_git_file_inside_its_own_directory_is_accepted(tmp_path: Path) -> None:
    make_repositories(tmp_path, "a/store.git")
    (tmp_path / "a" / ".git").write_text("gitdir: store.git\n")
    assert get_found_slugs(tmp_path) == {"a": "a"}


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    (found,) = find_repositories(tmp_path / "absent")
    assert "cannot be read" in found.reason


@pytest.mark.slow
def test_ten_thousand_repositories_are_found_in_seconds(tmp_path: Path) -> None:
    for number in range(10_000):
        path = tmp_path / f"wiki-{number:05d}" / ".git"
        (path / "objects").mkdir(parents=True)
        (path / "HEAD").touch()
    began = time.process_time()
    assert len(get_found_slugs(tmp_path)) == 10_000
    assert time.process_time() - began < 30
