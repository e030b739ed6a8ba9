from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.services import read_all_files
from wikiholt.errors import InvalidSource, NoCommits, SourceCorrupt, SourceMissing
from wikiholt.git.pinned_repository import PinnedRepository
from wikiholt.git.source import GitSource


def read_pages(pinned: Path) -> list[str]:
    source = GitSource(pinned)
    return sorted(source.read_tree(source.get_head()))


@pytest.mark.parametrize("options", [(), ("--object-format=sha256",)], ids=["sha1", "sha256"])
def test_head_is_any_commit_and_nothing_is_written_in_the_repository(
    repository: Repository, tmp_path: Path, options: tuple[str, ...]
) -> None:
    repository = Repository(tmp_path / "other", *options) if options else repository
    first = repository.commit({"a.md": "A"})
    second = repository.commit({"b.md": "B"})
    before = read_all_files(repository.path)
    pinned = PinnedRepository(tmp_path / "pages.git", repository.path)
    assert (pinned.resolve("HEAD"), pinned.resolve("HEAD~1"), pinned.resolve(first[:10])) == (second, first, first)
    pinned.pin(second)
    assert read_pages(tmp_path / "pages.git") == ["a.md", "b.md"]
    pinned.pin(first)
    assert read_pages(tmp_path / "pages.git") == ["a.md"]
    assert (pinned.is_ancestor(first, second), pinned.is_ancestor(second, first)) == (True, False)
    assert read_all_files(repository.path) == before


def test_it_is_used_again_for_new_commits(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": "A"})
    PinnedRepository(tmp_path / "pages.git", repository.path).pin(repository.get_head())
    repository.commit({"b.md": "B"})
    PinnedRepository(tmp_path / "pages.git", repository.path).pin(repository.get_head())
    assert read_pages(tmp_path / "pages.git") == ["a.md", "b.md"]


@pytest.mark.parametrize("first", [True, False], ids=["first commit", "later commit"])
def test_staged_files_are_a_commit_that_the_repository_does_not_have(
    repository: Repository, tmp_path: Path, first: bool
) -> None:
    if not first:
        repository.commit({"a.md": "A"})
    for name in ("staged.md", "unstaged.md"):
        (repository.path / name).write_text("x")
    repository.run_git("add", "staged.md")
    before = read_all_files(repository.path)
    pinned = PinnedRepository(tmp_path / "pages.git", repository.path)
    commit = pinned.commit_staged_files()
    pinned.pin(commit)
    assert read_pages(tmp_path / "pages.git") == ([] if first else ["a.md"]) + ["staged.md"]
    assert read_all_files(repository.path) == before


def test_the_index_of_a_partial_commit_is_used_in_its_hook(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a.md": "A"})
    (repository.path / "b.md").write_text("B")
    index = repository.path / ".git" / "next-index-1.lock"
    index.write_bytes((repository.path / ".git" / "index").read_bytes())
    repository.run_git("add", "b.md")
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    pinned = PinnedRepository(tmp_path / "pages.git", repository.path)
    pinned.pin(pinned.commit_staged_files())
    assert read_pages(tmp_path / "pages.git") == ["a.md"]


@pytest.mark.parametrize("name", ["nowhere", "0" * 40, "--all", "", "HEAD~9", "a\0b"])
def test_an_unknown_commit_is_an_error(repository: Repository, tmp_path: Path, name: str) -> None:
    repository.commit({"a.md": "A"})
    with pytest.raises(InvalidSource, match="There is no commit") as caught:
        PinnedRepository(tmp_path / "pages.git", repository.path).resolve(name)
    assert "git fetch" in caught.value.hint


def test_a_commit_that_a_shallow_clone_does_not_have_needs_its_history(repository: Repository, tmp_path: Path) -> None:
    first = repository.commit({"a.md": "A"})
    repository.commit({"b.md": "B"})
    clone = Repository(tmp_path / "clone")
    clone.run_git("fetch", "--quiet", "--depth=1", f"file://{repository.path}", "HEAD")
    clone.run_git("reset", "--quiet", "--hard", "FETCH_HEAD")
    pinned = PinnedRepository(tmp_path / "pages.git", clone.path)
    pinned.pin(pinned.resolve("HEAD"))
    assert read_pages(tmp_path / "pages.git") == ["a.md", "b.md"]
    with pytest.raises(InvalidSource) as caught:
        pinned.resolve(first)
    assert "fetch-depth: 0" in caught.value.hint


def test_what_is_no_repository_or_has_no_commits_is_an_error(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SourceMissing, match="is not a git repository"):
        PinnedRepository(tmp_path / "pages.git", tmp_path / "folder")
    with pytest.raises(NoCommits):
        PinnedRepository(tmp_path / "pages.git", repository.path).resolve("HEAD")


def test_a_conflict_in_the_staged_files_is_an_error(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.md": "A"})
    blob = repository.run_git("rev-parse", "HEAD:a.md").decode()
    repository.run_git("update-index", "--index-info", stdin=f"100644 {blob} 2\ta.md\n".encode())
    with pytest.raises(SourceCorrupt, match="read the staged files"):
        PinnedRepository(tmp_path / "pages.git", repository.path).commit_staged_files()
