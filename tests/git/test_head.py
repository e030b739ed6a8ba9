import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.git import Blob
from wikiholt.errors import InvalidSource, NoCommits, SourceCorrupt, SourceMissing
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import find_repository
from wikiholt.git.source import GitSource


def test_head_is_the_commit_git_names(repository: Repository, source: GitSource) -> None:
    for text in ("one", "two"):
        commit = repository.commit({"Home.md": text})
        assert source.get_head() == commit


def test_creating_a_source_reads_nothing(tmp_path: Path) -> None:
    GitSource(tmp_path / "not there yet")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_repository_has_no_commits(source: GitSource) -> None:
    with pytest.raises(NoCommits, match="no commits on its branch main") as caught:
        source.get_head()
    assert caught.value.hint == "Commit or import a page first."


def test_an_unborn_branch_beside_a_full_one_is_named_with_a_hint(repository: Repository, source: GitSource) -> None:
    repository.commit({"Home.md": "text"})
    repository.run_git("symbolic-ref", "HEAD", "refs/heads/master")
    with pytest.raises(NoCommits) as caught:
        source.get_head()
    assert "git symbolic-ref HEAD refs/heads/main" in caught.value.hint


def test_a_missing_path_raises_source_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="does not exist"):
        GitSource(tmp_path / "gone").get_head()


def test_a_plain_directory_is_not_a_repository(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="not a git repository") as caught:
        GitSource(tmp_path).get_head()
    assert "init" in caught.value.hint


def test_a_file_is_not_a_repository(tmp_path: Path) -> None:
    file = tmp_path / "wiki.md"
    file.write_text("text")
    with pytest.raises(InvalidSource, match="is a file"):
        GitSource(file).get_head()


def test_a_directory_inside_a_repository_is_not_taken_for_the_repository(repository: Repository) -> None:
    repository.commit({"docs/wiki/Home.md": "text"})
    with pytest.raises(InvalidSource) as caught:
        GitSource(repository.path / "docs" / "wiki").get_head()
    assert caught.value.hint == (
        f"Use {repository.path} as the source, with subdirectory=docs/wiki. To read its files from disk instead, add it"
        " with --worktree (setting kind=directory)."
    )


def test_a_bare_repository_is_read(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit({"Home.md": "text"})
    repository.run_git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    source = GitSource(tmp_path / "bare.git")
    assert source.get_head() == commit
    assert list(source.read_tree(commit)) == ["Home.md"]


def test_a_linked_work_tree_has_a_head_of_its_own(repository: Repository, tmp_path: Path) -> None:
    first = repository.commit({"Home.md": "text"})
    repository.run_git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    second = repository.commit({"Home.md": "more"})
    assert GitSource(tmp_path / "linked").get_head() == first
    assert GitSource(repository.path).get_head() == second
    assert GitSource(repository.path / ".git" / "worktrees" / "linked").get_head() == first
    repository.run_git("pack-refs", "--all", "--prune")
    assert GitSource(tmp_path / "linked").get_head() == first


def test_a_git_file_leads_to_its_repository(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit({"Home.md": "text"})
    (repository.path / ".git").rename(tmp_path / "elsewhere")
    (repository.path / ".git").write_text("gitdir: ../elsewhere\n")
    assert GitSource(repository.path).get_head() == commit


def test_a_git_file_that_leads_nowhere_is_broken(repository: Repository, source: GitSource) -> None:
    shutil.rmtree(repository.path / ".git")
    (repository.path / ".git").write_text("gitdir: ../elsewhere\n")
    with pytest.raises(SourceCorrupt, match="does not point to a repository"):
        source.get_head()


def test_a_detached_head_is_its_commit(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"Home.md": "one"})
    repository.commit({"Home.md": "two"})
    repository.run_git("checkout", "--quiet", "--detach", first)
    assert source.get_head() == first


def test_packed_refs_are_followed_and_loose_ones_win(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"Home.md": "one"})
    repository.run_git("gc", "--quiet")
    assert not (repository.path / ".git" / "refs" / "heads" / "main").exists()
    assert source.get_head() == first
    second = repository.commit({"Home.md": "two"})
    assert source.get_head() == second
    repository.run_git("pack-refs", "--all", "--prune")
    assert source.get_head() == second


def test_head_follows_branches_with_slashes_and_odd_names(repository: Repository, source: GitSource) -> None:
    repository.commit({"Home.md": "one"})
    repository.run_git("checkout", "--quiet", "-b", "wiki/größe's")
    commit = repository.commit({"Home.md": "two"})
    assert source.get_head() == commit


def test_head_that_is_a_symbolic_ref_to_a_symbolic_ref_is_followed(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    repository.run_git("symbolic-ref", "refs/heads/live", "refs/heads/main")
    repository.run_git("symbolic-ref", "HEAD", "refs/heads/live")
    assert source.get_head() == commit


def test_head_outside_the_branches_is_read_by_git(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    repository.run_git("update-ref", "refs/published/wiki", commit)
    (repository.path / ".git" / "HEAD").write_text("ref: refs/published/wiki\n")
    assert source.get_head() == commit


@pytest.mark.parametrize("torn", [b"", b"\0" * 41, b"no commit at all\n", b"1234\n"])
def test_a_torn_ref_is_broken_even_when_an_old_one_is_packed(
    repository: Repository, source: GitSource, torn: bytes
) -> None:
    repository.commit({"Home.md": "one"})
    repository.run_git("pack-refs", "--all")
    (repository.path / ".git" / "refs" / "heads" / "main").write_bytes(torn)
    with pytest.raises(SourceCorrupt, match="cannot be resolved"):
        source.get_head()


@pytest.mark.parametrize("torn", [b"", b"\0" * 20, b"ref: ../../outside\n", b"ref: refs/heads/../../x\n"])
def test_a_torn_head_is_broken(repository: Repository, source: GitSource, torn: bytes) -> None:
    repository.commit({"Home.md": "one"})
    (repository.path / ".git" / "HEAD").write_bytes(torn)
    with pytest.raises(SourceCorrupt):
        source.get_head()


def test_a_repository_without_head_is_broken(repository: Repository, source: GitSource) -> None:
    (repository.path / ".git" / "HEAD").unlink()
    with pytest.raises(SourceCorrupt, match="has no HEAD"):
        source.get_head()


def test_a_repository_may_disappear_and_return(repository: Repository, source: GitSource, tmp_path: Path) -> None:
    commit = repository.commit({"Home.md": "one"})
    assert source.get_head() == commit
    repository.path.rename(tmp_path / "away")
    with pytest.raises(SourceMissing):
        source.get_head()
    with pytest.raises(SourceMissing):
        source.read_tree(commit)
    (tmp_path / "away").rename(repository.path)
    assert source.get_head() == commit
    assert list(source.read_tree(commit)) == ["Home.md"]


def test_sha256_repositories_are_read(make_repository: Callable[..., Repository]) -> None:
    repository = make_repository("modern", "--object-format=sha256")
    commit = repository.commit({"Home.md": "text"})
    source = GitSource(repository.path)
    assert len(commit) == 64
    assert source.get_head() == commit
    blobs = [entry.blob for entry in source.read_tree(commit).values()]
    assert list(source.read_blobs([*blobs, "0" * 64], 100)) == [Blob(blobs[0], 4, b"text"), Blob("0" * 64, -1, None)]
    assert list(source.get_change_dates(["Home.md"], commit, None)) == ["Home.md"]


def test_git_variables_in_the_environment_are_ignored(
    make_repository: Callable[..., Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = make_repository("mine"), make_repository("other")
    commit = mine.commit({"Home.md": "mine"})
    other.commit({"Secret.md": "other"})
    for name in ("GIT_DIR", "GIT_COMMON_DIR"):
        monkeypatch.setenv(name, str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.path / ".git" / "objects"))
    monkeypatch.setenv("GIT_NAMESPACE", "other")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.bare")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "nonsense")
    source = GitSource(mine.path)
    assert source.get_head() == commit
    assert list(source.read_tree(commit)) == ["Home.md"]
    assert [commit.revision for commit in source.read_history("Home.md")] == [commit]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file away")
def test_a_repository_of_another_user_is_read(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    for path in (repository.path, *repository.path.rglob("*")):
        os.chown(path, 12345, 12345)
    assert source.get_head() == commit
    assert list(source.read_tree(commit)) == ["Home.md"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_repository_raises_a_clear_error(repository: Repository, source: GitSource) -> None:
    repository.commit({"Home.md": "one"})
    (repository.path / ".git").chmod(0)
    try:
        with pytest.raises(SourceCorrupt, match="cannot be read"):
            source.get_head()
    finally:
        (repository.path / ".git").chmod(0o755)


def test_a_missing_git_program_raises_a_clear_error(
    repository: Repository, source: GitSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit({"Home.md": "one"})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source.get_head() == commit
    with pytest.raises(SourceCorrupt, match="Git is not installed"):
        source.read_tree(commit)


def test_a_repository_that_disappears_after_it_was_found_is_missing(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"Home.md": "one"})
    git = GitRunner(find_repository(repository.path), TIMEOUT_S)
    assert git.run("rev-parse", "HEAD").status == 0
    repository.path.rename(tmp_path / "elsewhere")
    with pytest.raises(SourceMissing, match="no longer exists"):
        git.run("rev-parse", "HEAD")


@pytest.fixture
def hanging_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that never answers."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))


@pytest.mark.usefixtures("hanging_git")
def test_a_hanging_git_process_ends_with_an_error(tmp_path: Path) -> None:
    git_dir = tmp_path / "bare.git"
    for name in ("objects", "refs"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    source = GitSource(git_dir, timeout_s=0.2)
    began = time.monotonic()
    for ask in (source.get_head, lambda: source.read_tree("0" * 40), lambda: list(source.read_blobs(["0" * 40], 10))):
        with pytest.raises(SourceCorrupt, match="timed out"):
            ask()
    assert time.monotonic() - began < 200


def test_head_is_cheap_and_safe_from_many_threads(
    repository: Repository, source: GitSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit({"Home.md": "one"})
    repository.run_git("pack-refs", "--all", "--prune")
    seen: list[str] = []
    source.get_head()
    # Reading files is far cheaper than starting git.
    monkeypatch.setattr(subprocess, "Popen", None)
    threads = [threading.Thread(target=lambda: seen.extend(source.get_head() for _ in range(250))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [commit] * 1000


def test_a_git_file_that_changes_its_target_is_followed(
    make_repository: Callable[..., Repository], tmp_path: Path
) -> None:
    first, second = make_repository("first"), make_repository("second")
    commits = [first.commit({"Home.md": "one"}), second.commit({"Home.md": "two"})]
    (tmp_path / "wiki").mkdir()
    source = GitSource(tmp_path / "wiki")
    for repository, commit in zip((first, second), commits, strict=True):
        (tmp_path / "wiki" / ".git").write_text(f"gitdir: {repository.path / '.git'}\n")
        assert source.get_head() == commit


def test_a_long_list_of_packed_refs_is_read_to_its_end(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"Home.md": "one"})
    repository.run_git("pack-refs", "--all", "--prune")
    lines = [f"{commit} refs/heads/a{number:05}" for number in range(5000)]
    (repository.path / ".git" / "packed-refs").write_text("\n".join([*lines, f"{commit} refs/heads/main", ""]))
    assert source.get_head() == commit
    assert source._head_reader.read_head(source._known_location) == commit  # type: ignore[arg-type]
