"""Which commit a name or a date means, and what became of a file after a commit."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import LaterFile
from wikiholt.errors import InvalidQuery, RevisionNotFound
from wikiholt.git.source import GitPast, GitSource

TEXT = "# Ferries\n\nThey cross the fjord at night, and in the morning they return.\n"


def commit_at(repository: Repository, moment: str, files: dict[str, str | bytes | None], message: str = "Write") -> str:
    repository.commit(files, message)
    environment = f"GIT_COMMITTER_DATE={moment}"
    commit = repository.run_git(
        "-c", f"alias.at=!{environment} git commit --quiet --amend --no-edit --date '{moment}'", "at"
    )
    assert commit == b""
    return repository.get_head()


def test_tags_branches_commits_and_dates_are_found(repository: Repository, source: GitSource) -> None:
    first = commit_at(repository, "2024-05-01T10:00:00Z", {"a.md": "A"})
    repository.run_git("tag", "-a", "v1.0", "-m", "First")
    second = commit_at(repository, "2024-05-03T23:30:00Z", {"a.md": "B"})
    repository.run_git("branch", "release/1", first)
    head = commit_at(repository, "2024-06-01T10:00:00Z", {"a.md": "C"})
    past = GitPast(source)
    found = {
        "v1.0": first,
        "release/1": first,
        second[:8].upper(): second,
        "2024-05-02": first,
        "2024-05-03": second,
        "2024-05-03T23:29": first,
        "2024-05-03T20:00:00-05:00": second,
        "HEAD": head,
        "today": head,
    }
    assert {name: past.find_commit(name).revision for name in found} == found
    assert past.find_commit("v1.0").date == datetime(2024, 5, 1, 10, tzinfo=UTC)


def test_a_tag_named_like_a_date_or_a_commit_wins(repository: Repository, source: GitSource) -> None:
    first = commit_at(repository, "2024-05-01T10:00:00Z", {"a.md": "A"})
    second = commit_at(repository, "2024-05-09T10:00:00Z", {"a.md": "B"})
    for name in ("2024-05-20", second[:7]):
        repository.run_git("tag", name, first)
        assert GitPast(source).find_commit(name).revision == first


def test_a_commit_with_a_date_that_is_none_is_found(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "A"})
    text = repository.run_git("cat-file", "commit", "HEAD").decode()
    broken = re.sub(r"(?m)^(committer .*> )\d+", r"\g<1>99999999999999", text)
    commit = repository.run_git("hash-object", "-w", "-t", "commit", "--literally", "--stdin", stdin=broken.encode())
    repository.run_git("tag", "broken", commit.decode().strip())
    assert GitPast(source).find_commit("broken").date == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("name", ["HEAD~1", "HEAD@{1}", "v1^{/A}", ":/A", "-n1", "v1..v2", "v1:a.md", "nothing", "*"])
def test_what_is_no_name_is_not_found_and_the_nearest_tags_are_named(
    repository: Repository, source: GitSource, name: str
) -> None:
    repository.commit({"a.md": "A"})
    repository.run_git("tag", "v1")
    repository.commit({"a.md": "B"})
    with pytest.raises(RevisionNotFound) as error:
        GitPast(source).find_commit(name)
    assert "v1" in error.value.hint


@pytest.mark.parametrize("name", ["a\0b", "x" * 201])
def test_what_can_be_no_name_is_refused(repository: Repository, source: GitSource, name: str) -> None:
    repository.commit({"a.md": "A"})
    with pytest.raises(InvalidQuery):
        GitPast(source).find_commit(name)


def test_a_date_before_the_first_commit_names_that_commit(repository: Repository, source: GitSource) -> None:
    commit_at(repository, "2024-05-01T10:00:00Z", {"a.md": "A"})
    with pytest.raises(RevisionNotFound) as error:
        GitPast(source).find_commit("2020-01-01")
    assert "2024-05-01" in error.value.hint


def test_a_commit_that_a_force_push_removed_is_not_found(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "A"})
    secret = repository.commit({"a.md": "The password is swordfish"})
    past = GitPast(source)
    assert past.find_commit(secret).revision == secret
    repository.run_git("reset", "--hard", "-q", "HEAD~1")
    with pytest.raises(RevisionNotFound):
        past.find_commit(secret)
    repository.run_git("branch", "kept", secret)
    assert past.find_commit(secret).revision == secret


def test_the_main_line_counts_for_a_date_unless_it_leads_elsewhere(repository: Repository, source: GitSource) -> None:
    first = commit_at(repository, "2024-05-01T10:00:00Z", {"a.md": "A"})
    repository.run_git("checkout", "-q", "-b", "feature")
    feature = commit_at(repository, "2024-05-02T10:00:00Z", {"b.md": "B"})
    repository.run_git("checkout", "-q", "-")
    repository.run_git("merge", "-q", "--no-ff", "--no-commit", "feature")
    commit_at(repository, "2024-05-03T10:00:00Z", {"c.md": "C"}, "Merge")
    assert GitPast(source).find_commit("2024-05-02").revision == first
    # Without a commit of this line for weeks, the last commit of all counts: a side line may have merged the main one.
    repository.run_git("checkout", "-q", "-b", "upstream", feature)
    late = commit_at(repository, "2024-08-01T10:00:00Z", {"d.md": "D"})
    repository.run_git("checkout", "-q", "-")
    repository.run_git("merge", "-q", "--no-ff", "--no-commit", "upstream")
    commit_at(repository, "2024-09-01T10:00:00Z", {"c.md": "D"}, "Merge")
    assert GitPast(source).find_commit("2024-08-02").revision == late


def test_older_commits_are_missing_in_a_shallow_clone(repository: Repository, tmp_path: Path) -> None:
    first = commit_at(repository, "2024-05-01T10:00:00Z", {"a.md": "A"})
    commit_at(repository, "2024-05-03T10:00:00Z", {"a.md": "B"})
    clone = tmp_path / "clone"
    repository.run_git("clone", "-q", "--depth=1", f"file://{repository.path}", str(clone))
    for name in (first, "2024-05-02", "v1"):
        with pytest.raises(RevisionNotFound) as error:
            GitPast(GitSource(clone)).find_commit(name)
        assert "git fetch --unshallow" in error.value.hint


def test_later_files_are_the_same_changed_renamed_or_removed(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"same.md": "S", "edited.md": "E", "old.md": TEXT, "gone.md": "# Clouds\n\nWhite."})
    repository.run_git("mv", "old.md", "middle.md")
    repository.commit({"edited.md": "F"}, "Rename")
    removing = repository.commit({"gone.md": None}, "Clouds are out of scope\n\nSee the minutes.")
    repository.run_git("mv", "middle.md", "new.md")
    repository.commit({"new.md": TEXT + "They have a cafe.\n"})
    files = ["same.md", "edited.md", "old.md", "gone.md"]
    later = GitPast(source).trace_files(files, commit)
    assert later.keys() == {"edited.md", "old.md", "gone.md"}
    assert later["edited.md"] == LaterFile("edited.md")
    assert later["old.md"].file == "new.md"
    gone = later["gone.md"]
    assert gone.file is None
    assert gone.removal is not None
    assert (gone.removal.revision, gone.removal.author) == (removing, "Ada")


def test_a_file_that_came_back_is_only_changed(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"a.md": TEXT, "b.md": "B"})
    repository.commit({"a.md": None})
    repository.commit({"a.md": "Another text"})
    assert GitPast(source).trace_files(["a.md"], commit) == {"a.md": LaterFile("a.md")}


def test_a_removal_in_a_merge_or_on_a_merged_branch_is_found(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"a.md": "A", "b.md": "B", "c.md": "C"})
    repository.run_git("checkout", "-q", "-b", "side")
    on_side = repository.commit({"a.md": None}, "Remove a")
    repository.run_git("checkout", "-q", "-")
    repository.commit({"c.md": "D"})
    repository.run_git("merge", "-q", "--no-ff", "--no-commit", "side")
    (repository.path / "b.md").unlink()
    merge = repository.commit({}, "Merge, without b")
    later = GitPast(source).trace_files(["a.md", "b.md"], commit)
    found = {file: each.removal and each.removal.revision for file, each in later.items()}
    assert found == {"a.md": on_side, "b.md": merge}


def test_a_file_of_another_branch_has_no_removal(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "A"})
    repository.run_git("checkout", "-q", "-b", "draft")
    commit = repository.commit({"draft.md": "D"})
    repository.run_git("checkout", "-q", "-")
    assert GitPast(source).trace_files(["draft.md"], commit) == {"draft.md": LaterFile(None)}


def test_a_file_that_moved_out_of_the_wiki_counts_as_removed(repository: Repository) -> None:
    commit = repository.commit({"docs/a.md": TEXT, "docs/b.md": "B"})
    repository.run_git("mv", "docs/a.md", "elsewhere.md")
    moving = repository.commit({})
    later = GitPast(GitSource(repository.path, subdirectory="docs")).trace_files(["a.md"], commit)["a.md"]
    assert (later.file, later.removal and later.removal.revision) == (None, moving)


def test_a_pinned_source_reads_one_commit(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "A"})
    repository.commit({"b.md": "B"})
    pinned = GitPast(source).pin(first)
    assert (pinned.get_head(), pinned.get_last_known_head()) == (first, first)
    assert list(pinned.read_tree(pinned.get_head())) == ["a.md"]
