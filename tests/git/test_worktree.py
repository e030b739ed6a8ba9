"""The effect of a write on a checked-out work tree."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.git_repository import Repository, limit_lock_wait
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import Busy, NotWritable
from wikiholt.git import commit as git_commit
from wikiholt.git.source import GitSource

ADA = Author("Ada", "ada@example.org")


def put_file(source: GitSource, file: str, content: str) -> str:
    entry = source.find_file(file, source.get_head())
    return source.commit([FileEdit(file, content.encode(), entry.blob if entry else None)], ADA, "Write")


def replace_with_symlink(file: Path) -> None:
    file.unlink()
    file.symlink_to("b.md")


Disturbance = Callable[[Repository], object]
DISTURBANCES: list[Disturbance] = [
    lambda wiki: (wiki.path / "a.md").write_text("unsaved"),
    lambda wiki: ((wiki.path / "a.md").write_text("staged"), wiki.run_git("add", "a.md")),
    lambda wiki: (
        (wiki.path / "a.md").write_text("staged"),
        wiki.run_git("add", "a.md"),
        (wiki.path / "a.md").write_text("a"),
    ),
    lambda wiki: (wiki.path / "a.md").unlink(),
    lambda wiki: wiki.run_git("rm", "--quiet", "--cached", "a.md"),
    lambda wiki: wiki.run_git("mv", "--force", "a.md", "b.md"),
    lambda wiki: replace_with_symlink(wiki.path / "a.md"),
]


@pytest.mark.parametrize("mess", DISTURBANCES)
def test_a_page_with_uncommitted_changes_is_not_written(repository: Repository, mess: Disturbance) -> None:
    head = repository.commit({"a.md": "a", "b.md": "b"})
    mess(repository)
    before = repository.run_git("status", "--porcelain=v2")
    source = GitSource(repository.path)
    with pytest.raises(NotWritable, match="uncommitted changes"):
        put_file(source, "a.md", "mine")
    assert source.get_head() == head
    assert repository.run_git("status", "--porcelain=v2") == before
    assert not (repository.path / ".git" / "index.lock").exists()


def test_changes_of_other_files_stay_as_they_are(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a", "b.md": "b", "c.md": "c"})
    (repository.path / "b.md").write_text("unsaved")
    (repository.path / "c.md").write_text("staged")
    (repository.path / "new.md").write_text("untracked")
    repository.run_git("add", "c.md")
    before = repository.run_git("status", "--porcelain")
    put_file(source, "a.md", "mine")
    assert repository.run_git("status", "--porcelain") == before
    assert (repository.path / "b.md").read_text() == "unsaved"
    assert repository.run_git("show", ":c.md") == b"staged"


def test_an_untracked_file_is_not_overwritten(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "a"})
    (repository.path / "new.md").write_text("only here")
    with pytest.raises(NotWritable):
        source.commit([FileEdit("new.md", b"mine", None)], ADA, "Create")
    assert (repository.path / "new.md").read_text() == "only here"


def test_a_file_in_conflict_is_not_written(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "base"})
    repository.run_git("checkout", "--quiet", "-b", "side")
    repository.commit({"a.md": "side"})
    repository.run_git("checkout", "--quiet", "main")
    repository.commit({"a.md": "main"})
    repository.run_git("merge", "side", check=False)
    with pytest.raises(NotWritable):
        put_file(source, "a.md", "mine")
    assert b"<<<<<<<" in (repository.path / "a.md").read_bytes()


def test_a_page_outside_the_sparse_checkout_is_not_written(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "a", "b/c.md": "c"})
    repository.run_git("sparse-checkout", "set", "--no-cone", "/a.md")
    put_fails = [FileEdit("b/c.md", b"mine", source.read_tree(head)["b/c.md"].blob)]
    with pytest.raises(NotWritable):
        source.commit(put_fails, ADA, "Write")
    put_file(source, "a.md", "mine")
    assert repository.run_git("status", "--porcelain") == b""
    assert repository.run_git("show", "HEAD:b/c.md") == b"c"


def test_a_directory_that_is_a_link_on_disk_is_not_followed(repository: Repository, tmp_path: Path) -> None:
    head = repository.commit({"d/a.md": "a"})
    outside = tmp_path / "outside"
    (repository.path / "d").rename(outside)
    (repository.path / "d").symlink_to(outside)
    source = GitSource(repository.path)
    for file in ("d/a.md", "d/new.md"):
        with pytest.raises(NotWritable, match="link"):
            put_file(source, file, "mine")
    assert source.get_head() == head
    assert [file.name for file in outside.iterdir()] == ["a.md"]
    assert (outside / "a.md").read_text() == "a"


def test_other_line_endings_are_not_a_change(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "one\ntwo\n"})
    (repository.path / "a.md").write_bytes(b"one\r\ntwo\r\n")
    put_file(source, "a.md", "three\n")
    assert (repository.path / "a.md").read_bytes() == b"three\n"


def test_a_source_that_is_a_git_directory_updates_its_work_tree(repository: Repository) -> None:
    repository.commit({"a.md": "a"})
    put_file(GitSource(repository.path / ".git"), "a.md", "b")
    assert (repository.path / "a.md").read_text() == "b"


def test_a_work_tree_outside_the_repository_is_not_written(repository: Repository, tmp_path: Path) -> None:
    head = repository.commit({"a.md": "a"})
    repository.run_git("config", "core.worktree", str(tmp_path))
    source = GitSource(repository.path)
    with pytest.raises(NotWritable, match="work tree"):
        put_file(source, "a.md", "b")
    assert source.get_head() == head


def test_a_lock_of_another_git_process_is_awaited_then_busy(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = repository.commit({"a.md": "a"})
    lock = repository.path / ".git" / "index.lock"
    lock.write_text("")
    source = GitSource(repository.path)
    with limit_lock_wait(monkeypatch, 0.5), pytest.raises(Busy):
        put_file(source, "a.md", "b")
    assert source.get_head() == head
    assert lock.exists(), "a lock of another process is never removed"
    lock.unlink()
    put_file(source, "a.md", "b")
    assert (repository.path / "a.md").read_text() == "b"


def test_a_page_committed_by_others_meanwhile_is_a_mismatch_and_not_lost(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a.md": "a", "b.md": "b"})
    source = GitSource(repository.path)
    commit = git_commit.CommitWriter._create_commit
    theirs = iter([{"b.md": "theirs"}])

    def interrupted(self: git_commit.CommitWriter, *rest: object) -> str:
        for files in theirs:
            repository.commit(dict(files))
        return commit(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(git_commit.CommitWriter, "_create_commit", interrupted)
    put_file(source, "a.md", "mine")
    assert repository.run_git("show", "HEAD:b.md") == b"theirs"
    assert repository.run_git("show", "HEAD:a.md") == b"mine"
    assert repository.run_git("status", "--porcelain") == b""


def test_the_next_access_finishes_the_commit_of_a_killed_writer(repository: Repository) -> None:
    old = repository.commit({"a.md": "a", "gone.md": "g"})
    entries = {name: repository.run_git("rev-parse", f"HEAD:{name}").decode() for name in ("a.md", "gone.md")}
    new = repository.commit({"a.md": "b", "gone.md": None, "n/new.md": "n"})
    made = {name: repository.run_git("rev-parse", f"HEAD:{name}").decode() for name in ("a.md", "n/new.md")}
    repository.run_git("reset", "--hard", "--quiet", old)
    repository.run_git("update-ref", "refs/heads/main", new)
    git_dir = repository.path / ".git"
    (git_dir / "index.lock").write_bytes(b"wikiholt\n")
    files = [
        {"path": "a.md", "old": ["100644", entries["a.md"]], "new": ["100644", made["a.md"]]},
        {"path": "gone.md", "old": ["100644", entries["gone.md"]], "new": None},
        {"path": "n/new.md", "old": None, "new": ["100644", made["n/new.md"]]},
    ]
    (git_dir / "wikiholt.pending").write_text(json.dumps({"commit": new, "files": files}))
    assert GitSource(repository.path).fetch() is False
    assert repository.run_git("status", "--porcelain") == b""
    assert (repository.path / "n" / "new.md").read_text() == "n"
    assert not list(git_dir.glob("wikiholt.pending*"))


@pytest.mark.parametrize("note", ["", "{", "[]", '{"commit": "x", "files": 3}', '{"commit": "--help", "files": []}'])
def test_an_unreadable_journal_entry_is_discarded(repository: Repository, note: str) -> None:
    repository.commit({"a.md": "a"})
    (repository.path / ".git" / "wikiholt.pending").write_text(note)
    source = GitSource(repository.path)
    put_file(source, "a.md", "b")
    assert (repository.path / "a.md").read_text() == "b"
    assert not (repository.path / ".git" / "wikiholt.pending").exists()


def test_a_read_only_repository_raises_an_error_without_its_path(repository: Repository) -> None:
    head = repository.commit({"a.md": "a"})
    mine = repository.path / ".git" / "wikiholt.lock"
    mine.mkdir()
    source = GitSource(repository.path)
    with pytest.raises(NotWritable) as caught:
        put_file(source, "a.md", "b")
    assert str(repository.path) not in f"{caught.value} {caught.value.hint}"
    assert source.get_head() == head


def test_people_who_commit_in_the_work_tree_and_writers_lose_nothing(repository: Repository) -> None:
    """The other committer takes git's index lock like any git process; a writer that finds it taken retries."""
    repository.commit({"a.md": "a"})
    script = (
        "n=0; while [ $n -lt 15 ]; do echo $n > other.md; "
        "until git add other.md && git commit -q -m other -- other.md; do :; done; n=$((n+1)); done"
    )
    environment = {"GIT_CONFIG_COUNT": "0", "PATH": "/usr/bin:/bin", "HOME": str(repository.path.parent)}
    repository.run_git("config", "user.name", "Bo")
    repository.run_git("config", "user.email", "b@x")
    person = subprocess.Popen(["sh", "-c", script], cwd=repository.path, env=environment, stderr=subprocess.DEVNULL)
    source = GitSource(repository.path)
    try:
        for number in range(15):
            put_file(source, "a.md", f"mine {number}")
    finally:
        assert person.wait(TIMEOUT_S) == 0
    log = source.read_log(100)
    assert sum(entry.files == ("a.md",) for entry in log) == 16
    assert sum(entry.files == ("other.md",) for entry in log) == 15
    assert repository.run_git("status", "--porcelain") == b""
