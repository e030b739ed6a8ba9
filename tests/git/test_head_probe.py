"""A probe tells that HEAD is unchanged only if a complete check would say the same."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.git_repository import Repository
from wikiholt.errors import SourceCorrupt, SourceMissing
from wikiholt.git.head import GitHeadProbe, HeadReader
from wikiholt.git.repository import RepositoryLocation
from wikiholt.git.source import GitSource

_GRANULARITY_NS = 2_000_000_000


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file look as if it was modified some seconds ago."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10_000_000_000)


@pytest.fixture
def coarse_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose timestamps are even seconds, and that never uses another inode."""
    real_stat, real_lstat = os.stat, os.lstat

    def coarsen(status: os.stat_result) -> Any:
        fields = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
        for name in ("st_mtime_ns", "st_ctime_ns"):
            fields[name] -= fields[name] % _GRANULARITY_NS
        return SimpleNamespace(**fields | {"st_ino": 1})

    monkeypatch.setattr(os, "stat", lambda *args, **options: coarsen(real_stat(*args, **options)))
    monkeypatch.setattr(os, "lstat", lambda *args, **options: coarsen(real_lstat(*args, **options)))


def make_probe(path: Path, confined_to: Path | None = None) -> GitHeadProbe:
    """The probe of a repository at rest, which reads HEAD."""
    head, probe = GitSource(path, confined_to=confined_to).get_head_and_probe()
    assert probe is not None
    assert probe.read_head() == head
    return probe


def make_packed(repository: Repository) -> Path:
    """Commit once and pack the refs. Returns the file of the packed refs."""
    repository.commit({"Home.md": "one"})
    repository.run_git("pack-refs", "--all", "--prune")
    return repository.path / ".git" / "packed-refs"


def replace_keeping_size_and_time(file: Path, content: bytes) -> None:
    """Replace a file by another one with the same size and modification time, as `rsync -t` may."""
    before = file.stat()
    draft = file.with_name("draft")
    draft.write_bytes(content)
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    draft.replace(file)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert after.st_ino != before.st_ino


def overwrite_keeping_size_and_time(file: Path, content: bytes) -> None:
    """Overwrite a file in place and restore its modification time."""
    before = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("form", ["loose", "packed", "detached", "bare", "sha256"])
def test_a_probe_reads_head_without_a_complete_check(
    make_repository: Callable[..., Repository], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    repository = make_repository("wiki", *(("--object-format=sha256",) if form == "sha256" else ()))
    commit, path = repository.commit({"Home.md": "text"}), repository.path
    if form == "packed":
        repository.run_git("pack-refs", "--all", "--prune")
    elif form == "detached":
        repository.run_git("checkout", "--quiet", "--detach")
    elif form == "bare":
        path = tmp_path / "bare.git"
        repository.run_git("clone", "--quiet", "--bare", ".", str(path))
    probe = make_probe(path)
    monkeypatch.setattr("wikiholt.git.source.find_repository", None)
    assert probe.read_head() == commit


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("form", ["loose", "packed", "detached"])
def test_a_commit_without_a_hook_is_noticed(repository: Repository, form: str) -> None:
    repository.commit({"Home.md": "one"})
    if form == "packed":
        repository.run_git("pack-refs", "--all", "--prune")
    elif form == "detached":
        repository.run_git("checkout", "--quiet", "--detach")
    probe = make_probe(repository.path)
    commit = repository.commit({"Home.md": "two"})
    assert probe.read_head() is None
    assert GitSource(repository.path).get_head() == commit


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("change", [replace_keeping_size_and_time, overwrite_keeping_size_and_time])
@pytest.mark.parametrize("name", ["refs/heads/main", "packed-refs", "HEAD"])
def test_a_ref_that_changes_with_the_same_size_and_time_is_noticed(
    repository: Repository, name: str, change: Callable[[Path, bytes], None]
) -> None:
    first = repository.commit({"Home.md": "one"})
    second = repository.commit({"Home.md": "two"})
    if name == "packed-refs":
        repository.run_git("pack-refs", "--all", "--prune")
    elif name == "HEAD":
        repository.run_git("checkout", "--quiet", "--detach")
    probe, file = make_probe(repository.path), repository.path / ".git" / name
    change(file, file.read_bytes().replace(second.encode(), first.encode()))
    assert probe.read_head() is None
    assert GitSource(repository.path).get_head() == first


@pytest.mark.usefixtures("coarse_times")
def test_a_ref_that_changes_within_the_timestamp_granularity_is_noticed(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"Home.md": "one"})
    repository.commit({"Home.md": "two"})
    newest_ns = max(file.stat().st_ctime_ns for file in (repository.path / ".git").rglob("*"))
    monkeypatch.setattr(time, "time_ns", lambda: newest_ns + _GRANULARITY_NS + 1)
    probe = make_probe(repository.path)
    repository.run_git("update-ref", "refs/heads/main", "HEAD~1")  # its stamps may all be equal
    assert probe.read_head() is None


def test_a_repository_that_has_just_changed_has_no_probe(repository: Repository) -> None:
    commit = repository.commit({"Home.md": "one"})
    assert GitSource(repository.path).get_head_and_probe() == (commit, None)


@pytest.mark.usefixtures("coarse_times")
def test_packed_refs_that_have_just_changed_are_not_remembered(repository: Repository) -> None:
    first = repository.commit({"Home.md": "one"})
    second = repository.commit({"Home.md": "two"})
    repository.run_git("pack-refs", "--all", "--prune")
    reader, git_dir = HeadReader(), repository.path / ".git"
    location, file = RepositoryLocation(git_dir, git_dir), git_dir / "packed-refs"
    assert reader.read_head(location) == second
    before, content = file.stat(), file.read_bytes()
    file.write_bytes(content.replace(second.encode(), first.encode()))
    assert reader.read_head(location) == first
    assert file.stat().st_size == before.st_size


@pytest.mark.usefixtures("at_rest")
def test_packed_refs_at_rest_are_parsed_once(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_packed(repository)
    reader, location = HeadReader(), RepositoryLocation(file.parent, file.parent)
    commit = reader.read_head(location)
    monkeypatch.setattr("wikiholt.git.head._find_in_packed_refs", None)
    assert reader.read_head(location) == commit


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("name", ["HEAD", "objects", "refs"])
def test_a_bare_repository_that_loses_a_part_is_noticed(repository: Repository, tmp_path: Path, name: str) -> None:
    repository.commit({"Home.md": "text"})
    bare = tmp_path / "bare.git"
    repository.run_git("clone", "--quiet", "--bare", ".", str(bare))
    probe = make_probe(bare)
    (bare / name).rename(tmp_path / "lost")
    assert probe.read_head() is None
    with pytest.raises((SourceMissing, SourceCorrupt)):
        GitSource(bare).get_head()


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("torn", [b"", b"\0" * 41, b"ref: refs/heads/none\n"])
@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main"])
def test_a_torn_ref_is_noticed(repository: Repository, name: str, torn: bytes) -> None:
    repository.commit({"Home.md": "text"})
    probe = make_probe(repository.path)
    (repository.path / ".git" / name).write_bytes(torn)
    assert probe.read_head() is None


@pytest.mark.usefixtures("at_rest")
def test_a_repository_that_is_moved_or_replaced_by_a_copy_or_a_link_is_noticed(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit({"Home.md": "text"})
    probe, away = make_probe(repository.path), tmp_path / "away"
    repository.path.rename(away)
    assert probe.read_head() is None
    repository.path.symlink_to(away)
    assert probe.read_head() is None
    repository.path.unlink()
    shutil.copytree(away, repository.path)
    assert probe.read_head() is None
    probe = make_probe(repository.path)
    (repository.path / ".git").rename(tmp_path / "git")
    (repository.path / ".git").symlink_to(tmp_path / "git")
    assert probe.read_head() is None


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("name", ["objects/info/alternates", "objects/pack/a.pack", "objects/aa", "commondir"])
def test_a_reference_to_the_outside_is_noticed_and_reported(
    repository: Repository, make_repository: Callable[..., Repository], name: str
) -> None:
    commit, outside = repository.commit({"Home.md": "text"}), make_repository("outside").path / ".git"
    (repository.path / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (repository.path / ".git" / "objects" / "pack").mkdir(exist_ok=True)
    probe, file = make_probe(repository.path, repository.path), repository.path / ".git" / name
    if name in ("objects/pack/a.pack", "objects/aa"):
        file.symlink_to(outside / "HEAD")
    else:
        file.write_text(f"{outside}/objects\n" if "objects" in name else f"{outside}\n")
    assert probe.read_head() != commit
    with pytest.raises(SourceCorrupt, match="outside its own directory"):
        GitSource(repository.path, confined_to=repository.path).get_head_and_probe()


@pytest.mark.usefixtures("at_rest")
def test_repositories_with_other_files_have_no_probe(repository: Repository, tmp_path: Path) -> None:
    commit = repository.commit({"Home.md": "text"})
    repository.run_git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    (tmp_path / "alias").symlink_to(repository.path)
    for path in (tmp_path / "linked", repository.path / ".git" / "worktrees" / "linked", tmp_path / "alias"):
        assert GitSource(path).get_head_and_probe() == (commit, None)
    repository.run_git("symbolic-ref", "refs/heads/live", "refs/heads/main")
    repository.run_git("symbolic-ref", "HEAD", "refs/heads/live")
    assert GitSource(repository.path).get_head_and_probe() == (commit, None)


@pytest.mark.usefixtures("at_rest")
def test_a_head_that_only_git_can_resolve_has_no_probe(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = repository.commit({"Home.md": "text"})
    # As with reftables, whose files are not where a probe looks.
    (repository.path / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    monkeypatch.setattr("wikiholt.git.source.resolve_head", lambda *_: commit)
    assert GitSource(repository.path).get_head_and_probe() == (commit, None)


@pytest.mark.usefixtures("at_rest")
def test_another_common_directory_is_noticed(
    repository: Repository, make_repository: Callable[..., Repository]
) -> None:
    commit, other = repository.commit({"Home.md": "text"}), make_repository("other")
    new = other.commit({"Home.md": "other"})
    pointer = repository.path / ".git" / "commondir"
    for own in (".\n", f"{repository.path}/.git\n"):
        pointer.write_text(own)
        source = GitSource(repository.path)
        head, probe = source.get_head_and_probe()
        assert (head, source.get_head()) == (commit, commit)
        pointer.write_text(f"{other.path}/.git\n")
        assert source.get_head() == new
        assert probe is None or probe.read_head() != commit
