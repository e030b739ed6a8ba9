import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.git_repository import Repository
from wikiholt.domain.git import Commit
from wikiholt.errors import SourceCorrupt
from wikiholt.git.process import GitRunner
from wikiholt.git.source import GitSource


def get_change_dates(source: GitSource, files: list[str], revision: str, since: str | None = None) -> dict[str, float]:
    return {file: moment.timestamp() for file, moment in source.get_change_dates(files, revision, since).items()}


def test_each_file_has_the_date_of_its_last_change(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1", "b.md": "1", "d/c.md": "1"})
    repository.commit({"b.md": "2"})
    head = repository.commit({"d/c.md": "2"})
    expected = {
        "a.md": repository.get_commit_time(1),
        "b.md": repository.get_commit_time(2),
        "d/c.md": repository.get_commit_time(3),
    }
    assert get_change_dates(source, list(expected), head) == expected


def test_dates_are_aware_and_in_utc(repository: Repository, source: GitSource) -> None:
    head = repository.commit({"a.md": "1"})
    assert source.get_change_dates(["a.md"], head, None) == {"a.md": datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC)}
    assert source.get_change_dates(["a.md"], head, None)["a.md"].tzinfo is UTC


def test_no_files_have_no_dates(repository: Repository, source: GitSource) -> None:
    assert source.get_change_dates([], repository.commit({"a.md": "1"}), None) == {}


def test_many_files_are_found_in_one_walk(repository: Repository, source: GitSource) -> None:
    repository.commit({f"{number}.md": "1" for number in range(300)})
    head = repository.commit({f"{number}.md": "2" for number in range(0, 300, 2)})
    found = get_change_dates(source, [f"{number}.md" for number in range(300)], head)
    assert found == {f"{number}.md": repository.get_commit_time(1 if number % 2 else 2) for number in range(300)}


def test_since_does_not_change_the_answer(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "1", "b.md": "1"})
    second = repository.commit({"b.md": "2"})
    head = repository.commit({"c.md": "3"})
    files = ["a.md", "b.md", "c.md"]
    expected = {
        "a.md": repository.get_commit_time(1),
        "b.md": repository.get_commit_time(2),
        "c.md": repository.get_commit_time(3),
    }
    for since in (None, first, second, head, "1" * 40):
        assert get_change_dates(source, files, head, since) == expected


def test_since_is_ignored_on_rewritten_history(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "1"})
    lost = repository.commit({"a.md": "2"})
    repository.run_git("reset", "--quiet", "--hard", first)
    head = repository.commit({"b.md": "3"})
    assert get_change_dates(source, ["a.md", "b.md"], head, lost) == {
        "a.md": repository.get_commit_time(1),
        "b.md": repository.get_commit_time(3),
    }


def test_a_merge_does_not_make_pages_look_new(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    repository.run_git("checkout", "--quiet", "-b", "side")
    repository.commit({"side.md": "written on a branch"})
    repository.run_git("checkout", "--quiet", "main")
    repository.commit({"a.md": "2"})
    repository.commit({})
    repository.run_git("merge", "--quiet", "--no-ff", "-m", "Merge", "side")
    found = get_change_dates(source, ["a.md", "side.md"], repository.get_head())
    assert found == {"a.md": repository.get_commit_time(3), "side.md": repository.get_commit_time(2)}
    assert [commit.message for commit in source.read_history("side.md")] == ["Write"]


def test_a_page_edited_in_a_merge_was_changed_by_the_merge(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    repository.run_git("checkout", "--quiet", "-b", "side")
    repository.commit({"a.md": "side"})
    repository.run_git("checkout", "--quiet", "main")
    repository.commit({"a.md": "main"})
    repository.run_git("merge", "--quiet", "side", check=False)
    head = repository.commit({"a.md": "both"}, "Settle")
    assert get_change_dates(source, ["a.md"], head) == {"a.md": repository.get_commit_time(4)}
    assert get_change_dates(source, ["a.md", *(f"{n}.md" for n in range(60))], head)[
        "a.md"
    ] == repository.get_commit_time(4)
    assert source.read_history("a.md")[0].message == "Settle"


def test_an_unknown_file_gets_the_date_of_the_revision(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    head = repository.commit({"b.md": "1"})
    assert get_change_dates(source, ["never.md"], head) == {"never.md": repository.get_commit_time(2)}


def test_dates_of_an_older_revision_ignore_newer_commits(repository: Repository, source: GitSource) -> None:
    first = repository.commit({"a.md": "1"})
    repository.commit({"a.md": "2"})
    assert get_change_dates(source, ["a.md"], first) == {"a.md": repository.get_commit_time(1)}


def test_a_shallow_clone_dates_pages_from_known_commits(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"old.md": "1"})
    repository.commit({"b.md": "2"})
    head = repository.commit({"c.md": "3"})
    repository.run_git("clone", "--quiet", "--depth=2", f"file://{repository.path}", str(tmp_path / "shallow"))
    source = GitSource(tmp_path / "shallow")
    assert source.get_head() == head
    found = get_change_dates(source, ["old.md", "b.md", "c.md"], head)
    assert found == {
        "old.md": repository.get_commit_time(2),
        "b.md": repository.get_commit_time(2),
        "c.md": repository.get_commit_time(3),
    }


def test_files_are_dated_by_their_names_below_the_sub_directory(repository: Repository) -> None:
    repository.commit({"docs/a.md": "1", "a.md": "1"})
    head = repository.commit({"a.md": "2"})
    source = GitSource(repository.path, subdirectory="docs")
    assert get_change_dates(source, ["a.md"], head) == {"a.md": repository.get_commit_time(1)}
    assert [commit.date.timestamp() for commit in source.read_history("a.md")] == [repository.get_commit_time(1)]


def test_a_gap_in_the_history_loses_dates_but_not_the_wiki(
    repository: Repository, source: GitSource, caplog: pytest.LogCaptureFixture
) -> None:
    repository.commit({"a.md": "1"})
    lost = repository.commit({"b.md": "2"})
    head = repository.commit({"c.md": "3"})
    repository.get_loose_object_file(lost).unlink()
    with caplog.at_level(logging.WARNING):
        found = get_change_dates(source, ["a.md", "c.md"], head)
    assert found == {"a.md": repository.get_commit_time(3), "c.md": repository.get_commit_time(3)}
    assert "could not read all of the history" in caplog.text


def test_a_commit_with_an_impossible_date_is_dated_at_the_beginning(repository: Repository, source: GitSource) -> None:
    commit = repository.commit({"a.md": "1"})
    body = repository.run_git("cat-file", "commit", commit).decode()
    stamp = str(int(repository.get_commit_time(1)))
    odd = body.replace(f"> {stamp} +0000", "> 99999999999999 +0000") + "\n"
    broken = repository.run_git(
        "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=odd.encode()
    ).decode()
    repository.run_git("update-ref", "refs/heads/main", broken)
    assert get_change_dates(source, ["a.md"], broken) == {"a.md": 0}


def test_history_lists_commits_newest_first_and_follows_renames(repository: Repository, source: GitSource) -> None:
    text = "A page with enough text to be known again.\n" * 5
    first = repository.commit({"Old name.md": text}, "Begin\n\nWith a body — and a dash.")
    second = repository.commit({"Old name.md": None, "New name.md": text}, "Rename")
    repository.commit({"other.md": "x"}, "Other")
    third = repository.commit({"New name.md": text + "more\n"}, "Edit")
    history = source.read_history("New name.md")
    assert [commit.revision for commit in history] == [third, second, first]
    assert history[-1] == Commit(
        revision=first,
        author="Ada",
        email="ada@example.org",
        date=datetime.fromtimestamp(repository.get_commit_time(1), UTC),
        message="Begin\n\nWith a body — and a dash.",
    )
    assert source.read_history("New name.md", limit=1) == history[:1]
    assert source.read_history("New name.md", revision=second) == history[1:]


def test_an_unknown_file_has_no_history(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"})
    assert source.read_history("never.md") == []


def test_merges_do_not_use_up_the_limit(repository: Repository, source: GitSource) -> None:
    repository.commit({"a.md": "1"}, "Begin")
    for number in range(3):
        repository.run_git("checkout", "--quiet", "-b", f"side{number}")
        repository.commit({"a.md": f"side {number}"}, f"Side {number}")
        repository.run_git("checkout", "--quiet", "main")
        repository.run_git("merge", "--quiet", "--no-ff", "-m", "Merge", f"side{number}")
    assert [commit.message for commit in source.read_history("a.md", limit=3)] == ["Side 2", "Side 1", "Side 0"]


def test_history_with_a_gap_is_an_error(repository: Repository, source: GitSource) -> None:
    lost = repository.commit({"a.md": "1"})
    repository.commit({"a.md": "2"})
    repository.get_loose_object_file(lost).unlink()
    with pytest.raises(SourceCorrupt, match="could not read the history"):
        source.read_history("a.md")


def test_dates_and_former_names_of_the_next_commit_take_one_git_process_each(
    repository: Repository, source: GitSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository.commit({"a.md": "1", "b.md": "1"})
    source.get_former_files(["a.md"], first)
    second = repository.commit({"a.md": "2"})
    started: list[str] = []
    spawn = GitRunner._spawn

    def record(git: GitRunner, arguments: tuple[str, ...], *rest: Any) -> Any:
        started.append(arguments[0])
        return spawn(git, arguments, *rest)

    monkeypatch.setattr(GitRunner, "_spawn", record)
    assert get_change_dates(source, ["a.md"], second, first) == {"a.md": repository.get_commit_time(2)}
    assert source.get_former_files(["a.md"], second) == {}
    assert started == ["log", "log"]
